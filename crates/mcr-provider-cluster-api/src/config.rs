use std::sync::Arc;

use mcr_core::hub::{Hub, Memory, Versions};

use crate::{facts::OLD_VERSION, secret::GROUP, selection::Selection};

pub(crate) const CLUSTERS: Versions = Versions {
    group: GROUP,
    kind: "Cluster",
    plural: "clusters",
    versions: &["v1beta2", OLD_VERSION],
    missing: "the hub has no Cluster API: it serves Cluster of cluster.x-k8s.io neither as v1beta2 nor as v1beta1. Install or \
              upgrade Cluster API there (clusterctl init), or give the provider the client of the management cluster",
};

/// The options of a provider, checked.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) hub: Hub,
    pub(crate) selection: Arc<Selection>,
    /// The only version of the kind Cluster that is read. None: the best that the hub serves.
    pub(crate) only: Option<&'static str>,
    pub(crate) memory: Arc<Memory>,
}
