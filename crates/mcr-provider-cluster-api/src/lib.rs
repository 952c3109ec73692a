#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// The types of Cluster API.
mod old_condition;
pub mod v1beta1;
pub mod v1beta2;

// Options.
mod builder;
mod config;
mod error;
mod selection;

// Decisions without I/O: what a Cluster and its Secret say, and what to announce.
mod facts;
mod inventory;
mod member;
mod memory;
mod secret;

// I/O.
mod doctor;
mod provider;
mod reader;
mod served;

pub use builder::ClusterApiProviderBuilder;
pub use error::ClusterApiError;
pub use facts::{
    CLASS_PROPERTY, CLUSTER_PROPERTY, ENDPOINT_PROPERTY, INFRASTRUCTURE_PROPERTY, NAMESPACE_PROPERTY,
    VERSION_PROPERTY,
};
pub use provider::ClusterApiProvider;
pub use secret::{CLUSTER_NAME_LABEL, KUBECONFIG_KEY, SecretKeyRef};
