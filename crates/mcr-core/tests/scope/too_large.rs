//! A cluster behind a scope endpoint whose objects take too much memory.

use std::{sync::Arc, time::Duration};

use mcr_core::{Cluster, KindStatus, WatchSettings};

use mcr_doubles::shard::Shard;

use crate::{harness::*, witness::Witness, workspaces::scope};

fn kind(cluster: &Cluster) -> KindStatus {
    cluster.kinds().remove(0)
}

async fn until(cluster: &Cluster, what: &str, is: impl Fn(&KindStatus) -> bool) {
    let is = || is(&kind(cluster));
    eventually(Duration::from_secs(900), what.to_owned(), is).await;
}

/// Puts objects into a place that take much memory.
fn fill(shard: &Shard, place: &str, objects: usize) {
    for object in 0..objects {
        shard.put(place, "default", &format!("large-{object}"), &"x".repeat(250_000));
    }
}

fn one_place_too_large(change: impl Fn(&mut WatchSettings), setting: &str) {
    paused(async || {
        let shard = Shard::new("shard", 100);
        for place in ["good", "evil", "late"] {
            shard.bind(place);
            shard.put(place, "default", "small", "1");
        }
        fill(&shard, "evil", 12);
        let running = Running::start_with(|settings| change(Arc::make_mut(&mut settings.watch)));
        let scope = scope(&[("a", &shard)]);
        let good = Witness::of(&running.join(&scope, "a", "good").await);
        let evil = Witness::of(&running.join(&scope, "a", "evil").await);
        let late = Witness::of(&running.join(&scope, "a", "late").await);
        good.equals(&shard).await;
        late.equals(&shard).await;
        until(&evil.cluster, "the place is blocked", |kind| {
            kind.blocked && !kind.synced
        })
        .await;
        let problem = kind(&evil.cluster).problem.unwrap();
        assert!(
            problem.starts_with("the objects of this cluster take 2.9 MiB") && problem.contains(setting),
            "{problem}"
        );
        // The others go on, and one that grows later is no different.
        shard.put("good", "default", "more", "2");
        shard.put("evil", "default", "unseen", "2");
        good.equals(&shard).await;
        assert_eq!((evil.names().len(), kind(&good.cluster).problem), (0, None));
        let lists = shard.lists();
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert_eq!(shard.lists(), lists, "each list transfers everything");
        fill(&shard, "late", 12);
        if setting.contains("held_bytes") {
            until(&late.cluster, "it holds too much", |kind| {
                kind.blocked && kind.synced
            })
            .await;
        } else {
            late.equals(&shard).await;
        }
        shard.expire();
        until(&late.cluster, "its list takes too much", |kind| {
            kind.blocked && kind.synced
        })
        .await;
        // What was read stays readable, and nothing counts as deleted.
        assert!(late.names().len() > 1 && !late.lines().iter().any(|line| line.starts_with('-')));
        for object in 0..12 {
            shard.delete("evil", "default", &format!("large-{object}"));
            shard.delete("late", "default", &format!("large-{object}"));
        }
        shard.put("good", "default", "last", "3");
        for (witness, cluster) in [
            (&good, &good.cluster),
            (&evil, &evil.cluster),
            (&late, &late.cluster),
        ] {
            until(cluster, "it is in order", |kind| {
                kind.synced && kind.problem.is_none()
            })
            .await;
            witness.equals(&shard).await;
        }
        running.stop().await;
    });
}

#[test]
fn a_place_whose_objects_do_not_fit_into_a_list_is_blocked_and_the_others_are_listed() {
    one_place_too_large(
        |watch| watch.list_bytes = 2 << 20,
        "WatchSettings::list_bytes is 2.0 MiB",
    );
}

#[test]
fn a_place_that_holds_too_much_is_blocked_and_the_others_go_on() {
    one_place_too_large(
        |watch| watch.held_bytes = Some(1 << 20),
        "WatchSettings::held_bytes is 1.0 MiB",
    );
}
