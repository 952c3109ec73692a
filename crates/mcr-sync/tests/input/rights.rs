//! Credentials without the rights that a sync needs.

use mcr::FailingRequest;

use crate::world::widgets::*;

/// Waits until the failure of a request was repeated, with longer and longer pauses.
async fn is_tried_again_later_and_later(world: &World, object: &str) -> FailingRequest {
    let attempt = |least: u32| {
        let mut failing = world.failing().into_iter();
        failing.find(|request| request.object == object && request.attempt >= least)
    };
    let mut begun = Instant::now();
    let mut pauses = Vec::new();
    for least in [6, 8, 10] {
        until(format!("attempt {least} of {object}"), || attempt(least)).await;
        pauses.push(begun.elapsed());
        begun = Instant::now();
    }
    assert!(pauses[2] > 2 * pauses[1] && pauses[2] > secs(1), "{pauses:?}");
    let failing = attempt(10).unwrap();
    assert!(failing.retry_at.is_some());
    failing
}

#[tokio::test(start_paused = true)]
async fn sync_right_that_is_missing_is_told_and_tried_later_and_later_and_holds_nobody_else() {
    let all = &["*"][..];
    let read = ("*", &["get", "list", "watch"][..]);
    let no_create = ("*", &["get", "list", "watch", "patch", "delete"][..]);
    // Where it is missing, what is allowed there, what is told of what, and whether berlin and lyon are served.
    for (at, allowed, [what, right], [berlin, lyon]) in [
        (
            "team-a",
            vec![read],
            ["update cluster://team-a", "patch resource \"widgets\""],
            [false, false],
        ),
        (
            "team-a",
            vec![("widgets", all), ("events", all)],
            [
                "update the status of cluster://team-a",
                "patch resource \"widgets/status\"",
            ],
            [true, true],
        ),
        (
            "berlin",
            vec![no_create],
            ["create cluster://berlin", "create resource \"widgets\""],
            [false, true],
        ),
    ] {
        let mut world = World::with(&["w"]);
        make(&world.team_b, "well", json!({"size": 1}));
        let refuses = if at == "berlin" {
            &world.berlin
        } else {
            &world.team_a
        }
        .clone();
        allow_each(&refuses, &allowed);
        world.begin(to_each());
        is_there(&world.lyon, "well", 1).await;
        let failure = is_tried_again_later_and_later(&world, "default/w").await;
        let could_not = format!("could not {what}/default/w: ");
        let grant = ". Grant this verb to the credentials of the cluster; it is tried again";
        has(
            &failure.error,
            &[&could_not, "User \"admin\" cannot", right, grant],
        );
        if at == "berlin" {
            let message = world.told("w", "RequestFailed", &could_not).await;
            has(&message, &[right, grant]);
        }
        world.size("w", 2);
        for (cluster, is_served) in [(&world.lyon, lyon), (&world.berlin, berlin)] {
            if is_served {
                is_there(cluster, "w", 2).await;
            }
            assert_eq!(get(cluster, "w").is_some(), is_served);
        }
        // Nothing is asked of a target cluster before the finalizer is written.
        assert_eq!(lyon, world.lyon.audit().count(|event| event.name == "w") > 0);
        allow(&refuses, &["*"]);
        is_there(&world.berlin, "w", 2).await;
        world.synced("w").await;
    }
}
