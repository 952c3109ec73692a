//! The projections of the objects of a hub. No I/O.

use std::collections::{HashMap, hash_map::Entry};

use mcr_store::ObjectKey;

/// The projection of each object that has one, as the API server has last sent it.
pub(super) struct Projections<T> {
    held: HashMap<ObjectKey, Held<T>>,
    /// Whether two projections are the same, so that nothing has changed.
    same: fn(&T, &T) -> bool,
}

struct Held<T> {
    projection: T,
    /// Whether the current listing has seen the object.
    seen: bool,
}

impl<T> Projections<T> {
    pub(super) fn new(same: fn(&T, &T) -> bool) -> Self {
        Self {
            held: HashMap::new(),
            same,
        }
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&T> {
        self.held.get(key).map(|held| &held.projection)
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Holds the projection of an object; none: the object counts as not there. Returns whether anything has changed.
    pub(super) fn put(&mut self, key: &ObjectKey, projection: Option<T>) -> bool {
        let Some(projection) = projection else {
            return self.remove(key);
        };
        match self.held.entry(key.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(Held {
                    projection,
                    seen: true,
                });
                true
            }
            Entry::Occupied(mut entry) => {
                let held = entry.get_mut();
                held.seen = true;
                let changed = !(self.same)(&held.projection, &projection);
                // An equal projection is dropped: the caller may share memory with the one that is held.
                if changed {
                    held.projection = projection;
                }
                changed
            }
        }
    }

    /// Removes the projection of an object. Returns whether there was one.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> bool {
        self.held.remove(key).is_some()
    }

    /// Begins a listing: every object counts as unseen until [`put`](Self::put) or [`saw`](Self::saw) names it.
    pub(super) fn begin_listing(&mut self) {
        self.held.values_mut().for_each(|held| held.seen = false);
    }

    /// Marks an object as seen whose projection is not known, so that the listing does not delete it.
    pub(super) fn saw(&mut self, key: &ObjectKey) {
        if let Some(held) = self.held.get_mut(key) {
            held.seen = true;
        }
    }

    /// Removes the objects that the complete list lacks. Returns their keys.
    pub(super) fn finish_listing(&mut self) -> Vec<ObjectKey> {
        let unseen = self.held.iter().filter(|(_, held)| !held.seen);
        let unseen: Vec<ObjectKey> = unseen.map(|(key, _)| key.clone()).collect();
        for key in &unseen {
            self.held.remove(key);
        }
        unseen
    }
}
