//! What the tests share: a simulated hub with the objects of `steps.yaml`.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part")]

use std::sync::LazyLock;

use mcr_provider_cluster_api::{ClusterApiProvider, ClusterApiProviderBuilder};
use mcr_testkit::{
    discovery::loopback_policy,
    sim::{SimBuilder, SimCluster},
    steps::Templates,
};
use serde_json::Value;

pub(crate) const CLUSTERS: &str = "clusters.cluster.x-k8s.io";

static TEMPLATES: LazyLock<Templates> = LazyLock::new(|| Templates::of(include_str!("../steps.yaml")));

/// An object of `steps.yaml`, with a merge patch.
pub(crate) fn object(named: &str, more: Value) -> Value {
    TEMPLATES.object(named, &more)
}

/// A hub with Cluster API.
pub(crate) fn hub(builder: SimBuilder) -> SimCluster {
    let hub = builder.build();
    TEMPLATES.prepare(&hub);
    hub
}

pub(crate) fn builder(client: kube::Client) -> ClusterApiProviderBuilder {
    ClusterApiProvider::builder()
        .client(client)
        .access_policy(loopback_policy())
}
