#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod config;
mod diff;
mod error;
mod provider;
mod read;
mod resolve;
mod scan;
mod search;
mod watch;

pub use builder::FileProviderBuilder;
pub use error::FileError;
pub use provider::FileProvider;
pub use search::Environment;
