//! Endpoints with a declared identity, and clusters that move between shards whose versions have nothing in common.

use std::{sync::Arc, time::Duration};

use mcr_core::Scope;

use mcr_doubles::shard::{Shard, shard};

use crate::{
    harness::*,
    witness::Witness,
    workspaces::{WORKSPACES, access, scope, scope_of},
};

const NOWHERE: &str = "an endpoint that is never set";

/// A fleet in which an uncertain deletion waits this long.
fn running(delay: Duration) -> Running {
    Running::start_with(|settings| settings.uncertain_deletion_delay = delay)
}

const DELAY: Duration = Duration::from_secs(1);
/// Longer than any wait of a test.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

/// The clusters `zoo` and `jungle`, joined at the shard `a`.
async fn both(running: &Running, scope: &Scope, a: &Shard) -> (Witness, Witness) {
    let [zoo, jungle] = ["zoo", "jungle"].map(|place| running.join(scope, "a", place));
    let (seen, other) = (Witness::of(&zoo.await), Witness::of(&jungle.await));
    seen.equals(a).await;
    other.equals(a).await;
    (seen, other)
}

/// Waits until the watch of a shard has received everything that happened there before: another cluster sees a new object.
async fn received(shard: &Shard, other: &Witness) {
    shard.put(other.cluster.name().as_str(), "default", "received", "1");
    other.equals(shard).await;
}

/// These shards show no namespace `kube-system`, so only the declared identity tells that it is the same server.
#[test]
fn kcp_an_endpoint_with_a_declared_identity_keeps_its_clusters_at_a_new_address() {
    paused(|| async {
        let a = shard("a", 100, &["zoo"]);
        let running = Running::start();
        let scope = Scope::new(WORKSPACES);
        let set = |identity: &str| {
            scope.set_endpoint_with_identity("main", access(&a), Some(Arc::from(identity)));
        };
        set("first");
        let zoo = running.join(&scope, "main", "zoo").await;
        let seen = Witness::of(&zoo);
        seen.equals(&a).await;
        let lists = a.lists();
        set("first");
        eventually(SOON, "it is listed at its new address", || a.lists() > lists).await;
        a.put("zoo", "default", "later", "1");
        seen.equals(&a).await;
        assert_eq!(seen.lines(), ["+default/later", "+default/of-zoo"]);
        running.keeps(&zoo);

        set("second");
        let new = next(&running, &zoo).await;
        Witness::of(&new).equals(&a).await;
        running.stop().await;
    });
}

/// A provider announces a cluster at an endpoint that does not exist while kcp moves the cluster: neither the cleanup on the
/// old shard nor objects that the new shard does not show yet count as deletions.
#[test]
fn kcp_a_cluster_between_two_endpoints_keeps_its_objects() {
    paused(|| async {
        let (a, b) = (shard("a", 100, &["zoo", "jungle"]), shard("b", 500, &[]));
        let running = Running::start();
        let scope = scope(&[("a", &a), ("b", &b)]);
        let (seen, other) = both(&running, &scope, &a).await;

        running
            .clusters
            .add(spec(&scope, NOWHERE, "zoo").suspended("it moves"));
        eventually(SOON, "it is suspended", || {
            seen.cluster.state().reason().map(drop)
        })
        .await;
        b.adopt("zoo", &a);
        a.unbind("zoo");
        a.put("jungle", "default", "after", "1");
        other.equals(&a).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(seen.lines(), ["+default/of-zoo"]);
        assert_eq!(seen.names(), ["default/of-zoo"], "they stay readable");

        b.put("zoo", "default", "new", "1");
        running.clusters.add(spec(&scope, "b", "zoo"));
        seen.equals(&b).await;
        ready(&seen.cluster).await;
        assert_eq!(
            seen.lines(),
            ["+default/new", "+default/of-zoo", "~default/of-zoo"]
        );
        running.keeps(&seen.cluster);
        running.stop().await;
    });
}

/// The provider watches other objects than the controllers, so the old shard's cleanup may arrive before the announcement.
#[test]
fn kcp_a_cleanup_that_arrives_before_the_announcement_of_the_move_deletes_nothing() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum By {
        Event,
        List,
    }
    for (by, stop_over) in [
        (By::Event, true),
        (By::Event, false),
        (By::List, true),
        (By::List, false),
    ] {
        paused(|| async move {
            let (a, b) = (shard("a", 100, &["zoo", "jungle"]), shard("b", 500, &[]));
            let running = running(DELAY);
            let scope = scope(&[("a", &a), ("b", &b)]);
            let (seen, other) = both(&running, &scope, &a).await;

            b.adopt("zoo", &a);
            if by == By::List {
                a.end_watches();
                a.expire();
            }
            a.unbind("zoo");
            received(&a, &other).await;
            assert_eq!(seen.names(), ["default/of-zoo"], "{by:?}");
            if stop_over {
                let between = spec(&scope, NOWHERE, "zoo").suspended("it moves");
                running.clusters.add(between);
                tokio::time::sleep(60 * DELAY).await;
                assert_eq!(seen.lines(), ["+default/of-zoo"], "{by:?}");
                assert_eq!(seen.names(), ["default/of-zoo"], "{by:?}");
            }
            b.put("zoo", "default", "new", "1");
            running.clusters.add(spec(&scope, "b", "zoo"));
            seen.equals(&b).await;
            ready(&seen.cluster).await;
            tokio::time::sleep(60 * DELAY).await;
            let lines = ["+default/new", "+default/of-zoo", "~default/of-zoo"];
            assert_eq!(seen.lines(), lines, "{by:?}");
            running.stop().await;
        });
    }
}

/// A move is likely then: the last workspace of a shard takes its endpoint along.
#[test]
fn kcp_an_uncertain_deletion_waits_while_its_endpoint_is_not_connected() {
    paused(|| async {
        let (a, b) = (shard("a", 100, &["zoo", "jungle"]), shard("b", 500, &[]));
        let running = running(DELAY);
        let (scope, at_a) = (scope(&[("b", &b)]), access(&a));
        scope.set_endpoint("a", at_a.clone());
        let (seen, other) = both(&running, &scope, &a).await;
        b.adopt("zoo", &a);
        a.unbind("zoo");
        received(&a, &other).await;
        // The deletion is about to be told.
        tokio::time::sleep(DELAY + DELAY / 2).await;
        scope.remove_endpoint("a");
        tokio::time::sleep(60 * DELAY).await;
        assert_eq!(seen.names(), ["default/of-zoo"]);
        running.clusters.add(spec(&scope, "b", "zoo"));
        seen.equals(&b).await;
        assert_eq!(seen.lines(), ["+default/of-zoo", "~default/of-zoo"]);

        // The endpoint is back.
        scope.set_endpoint("a", at_a);
        a.delete("jungle", "default", "of-jungle");
        other.equals(&a).await;
        running.stop().await;
    });
}

#[test]
fn kcp_an_uncertain_deletion_is_reported_if_no_move_follows() {
    paused(|| async {
        let (a, b) = (shard("a", 100, &["zoo", "jungle"]), shard("b", 500, &[]));
        a.put("zoo", "default", "stays", "1");
        let running = running(20 * DELAY);
        let scope = scope(&[("a", &a), ("b", &b)]);
        let (seen, other) = both(&running, &scope, &a).await;
        a.delete("zoo", "default", "of-zoo");
        received(&a, &other).await;
        assert!(!seen.has("-default/of-zoo"));
        // Lists that lack the object do not prolong the time.
        for _ in 0..24 {
            tokio::time::sleep(5 * DELAY).await;
            a.end_watches();
            a.expire();
        }
        assert_eq!(
            seen.lines(),
            ["+default/of-zoo", "-default/of-zoo", "+default/stays"]
        );
        seen.equals(&a).await;
        running.stop().await;
    });
}

#[test]
fn kcp_a_deletion_that_no_move_can_explain_is_reported_at_once() {
    let reported_at_once = |scope: fn(&Shard, &Shard) -> Scope, before: fn(&Shard)| {
        paused(|| async move {
            let (a, b) = (shard("a", 100, &["zoo"]), shard("b", 500, &[]));
            let running = running(FOR_EVER);
            let scope = scope(&a, &b);
            let zoo = running.join(&scope, "a", "zoo").await;
            let seen = Witness::of(&zoo);
            for by_list in [false, true] {
                a.put("zoo", "default", "of-zoo", "1");
                before(&a);
                seen.equals(&a).await;
                seen.forget_lines();
                if by_list {
                    a.end_watches();
                    a.expire();
                }
                a.delete("zoo", "default", "of-zoo");
                seen.equals(&a).await;
                assert_eq!(seen.lines(), ["-default/of-zoo"]);
            }
            running.stop().await;
        });
    };
    // No other endpoint can show the cluster.
    reported_at_once(|a, _| scope(&[("a", a)]), |_| ());
    // This API has no other reason to remove an object than its deletion.
    const CERTAIN: Layout = Layout {
        deletions_are_certain: || true,
        ..WORKSPACES
    };
    reported_at_once(|a, b| scope_of(CERTAIN, &[("a", a), ("b", b)]), |_| ());
    reported_at_once(
        |a, b| scope(&[("a", a), ("b", b)]),
        |a| a.begin_deletion("zoo", "default", "of-zoo"),
    );
}

/// An API server may set the timestamp and delete the object in one step.
#[test]
fn kcp_a_deletion_timestamp_in_the_event_alone_makes_a_deletion_certain() {
    paused(|| async {
        let (a, b) = (shard("a", 100, &["zoo"]), shard("b", 500, &[]));
        let running = running(FOR_EVER);
        let scope = scope(&[("a", &a), ("b", &b)]);
        let zoo = running.join(&scope, "a", "zoo").await;
        let seen = Witness::of(&zoo);
        seen.equals(&a).await;
        a.delete_with_timestamp("zoo", "default", "of-zoo");
        seen.equals(&a).await;
        running.stop().await;
    });
}
