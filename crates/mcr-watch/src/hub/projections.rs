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

    /// Marks the objects as seen that the listing leaves out.
    pub(super) fn keep(&mut self, left_out: impl Fn(&ObjectKey) -> bool) {
        let held = self.held.iter_mut().filter(|(key, _)| left_out(key));
        held.for_each(|(_, held)| held.seen = true);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::namespaced("fleet", name)
    }

    #[test]
    fn only_another_projection_is_a_change() {
        let mut projections = Projections::new(i32::eq);
        let a = key("a");
        assert!(!projections.put(&a, None), "it never counted as there");
        assert!(projections.put(&a, Some(1)));
        assert!(!projections.put(&a, Some(1)));
        assert!(projections.put(&a, Some(2)));
        assert_eq!(projections.get(&a), Some(&2));
        assert!(projections.put(&a, None));
        assert!(!projections.put(&a, None));
        assert_eq!((projections.get(&a), projections.len()), (None, 0));
        assert!(projections.put(&a, Some(2)));
        assert!(projections.remove(&a));
        assert!(!projections.remove(&a));
    }

    #[test]
    fn a_list_removes_what_it_lacks_and_nothing_that_it_has() {
        let mut projections = Projections::new(i32::eq);
        for name in ["same", "other", "unreadable", "lacking"] {
            projections.put(&key(name), Some(1));
        }
        // This listing breaks off.
        projections.begin_listing();
        projections.put(&key("same"), Some(1));

        projections.begin_listing();
        projections.put(&key("same"), Some(1));
        projections.put(&key("other"), Some(2));
        projections.put(&key("new"), Some(1));
        projections.put(&key("ignored"), None);
        projections.saw(&key("unreadable"));
        projections.saw(&key("never read"));
        assert_eq!(projections.finish_listing(), [key("lacking")]);
        assert_eq!(projections.len(), 4);
    }
}
