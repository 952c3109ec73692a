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
mod selection;

// Decisions without I/O: what a Cluster and its Secret contain, and what to announce.
mod config;
mod decisions;
mod facts;
mod secret;

// I/O.
mod doctor;
mod provider;

pub use builder::ClusterApiProviderBuilder;
pub use facts::{
    CLASS_PROPERTY, CLUSTER_PROPERTY, ENDPOINT_PROPERTY, INFRASTRUCTURE_PROPERTY, NAMESPACE_PROPERTY,
    VERSION_PROPERTY,
};
/// The error of building a [`ClusterApiProvider`]: an invalid option.
pub use mcr_core::hub::OptionError as ClusterApiError;
pub use mcr_core::hub::SecretKeyRef;
pub use provider::ClusterApiProvider;
pub use secret::{CLUSTER_NAME_LABEL, KUBECONFIG_KEY};
