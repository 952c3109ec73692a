//! The objects that a driver could not read.

use std::{collections::BTreeSet, sync::Arc};

use mcr_store::ObjectKey;

use crate::target::UnreadableObject;

/// The most objects in [`Unreadable::logged`]. When it is full it is cleared, and the driver logs each unreadable
/// object once more.
const REMEMBERED: usize = 1000;

/// The unreadable objects of one watch.
#[derive(Default)]
pub(super) struct Unreadable {
    /// The objects that have been logged, by their place in a scope and their key. An object without a name has no key.
    logged: BTreeSet<(Option<Arc<str>>, Option<ObjectKey>)>,
    /// Whether an object was unreadable since the last complete list started.
    since_list: bool,
    /// Whether an object was unreadable since any list started, also one that did not end.
    since_attempt: bool,
}

impl Unreadable {
    /// Whether the next watch continues without an object that was unreadable.
    pub(super) fn left_out(&self) -> bool {
        self.since_list
    }

    /// A list starts. Until it is complete, the watch before it may continue, without the objects that it left out.
    pub(super) fn list_started(&mut self) {
        self.since_attempt = false;
    }

    /// The list is complete.
    pub(super) fn list_completed(&mut self) {
        self.since_list = self.since_attempt;
    }

    /// Adds an object. Returns whether to log it: once for each object, because it may change every second and is in
    /// every list.
    pub(super) fn add(&mut self, object: &UnreadableObject) -> bool {
        (self.since_list, self.since_attempt) = (true, true);
        if self.logged.len() >= REMEMBERED {
            self.logged.clear();
        }
        self.logged
            .insert((object.place.clone(), object.error.key.clone()))
    }

    /// Removes an object that is readable again.
    pub(super) fn remove(&mut self, place: Option<&Arc<str>>, key: &ObjectKey) {
        if !self.logged.is_empty() {
            self.logged.remove(&(place.cloned(), Some(key.clone())));
        }
    }
}
