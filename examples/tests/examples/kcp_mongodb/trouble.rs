//! What may go wrong around the service, and what the consumer is told.

use std::time::Duration;

use mcr::{Access, LeaderElection, Manager, Trust};
use mcr_testkit::{
    faults::{Fault, FaultProxy},
    kcp::KcpMove,
    waiting::OrFail,
};
use serde_json::{Value, json};

use super::{
    operator::Mood,
    world::{DATABASE, MONGODB, World, until},
};

/// A consumer orders a database, changes the order, and takes it back.
async fn story(world: &World) {
    world.bind(&world.shop).await;
    world.order(&world.shop).await;
    world.shop.phase("Ready").await;
    world.shop.change(json!({"version": "7.0.1"})).await;
    let updated = |object: &Value| object["status"]["version"] == "7.0.1";
    world.shop.orders("updated", updated).await;
    let placed = world.service.list(MONGODB, "mongodb").await;
    assert_eq!(placed.len(), 1, "{placed:#?}");
    world.shop.server.delete(DATABASE, "default/orders").await;
    world.shop.gone(DATABASE, "default/orders").await;
    assert!(world.service.list(MONGODB, "mongodb").await.is_empty());
}

/// The story with a controller that is killed at its n-th write. Returns whether it wrote so often.
async fn killed(at: usize) -> bool {
    let mut world = World::new().await;
    let victim = world.victim(Manager::builder);
    let kill = async {
        while world.writes() + world.writes_to_kcp() < at {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let told = tokio::select! {
        biased;
        () = kill => None,
        () = story(&world) => Some(()),
    };
    victim.shutdown_background();
    if told.is_some() {
        return false;
    }
    world.start();
    // It goes on wherever the first one was stopped.
    if world
        .shop
        .server
        .get(DATABASE, "default/orders")
        .await
        .is_some_and(|orders| orders["metadata"]["deletionTimestamp"].is_null())
    {
        story(&world).await;
    } else {
        world.shop.gone(DATABASE, "default/orders").await;
        world.ended(&world.shop).await;
        story(&world).await;
    }
    world.stop().await;
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_a_controller_killed_at_any_write_leaves_nothing_behind() {
    let mut at = 1;
    while killed(at).await {
        at += 1;
        assert!(at < 40, "it writes without end");
    }
    println!("killed at {} writes", at - 1);
    assert!(at > 5, "record, database, change, deletion, release: {at}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_a_workspace_that_moves_to_another_shard_keeps_its_database() {
    let mut world = World::with_shards(2).await;
    let Some(kcp) = world.double().map(|server| server.kcp().clone()) else {
        return;
    };
    world.start();
    world.bind(&world.shop).await;
    world.order(&world.shop).await;
    world.shop.phase("Ready").await;
    let before = world.placed(&world.shop).await.unwrap();
    let writes = world.writes();
    kcp.move_workspace(&world.shop.path, "shard-1", KcpMove::NewFirst)
        .or_fail();
    world.shop.change(json!({"version": "7.0.1"})).await;
    let updated = |object: &Value| object["status"]["version"] == "7.0.1";
    world.shop.orders("updated on the other shard", updated).await;
    let after = world.placed(&world.shop).await.unwrap();
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert_eq!(world.writes() - writes, 1, "the change only");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_a_service_cluster_that_is_away_is_told_to_consumers_and_loses_nothing() {
    let mut world = World::new().await;
    let server = world.sim.serve().await.or_fail();
    let proxy = FaultProxy::start(&server).await.or_fail();
    world.start_at(Access::kubeconfig(
        proxy.kubeconfig_with_token("least"),
        Trust::Trusted,
    ));
    world.bind(&world.shop).await;
    world.order(&world.shop).await;
    world.shop.phase("Ready").await;
    let before = world.placed(&world.shop).await.unwrap();
    proxy.set(Fault::Refuse).await;
    world.shop.change(json!({"version": "7.0.1"})).await;
    world.bind(&world.bank).await;
    world.order(&world.bank).await;
    let message = world.bank.told("ClusterAway").await;
    assert!(message.contains("cluster hub is away"), "{message}");
    world.shop.told("ClusterAway").await;
    proxy.clear().await;
    world.bank.phase("Ready").await;
    let updated = |object: &Value| object["status"]["version"] == "7.0.1";
    world.shop.orders("updated", updated).await;
    for workspace in [&world.shop, &world.bank] {
        workspace.told("Synced").await;
    }
    let after = world.placed(&world.shop).await.unwrap();
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_the_second_replica_takes_over_when_the_leader_is_killed() {
    let world = World::new().await;
    let replica = |name: &'static str| {
        let client = world.least();
        let election = LeaderElection::new("database-service")
            .client(client)
            .namespace("mongodb")
            .identity(name);
        let election = election
            .lease_duration(Duration::from_secs(3))
            .renew_deadline(Duration::from_secs(2))
            .retry_period(Duration::from_millis(200));
        world.victim(|| Manager::builder().leader_election(election))
    };
    let holder = || {
        let lease = world
            .sim
            .get("leases.coordination.k8s.io", "mongodb/database-service")?;
        Some(
            lease["spec"]["holderIdentity"]
                .as_str()?
                .split('_')
                .next()?
                .to_owned(),
        )
    };
    let first = replica("first");
    until("the first one leads", async || {
        holder().filter(|holder| holder == "first")
    })
    .await;
    let second = replica("second");
    world.bind(&world.shop).await;
    world.order(&world.shop).await;
    world.shop.phase("Ready").await;
    first.shutdown_background();
    world.shop.change(json!({"version": "7.0.1"})).await;
    let updated = |object: &Value| object["status"]["version"] == "7.0.1";
    world.shop.orders("updated", updated).await;
    assert_eq!(holder().as_deref(), Some("second"));
    assert_eq!(world.service.list(MONGODB, "mongodb").await.len(), 1);
    second.shutdown_background();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_a_consumer_reads_why_the_operator_is_slow_or_fails() {
    let mut world = World::new().await;
    world.operate(Mood::Failing).await;
    world.start();
    world.bind(&world.shop).await;
    world.order(&world.shop).await;
    let orders = world.shop.phase("Failed").await;
    assert_eq!(
        orders["status"]["message"],
        "no node has enough memory for the database"
    );
    world.operate(Mood::Slow).await;
    let orders = world.shop.phase("Creating").await;
    assert_eq!(orders["status"]["message"], "0 of 1 members are ready");
    world.operate(Mood::Quick).await;
    let orders = world.shop.phase("Ready").await;
    assert_eq!(orders["status"]["message"], Value::Null);
    world.stop().await;
}
