#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod api;
mod binding;
mod builder;
mod config;
mod connections;
mod credentials;
mod discovery;
mod doctor;
mod endpoint;
mod error;
mod layout;
mod lifecycle;
mod lifecycle_provider;
mod members;
mod paths;
mod provider;
mod readiness;
mod served;
mod slice;
mod stage;
mod url;

pub use builder::KcpProviderBuilder;
pub use error::KcpError;
pub use lifecycle::{Initializer, LifecycleError, Removal, Terminator};
pub use lifecycle_provider::{InitializingWorkspaces, LifecycleBuilder, TerminatingWorkspaces};
pub use paths::Paths;
pub use provider::KcpProvider;
pub use readiness::Readiness;
pub use served::{NotServed, wait_until_served};
