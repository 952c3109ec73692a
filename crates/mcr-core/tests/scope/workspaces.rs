//! The workspaces of shards as clusters.

use mcr_core::{Access, Capabilities, Placement, Scope};
use mcr_doubles::shard::{CLUSTER, Shard};

use crate::harness::{Layout, NAMESPACES};

/// Workspaces, each below a path of its own.
pub(crate) const WORKSPACES: Layout = Layout {
    name: "workspaces",
    capabilities: || {
        Capabilities::default()
            .without_server_side_apply()
            .without_streaming_lists()
    },
    watch_prefix: "/clusters/*",
    watch: |wanted| Ok(wanted.clone().all_namespaces()),
    place: |object| object.annotation(CLUSTER).map(Placement::new),
    send: |place, request, upstream| {
        Box::pin(async move { upstream.send_below(&format!("/clusters/{place}"), request).await })
    },
    ..NAMESPACES
};

/// The workspaces of these shards, in memory.
pub(crate) fn scope(endpoints: &[(&str, &Shard)]) -> Scope {
    scope_of(WORKSPACES, endpoints)
}

pub(crate) fn scope_of(layout: Layout, endpoints: &[(&str, &Shard)]) -> Scope {
    let scope = Scope::new(layout);
    for (name, shard) in endpoints {
        scope.set_endpoint(*name, access(shard));
    }
    scope
}

/// How to reach a shard.
pub(crate) fn access(shard: &Shard) -> Access {
    Access::from(shard.client(String::new()))
}

/// How to reach one workspace by itself, as a cluster that is part of no scope.
pub(crate) fn alone(shard: &Shard, cluster: &str) -> Access {
    Access::from(shard.client(format!("/clusters/{cluster}")))
}
