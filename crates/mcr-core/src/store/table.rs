//! Objects by their keys.

use std::{hash::BuildHasher, sync::Arc};

use hashbrown::{DefaultHashBuilder, HashTable, hash_table::Entry};

use super::{Object, ObjectKey};

/// A map whose keys are held by its values only.
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

    /// Puts an object in; returns the one that it takes the place of.
    pub(super) fn insert(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        let Self { hasher, objects } = self;
        let hash = |object: &Arc<Object>| hasher.hash_one(object.key());
        let same = |known: &Arc<Object>| known.key() == object.key();
        match objects.entry(hash(&object), same, hash) {
            Entry::Occupied(mut there) => Some(std::mem::replace(there.get_mut(), object)),
            Entry::Vacant(free) => {
                free.insert(object);
                None
            }
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Object>> {
        if self.objects.is_empty() {
            return None;
        }
        let found = self
            .objects
            .find_entry(self.hasher.hash_one(key), |object| object.key() == key);
        found.ok().map(|entry| entry.remove().0)
    }
}
