#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// The types of Gardener.
pub mod v1alpha1;
pub mod v1beta1;

// Options.
mod builder;
mod config;
mod error;
mod label_selector;
mod selection;

// Decisions without I/O: the facts of a Shoot, when a kubeconfig is requested, and what to announce.
mod decisions;
mod facts;
mod kubeconfig;
mod renewal;
mod seed;

// I/O.
mod doctor;
mod issue;
mod project;
mod provider;
mod refusals;

pub use builder::GardenerProviderBuilder;
pub use config::Topology;
pub use error::GardenerError;
pub use facts::{
    CLOUD_PROFILE_PROPERTY, INFRASTRUCTURE_PROPERTY, NAMESPACE_PROPERTY, PROJECT_PROPERTY, PURPOSE_PROPERTY,
    REGION_PROPERTY, SEED_PROPERTY, SHOOT_PROPERTY, VERSION_PROPERTY,
};
pub use provider::GardenerProvider;
