#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// The types of Gardener.
pub mod v1beta1;

// Options.
mod builder;
mod config;
mod error;
mod selection;

// Decisions without I/O: what a Shoot says, when a kubeconfig is asked for, and what to announce.
mod facts;
mod inventory;
mod kubeconfig;
mod member;
mod memory;
mod renewal;

// I/O.
mod issue;
mod project;
mod provider;

pub use builder::GardenerProviderBuilder;
pub use error::GardenerError;
pub use facts::{
    CLOUD_PROFILE_PROPERTY, INFRASTRUCTURE_PROPERTY, NAMESPACE_PROPERTY, PROJECT_PROPERTY, PURPOSE_PROPERTY,
    REGION_PROPERTY, SEED_PROPERTY, SHOOT_PROPERTY, VERSION_PROPERTY,
};
pub use provider::GardenerProvider;
