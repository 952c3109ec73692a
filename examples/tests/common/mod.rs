//! What the tests on API servers and those on kind clusters share: programs, clusters, and whole stories about one example.

pub(crate) mod baseline_rbac;
#[cfg(feature = "cluster-api")]
pub(crate) mod cluster_api;
pub(crate) mod deploy;
pub(crate) mod fleet_policy;
pub(crate) mod kubectl;
pub(crate) mod member;
pub(crate) mod program;
pub(crate) mod sync;
pub(crate) mod uniform;
