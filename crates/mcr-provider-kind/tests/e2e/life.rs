//! The life of clusters, and of their engine.

use std::time::{Instant, SystemTime};

use mcr::ClusterState;
use mcr_provider_kind::KindProvider;
use mcr_testkit::e2e::{self, E2e};
use tokio::process::Command;

use crate::{
    NEVER, announce,
    kind::{Kind, run},
    until,
    world::World,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_clusters_are_found_followed_and_released() {
    let Some(e2e) = E2e::from_env() else { return };
    let kind = Kind::new(&e2e, "life");
    // The provider notices changes only by events, because it never polls.
    let world = World::start(kind, KindProvider::builder().poll_interval(NEVER));
    world.is_asked().await;

    // Two at once: seen while they are made, ready when kind reports that they are.
    let first_seen = async {
        until("the half-made cluster is seen", || world.state("a")).await;
        SystemTime::now()
    };
    let made = async |cluster: &str| {
        world.kind.create(cluster).await;
        let created = Instant::now();
        (world.ready(cluster).await, created.elapsed())
    };
    let ((a, a_took), (b, b_took), seen_at) = tokio::join!(made("a"), made("b"), first_seen);
    let noticed = seen_at.duration_since(world.kind.started("a").await);
    let noticed = noticed.unwrap_or_default();
    let ready = a_took.max(b_took);
    announce(&format!(
        "a container was noticed {noticed:?} after it ran; clusters were ready {ready:?} after kind was done"
    ));
    world.reconciles(&a, "one").await;
    world.reconciles(&b, "one").await;

    // Stopped and started: the same cluster, suspended in between, and its neighbour does not notice.
    let (node, start) = (world.kind.node("a"), Instant::now());
    let stop_it = ["stop", node.as_str()];
    let stopping = tokio::join!(world.kind.engine(&stop_it), world.suspended("a"));
    announce(&format!(
        "a node was stopped and its cluster suspended in {:?} ({})",
        start.elapsed(),
        stopping.0
    ));
    assert!(b.state().is_ready());
    world.kind.engine(&["start", &world.kind.node("a")]).await;
    let start = Instant::now();
    let again = world.ready("a").await;
    announce(&format!("a started node was Ready after {:?}", start.elapsed()));
    assert!(again.is_same(&a), "the same cluster");
    world.reconciles(&again, "two").await;

    // Made anew under the same name: another cluster.
    world.kind.delete("a").await;
    let took = world.gone("a", Instant::now()).await;
    announce(&format!(
        "a deleted cluster was gone {took:?} after kind was done"
    ));
    assert_eq!(a.state(), ClusterState::Gone);
    world.kind.create("a").await;
    let anew = world.ready("a").await;
    assert!(anew.epoch() > a.epoch());
    let identity = until("it is known who the new one is", || anew.identity()).await;
    assert_ne!(Some(identity), a.identity());
    world.reconciles(&anew, "one").await;

    // The engine ends and starts again: nothing is removed, and all come back.
    match &world.kind.with.control {
        Some(engine) => {
            let control = async |what: &str| {
                let mut command = Command::new(engine);
                command.arg(what);
                run(command).await;
            };
            control("halt").await;
            world.trouble().await;
            assert!(
                world.state("a").is_some() && world.state("b").is_some(),
                "nothing is removed"
            );
            control("start").await;
            let start = Instant::now();
            let (same_a, same_b) = (world.ready("a").await, world.ready("b").await);
            announce(&format!(
                "clusters were Ready {:?} after the engine was started again",
                start.elapsed()
            ));
            assert!(same_a.is_same(&anew) && same_b.is_same(&b), "they are the same");
            world.reconciles(&same_b, "three").await;
            world.controllers_work(&same_b, "after-the-start").await;
            // The provider has found the engine, too: it receives what comes next.
            until("the provider goes on", || {
                world.fleet.is_discovered().then_some(())
            })
            .await;
        }
        None => e2e::skipped_in_part(
            "the engine's end and start",
            "MCR_ENGINE is not set, so the engine may be somebody else's too",
        ),
    }

    // Removed behind kind's back.
    world
        .kind
        .engine(&["rm", "-f", "-v", &world.kind.node("b")])
        .await;
    let took = world.gone("b", Instant::now()).await;
    announce(&format!(
        "a cluster whose container was removed was gone after {took:?}"
    ));
    world.kind.delete("a").await;
    world.gone("a", Instant::now()).await;

    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_left_half_made_is_explained_and_hurts_no_other() {
    let Some(e2e) = E2e::from_env() else { return };
    let kind = Kind::new(&e2e, "half");
    let world = World::start(kind, KindProvider::builder());
    world.kind.create("b").await;
    let b = world.ready("b").await;

    // kind is killed as soon as there is a node, so it takes nothing back.
    let mut creation = world.kind.creation("a").kill_on_drop(true).spawn().unwrap();
    until("a node runs", || world.state("a")).await;
    creation.kill().await.unwrap();
    let (state, reason) = until("it is explained", || {
        world.state("a").filter(|(state, _)| *state == "Broken")
    })
    .await;
    announce(&format!("a half-made cluster is {state}: {reason}"));
    for word in [world.kind.node("a").as_str(), "kind"] {
        assert!(reason.contains(word), "{reason}");
    }
    assert!(world.fleet.get(world.kind.name("a").as_str()).is_err());
    world.reconciles(&b, "beside-it").await;

    // The user deletes the half-made cluster.
    world.kind.delete("a").await;
    world.gone("a", Instant::now()).await;
    world.kind.create("a").await;
    let a = world.ready("a").await;
    world.reconciles(&a, "one").await;
    assert!(
        b.state().is_ready(),
        "its neighbour did not notice: {:?}",
        b.state()
    );
    world.kind.delete("a").await;
    world.kind.delete("b").await;
    world.stop().await;
}
