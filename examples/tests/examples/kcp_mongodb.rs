//! `kcp-mongodb`, on a double of kcp and a real kube-apiserver as the service cluster, with the manifests and the rights of its
//! README. With `MCR_KCP_KUBECONFIG` the tests run on a real kcp.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
};

use anyhow::Result;
use k8s_openapi::ByteString;
use mcr_testkit::control_plane::{AuditEvent, AuditMark, ControlPlane};
use serde_json::{Value, json};

use crate::{clusters::on_clusters, kcp};

#[path = "../../examples/kcp-mongodb/main.rs"]
#[allow(dead_code, reason = "the main function and its flags")]
mod controller;
mod demo;
mod kills;
#[path = "../../examples/kcp-mongodb/operator.rs"]
#[allow(dead_code, reason = "the main function and its flags")]
mod operator;
mod trouble;
mod walk;
#[path = "../../examples/kcp-mongodb/demo/world.rs"]
#[allow(dead_code, reason = "the demo uses more of it")]
mod world;

use operator::Mood;
use world::{
    World,
    home::{self, Home},
    server::{BINDING, DATABASE, EVENT, SECRET, Workspace},
    service::Service,
};

const FINALIZER: &str = "sync.mcr.dev/databases";

/// The API server that is the service cluster of all tests, each with a namespace of its own.
async fn service() -> ControlPlane {
    let hub = || on_clusters(|clusters| async { clusters.hub.clone() });
    tokio::task::spawn_blocking(hub).await.unwrap()
}

/// The workspace of the API, two workspaces without a binding, and a namespace with the operator. The controller does not run yet.
async fn new_world(shards: usize) -> Result<World> {
    static WORLDS: AtomicUsize = AtomicUsize::new(0);
    let namespace = format!("mongodb-{}", WORLDS.fetch_add(1, Ordering::Relaxed));
    let service = Service::prepare(&service().await.kubeconfig(), namespace).await?;
    let mut world = World::new(Home::find(shards).await?, service).await?;
    world.publish().await?;
    world.operate(Mood::Quick).await?;
    Ok(world)
}

/// The same with both consumers bound, each with a database, and the controller.
async fn ready_world() -> Result<World> {
    let mut world = new_world(1).await?;
    world.start()?;
    for workspace in [&world.shop, &world.bank] {
        world.bind(workspace).await?;
        world.order(workspace).await?;
    }
    for workspace in [&world.shop, &world.bank] {
        workspace.phase("Ready").await?;
    }
    Ok(world)
}

/// What the controller has done on the service cluster since then.
async fn done(world: &World, since: AuditMark) -> Vec<AuditEvent> {
    let log = service().await.audit_since(since).await.unwrap();
    let user = world.service.user();
    let own = log
        .events()
        .filter(|event| event.user == user && event.is_start());
    own.cloned().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_the_connection_comes_back_to_its_consumer_and_follows_the_password() -> Result<()> {
    let mut world = new_world(1).await?;
    world.start()?;
    for (workspace, password) in [(&world.shop, "shop's"), (&world.bank, "bank's")] {
        world.bind(workspace).await?;
        world.order(workspace).await?;
        workspace.password(password).await?;
    }
    for (workspace, password) in [(&world.shop, "shop's"), (&world.bank, "bank's")] {
        let secret = workspace.secret("orders-connection", password).await?;
        let orders = workspace.phase("Ready").await?;
        assert_eq!(orders["status"]["connectionSecret"], "orders-connection");
        assert!(!orders.to_string().contains(password), "{orders}");
        let uri: ByteString =
            serde_json::from_value(secret["data"]["connectionString.standard"].clone()).unwrap();
        let uri = String::from_utf8(uri.0).unwrap();
        assert!(uri.contains(&world.name(workspace)), "{uri}");
    }
    world.shop.password("rotated").await?;
    world.shop.secret("orders-connection", "rotated").await?;
    world.bank.secret("orders-connection", "bank's").await?;
    // A Secret that the consumer has not given to the controller is no password.
    world.shop.change(json!({"passwordSecret": "absent"})).await?;
    let message = world.shop.reported("RelatedMissing").await?;
    assert!(message.contains("absent"), "{message}");
    world.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_l_the_rights_of_the_manifests_are_enough_and_each_is_used() -> Result<()> {
    let mut world = ready_world().await?;
    for workspace in [&world.shop, &world.bank] {
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
    for event in done(&world, AuditMark::default()).await {
        // The fleet asks for the identity of a cluster, and does without it.
        let anybody = event.resource == "namespaces"
            || ["authentication.k8s.io", "authorization.k8s.io"].contains(&&*event.group);
        if !event.resource.is_empty() && !anybody {
            assert_ne!(event.code, 403, "{event:?}");
            used.insert((event.resource.clone(), event.verb.clone()));
        }
    }
    assert_eq!(used, kcp::granted(&world.service.rules()?));
    let Some(server) = world.home.double() else {
        return Ok(());
    };
    let mut used = BTreeSet::new();
    for event in kcp::requests(server) {
        assert_ne!(event.code, 403, "{event:?}");
        let of_content = event.uri.contains("/services/apiexport/");
        let resource = if of_content {
            "apiexports/content"
        } else {
            &event.resource
        };
        used.insert((resource.to_owned(), event.verb.clone()));
    }
    assert_eq!(used, kcp::granted(&home::rules()?));
    Ok(())
}
