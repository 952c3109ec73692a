//! One index of a store.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use crate::{codec::Object, key::ObjectKey};

/// Computes the values that one index finds an object by. `None` if the object can't be decoded.
///
/// The store calls it while it holds its lock, so it must not use the store. If it panics, the index does not hold
/// the object, and the store goes on.
///
/// ```
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mcr_store::{Indexer, Object};
///
/// // An index by the label `app`.
/// let by_app: Indexer = Arc::new(|object: &Object| {
///     let map: ConfigMap = object.decode().ok()?;
///     let mut labels = map.metadata.labels.unwrap_or_default();
///     Some(labels.remove("app").into_iter().collect())
/// });
/// ```
pub type Indexer = Arc<dyn Fn(&Object) -> Option<Vec<String>> + Send + Sync>;

/// The keys of objects by the values that the indexer computes.
pub(super) struct Index {
    pub(super) indexer: Indexer,
    by_value: HashMap<String, BTreeSet<ObjectKey>>,
}

impl Index {
    pub(super) fn new(indexer: Indexer) -> Self {
        Self {
            indexer,
            by_value: HashMap::new(),
        }
    }

    /// The keys of the objects that have this value.
    pub(super) fn keys(&self, value: &str) -> Option<&BTreeSet<ObjectKey>> {
        self.by_value.get(value)
    }

    fn values(&self, object: &Object) -> Vec<String> {
        // A panic must not interrupt a change of the store halfway.
        let values = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (self.indexer)(object)));
        values.ok().flatten().unwrap_or_default()
    }

    pub(super) fn insert(&mut self, object: &Object) {
        for value in self.values(object) {
            self.by_value
                .entry(value)
                .or_default()
                .insert(object.key().clone());
        }
    }

    /// Removes the values that the old object has and the new one lacks. The new object is already in the index.
    pub(super) fn replace(&mut self, old: &Object, new: &Object) {
        let kept: HashSet<String> = self.values(new).into_iter().collect();
        for value in self.values(old) {
            if !kept.contains(&value) {
                self.remove_key(&value, old.key());
            }
        }
    }

    pub(super) fn remove(&mut self, object: &Object) {
        for value in self.values(object) {
            self.remove_key(&value, object.key());
        }
    }

    fn remove_key(&mut self, value: &str, key: &ObjectKey) {
        if let Some(keys) = self.by_value.get_mut(value) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_value.remove(value);
            }
        }
    }
}
