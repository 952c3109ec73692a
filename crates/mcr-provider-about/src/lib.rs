#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// The types of the About API.
pub mod v1alpha1;
pub mod v1beta1;

// Decisions without I/O: which clusters to probe, and what to announce.
mod access;
mod known;
mod members;
mod statuses;

// I/O.
mod discovery;
mod probe;
mod provider;

pub use known::{CLUSTER_ID, CLUSTER_SET};
pub use provider::{AboutApi, AboutHandle};
pub use statuses::MemberStatus;
