//! Kinds that an endpoint lists for all its clusters, but that one cluster may not have.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_core::{ClusterSpec, Scope, StoreError};

use mcr_doubles::shard::{Shard, shard};

use crate::{harness::*, witness::Witness, workspaces::scope};

const REASON: &str = "its claim is not accepted; accept it";

/// A shard that shows the objects of one workspace, and a fleet with that workspace and another one, whose ConfigMaps are
/// withheld.
async fn world() -> (Shard, Running, Scope, [Witness; 2]) {
    let a = shard("a", 100, &["jungle"]);
    let running = Running::start();
    let scope = scope(&[("a", &a)]);
    let jungle = running.join(&scope, "a", "jungle").await;
    let other = Witness::of(&jungle);
    other.equals(&a).await;
    withhold(&running, &scope, Some(REASON));
    let zoo = running.engaged("zoo").await;
    let seen = Witness::of(&zoo);
    ready(&zoo).await;
    (a, running, scope, [seen, other])
}

fn withhold(running: &Running, scope: &Scope, reason: Option<&str>) {
    let withheld = reason.map(|reason| ("configmaps".to_owned(), reason.to_owned()));
    let access = scope.place_without("a", "zoo", BTreeMap::from_iter(withheld));
    running
        .clusters
        .add(ClusterSpec::new(name("zoo"), access).identity("id of zoo"));
}

/// The zoo shows its objects.
fn open(a: &Shard) {
    a.bind("zoo");
    a.put("zoo", "default", "of-zoo", "1");
}

async fn is_blocked(seen: &Witness) {
    eventually(SOON, "the kind is blocked", || {
        let kind = seen.cluster.kinds().into_iter().next()?;
        (kind.blocked && kind.problem?.contains(REASON)).then_some(())
    })
    .await;
}

#[test]
fn kcp_a_withheld_kind_is_blocked_and_listed_once_it_is_granted() {
    paused(|| async {
        let (a, running, scope, [seen, other]) = world().await;
        is_blocked(&seen).await;
        assert!(!seen.watch.status().synced);
        let store = seen.cluster.store::<ConfigMap>().or_fail();
        let error = store.len().unwrap_err();
        assert!(matches!(error, StoreError::NotListed { .. }), "{error:?}");
        assert!(error.to_string().contains(REASON), "{error}");
        assert!(other.problem().is_none() && other.watch.status().synced);

        let lists = a.lists();
        open(&a);
        withhold(&running, &scope, None);
        store.wait_synced(SOON).await.or_fail();
        assert_eq!(seen.names(), ["default/of-zoo"]);
        assert!(seen.problem().is_none());
        // Revoked and granted again.
        a.delete("zoo", "default", "of-zoo");
        withhold(&running, &scope, Some(REASON));
        is_blocked(&seen).await;
        eventually(SOON, "its objects leave", || seen.names().is_empty()).await;
        open(&a);
        withhold(&running, &scope, None);
        seen.equals(&a).await;
        eventually(SOON, "it is not blocked", || seen.problem().is_none()).await;
        assert_eq!(a.lists(), lists, "the watch of all clusters has gone on");
        running.keeps(&seen.cluster);
        assert_eq!(other.lines(), ["+default/of-jungle"]);
        running.stop().await;
    });
}

/// The permission may be seen before the objects. A kind that counted as listed then would look empty.
#[test]
fn kcp_a_granted_kind_is_not_listed_before_its_objects_are_there() {
    paused(|| async {
        let (a, running, scope, [seen, other]) = world().await;
        let lists = a.lists();
        a.kill_watches();
        open(&a);
        withhold(&running, &scope, None);
        let store = seen.cluster.store::<ConfigMap>().or_fail();
        store.wait_synced(SOON).await.or_fail();
        assert_eq!(seen.names(), ["default/of-zoo"]);
        // The watch did not bring them, so all clusters were listed, once.
        assert_eq!(a.lists(), lists + 1);
        seen.equals(&a).await;
        assert_eq!(other.lines(), ["+default/of-jungle"]);
        running.stop().await;
    });
}

#[test]
fn kcp_a_kind_that_is_withheld_again_at_once_stays_blocked() {
    paused(|| async {
        let (a, running, scope, [seen, _]) = world().await;
        is_blocked(&seen).await;
        a.kill_watches();
        open(&a);
        withhold(&running, &scope, None);
        eventually(SOON, "it is granted", || {
            seen.problem().filter(|problem| !problem.contains(REASON))
        })
        .await;
        withhold(&running, &scope, Some(REASON));
        is_blocked(&seen).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        is_blocked(&seen).await;
        assert!(!seen.watch.status().synced);
        running.stop().await;
    });
}
