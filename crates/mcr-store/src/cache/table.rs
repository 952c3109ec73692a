//! A hash table of objects by their keys.

use std::{hash::BuildHasher, sync::Arc};

use hashbrown::{DefaultHashBuilder, HashTable, hash_table::Entry};

use crate::{codec::Object, key::ObjectKey};

/// A map from keys to objects. It finds the key in the object itself, so no key is stored twice.
#[derive(Clone, Default)]
pub(super) struct Table {
    hasher: DefaultHashBuilder,
    objects: HashTable<Arc<Object>>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.objects
            .find(self.hasher.hash_one(key), |object| object.key() == key)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.iter()
    }

    /// Inserts an object. Returns the object of the same key that it replaces.
    pub(super) fn insert(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        let Self { hasher, objects } = self;
        let hash = |object: &Arc<Object>| hasher.hash_one(object.key());
        let same = |held: &Arc<Object>| held.key() == object.key();
        match objects.entry(hash(&object), same, hash) {
            Entry::Occupied(mut entry) => Some(std::mem::replace(entry.get_mut(), object)),
            Entry::Vacant(entry) => {
                entry.insert(object);
                None
            }
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Object>> {
        if self.objects.is_empty() {
            return None;
        }
        let entry = self
            .objects
            .find_entry(self.hasher.hash_one(key), |object| object.key() == key);
        entry.ok().map(|entry| entry.remove().0)
    }
}
