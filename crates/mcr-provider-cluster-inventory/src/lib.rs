#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// The types of the Cluster Inventory API.
pub mod v1alpha1;
pub mod v1alpha2;

// Options.
mod access_providers;
mod builder;
mod config;
mod error;
mod selection;

// Decisions without I/O: what a ClusterProfile offers, and what to announce.
mod decisions;
mod duplicates;
mod facts;
mod offer;
mod placement;
mod secret;

// I/O.
mod doctor;
mod provider;

pub use access_providers::{AccessProviderConfig, AccessProviders, ArgsPolicy, EnvPolicy};
pub use builder::ClusterInventoryProviderBuilder;
pub use error::{AccessProvidersError, ClusterInventoryError};
pub use facts::{MANAGER_PROPERTY, MEMBER_ID_LABEL, NAMESPACE_PROPERTY, PROFILE_PROPERTY, VERSION_PROPERTY};
pub use mcr_core::hub::SecretKeyRef;
pub use offer::{ARGS_EXTENSION, ENV_EXTENSION, EXEC_EXTENSION};
pub use placement::{DECISION_KEY_LABEL, PLACEMENT_KEY_LABEL, PlacementDecisions};
pub use provider::ClusterInventoryProvider;
pub use secret::{CONSUMER_LABEL, KUBECONFIG_KEY, PROFILE_LABEL};
