//! Targets whose source is gone although nobody saw its deletion.

use crate::world::widgets::*;

const WORDS: &str =
    "cluster://berlin/default/lost was made for cluster://team-a/default/lost, which no longer exists";

#[tokio::test(start_paused = true)]
async fn sync_target_whose_source_is_gone_without_its_finalizer_is_reported_and_stays() {
    for is_replaced in [false, true] {
        let mut world = World::of(&["lost", "back"], sync()).await;
        world.stop().await;
        if is_replaced {
            // The source cluster is an empty one now, of the same name.
            world.team_a = cluster("team-a");
        } else {
            end(&world.team_a, "lost");
            end(&world.team_a, "back");
        }
        world.begin(sync());
        world.waits(WORDS).await;
        // A part of the backup is restored, and the sync goes on with the same target.
        let target = get(&world.berlin, "back").unwrap();
        make(&world.team_a, "back", json!({"size": 2}));
        let found = is_there(&world.berlin, "back", 2).await;
        assert_eq!(found["metadata"]["uid"], target["metadata"]["uid"]);
        world.synced("back").await;
        // An event of the other target is no reason to report it again, or to delete it.
        size(&world.berlin, "lost", 5);
        sleep(secs(60)).await;
        is_there(&world.berlin, "lost", 5).await;
        assert_eq!(count(&world.berlin, "delete"), 0);
        assert_eq!(world.failing().len(), 1);
        // The words end with the target, and nobody takes a usual deletion for a loss.
        delete(&world.berlin, "lost");
        until("no failure", || world.failing().is_empty()).await;
        world.ends("back").await;
        sleep(secs(60)).await;
        assert_eq!(world.failing(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn sync_target_that_is_gone_before_its_watch_reports_is_no_orphan() {
    let world = World::of(&["w"], sync()).await;
    world.berlin_gate.now().lag = secs(30);
    // The event of this change comes when source and target are gone, and that of the deletion after it.
    size(&world.berlin, "w", 5);
    world.ends("w").await;
    assert!(get(&world.berlin, "w").is_none());
    let asked = || {
        world
            .team_a
            .audit()
            .count(|event| event.verb == "get" && event.code == 404)
    };
    let before = asked();
    until("the source is asked for", || asked() > before).await;
    for _ in 0..10 {
        sleep(secs(10)).await;
        assert_eq!(world.failing(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn sync_source_that_vanishes_with_its_finalizer_while_the_program_runs_is_reported_and_its_target_stays()
 {
    for is_limited in [false, true] {
        let mut world = World::with(&["lost"]);
        if is_limited {
            world.begin_with(limited(sync()));
        } else {
            world.begin(sync());
        }
        world.synced("lost").await;
        // No event reports what happens now, as when the storage of the cluster is replaced by a backup.
        world.team_gate.now().lag = secs(100_000);
        end(&world.team_a, "lost");
        world.team_a.compact(world.team_a.resource_version());
        world.team_gate.now().lag = Duration::ZERO;
        world.team_a.end_watches();
        world.waits(WORDS).await;
        assert_eq!(count(&world.berlin, "delete"), 0);
        assert!(get(&world.berlin, "lost").is_some());
    }
}
