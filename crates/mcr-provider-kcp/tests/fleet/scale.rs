//! The cost of many workspaces.

use std::time::SystemTime;

use mcr_core::{Cluster, ClusterState};
use mcr_kcp_double::{KcpShard, KcpWorkspace};

use crate::world::*;

const WORKSPACES: usize = 240;
/// The shard whose slices are watched.
const SLICES_ON: &str = "root";
const KINDS: [&str; 2] = ["apibindings", "widgets"];

/// The requests of a shard below its wildcard, for each of [`KINDS`].
fn asked(shard: &KcpShard) -> [Asked; 2] {
    let audit = shard.audit();
    KINDS.map(|kind| {
        let wildcard = |uri: &str| uri.contains("/clusters/*/");
        Asked {
            lists: audit.count(|event| event.is_list(kind) && wildcard(&event.uri)),
            watches: audit.count(|event| event.is_watch_start(kind) && wildcard(&event.uri)),
        }
    })
}

/// Waits until each of [`KINDS`] has been listed so often and is watched. A watch from a version that the shard has forgotten
/// begins, too, and ends with a 410.
async fn watched(shard: &KcpShard, lists: usize) {
    let watches = if shard.name() == SLICES_ON { 3 } else { 2 };
    eventually(PATIENCE, format!("{} is watched", shard.name()), || {
        let are_listed = asked(shard).iter().all(|asked| asked.lists >= lists);
        are_listed && shard.watches() == watches
    })
    .await;
}

#[derive(Debug, PartialEq, Eq)]
struct Asked {
    lists: usize,
    watches: usize,
}

/// The clusters of one shard, and the changes of their widgets.
struct OnShard {
    shard: KcpShard,
    workspaces: Vec<KcpWorkspace>,
    clusters: Vec<Cluster>,
    seen: Vec<Witness>,
}

impl OnShard {
    async fn all(&self, what: &str, wanted: impl Fn(&ClusterState) -> bool) {
        let name = self.shard.name();
        eventually(PATIENCE, format!("all of {name} are {what}"), || {
            self.clusters.iter().all(|cluster| wanted(&cluster.state()))
        })
        .await;
    }

    /// What each cluster is, since when, and the changes of its objects that it has reported.
    fn reported(&self) -> Vec<(ClusterState, SystemTime, Vec<String>)> {
        let clusters = self.clusters.iter().zip(&self.seen);
        let reported =
            |(cluster, seen): (&Cluster, &Witness)| (cluster.state(), cluster.state_since(), seen.lines());
        clusters.map(reported).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_many_workspaces_are_one_watch_for_each_shard_and_kind_also_after_a_shard_was_lost() {
    let world = World::with_shards(3).await;
    let mut shards: Vec<OnShard> = Vec::new();
    for shard in world.server.kcp().shards() {
        let name = shard.name().to_owned();
        let workspaces = (0..WORKSPACES / 3).map(|number| {
            let workspace = world.consumer(&format!("{name}-{number}"), &name);
            widget(&workspace, "w", &format!("color-{number}"));
            workspace
        });
        shards.push(OnShard {
            workspaces: workspaces.collect(),
            shard,
            clusters: Vec::new(),
            seen: Vec::new(),
        });
    }
    let running = Running::start(world.builder().build().or_fail());
    for on in &mut shards {
        for workspace in &on.workspaces {
            let cluster = running.ready(workspace.id()).await;
            on.seen.push(Witness::of_widgets(&cluster));
            on.clusters.push(cluster);
        }
        for (number, witness) in on.seen.iter().enumerate() {
            witness.holds(&[&format!("default/w color-{number}")]).await;
        }
        watched(&on.shard, 1).await;
        let once = || Asked { lists: 1, watches: 1 };
        assert_eq!(asked(&on.shard), [once(), once()], "{}", on.shard.name());
    }

    let [untouched, remembers, forgets] = &shards[..] else {
        panic!("three shards")
    };
    let before = (untouched.reported(), asked(&untouched.shard));
    for lost in [remembers, forgets] {
        world.server.stop_shard(lost.shard.name());
    }
    for lost in [remembers, forgets] {
        let is_unreachable = |state: &ClusterState| matches!(state, ClusterState::Unreachable { .. });
        lost.all("unreachable", is_unreachable).await;
        widget(&lost.workspaces[0], "w", "another");
    }
    forgets.shard.compact(forgets.shard.resource_version());
    // The watches of one shard go on where they were. The other shard knows nothing of the time before.
    for (back, lists) in [(remembers, 1), (forgets, 2)] {
        world.server.start_shard(back.shard.name()).await.or_fail();
        back.all("ready", ClusterState::is_ready).await;
        back.seen[0].holds(&["default/w another"]).await;
        watched(&back.shard, lists).await;
        let (is, name) = (asked(&back.shard).map(|asked| asked.lists), back.shard.name());
        assert_eq!(is, [lists; 2], "{name}");
        let mut reported = back.reported().into_iter().map(|(_, _, lines)| lines);
        assert_eq!(reported.next().unwrap(), ["+default/w", "~default/w"], "{name}");
        assert!(reported.all(|lines| lines == ["+default/w"]), "{name}");
    }
    assert_eq!((untouched.reported(), asked(&untouched.shard)), before);
    let is_same = |cluster: &Cluster| {
        let now = running.fleet.get(cluster.name());
        now.is_ok_and(|now| now.is_same(cluster))
    };
    assert!(shards.iter().flat_map(|on| &on.clusters).all(is_same));
    running.stop().await;
}
