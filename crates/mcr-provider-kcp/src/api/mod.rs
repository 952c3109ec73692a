//! The kinds of kcp that controllers of workspaces read: LogicalCluster and APIBinding, for kcp 0.28 and later.
//!
//! They are written by hand, because kcp publishes them for Go only. Both are cluster-scoped. Read and patch with them; a PUT
//! loses fields that a later version of kcp adds.
//!
//! ```
//! use mcr_provider_kcp::api::{apis::v1alpha2::APIBinding, is_true};
//!
//! # fn example(binding: &APIBinding) -> bool {
//! binding.status.as_ref().is_some_and(|status| is_true(&status.conditions, "PermissionClaimsApplied"))
//! # }
//! ```

pub mod apis;
mod condition;
pub mod core;

pub use condition::{Condition, find, is_true};
