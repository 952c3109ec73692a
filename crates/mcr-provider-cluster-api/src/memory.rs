//! Clusters that were engaged, over discoveries.

use std::{collections::HashMap, sync::Arc};

use mcr_core::ObjectKey;
use parking_lot::Mutex;

/// The UID of each Cluster that was announced with a kubeconfig.
///
/// It outlives a discovery. So a new discovery, after a failure, does not take the connection from a cluster whose Secret is
/// missing at that moment.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<HashMap<ObjectKey, Option<Arc<str>>>>);

impl Memory {
    pub(crate) fn engaged(&self, key: &ObjectKey, uid: Option<&Arc<str>>) {
        self.0.lock().insert(key.clone(), uid.cloned());
    }

    /// Returns whether there was such a cluster.
    pub(crate) fn forget(&self, key: &ObjectKey) -> bool {
        self.0.lock().remove(key).is_some()
    }

    pub(crate) fn is_engaged(&self, key: &ObjectKey, uid: Option<&Arc<str>>) -> bool {
        self.0
            .lock()
            .get(key)
            .is_some_and(|engaged| engaged.as_ref() == uid)
    }

    /// Whether another Cluster of this name was engaged.
    pub(crate) fn is_another(&self, key: &ObjectKey, uid: Option<&Arc<str>>) -> bool {
        self.0
            .lock()
            .get(key)
            .is_some_and(|engaged| engaged.as_ref() != uid)
    }
}
