//! The sources that an event of the fleet may concern.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use kube::core::DynamicObject;
use mcr::{Cluster, ClusterName, Fleet, FleetEvent, RequestKey};
use serde::{Serialize, de::DeserializeOwned};

use crate::relation::Relation;

/// The clusters that may have targets, as far as the fleet has told. A change of another cluster moves no target.
#[derive(Default)]
pub(crate) struct TargetClusters(Mutex<HashSet<ClusterName>>);

impl TargetClusters {
    fn names(&self) -> MutexGuard<'_, HashSet<ClusterName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sources to look at after this event: all of them if it is of a cluster that may have targets, or might have had some;
    /// otherwise those of the cluster itself, because the placement sees the cluster of a source.
    pub(crate) fn affected<S, T>(
        &self,
        relation: &Relation<S, T>,
        event: &FleetEvent,
        fleet: &Fleet,
    ) -> Vec<RequestKey>
    where
        S: DeserializeOwned,
        T: DeserializeOwned + Serialize,
    {
        let is_target = match event {
            FleetEvent::Engaged(cluster) | FleetEvent::Updated(cluster) => {
                if relation.targets.matches(cluster) {
                    self.names().insert(cluster.name().clone());
                    true
                } else {
                    // A cluster whose labels have changed may have lost its targets.
                    self.names().remove(cluster.name())
                }
            }
            FleetEvent::Disengaged { name, .. } => self.names().remove(name),
            _ => true,
        };
        let clusters = match event {
            _ if is_target => fleet.clusters(),
            FleetEvent::Engaged(cluster) | FleetEvent::Updated(cluster) => vec![cluster.clone()],
            _ => Vec::new(),
        };
        let sources = clusters
            .into_iter()
            .filter(|cluster| relation.sources.matches(cluster));
        sources.flat_map(|cluster| known(relation, &cluster)).collect()
    }
}

/// The sources in the store of a cluster, also while they are listed for the first time: those that come later are looked at anyway.
fn known<S, T>(relation: &Relation<S, T>, cluster: &Cluster) -> Vec<RequestKey>
where
    S: DeserializeOwned,
    T: DeserializeOwned + Serialize,
{
    let store = cluster.store_of::<DynamicObject>(&relation.source_watch());
    let keys = store.and_then(|store| store.keys_unsynced()).unwrap_or_default();
    keys.into_iter()
        .map(|key| RequestKey::new(cluster.name().clone(), key))
        .collect()
}
