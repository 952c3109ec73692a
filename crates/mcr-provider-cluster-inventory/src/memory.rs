//! Clusters that were announced, over discoveries.

use std::{collections::HashMap, sync::Arc};

use mcr_core::ObjectKey;
use parking_lot::Mutex;

use crate::facts::Facts;

/// The ClusterProfiles that were announced, and whether their clusters are engaged.
///
/// It outlives a discovery. So a new discovery, after a failure, does not take the connection from a cluster whose access is
/// missing at that moment.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<HashMap<ObjectKey, Announced>>);

#[derive(Debug, Default)]
struct Announced {
    uid: Option<Arc<str>>,
    /// The last [ids](Facts::ids).
    ids: [Option<Box<str>>; 2],
    engaged: bool,
}

impl Memory {
    pub(crate) fn announced(&self, key: &ObjectKey, facts: &Facts, engaged: bool) {
        let mut all = self.0.lock();
        let announced = all.entry(key.clone()).or_default();
        announced.uid.clone_from(&facts.uid);
        announced.engaged = engaged;
        for (known, id) in announced.ids.iter_mut().zip(facts.ids()) {
            *known = id.map(Box::from).or(known.take());
        }
    }

    /// Returns whether there was such a cluster.
    pub(crate) fn forget(&self, key: &ObjectKey) -> bool {
        self.0.lock().remove(key).is_some()
    }

    pub(crate) fn is_engaged(&self, key: &ObjectKey) -> bool {
        self.0.lock().get(key).is_some_and(|announced| announced.engaged)
    }

    /// Whether a ClusterProfile of this name was announced.
    pub(crate) fn contains(&self, key: &ObjectKey) -> bool {
        self.0.lock().contains_key(key)
    }

    /// Whether another cluster was announced under this name: that of another ClusterProfile, or one with another id. A cluster
    /// manager may build another cluster under a profile. An id that comes or goes is no change.
    pub(crate) fn is_another(&self, key: &ObjectKey, facts: &Facts) -> bool {
        let all = self.0.lock();
        let Some(announced) = all.get(key) else {
            return false;
        };
        let mut ids = announced.ids.iter().zip(facts.ids());
        announced.uid != facts.uid
            || ids.any(|(was, is)| was.is_some() && is.is_some() && was.as_deref() != is)
    }
}
