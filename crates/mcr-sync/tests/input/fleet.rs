//! Which events of the fleet lead to a look at the sources.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::core::DynamicObject;
use mcr::{ClusterSelector, ClusterSpec};
use mcr_testkit::waiting::eventually;
use serde_json::json;

use crate::{
    gate::{Gate, Silence},
    world::{LIMIT, WIDGETS, World, cluster, crd, is_gone, is_there, name, spec, sync, widget},
};

const RECORD: &str = "sync.mcr.dev/placed.widgets";

/// Counts the looks at sources since the last call. Time goes on only when every task waits, so all that is ready has run.
async fn looks(calls: &AtomicUsize) -> usize {
    tokio::time::sleep(Duration::from_secs(300)).await;
    calls.swap(0, Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn sync_event_of_the_fleet_leads_to_a_look_at_the_sources_that_it_may_move_and_at_no_others() {
    let mut world = World::new();
    for cluster in [&world.team, &world.other] {
        cluster
            .create(widget("default", cluster.name(), json!({"size": 1})))
            .unwrap();
    }
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let targets = ClusterSelector::label("role", "target");
    let sync = sync().place(targets, move |_: &DynamicObject, _, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        vec![name("berlin")]
    });
    let [berlin, team] = [spec(&world.berlin, "target"), spec(&world.team, "source")];
    world.start_with(sync.build().unwrap(), [berlin.clone(), team.clone()]);
    is_there(&world.berlin, "default/team", 1).await;
    is_there(&world.berlin, "default/other", 1).await;
    looks(&calls).await;

    // A cluster that is no target, and has no sources.
    let paris = spec(&cluster("paris"), "bystander");
    world.clusters.add(paris.clone());
    assert_eq!(looks(&calls).await, 0, "it joins");
    world.clusters.add(paris.label("size", "large"));
    assert_eq!(looks(&calls).await, 0, "its labels");
    world.clusters.remove("paris");
    assert_eq!(looks(&calls).await, 0, "it leaves");
    // The placement may look at labels and properties.
    world.clusters.add(berlin.clone().label("size", "large"));
    assert_eq!(looks(&calls).await, 2, "the labels of a target cluster");
    world
        .clusters
        .add(berlin.label("size", "large").property("size", "large"));
    assert_eq!(looks(&calls).await, 2, "its properties");
    world.clusters.add(team.label("size", "large"));
    assert_eq!(
        looks(&calls).await,
        1,
        "the source of a cluster with other labels"
    );
    world.clusters.remove("lyon");
    assert_eq!(looks(&calls).await, 2, "a target cluster leaves");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_to_each_does_not_look_at_the_sources_for_labels_that_select_the_same_clusters() {
    let mut world = World::new();
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let sync = sync()
        .to_each(ClusterSelector::label("role", "target"))
        .filter(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            true
        });
    let lyon = spec(&world.lyon, "target");
    world.start_with(sync.build().unwrap(), [lyon.clone()]);
    is_there(&world.berlin, "default/w", 1).await;
    is_there(&world.lyon, "default/w", 1).await;
    looks(&calls).await;
    world
        .clusters
        .add(lyon.clone().label("size", "large").property("nodes", "7"));
    assert_eq!(looks(&calls).await, 0);
    world.clusters.add(lyon.clone().label("role", "retired"));
    is_gone(&world.lyon, "default/w").await;
    world.clusters.add(lyon);
    is_there(&world.lyon, "default/w", 1).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_source_of_a_watch_with_a_selector_learns_that_its_target_cluster_has_left() {
    let mut world = World::new();
    let mut source = widget("default", "w", json!({"size": 1}));
    source["metadata"]["labels"] = json!({"copy": "yes"});
    world.team.create(source).unwrap();
    let controller =
        sync().build_with(|controller| controller.watch_request(|request| request.labels("copy=yes")));
    world.start_with(controller.unwrap(), []);
    world.told("w", "Synced").await;
    world.clusters.remove("berlin");
    let message = world.told("w", "ClusterAway").await;
    assert!(message.contains("berlin"), "{message}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_target_that_was_given_up_stays_if_its_cluster_is_back_before_the_deletion_is_seen() {
    let mut world = World::new();
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    let gate = Gate::default();
    world.start_with(sync().build().unwrap(), [gate.before(&world.team, "source")]);
    world.told("w", "Synced").await;
    world.clusters.remove("berlin");
    world.told("w", "ClusterAway").await;
    gate.lag(Duration::from_secs(60));
    let mut source = world.team.get(WIDGETS, "default/w").unwrap();
    source["metadata"]["annotations"][mcr_sync::ABANDON] = "berlin".into();
    world.team.update(source).unwrap();
    world.team.delete(WIDGETS, "default/w").unwrap();
    is_gone(&world.team, "default/w").await;
    world.clusters.add(spec(&world.berlin, "target"));
    tokio::time::sleep(Duration::from_secs(300)).await;
    is_there(&world.berlin, "default/w", 1).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_source_that_leaves_a_limited_watch_is_told_and_keeps_its_target() {
    let mut world = World::new();
    let mut source = widget("default", "w", json!({"size": 1}));
    source["metadata"]["labels"] = json!({"copy": "yes"});
    world.team.create(source).unwrap();
    let controller = sync().build_with(|controller| {
        let controller = controller.clusters(ClusterSelector::all());
        controller.watch_request(|request| request.labels("copy=yes"))
    });
    world.start_with(controller.unwrap(), []);
    world.told("w", "Synced").await;
    let label = |value: &str| {
        let mut source = world.team.get(WIDGETS, "default/w").unwrap();
        source["metadata"]["labels"]["copy"] = value.into();
        world.team.update(source).unwrap();
    };
    label("no");
    let words = "cluster://team/default/w is no longer in the watch of the sync, and still has the finalizer sync.mcr.dev/widgets";
    let failure = world.fails_with(words).await;
    assert_eq!(failure.retry_at, None, "{failure:?}");
    is_there(&world.berlin, "default/w", 1).await;
    label("yes");
    world.team.delete(WIDGETS, "default/w").unwrap();
    is_gone(&world.team, "default/w").await;
    is_gone(&world.berlin, "default/w").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_cluster_that_is_away_costs_no_look_until_it_is_back() {
    let mut world = World::new();
    for at in 0..20 {
        let source = widget("default", &format!("w{at}"), json!({"size": 1}));
        world.team.create(source).unwrap();
    }
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let sync = sync().place(
        ClusterSelector::label("role", "target"),
        move |_: &DynamicObject, _, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            vec![name("berlin"), name("lyon"), name("paris")]
        },
    );
    let gate = Gate::default();
    world.start_with(sync.build().unwrap(), [gate.before(&world.berlin, "target")]);
    for at in 0..20 {
        is_there(&world.berlin, &format!("default/w{at}"), 1).await;
        is_there(&world.lyon, &format!("default/w{at}"), 1).await;
    }
    // Paris is not in the fleet, lyon leaves it, and berlin is unreachable.
    world.clusters.remove("lyon");
    gate.silence(Silence::All);
    world.edit("w0", json!({"size": 2}));
    tokio::time::sleep(Duration::from_secs(600)).await;
    looks(&calls).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(looks(&calls).await, 0, "in an hour of rest");
    gate.silence(Silence::None);
    is_there(&world.berlin, "default/w0", 2).await;
    world.clusters.add(spec(&world.lyon, "target"));
    is_there(&world.lyon, "default/w0", 2).await;
    let paris = cluster("paris");
    paris.create(crd()).unwrap();
    world.clusters.add(spec(&paris, "target"));
    is_there(&paris, "default/w0", 2).await;
    world.told("w19", "Synced").await;
    world.stop().await;
}

/// `berlin` under another name, which waits beside it.
fn again(world: &World) -> ClusterSpec {
    let mut again = spec(&world.berlin, "target");
    again.name = name("berlin-again");
    again
}

#[tokio::test(start_paused = true)]
async fn sync_another_name_of_a_cluster_is_no_place() {
    let mut world = World::new();
    world.start(sync().to_each(ClusterSelector::label("role", "target")));
    for source in ["v", "w"] {
        if source == "w" {
            world.clusters.add(again(&world));
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        world
            .team
            .create(widget("default", source, json!({"size": 1})))
            .unwrap();
        world.told(source, "Synced").await;
    }
    // It had targets before it was known to be another name.
    let mut source = world.team.get(WIDGETS, "default/w").unwrap();
    let record = json!([
        ["berlin", "default", "w"],
        ["berlin-again", "default", "w"],
        ["lyon", "default", "w"]
    ]);
    source["metadata"]["annotations"][RECORD] = record.to_string().into();
    world.team.update(source).unwrap();
    let forgotten = || {
        let source = world.team.get(WIDGETS, "default/w")?;
        (!source["metadata"]["annotations"][RECORD]
            .as_str()?
            .contains("again"))
        .then_some(())
    };
    eventually(LIMIT, "a record without the other name", forgotten).await;
    world.told("w", "Synced").await;
    assert_eq!(world.berlin.audit().count(|event| event.verb == "delete"), 0);
    for source in ["default/v", "default/w"] {
        world.team.delete(WIDGETS, source).unwrap();
        is_gone(&world.team, source).await;
        is_gone(&world.berlin, source).await;
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_target_goes_when_its_cluster_comes_back_and_is_no_longer_selected() {
    let mut world = World::new();
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    let gate = Gate::default();
    let each = sync().to_each(ClusterSelector::label("role", "target"));
    world.start_with(each.build().unwrap(), [gate.before(&world.berlin, "target")]);
    is_there(&world.berlin, "default/w", 1).await;
    is_there(&world.lyon, "default/w", 1).await;
    world.told("w", "Synced").await;
    // Another address is another connection, so the cluster is away for a moment.
    let mut began = tokio::time::Instant::now();
    world.clusters.add(gate.before(&world.berlin, "retired"));
    is_gone(&world.berlin, "default/w").await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    world.told("w", "Synced").await;
    // It is away for long, and has left the fleet.
    world.clusters.remove("lyon");
    world.told("w", "ClusterAway").await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    began = tokio::time::Instant::now();
    world.clusters.add(spec(&world.lyon, "retired"));
    is_gone(&world.lyon, "default/w").await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    world.told("w", "Synced").await;
    // It loses its label while the program is stopped.
    world.clusters.add(spec(&world.lyon, "target"));
    is_there(&world.lyon, "default/w", 1).await;
    world.stop().await;
    let each = sync().to_each(ClusterSelector::label("role", "target"));
    world.start_with(each.build().unwrap(), [spec(&world.lyon, "retired")]);
    began = tokio::time::Instant::now();
    is_gone(&world.lyon, "default/w").await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_former_place_under_another_name_of_a_cluster_is_cleaned_up_in_the_cluster() {
    let mut world = World::new();
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    world.start(sync().to(name("lyon")));
    world.told("w", "Synced").await;
    world.clusters.add(again(&world));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut target = world.lyon.get(WIDGETS, "default/w").unwrap();
    target["metadata"] = json!({"name": "w", "namespace": "default",
        "labels": target["metadata"]["labels"], "annotations": target["metadata"]["annotations"]});
    world.berlin.create(target).unwrap();
    let mut source = world.team.get(WIDGETS, "default/w").unwrap();
    let record = json!([["berlin-again", "default", "w"], ["lyon", "default", "w"]]);
    source["metadata"]["annotations"][RECORD] = record.to_string().into();
    world.team.update(source).unwrap();
    is_gone(&world.berlin, "default/w").await;
    world.told("w", "Synced").await;
    is_there(&world.lyon, "default/w", 1).await;
    world.stop().await;
}
