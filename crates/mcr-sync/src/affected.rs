//! Which sources an event of the fleet may concern.

use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    time::SystemTime,
};

use kube::core::DynamicObject;
use mcr::{Cluster, ClusterName, ClusterState, Fleet, FleetEvent, RequestKey};
use parking_lot::Mutex;

use crate::relation::Relation;

/// The clusters of a sync, as far as the fleet has reported them.
#[derive(Default)]
pub(crate) struct Clusters(Mutex<HashMap<ClusterName, Seen>>);

/// What a sync depends on in a cluster. A change of anything else moves no target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    may_have_targets: bool,
    ready_since: Option<SystemTime>,
    /// Whether the cluster is not connected yet. Nothing is reported about it until then.
    is_connecting: bool,
    /// A hash of what decides about targets in the cluster: whether it is another name of a cluster, and the labels
    /// and properties if a function of the user may read them.
    target_hash: u64,
    /// A hash of the labels and properties of a source cluster. The projection may read them.
    source_hash: u64,
}

impl Seen {
    fn now<S, T>(relation: &Relation<S, T>, cluster: &Cluster) -> Self {
        let mut target_hash = DefaultHasher::new();
        cluster.same_as().hash(&mut target_hash);
        if relation.sees_clusters() {
            (cluster.labels(), cluster.properties()).hash(&mut target_hash);
        }
        let mut source_hash = DefaultHasher::new();
        if relation.sources.matches(cluster) {
            (cluster.labels(), cluster.properties()).hash(&mut source_hash);
        }
        Self {
            source_hash: source_hash.finish(),
            may_have_targets: relation.targets.matches(cluster),
            is_connecting: matches!(
                cluster.state(),
                ClusterState::Discovered | ClusterState::Connecting
            ),
            ready_since: cluster.state().is_ready().then(|| cluster.state_since()),
            target_hash: target_hash.finish(),
        }
    }
}

impl Clusters {
    /// Replaces what is noted of a cluster. Returns what was noted before.
    fn note(&self, name: &ClusterName, seen: Option<Seen>) -> Option<Seen> {
        let mut all = self.0.lock();
        match seen {
            Some(seen) => all.insert(name.clone(), seen),
            None => all.remove(name),
        }
    }

    /// The sources to reconcile after this event. These are all sources if the cluster may have targets, or may have
    /// had some. Otherwise they are the sources in the cluster itself, because the placement may read their cluster.
    /// There are none if the event changes nothing that the sync depends on.
    pub(crate) fn affected<S, T>(
        &self,
        relation: &Relation<S, T>,
        event: &FleetEvent,
        fleet: &Fleet,
    ) -> Vec<RequestKey> {
        let had_targets = |before: Option<Seen>| before.is_some_and(|before| before.may_have_targets);
        let (concerns_targets, changed) = match event {
            FleetEvent::Engaged(cluster) | FleetEvent::Updated(cluster) => {
                let is_update = matches!(event, FleetEvent::Updated(_));
                let seen = Seen::now(relation, cluster);
                let before = self.note(cluster.name(), Some(seen));
                if is_update && before == Some(seen) {
                    return Vec::new();
                }
                relation.silent.forget_cluster(cluster.name());
                let source_hash = seen.source_hash;
                let is_same_for_targets = before.is_some_and(|before| {
                    Seen {
                        source_hash,
                        ..before
                    } == seen
                });
                // If its labels have changed, the cluster may no longer be a target cluster, but may still have
                // targets.
                let may_have = seen.may_have_targets || had_targets(before);
                (may_have && !(is_update && is_same_for_targets), Some(cluster))
            }
            FleetEvent::Disengaged { name, .. } => (had_targets(self.note(name, None)), None),
            _ => (true, None),
        };
        let clusters = if concerns_targets {
            fleet.clusters()
        } else {
            changed.into_iter().cloned().collect()
        };
        let sources = clusters
            .iter()
            .filter(|cluster| relation.sources.matches(cluster));
        let waiting = changed.map(|cluster| relation.memory.waiting_for(cluster.name()));
        let known = sources.flat_map(|cluster| stored_sources(relation, cluster));
        known.chain(waiting.into_iter().flatten()).collect()
    }
}

/// The sources in the store of a cluster, even before its first list is complete. Sources that are listed later are
/// reconciled anyway.
fn stored_sources<S, T>(relation: &Relation<S, T>, cluster: &Cluster) -> Vec<RequestKey> {
    let store = relation
        .source_watch()
        .and_then(|watch| cluster.store_of::<DynamicObject>(watch).ok());
    let keys = store.and_then(|store| store.keys_unsynced().ok());
    keys.into_iter()
        .flatten()
        .map(|key| RequestKey::new(cluster.name().clone(), key))
        .collect()
}
