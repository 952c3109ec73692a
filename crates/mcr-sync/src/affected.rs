//! The sources that an event of the fleet may concern.

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

/// What a sync sees of a cluster. Other changes of it move no target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    may_have_targets: bool,
    ready_since: Option<SystemTime>,
    /// Whether it is not yet known if the cluster answers. Nothing is reported until then.
    is_new: bool,
    /// A hash of whether it is another name of a cluster, and of the labels and the properties if a function of the user may read
    /// them.
    described: u64,
    /// A hash of the labels and the properties of a source cluster, which the projection may read.
    own: u64,
}

impl Seen {
    fn now<S, T>(relation: &Relation<S, T>, cluster: &Cluster) -> Self {
        let mut described = DefaultHasher::new();
        cluster.same_as().hash(&mut described);
        if relation.sees_clusters() {
            (cluster.labels(), cluster.properties()).hash(&mut described);
        }
        let mut own = DefaultHasher::new();
        if relation.sources.matches(cluster) {
            (cluster.labels(), cluster.properties()).hash(&mut own);
        }
        Self {
            own: own.finish(),
            may_have_targets: relation.targets.matches(cluster),
            is_new: matches!(
                cluster.state(),
                ClusterState::Discovered | ClusterState::Connecting
            ),
            ready_since: cluster.state().is_ready().then(|| cluster.state_since()),
            described: described.finish(),
        }
    }
}

impl Clusters {
    /// Notes what is seen of a cluster. Returns what was seen before.
    fn note(&self, name: &ClusterName, seen: Option<Seen>) -> Option<Seen> {
        let mut all = self.0.lock();
        match seen {
            Some(seen) => all.insert(name.clone(), seen),
            None => all.remove(name),
        }
    }

    /// The sources to reconcile after this event. None, if it changes nothing that the sync sees. All of them if it is of a cluster
    /// that may have targets, or might have had some. Otherwise those of the cluster itself, because the placement sees the
    /// cluster of a source.
    pub(crate) fn affected<S, T>(
        &self,
        relation: &Relation<S, T>,
        event: &FleetEvent,
        fleet: &Fleet,
    ) -> Vec<RequestKey> {
        let had_targets = |before: Option<Seen>| before.is_some_and(|before| before.may_have_targets);
        let (is_target, here) = match event {
            FleetEvent::Engaged(cluster) | FleetEvent::Updated(cluster) => {
                let is_update = matches!(event, FleetEvent::Updated(_));
                let seen = Seen::now(relation, cluster);
                let before = self.note(cluster.name(), Some(seen));
                if is_update && before == Some(seen) {
                    return Vec::new();
                }
                relation.silent.forget_cluster(cluster.name());
                let own = seen.own;
                let is_the_same = before.is_some_and(|before| Seen { own, ..before } == seen);
                // A cluster whose labels have changed may have lost its targets.
                let may_have = seen.may_have_targets || had_targets(before);
                (may_have && !(is_update && is_the_same), Some(cluster))
            }
            FleetEvent::Disengaged { name, .. } => (had_targets(self.note(name, None)), None),
            _ => (true, None),
        };
        let clusters = if is_target {
            fleet.clusters()
        } else {
            here.into_iter().cloned().collect()
        };
        let sources = clusters
            .iter()
            .filter(|cluster| relation.sources.matches(cluster));
        let waiting = here.map(|cluster| relation.memory.waiting_for(cluster.name()));
        let known = sources.flat_map(|cluster| known(relation, cluster));
        known.chain(waiting.into_iter().flatten()).collect()
    }
}

/// The sources in the store of a cluster, also while they are listed for the first time: those that come later are reconciled anyway.
fn known<S, T>(relation: &Relation<S, T>, cluster: &Cluster) -> Vec<RequestKey> {
    let store = relation
        .source_watch()
        .and_then(|watch| cluster.store_of::<DynamicObject>(watch).ok());
    let keys = store.and_then(|store| store.keys_unsynced().ok());
    keys.into_iter()
        .flatten()
        .map(|key| RequestKey::new(cluster.name().clone(), key))
        .collect()
}
