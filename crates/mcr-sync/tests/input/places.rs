//! A place that fails holds up no other place, and a place is given up only if its cluster is away or its user asks for it.

use mcr_testkit::log::Log;

use crate::world::{gate::Silence, widgets::*};

/// How long a cluster may be away in these tests.
const AWAY: Duration = secs(60);

/// Longer than a cluster may be away. A source that fails all this time is tried again after about as long again,
/// and the waits of these tests are longer than that.
const LONG: Duration = secs(150);

#[tokio::test(start_paused = true)]
async fn sync_target_cluster_that_answers_is_never_given_up() {
    // What is allowed in berlin, and whether it is a former target cluster.
    let no_delete = &["get", "list", "watch", "create", "patch"][..];
    for (allowed, is_former) in [(no_delete, false), (&["list", "watch"], true)] {
        let mut world = World::with(&["w"]);
        world.begin(to_each().abandon_after(AWAY));
        let berlin = spec(&world.berlin, "target");
        world.clusters.add(berlin.clone());
        world.synced("w").await;
        allow(&world.berlin, allowed);
        if is_former {
            world.clusters.add(berlin.label("role", "retired"));
            world.size("w", 2);
            is_there(&world.lyon, "w", 2).await;
            world.reported("w", "RequestFailed", "berlin").await;
        }
        delete(&world.team_a, "w");
        is_gone(&world.lyon, "w").await;
        sleep(LONG).await;
        assert!(get(&world.team_a, "w").is_some(), "berlin is not away");
        if is_former {
            give_up(&world.team_a, "w");
        } else {
            allow(&world.berlin, &["*"]);
        }
        is_gone(&world.team_a, "w").await;
        assert_eq!(get(&world.berlin, "w").is_some(), is_former);
    }
}

#[tokio::test(start_paused = true)]
async fn sync_wait_for_a_cluster_begins_anew_when_the_program_starts() {
    let mut world = World::of(&["w"], sync().abandon_after(AWAY)).await;
    world.stop().await;
    delete(&world.team_a, "w");
    sleep(LONG).await;
    world.berlin_gate.now().slowness = AWAY / 2;
    world.begin(sync().abandon_after(AWAY));
    is_gone(&world.team_a, "w").await;
    assert!(get(&world.berlin, "w").is_none(), "berlin was only listed late");
}

#[tokio::test(start_paused = true)]
async fn sync_wait_for_a_cluster_begins_anew_for_another_source_of_the_name() {
    let world = World::of(&["w"], sync().abandon_after(AWAY)).await;
    world.clusters.remove("berlin");
    delete(&world.team_a, "w");
    sleep(AWAY / 2).await;
    // Its owner gives it up by hand, and makes it anew.
    set(&world.team_a, "w", &["metadata", "finalizers"], json!([]));
    make(&world.team_a, "w", json!({"size": 1}));
    world.reported("w", "ClusterAway", "").await;
    delete(&world.team_a, "w");
    sleep(AWAY * 3 / 4).await;
    assert!(get(&world.team_a, "w").is_some(), "given up before its time");
    is_gone(&world.team_a, "w").await;
    let words = "Warning TargetAbandoned gave up default/w in cluster berlin, which is away";
    world.event("w", words).await;
    assert!(get(&world.berlin, "w").is_some());
}

#[tokio::test(start_paused = true)]
async fn sync_target_that_was_given_up_is_reported_without_a_claim_about_an_object_that_never_was() {
    for was_made in [false, true] {
        let log = Log::of_this_thread(tracing::Level::WARN);
        let mut world = World::with(&["w"]);
        world.begin(to_each());
        if was_made {
            is_there(&world.berlin, "w", 1).await;
        }
        world.berlin_gate.now().silence = Silence::All;
        world.reported("w", "ClusterAway", "").await;
        give_up(&world.team_a, "w");
        world.ends("w").await;
        let words = "gave up default/w in cluster berlin, which is away; \
            if the object was made there, it stays when the cluster comes back";
        let event = format!("Warning TargetAbandoned {words}");
        world.event("w", &event).await;
        sleep(LONG).await;
        let mut reported = log.lines_with("mcr_sync::");
        reported.retain(|line| !line.contains("ClusterAway"));
        assert!(
            reported.len() == 1 && reported[0].contains(words),
            "{reported:#?}"
        );
        // What is left is reported when the cluster is back.
        world.clusters.remove("berlin");
        sleep(LONG).await;
        world.clusters.add(spec(&world.berlin, "target"));
        sleep(LONG).await;
        let left = log.lines_with("cluster://team-a/default/w, which no longer exists");
        assert_eq!(left.is_empty(), !was_made, "{left:#?}");
        let words = "Most likely it was given up while its cluster was away, or";
        assert!(left.iter().all(|line| line.contains(words)));
    }
}
