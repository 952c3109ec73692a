//! What a provider keeps over discoveries.

use std::{collections::HashMap, sync::Arc};

use mcr_core::ObjectKey;
use parking_lot::Mutex;

use crate::kubeconfig::Held;

/// The kubeconfigs that are in use, and the projects of namespaces.
///
/// A new discovery, after a failure, so needs no request for a kubeconfig that is still valid.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    shoots: Mutex<HashMap<ObjectKey, Engaged>>,
    projects: Mutex<HashMap<Arc<str>, Arc<str>>>,
}

/// A Shoot that was announced with a kubeconfig.
#[derive(Debug, Clone)]
pub(crate) struct Engaged {
    pub(crate) uid: Option<Arc<str>>,
    /// None once a suspension has ended its use.
    pub(crate) held: Option<Held>,
}

impl Memory {
    pub(crate) fn engaged(&self, key: &ObjectKey, uid: Option<&Arc<str>>, held: Option<Held>) {
        let uid = uid.cloned();
        self.shoots.lock().insert(key.clone(), Engaged { uid, held });
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Engaged> {
        self.shoots.lock().get(key).cloned()
    }

    pub(crate) fn forget(&self, key: &ObjectKey) -> Option<Engaged> {
        self.shoots.lock().remove(key)
    }

    /// Forgets the Shoots that are gone.
    pub(crate) fn keep(&self, is_there: impl Fn(&ObjectKey) -> bool) {
        self.shoots.lock().retain(|key, _| is_there(key));
    }

    pub(crate) fn project(&self, namespace: &str) -> Option<Arc<str>> {
        self.projects.lock().get(namespace).cloned()
    }

    pub(crate) fn set_project(&self, namespace: &Arc<str>, project: &Arc<str>) {
        self.projects.lock().insert(namespace.clone(), project.clone());
    }
}
