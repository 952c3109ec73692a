#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod provider;

pub use builder::SingleProviderBuilder;
pub use provider::SingleProvider;
