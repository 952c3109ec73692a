#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod children;
mod discovery;
mod engine;
mod error;
mod handle;
mod names;
mod provider;
mod registry;
mod status;

pub use builder::MultiProviderBuilder;
pub use error::MultiError;
pub use handle::MultiHandle;
pub use names::split_cluster_name;
pub use provider::MultiProvider;
pub use status::{ChildState, ChildStatus};
