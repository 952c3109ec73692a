//! The objects of one watch, and the changes between them.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use super::{
    change::{ObjectChange, ObjectChanges},
    index::{Index, Indexer},
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

#[derive(Default)]
struct Inner {
    objects: Table,
    indexes: HashMap<Arc<str>, Index>,
    bytes: usize,
    held_bytes: usize,
    /// The objects that the current listing has not seen yet. `None` outside of a listing.
    unseen: Option<Table>,
}

impl ObjectStore {
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        // Only an indexer can panic while the lock is held, and it leaves the maps intact.
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
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

    /// The memory that all objects take, in bytes: the sum of [`Object::held_bytes`]. Templates, indexes and the
    /// hash table are not in it.
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
        let mut inner = self.write();
        let mut index = Index::new(indexer);
        for object in inner.objects.values() {
            index.insert(object);
        }
        inner.indexes.insert(name, index);
    }

    /// Inserts an object or replaces the one of the same key. Returns the changes, each with `initial` as given.
    ///
    /// The last call counts, even if its resource version is lower: two API servers with unrelated resource versions
    /// can stand behind one address. There is no change if UID and resource version are those of the held object.
    pub fn upsert(&self, new: Arc<Object>, initial: bool) -> ObjectChanges {
        let mut inner = self.write();
        if let Some(unseen) = &mut inner.unseen {
            unseen.remove(new.key());
        }
        match inner.insert(new.clone()) {
            Some(old) if old.same_uid(&new) && old.resource_version() == new.resource_version() => {
                ObjectChanges(None, None)
            }
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

    /// Removes the object that has the key of `object`. The change carries `object`, which is the last state that
    /// the watch event has. `None` if the store does not hold the key.
    pub fn delete(&self, object: Arc<Object>) -> Option<ObjectChange> {
        let mut inner = self.write();
        let old = inner.remove(object.key())?;
        drop(old);
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
        }
        for (name, index) in &from.indexes {
            copy.add_index(name.clone(), index.indexer.clone());
        }
        copy
    }

    /// The changes that would turn the content of this store into the content of the other one. Changes nothing.
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
                    if held.resource_version() != object.resource_version() {
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

    /// Begins a listing: every object counts as unseen until [`upsert`](Self::upsert) or [`saw`](Self::saw) names it.
    pub fn begin_listing(&self) {
        let mut inner = self.write();
        inner.unseen = Some(inner.objects.clone());
    }

    /// Marks an object of the current listing as seen though it could not be read, so that the listing does not
    /// delete it.
    pub fn saw(&self, key: &ObjectKey) {
        if let Some(unseen) = &mut self.write().unseen {
            unseen.remove(key);
        }
    }

    /// Ends a listing. If the list is `complete`, deletes the unseen objects and returns those changes; otherwise
    /// deletes nothing.
    pub fn finish_listing(&self, complete: bool) -> Vec<ObjectChange> {
        let mut inner = self.write();
        let unseen = inner.unseen.take().unwrap_or_default();
        if !complete {
            return Vec::new();
        }
        unseen
            .values()
            .filter_map(|object| inner.remove(object.key()))
            .map(|old| ObjectChange::deleted(old, true))
            .collect()
    }
}

impl Inner {
    fn insert(&mut self, new: Arc<Object>) -> Option<Arc<Object>> {
        self.bytes += new.bytes();
        self.held_bytes += new.held_bytes();
        for index in self.indexes.values_mut() {
            index.insert(&new);
        }
        let old = self.objects.insert(new.clone())?;
        self.bytes -= old.bytes();
        self.held_bytes -= old.held_bytes();
        for index in self.indexes.values_mut() {
            index.replace(&old, &new);
        }
        Some(old)
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Object>> {
        let old = self.objects.remove(key)?;
        self.bytes -= old.bytes();
        self.held_bytes -= old.held_bytes();
        for index in self.indexes.values_mut() {
            index.remove(&old);
        }
        Some(old)
    }
}

#[cfg(test)]
mod tests;
