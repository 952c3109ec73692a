//! `kcp-mongodb`, on a double of kcp and a real kube-apiserver as the service cluster, with the manifests and the rights of its
//! README. With `MCR_KCP_KUBECONFIG` the tests run on a real kcp.

use std::collections::BTreeSet;

use anyhow::Result;
use mcr_testkit::control_plane::{AuditMark, ControlPlane};
use serde_json::json;

use crate::{clusters::on_clusters, kcp};

#[path = "../../examples/kcp-mongodb/main.rs"]
#[allow(dead_code, reason = "the main function and its flags")]
mod controller;
mod demo;
#[path = "../../examples/kcp-mongodb/operator.rs"]
#[allow(dead_code, reason = "the main function and its flags")]
mod operator;
mod walk;
#[path = "../../examples/kcp-mongodb/demo/world.rs"]
#[allow(dead_code, reason = "the demo uses more of it")]
mod world;

use operator::Mood;
use world::{
    World,
    home::{self, Home},
    server::{DATABASE, SECRET},
    service::Service,
};

/// The API server that is the service cluster of all tests, each with a namespace of its own.
async fn service() -> ControlPlane {
    let hub = || on_clusters(|clusters| async { clusters.hub.clone() });
    tokio::task::spawn_blocking(hub).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_l_the_rights_of_the_manifests_are_enough_and_each_is_used() -> Result<()> {
    let service = Service::prepare(&service().await.kubeconfig(), "mongodb-rights".to_owned()).await?;
    let mut world = World::new(Home::find(1).await?, service).await?;
    world.publish().await?;
    world.operate(Mood::Quick).await?;
    world.start()?;
    for workspace in [&world.shop, &world.bank] {
        world.bind(workspace).await?;
        world.order(workspace).await?;
        workspace.phase("Ready").await?;
        workspace.secret("orders-connection", "change-me").await?;
        workspace.change(json!({"version": "7.0.1"})).await?;
        workspace.password("another").await?;
        workspace.secret("orders-connection", "another").await?;
        workspace.delete_orders().await?;
        workspace.gone(DATABASE, "default/orders").await?;
        workspace.gone(SECRET, "default/orders-connection").await?;
    }
    world.stop().await?;
    // Others use the service cluster as well, so each right is that of this user alone.
    let mut used = BTreeSet::new();
    let log = self::service().await.audit_since(AuditMark::default()).await?;
    let user = world.service.user();
    for event in log
        .events()
        .filter(|event| event.user == user && event.is_start())
    {
        // The fleet asks for the identity of a cluster, and does without it.
        let anybody = event.resource == "namespaces"
            || ["authentication.k8s.io", "authorization.k8s.io"].contains(&&*event.group);
        if !event.resource.is_empty() && !anybody {
            assert_ne!(event.code, 403, "{event:?}");
            used.insert((event.resource.clone(), event.verb.clone()));
        }
    }
    assert_eq!(used, kcp::granted(&world.service.rules()?));
    if let Some(server) = world.home.double() {
        assert_eq!(kcp::used(server, None), kcp::granted(&home::rules()?));
    }
    Ok(())
}
