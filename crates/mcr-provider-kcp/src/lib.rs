#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod binding;
mod builder;
mod condition;
mod config;
mod connections;
mod credentials;
mod discovery;
mod doctor;
mod endpoint;
mod error;
mod labels;
mod layout;
mod lifecycle;
mod lifecycle_provider;
mod logical_cluster;
mod members;
mod paths;
mod provider;
mod readiness;
mod served;
mod slice;
mod stage;
mod url;

pub use builder::KcpProviderBuilder;
pub use condition::Condition;
pub use error::KcpError;
pub use lifecycle::{Initializer, LifecycleError, Removal, Terminator};
pub use lifecycle_provider::{InitializingWorkspaces, LifecycleBuilder, TerminatingWorkspaces};
pub use logical_cluster::{LogicalCluster, LogicalClusterOwner, LogicalClusterSpec, LogicalClusterStatus};
pub use paths::Paths;
pub use provider::KcpProvider;
pub use readiness::Readiness;
pub use served::{NotServed, wait_until_served};
