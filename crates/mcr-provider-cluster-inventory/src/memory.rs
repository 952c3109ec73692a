//! Clusters that were announced, over discoveries.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use mcr_core::{ObjectKey, internal::lock};

/// The ClusterProfiles that were announced, and whether their clusters are engaged.
///
/// It outlives a discovery. So a new discovery, after a failure, does not take the connection from a cluster whose access is
/// missing at that moment.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<HashMap<ObjectKey, Announced>>);

#[derive(Debug)]
struct Announced {
    uid: Option<Arc<str>>,
    engaged: bool,
}

impl Memory {
    pub(crate) fn announced(&self, key: &ObjectKey, uid: Option<&Arc<str>>, engaged: bool) {
        let announced = Announced {
            uid: uid.cloned(),
            engaged,
        };
        lock(&self.0).insert(key.clone(), announced);
    }

    /// Returns whether there was such a cluster.
    pub(crate) fn forget(&self, key: &ObjectKey) -> bool {
        lock(&self.0).remove(key).is_some()
    }

    pub(crate) fn is_engaged(&self, key: &ObjectKey) -> bool {
        lock(&self.0).get(key).is_some_and(|announced| announced.engaged)
    }

    /// Whether a ClusterProfile of this name was announced.
    pub(crate) fn knows(&self, key: &ObjectKey) -> bool {
        lock(&self.0).contains_key(key)
    }

    /// Whether another ClusterProfile of this name was announced.
    pub(crate) fn is_another(&self, key: &ObjectKey, uid: Option<&Arc<str>>) -> bool {
        lock(&self.0)
            .get(key)
            .is_some_and(|announced| announced.uid.as_ref() != uid)
    }
}
