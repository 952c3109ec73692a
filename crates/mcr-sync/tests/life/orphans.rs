//! Source clusters that leave the fleet for good.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
use mcr::{BuiltController, ClusterSelector, Manager, ManagerError};
use mcr_provider_clusters::{ClustersHandle, ClustersProvider};
use mcr_sync::Related;
use mcr_testkit::{
    sim::SimCluster,
    waiting::{Background, eventually},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::world::*;

const GRACE: Duration = Duration::from_secs(3600);

/// The test looks each 5 ms, so it sleeps for most of the grace.
const LAST: Duration = Duration::from_secs(2);

/// The sync, with a related object, and the controller that deletes orphans.
fn controllers(owner: &str) -> [BuiltController; 2] {
    let sync = maps()
        .owner(owner)
        .from(ClusterSelector::label("role", "source"))
        .place(ClusterSelector::label("role", "target"), |_, _, _| {
            vec![name("berlin")]
        })
        .related(
            Related::<ConfigMap, ConfigMap, ConfigMap>::down("settings")
                .named(|_, _| ["settings"])
                .name_by(|source, _| format!("{}-settings", source.metadata.name.as_deref().unwrap())),
        );
    let orphans = sync.delete_orphans_after(GRACE).unwrap();
    [sync.build().unwrap(), orphans]
}

fn names(cluster: &SimCluster) -> Vec<String> {
    let maps = cluster.list("configmaps", "default");
    let of_sync = maps
        .iter()
        .filter(|map| map["metadata"]["labels"]["sync.mcr.dev/sync"] == "maps");
    of_sync
        .map(|map| map["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn synced(world: &World) {
    for source in [&world.team_a, &world.team_b] {
        data(&world.berlin, source, "db", json!({"size": "1"})).await;
    }
    eventually(LIMIT, "targets and settings of both teams", || {
        (names(&world.berlin).len() == 3).then_some(())
    })
    .await;
}

fn new_world() -> World {
    let world = World::new();
    for source in [&world.team_a, &world.team_b] {
        source.create(map("db", json!({"size": "1"}))).unwrap();
    }
    world.team_a.create(map("settings", json!({"a": "b"}))).unwrap();
    world
}

fn of(world: &World, source: &str) -> Option<Value> {
    world.berlin.get("configmaps", &key(source, "db"))
}

#[tokio::test(start_paused = true)]
async fn sync_targets_of_a_cluster_that_left_are_deleted_after_the_grace_on_request_and_only_then() {
    let mut world = new_world();
    world.run(controllers("eu"), "");
    synced(&world).await;
    // It comes back within the grace.
    world.clusters.remove("team-a");
    sleep(GRACE - LAST).await;
    world.clusters.add(spec(&world.team_a, "source"));
    sleep(GRACE).await;
    synced(&world).await;
    // A cluster that is down is in the fleet.
    world.team_b.end_watches();
    let left = Instant::now();
    world.clusters.remove("team-a");
    sleep(GRACE - LAST).await;
    assert!(of(&world, "team-a").is_some());
    let gone = || of(&world, "team-a").is_none().then_some(());
    eventually(LIMIT, "the end of the target", gone).await;
    assert!(left.elapsed() >= GRACE, "{:?}", left.elapsed());
    assert_eq!(
        names(&world.berlin).len(),
        1,
        "the settings of the other team went too"
    );
    assert!(of(&world, "team-b").is_some());
    let deleted: Vec<String> = {
        let audit = world.berlin.audit();
        let deletes = audit.events().filter(|event| event.verb == "delete");
        deletes.map(|event| event.name.clone()).collect()
    };
    assert_eq!(deleted[0], "db-settings", "the copies go first");
    assert_eq!(deleted.len(), 2);
    // The source is not touched, and gets a new target when its cluster is back.
    assert!(world.team_a.get("configmaps", "default/db").is_some());
    world.clusters.add(spec(&world.team_a, "source"));
    synced(&world).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_the_grace_of_orphans_begins_anew_when_the_program_starts() {
    let mut world = new_world();
    world.run(controllers("eu"), "");
    synced(&world).await;
    world.clusters.remove("team-a");
    sleep(GRACE - LAST).await;
    world.stop().await;
    world.run(controllers("eu"), "team-a");
    let started = Instant::now();
    sleep(GRACE - LAST).await;
    assert!(of(&world, "team-a").is_some());
    let gone = || of(&world, "team-a").is_none().then_some(());
    eventually(LIMIT, "the end of the target", gone).await;
    assert!(started.elapsed() >= GRACE, "{:?}", started.elapsed());
    assert!(of(&world, "team-b").is_some());
    world.stop().await;
}

/// Another program with a fleet of its own, which has the targets' cluster too, and deletes orphans.
fn program(
    world: &World,
    source: &SimCluster,
    owner: &str,
) -> (ClustersHandle, Background<Result<(), ManagerError>>) {
    let provider = ClustersProvider::new();
    let clusters = provider.handle();
    clusters.add(spec(source, "source"));
    clusters.add(spec(&world.berlin, "target"));
    let manager = controllers(owner)
        .into_iter()
        .fold(Manager::builder(), |manager, it| manager.controller(it));
    let manager = manager.provider(provider).build().unwrap();
    (clusters, Background::start(|stop| manager.run_until(stop)))
}

#[tokio::test(start_paused = true)]
async fn sync_targets_of_another_owner_are_no_orphans_and_belong_to_somebody_else() {
    let world = new_world();
    let (clusters, first) = program(&world, &world.team_a, "eu");
    let (_, second) = program(&world, &world.team_b, "us");
    synced(&world).await;
    sleep(2 * GRACE).await;
    assert_eq!(world.berlin.audit().count(|event| event.verb == "delete"), 0);
    // Another cluster of the same name, in the fleet of another owner: its sources have the same names.
    let twin = SimCluster::builder().name("team-a").build();
    twin.create(map("db", json!({"size": "2"}))).unwrap();
    let (_, third) = program(&world, &twin, "asia");
    sleep(LIMIT).await;
    twin.delete("configmaps", "default/db").unwrap();
    let gone = || twin.get("configmaps", "default/db").is_none().then_some(());
    eventually(LIMIT, "the end of the twin", gone).await;
    assert_eq!(of(&world, "team-a").unwrap()["data"], json!({"size": "1"}));
    // The owner still deletes its own.
    clusters.remove("team-a");
    sleep(GRACE).await;
    let gone = || of(&world, "team-a").is_none().then_some(());
    eventually(LIMIT, "the end of the target", gone).await;
    assert!(of(&world, "team-b").is_some());
    for running in [first, second, third] {
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn sync_orphan_goes_also_if_its_cluster_does_not_serve_a_related_kind() {
    let mut world = World::new();
    world.team_a.create(map("db", json!({"size": "1"}))).unwrap();
    let down = Related::<ConfigMap, ConfigMap, DynamicObject>::down_with("widgets", &widgets());
    let sync = to_berlin()
        .owner("eu")
        .from(ClusterSelector::label("role", "source"))
        .related(down.named(|_, _| None::<String>));
    let orphans = sync.delete_orphans_after(GRACE).unwrap();
    world.run([sync.build().unwrap(), orphans], "");
    data(&world.berlin, &world.team_a, "db", json!({"size": "1"})).await;
    world.clusters.remove("team-a");
    sleep(GRACE + LAST).await;
    gone(&world.berlin, &key("team-a", "db")).await;
    world.stop().await;
}
