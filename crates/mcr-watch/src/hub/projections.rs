//! The projections of the objects of a hub. No I/O.

use std::collections::{HashMap, hash_map::Entry};

use mcr_store::{Incarnation, ObjectKey};

/// The projection of each object that has one, as the API server has last sent it.
pub(super) struct Projections<T> {
    held: HashMap<ObjectKey, Held<T>>,
    /// Whether two projections are the same, so that nothing has changed.
    same: fn(&T, &T) -> bool,
}

struct Held<T> {
    projection: T,
    /// Of the object that was projected.
    incarnation: Incarnation,
    /// Whether the current listing has the object.
    listed: bool,
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
    pub(super) fn put(&mut self, key: &ObjectKey, incarnation: Incarnation, projection: Option<T>) -> bool {
        let Some(projection) = projection else {
            return self.held.remove(key).is_some();
        };
        match self.held.entry(key.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(Held {
                    projection,
                    incarnation,
                    listed: true,
                });
                true
            }
            Entry::Occupied(mut entry) => {
                let held = entry.get_mut();
                (held.listed, held.incarnation) = (true, incarnation);
                let changed = !(self.same)(&held.projection, &projection);
                // An equal projection is dropped: the caller may share memory with the one that is held.
                if changed {
                    held.projection = projection;
                }
                changed
            }
        }
    }

    /// Removes the projection of an object that was deleted. Returns whether there was one.
    pub(super) fn delete(&mut self, key: &ObjectKey, deleted: Incarnation) -> bool {
        let outlives = |held: &Held<T>| held.incarnation.outlives(deleted);
        !self.held.get(key).is_some_and(outlives) && self.held.remove(key).is_some()
    }

    /// Begins a listing: every object counts as unlisted until [`put`](Self::put) or [`mark_listed`](Self::mark_listed) names it.
    pub(super) fn begin_listing(&mut self) {
        self.held.values_mut().for_each(|held| held.listed = false);
    }

    /// Marks an object as listed whose projection is not known, so that the listing does not delete it.
    pub(super) fn mark_listed(&mut self, key: &ObjectKey) {
        if let Some(held) = self.held.get_mut(key) {
            held.listed = true;
        }
    }

    /// Marks the objects as listed that the listing leaves out.
    pub(super) fn keep(&mut self, left_out: impl Fn(&ObjectKey) -> bool) {
        let held = self.held.iter_mut().filter(|(key, _)| left_out(key));
        held.for_each(|(_, held)| held.listed = true);
    }

    /// Removes the objects that the complete list lacks. Returns their keys.
    pub(super) fn finish_listing(&mut self) -> Vec<ObjectKey> {
        let unlisted = self.held.iter().filter(|(_, held)| !held.listed);
        let unlisted: Vec<ObjectKey> = unlisted.map(|(key, _)| key.clone()).collect();
        for key in &unlisted {
            self.held.remove(key);
        }
        unlisted
    }
}
