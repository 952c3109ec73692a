#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod handle;
mod provider;
mod registry;

pub use builder::ClustersProviderBuilder;
pub use handle::ClustersHandle;
pub use provider::ClustersProvider;
