//! The objects of one watch, and the changes between them.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{
    change::{ObjectChange, ObjectChanges},
    index::{Index, Indexer, Values, values},
    table::Table,
};
use crate::{codec::Object, key::ObjectKey};

/// The objects of one watch, with their indexes. Every method takes `&self`, so threads can share a store.
///
/// A list replaces the content of a store in three steps: [`begin_listing`](Self::begin_listing),
/// [`upsert`](Self::upsert) for each object, [`finish_listing`](Self::finish_listing). An object that the list
/// lacks stays readable until the last step.
///
/// ```
/// use std::sync::Arc;
///
/// use mcr_store::{Encoder, Encoding, Object, ObjectStore};
/// use serde_json::value::RawValue;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut encoder = Encoder::plain(Encoding::new("v1", "ConfigMap"));
/// let mut object = |json: &str| -> Result<Arc<Object>, Box<dyn std::error::Error>> {
///     let json: &RawValue = serde_json::from_str(json)?;
///     Ok(Arc::new(Object::parse(json, &mut encoder)?))
/// };
/// let store = ObjectStore::default();
/// store.upsert(object(r#"{"metadata":{"name":"a","uid":"1","resourceVersion":"1"}}"#)?, true);
/// store.upsert(object(r#"{"metadata":{"name":"b","uid":"2","resourceVersion":"2"}}"#)?, true);
///
/// // A second list has only b, and b is as it was.
/// store.begin_listing();
/// let changes = store.upsert(object(r#"{"metadata":{"name":"b","uid":"2","resourceVersion":"2"}}"#)?, true);
/// assert_eq!(changes.into_iter().count(), 0);
/// let deleted = store.finish_listing(true);
/// assert_eq!(deleted.len(), 1);
/// assert_eq!(store.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct ObjectStore {
    inner: RwLock<Inner>,
}

/// The names of indexes, each with the values of one object.
type IndexValues = Vec<(Arc<str>, Values)>;

#[derive(Default)]
struct Inner {
    objects: Table,
    indexes: HashMap<Arc<str>, Index>,
    /// How many indexes have been added.
    added_indexes: u64,
    bytes: usize,
    held_bytes: usize,
    /// The objects that the current listing has not contained yet. `None` outside of a listing.
    unlisted: Option<Table>,
}

impl ObjectStore {
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write()
    }

    /// The object of this key. `None` if the store does not hold it.
    #[inline]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.read().objects.get(key).cloned()
    }

    /// All objects, in no particular order.
    pub fn all(&self) -> Vec<Arc<Object>> {
        self.read().objects.values().cloned().collect()
    }

    /// How many objects the store holds.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether the store holds no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size of all objects as JSON, in bytes: the sum of [`Object::bytes`].
    pub fn bytes(&self) -> usize {
        self.read().bytes
    }

    /// The memory that all objects take, in bytes: the sum of [`Object::held_bytes`]. Does not include templates,
    /// indexes and the hash table.
    pub fn held_bytes(&self) -> usize {
        self.read().held_bytes
    }

    /// The objects that an index finds under a value, in the order of their keys. `None` if there is no index of
    /// this name.
    pub fn by_index(&self, index: &str, value: &str) -> Option<Vec<Arc<Object>>> {
        let inner = self.read();
        let keys = inner.indexes.get(index)?.keys(value);
        Some(
            keys.into_iter()
                .flatten()
                .filter_map(|key| inner.objects.get(key).cloned())
                .collect(),
        )
    }

    /// Adds an index over the objects that the store holds and will hold. It replaces an index of the same name.
    pub fn add_index(&self, name: Arc<str>, indexer: Indexer) {
        let mut computed = HashMap::new();
        loop {
            let is_new = |object: &&Arc<Object>| !computed.contains_key(&Arc::as_ptr(object));
            let new: Vec<Arc<Object>> = self.read().objects.values().filter(is_new).cloned().collect();
            for object in new {
                let values = values(&indexer, &object);
                computed.insert(Arc::as_ptr(&object), (object, values));
            }
            let mut inner = self.write();
            // Other threads may have inserted objects meanwhile.
            let is_known = |object: &Arc<Object>| computed.contains_key(&Arc::as_ptr(object));
            if inner.objects.values().all(is_known) {
                let mut index = Index::new(indexer);
                for object in inner.objects.values() {
                    if let Some((_, values)) = computed.remove(&Arc::as_ptr(object)) {
                        index.set(object.key(), values);
                    }
                }
                inner.indexes.insert(name, index);
                inner.added_indexes += 1;
                return;
            }
        }
    }

    /// Computes the values of a new object for each index, then locks the store for writing. The values are `None` if
    /// the store holds the object with the same content.
    fn write_with_values(&self, new: &Object) -> (RwLockWriteGuard<'_, Inner>, Option<IndexValues>) {
        let mut computed = (0, Vec::new());
        loop {
            let inner = self.write();
            if inner
                .objects
                .get(new.key())
                .is_some_and(|held| held.same_content(new))
            {
                return (inner, None);
            }
            if inner.added_indexes == computed.0 {
                return (inner, Some(computed.1));
            }
            let indexes = inner.indexes.iter();
            let indexers: Vec<(Arc<str>, Indexer)> = indexes
                .map(|(name, index)| (name.clone(), index.indexer.clone()))
                .collect();
            let added = inner.added_indexes;
            drop(inner);
            let values = indexers
                .into_iter()
                .map(|(name, indexer)| (name, values(&indexer, new)));
            computed = (added, values.collect());
        }
    }

    /// Inserts an object or replaces the one of the same key. Returns the changes, each with `initial` as given.
    ///
    /// The last call counts, whatever its resource version. The version is lower than that of the held object after
    /// the data of an API server has been restored, and if two API servers with unrelated resource versions share one
    /// address. The version is equal if an upgrade of the API server or of a CRD changes how stored objects are
    /// represented. There is no change if the held object has the same JSON.
    pub fn upsert(&self, new: Arc<Object>, initial: bool) -> ObjectChanges {
        let (mut inner, values) = self.write_with_values(&new);
        if let Some(unlisted) = &mut inner.unlisted {
            unlisted.remove(new.key());
        }
        let Some(values) = values else {
            return ObjectChanges(None, None);
        };
        match inner.insert(new.clone(), values) {
            Some(old) if !old.same_uid(&new) => ObjectChanges(
                Some(ObjectChange::deleted(old, initial)),
                Some(ObjectChange::added(new, initial)),
            ),
            old => ObjectChanges(
                Some(ObjectChange {
                    old,
                    new: Some(new),
                    initial,
                }),
                None,
            ),
        }
    }

    /// Removes the object that has the key of `object`, which is the last state in the watch event. The change
    /// contains `object`. `None` if the store does not hold the key, or if the held object was created after `object`
    /// was deleted ([`Incarnation::outlives`](crate::Incarnation::outlives)).
    pub fn delete(&self, object: Arc<Object>) -> Option<ObjectChange> {
        let mut inner = self.write();
        if inner
            .objects
            .get(object.key())?
            .incarnation()
            .outlives(object.incarnation())
        {
            return None;
        }
        inner.remove(object.key());
        Some(ObjectChange::deleted(object, false))
    }

    /// A second store with the same objects and the same indexes. The two share the objects' memory.
    pub fn copy(&self) -> Self {
        let from = self.read();
        let copy = Self::default();
        {
            let mut inner = copy.write();
            inner.objects.clone_from(&from.objects);
            inner.bytes = from.bytes;
            inner.held_bytes = from.held_bytes;
            inner.indexes.clone_from(&from.indexes);
            inner.added_indexes = from.added_indexes;
        }
        copy
    }

    /// The changes that would turn the content of this store into the content of the other store. Does not modify
    /// either.
    ///
    /// The stores may hold the objects of two API servers, so contents are compared, not resource versions.
    pub fn difference(&self, other: &Self) -> Vec<ObjectChange> {
        let (old, new) = (self.read(), other.read());
        let mut changes = Vec::new();
        for object in old.objects.values() {
            if new.objects.get(object.key()).is_none() {
                changes.push(ObjectChange::deleted(object.clone(), true));
            }
        }
        for object in new.objects.values() {
            match old.objects.get(object.key()) {
                Some(held) if held.same_uid(object) => {
                    // The objects may be of two API servers, so an equal resource version proves nothing.
                    if !held.same_content(object) {
                        changes.push(ObjectChange {
                            old: Some(held.clone()),
                            new: Some(object.clone()),
                            initial: true,
                        });
                    }
                }
                held => {
                    changes.extend(held.map(|held| ObjectChange::deleted(held.clone(), true)));
                    changes.push(ObjectChange::added(object.clone(), true));
                }
            }
        }
        changes
    }

    /// Begins a listing: every object counts as unlisted until [`upsert`](Self::upsert) or [`mark_listed`](Self::mark_listed) names it.
    pub fn begin_listing(&self) {
        let mut inner = self.write();
        inner.unlisted = Some(inner.objects.clone());
    }

    /// Marks an object of the current listing as listed although it could not be read, so that the listing does not
    /// delete it.
    pub fn mark_listed(&self, key: &ObjectKey) {
        if let Some(unlisted) = &mut self.write().unlisted {
            unlisted.remove(key);
        }
    }

    /// Ends a listing. If the list is `complete`, deletes the objects that were not listed and returns the changes.
    /// Otherwise deletes nothing.
    pub fn finish_listing(&self, complete: bool) -> Vec<ObjectChange> {
        let mut inner = self.write();
        let unlisted = inner.unlisted.take().unwrap_or_default();
        if !complete {
            return Vec::new();
        }
        unlisted
            .values()
            .filter_map(|object| inner.remove(object.key()))
            .map(|old| ObjectChange::deleted(old, true))
            .collect()
    }

    /// Ends a listing. Deletes nothing, and returns the held objects that were not listed.
    pub fn take_unlisted(&self) -> Vec<Arc<Object>> {
        let mut inner = self.write();
        let unlisted = inner.unlisted.take().unwrap_or_default();
        let held = unlisted
            .values()
            .filter_map(|object| inner.objects.get(object.key()));
        held.cloned().collect()
    }
}

impl Inner {
    fn insert(&mut self, new: Arc<Object>, values: IndexValues) -> Option<Arc<Object>> {
        self.bytes += new.bytes();
        self.held_bytes += new.held_bytes();
        for (name, values) in values {
            if let Some(index) = self.indexes.get_mut(&name) {
                index.set(new.key(), values);
            }
        }
        let old = self.objects.insert(new)?;
        self.bytes -= old.bytes();
        self.held_bytes -= old.held_bytes();
        Some(old)
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Object>> {
        let old = self.objects.remove(key)?;
        self.bytes -= old.bytes();
        self.held_bytes -= old.held_bytes();
        for index in self.indexes.values_mut() {
            index.remove(key);
        }
        Some(old)
    }
}

#[cfg(test)]
mod tests;
