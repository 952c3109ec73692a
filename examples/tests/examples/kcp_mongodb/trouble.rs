//! What may go wrong around the service, and what the consumer is told.

use std::time::Duration;

use anyhow::Result;
use kube::Client;
use mcr::{Access, LeaderElection, Manager, ManagerBuilder, Trust};
use mcr_kcp_double::KcpMove;
use mcr_testkit::faults::{Fault, FaultProxy};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::{
    mark, new_world,
    operator::Mood,
    world::{
        World,
        server::{Kind, until},
    },
    writes,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_a_workspace_that_moves_to_another_shard_keeps_its_database() -> Result<()> {
    let mut world = new_world(2).await?;
    // Nobody moves a workspace of a real kcp from outside.
    let Some(kcp) = world.home.double().map(|server| server.kcp().clone()) else {
        return Ok(());
    };
    world.start()?;
    world.bind(&world.shop).await?;
    world.order(&world.shop).await?;
    world.shop.phase("Ready").await?;
    let before = world.placed(&world.shop).await?.unwrap();
    let before_move = mark().await;
    kcp.move_workspace(&world.shop.path, "shard-1", KcpMove::NewFirst)?;
    world.shop.change(json!({"version": "7.0.1"})).await?;
    world.shop.runs_version("7.0.1").await?;
    let after = world.placed(&world.shop).await?.unwrap();
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    let writes = writes(&world, before_move).await;
    assert_eq!(writes.len(), 1, "the change only: {writes:#?}");
    world.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_a_service_cluster_that_is_away_is_reported_to_consumers_and_loses_nothing() -> Result<()> {
    let mut world = new_world(1).await?;
    let proxy = FaultProxy::start(world.service.upstream()?).await?;
    let through = proxy.kubeconfig_with_token(world.service.token());
    world.start_at(Access::kubeconfig(through, Trust::Trusted))?;
    world.bind(&world.shop).await?;
    world.order(&world.shop).await?;
    world.shop.phase("Ready").await?;
    let before = world.placed(&world.shop).await?.unwrap();
    proxy.set(Fault::Refuse).await;
    world.shop.change(json!({"version": "7.0.1"})).await?;
    world.bind(&world.bank).await?;
    world.order(&world.bank).await?;
    let message = world.bank.reported("ClusterAway").await?;
    assert!(message.contains("cluster hub is away"), "{message}");
    world.shop.reported("ClusterAway").await?;
    proxy.clear().await;
    world.bank.phase("Ready").await?;
    world.shop.runs_version("7.0.1").await?;
    for workspace in [&world.shop, &world.bank] {
        workspace.reported("Synced").await?;
    }
    let after = world.placed(&world.shop).await?.unwrap();
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    world.stop().await
}

/// A controller that can be killed: its runtime ends at once, whatever runs.
fn victim(world: &World, manager: ManagerBuilder) -> Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let entered = runtime.enter();
    let manager = world.program(manager, world.service.access()?)?.build()?;
    runtime.spawn(manager.run_until(CancellationToken::new()));
    drop(entered);
    Ok(runtime)
}

const LEASE: Kind = ("coordination.k8s.io", "v1", "Lease", "leases");

/// Which replica leads.
async fn leader(world: &World) -> Result<Option<String>> {
    let key = format!("{}/database-service", world.service.namespace);
    let lease = world.service.server.get(LEASE, &key).await?;
    let holder = |lease: Value| {
        Some(
            lease["spec"]["holderIdentity"]
                .as_str()?
                .split('_')
                .next()?
                .to_owned(),
        )
    };
    Ok(lease.and_then(holder))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_the_second_replica_takes_over_when_the_leader_is_killed() -> Result<()> {
    let world = new_world(1).await?;
    let config =
        kube::Config::from_custom_kubeconfig(world.service.kubeconfig()?, &Default::default()).await?;
    let replica = |name: &'static str| {
        let election = LeaderElection::new("database-service")
            .client(Client::try_from(config.clone())?)
            .namespace(&*world.service.namespace)
            .identity(name)
            .lease_duration(Duration::from_secs(3))
            .renew_deadline(Duration::from_secs(2))
            .retry_period(Duration::from_millis(200));
        victim(&world, Manager::builder().leader_election(election))
    };
    let first = replica("first")?;
    until("the first one leads", async || {
        Ok(leader(&world).await?.filter(|holder| holder == "first"))
    })
    .await?;
    let second = replica("second")?;
    world.bind(&world.shop).await?;
    world.order(&world.shop).await?;
    world.shop.phase("Ready").await?;
    assert_eq!(leader(&world).await?.as_deref(), Some("first"));
    first.shutdown_background();
    world.shop.change(json!({"version": "7.0.1"})).await?;
    world.shop.runs_version("7.0.1").await?;
    assert_eq!(leader(&world).await?.as_deref(), Some("second"));
    assert_eq!(world.databases().await?.len(), 1);
    second.shutdown_background();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_a_consumer_reads_why_the_operator_is_slow_or_fails() -> Result<()> {
    let mut world = new_world(1).await?;
    world.operate(Mood::Failing).await?;
    world.start()?;
    world.bind(&world.shop).await?;
    world.order(&world.shop).await?;
    let orders = world.shop.phase("Failed").await?;
    assert_eq!(
        orders["status"]["message"],
        "no node has enough memory for the database"
    );
    world.operate(Mood::Slow).await?;
    let orders = world.shop.phase("Creating").await?;
    assert_eq!(orders["status"]["message"], "0 of 1 members are ready");
    world.operate(Mood::Quick).await?;
    let orders = world.shop.phase("Ready").await?;
    assert_eq!(orders["status"]["message"], Value::Null);
    world.stop().await
}
