//! A place that fails holds up no other place, and a place is given up only if its cluster is away or its user says so.

use std::time::Duration;

use kube::core::DynamicObject;
use mcr::{Access, BoxError, Cluster, ClusterSelector, ClusterSpec};
use mcr_testkit::log::Log;
use serde_json::json;

use crate::{
    gate::Gate,
    world::{WIDGETS, Widgets, World, allow, is_gone, is_there, spec, sync, widget},
};

/// How long a cluster may be away in these tests.
const LIMIT: Duration = Duration::from_secs(60);

/// Longer than a cluster may be away. A source that fails all this time is tried again after about as long again, and the waits
/// of these tests are longer than that.
const LONG: Duration = Duration::from_secs(150);

fn to_each() -> Widgets {
    sync().to_each(ClusterSelector::label("role", "target"))
}

fn new_world() -> World {
    let world = World::new();
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    world
}

#[tokio::test(start_paused = true)]
async fn sync_error_that_waits_for_the_source_does_not_end_the_wait_for_another_cluster() {
    let mut world = new_world();
    let mutate = |_: &mut DynamicObject, _: &DynamicObject, _: &Cluster, to: &Cluster| {
        if **to.name() == *"berlin" {
            return Err(BoxError::from("berlin has no region"));
        }
        Ok(())
    };
    let gate = Gate::default();
    gate.slow_lists(Duration::from_secs(20));
    let lyon = gate.before(&world.lyon, "target");
    world.start_with(to_each().try_mutate(mutate).build().unwrap(), [lyon]);
    assert!(
        world
            .told("w", "FunctionFailed")
            .await
            .contains("berlin has no region")
    );
    assert!(world.lyon.get(WIDGETS, "default/w").is_none(), "it lists");
    is_there(&world.lyon, "default/w", 1).await;
    assert!(world.berlin.get(WIDGETS, "default/w").is_none());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_former_target_cluster_that_refuses_to_be_read_holds_no_other_and_is_given_up_on_request() {
    let mut world = new_world();
    let berlin = spec(&world.berlin, "target");
    world.start_with(to_each().abandon_after(LIMIT).build().unwrap(), [berlin.clone()]);
    for cluster in [&world.berlin, &world.lyon] {
        is_there(cluster, "default/w", 1).await;
    }
    allow(&world.berlin, &["list", "watch"]);
    world.clusters.add(berlin.label("role", "retired"));
    world.edit("w", json!({"size": 2}));
    is_there(&world.lyon, "default/w", 2).await;
    let message = world.told("w", "RequestFailed").await;
    assert!(message.contains("berlin"), "{message}");
    world.team.delete(WIDGETS, "default/w").unwrap();
    is_gone(&world.lyon, "default/w").await;
    tokio::time::sleep(LONG).await;
    let source = world.team.get(WIDGETS, "default/w");
    let mut source = source.expect("berlin refuses, and is not away");
    source["metadata"]["annotations"][mcr_sync::ABANDON] = "berlin".into();
    world.team.update(source).unwrap();
    is_gone(&world.team, "default/w").await;
    is_there(&world.berlin, "default/w", 1).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_target_cluster_that_answers_is_never_given_up() {
    let mut world = new_world();
    world.start(sync().abandon_after(LIMIT));
    is_there(&world.berlin, "default/w", 1).await;
    allow(&world.berlin, &["get", "list", "watch", "create", "patch"]);
    world.team.delete(WIDGETS, "default/w").unwrap();
    tokio::time::sleep(LONG).await;
    assert!(
        world.team.get(WIDGETS, "default/w").is_some(),
        "berlin refuses, and is not away"
    );
    allow(&world.berlin, &["*"]);
    is_gone(&world.team, "default/w").await;
    assert!(world.berlin.get(WIDGETS, "default/w").is_none());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_wait_for_a_cluster_begins_anew_when_the_program_starts() {
    let mut world = new_world();
    world.start(sync().abandon_after(LIMIT));
    is_there(&world.berlin, "default/w", 1).await;
    world.told("w", "Synced").await;
    world.stop().await;
    world.team.delete(WIDGETS, "default/w").unwrap();
    tokio::time::sleep(LONG).await;
    let gate = Gate::default();
    gate.slow_lists(LIMIT / 2);
    let berlin = gate.before(&world.berlin, "target");
    world.start_with(sync().abandon_after(LIMIT).build().unwrap(), [berlin]);
    is_gone(&world.team, "default/w").await;
    assert!(
        world.berlin.get(WIDGETS, "default/w").is_none(),
        "berlin was only listed late"
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_wait_for_a_cluster_begins_anew_for_another_source_of_the_name() {
    let mut world = new_world();
    world.start(sync().abandon_after(LIMIT));
    world.told("w", "Synced").await;
    world.clusters.remove("berlin");
    world.team.delete(WIDGETS, "default/w").unwrap();
    tokio::time::sleep(LIMIT / 2).await;
    // Its owner gives it up by hand, and makes it anew.
    let mut source = world.team.get(WIDGETS, "default/w").unwrap();
    source["metadata"]["finalizers"] = json!([]);
    world.team.update(source).unwrap();
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    world.told("w", "ClusterAway").await;
    world.team.delete(WIDGETS, "default/w").unwrap();
    tokio::time::sleep(LIMIT * 3 / 4).await;
    assert!(
        world.team.get(WIDGETS, "default/w").is_some(),
        "given up before its time"
    );
    is_gone(&world.team, "default/w").await;
    world.stop().await;
}

/// A target cluster that refuses each connection.
fn down(name: &str) -> ClusterSpec {
    let refuse = tower::service_fn(async |_: http::Request<kube::client::Body>| {
        Err::<http::Response<kube::client::Body>, BoxError>("connection refused".into())
    });
    let access = Access::from(kube::Client::new(refuse, "default"));
    ClusterSpec::named(name, access).unwrap().label("role", "target")
}

#[tokio::test(start_paused = true)]
async fn sync_target_that_was_given_up_is_told_without_a_claim_about_an_object_that_never_was() {
    for was_made in [false, true] {
        let log = Log::of_this_thread(tracing::Level::WARN);
        let mut world = new_world();
        if was_made {
            world.start(to_each());
            is_there(&world.berlin, "default/w", 1).await;
            world.clusters.add(down("berlin"));
        } else {
            world.start_with(to_each().build().unwrap(), [down("berlin")]);
        }
        is_there(&world.lyon, "default/w", 1).await;
        world.told("w", "ClusterAway").await;
        let mut source = world.team.get(WIDGETS, "default/w").unwrap();
        source["metadata"]["annotations"][mcr_sync::ABANDON] = "berlin".into();
        world.team.update(source).unwrap();
        world.team.delete(WIDGETS, "default/w").unwrap();
        is_gone(&world.team, "default/w").await;
        tokio::time::sleep(LONG).await;
        let mut told = log.lines_with("mcr_sync::");
        told.retain(|line| !line.contains("ClusterAway"));
        assert_eq!(told.len(), 1, "{told:#?}");
        let words = "gave up default/w in cluster berlin, which is away; if the object was made there, it stays when the cluster comes back";
        assert!(told[0].contains(words), "{told:?}");
        // What is left is told when the cluster is back.
        world.clusters.remove("berlin");
        tokio::time::sleep(LONG).await;
        world.clusters.add(spec(&world.berlin, "target"));
        tokio::time::sleep(LONG).await;
        let left = log.lines_with("cluster://team/default/w, which no longer exists");
        assert_eq!(left.is_empty(), !was_made, "{left:#?}");
        assert!(
            left.iter()
                .all(|line| line.contains("Most likely it was given up while its cluster was away, or"))
        );
        world.stop().await;
    }
}
