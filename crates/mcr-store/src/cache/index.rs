//! One index of a store.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use crate::{codec::Object, key::ObjectKey};

/// Computes the values under which one index finds an object. `None` if the object can't be decoded.
///
/// The store calls the indexer once for each version of an object, while it holds no lock. If the indexer panics, the
/// index leaves the object out, and the store goes on.
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
#[derive(Clone)]
pub(super) struct Index {
    pub(super) indexer: Indexer,
    by_value: HashMap<Arc<str>, BTreeSet<ObjectKey>>,
    /// The values of each object that has any. They are kept so that the object can be removed without a call of the
    /// indexer.
    values: HashMap<ObjectKey, Values>,
}

/// The values under which an index finds one object.
pub(super) type Values = Box<[Arc<str>]>;

/// Computes the values of an object. Runs code of the user, so the caller must not hold a lock.
pub(super) fn values(indexer: &Indexer, object: &Object) -> Values {
    let values = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| indexer(object)));
    let values = values.ok().flatten().unwrap_or_default();
    values.into_iter().map(Arc::from).collect()
}

impl Index {
    pub(super) fn new(indexer: Indexer) -> Self {
        Self {
            indexer,
            by_value: HashMap::new(),
            values: HashMap::new(),
        }
    }

    /// The keys of the objects that have this value.
    pub(super) fn keys(&self, value: &str) -> Option<&BTreeSet<ObjectKey>> {
        self.by_value.get(value)
    }

    /// Sets the values of the object that has this key.
    pub(super) fn set(&mut self, key: &ObjectKey, mut values: Values) {
        for value in &mut values {
            // Objects with the same value share its text.
            if let Some((held, _)) = self.by_value.get_key_value(value) {
                *value = held.clone();
            }
            self.by_value
                .entry(value.clone())
                .or_default()
                .insert(key.clone());
        }
        let old = self.values.remove(key).unwrap_or_default();
        for value in old.iter().filter(|value| !values.contains(value)) {
            self.remove_key(value, key);
        }
        if !values.is_empty() {
            self.values.insert(key.clone(), values);
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        for value in self.values.remove(key).unwrap_or_default() {
            self.remove_key(&value, key);
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
