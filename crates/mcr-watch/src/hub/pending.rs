//! The events of a hub that the caller has not taken yet. No I/O.

use std::collections::{HashSet, VecDeque};

use mcr_store::ObjectKey;

use crate::{WatchProblem, WatchStatus};

/// At most one event for each object, however slow the caller is.
#[derive(Debug, Default)]
pub(super) struct Pending {
    items: VecDeque<Item>,
    keys: HashSet<ObjectKey>,
    synced: bool,
    problem: Option<WatchProblem>,
}

#[derive(Debug)]
enum Item {
    Key(ObjectKey),
    Synced,
}

/// An event, without the object.
#[derive(Debug)]
pub(super) enum PendingEvent {
    /// The object was created, changed or deleted.
    Changed(ObjectKey),
    Synced,
    Failing(WatchProblem),
}

impl Pending {
    /// An object was created, changed or deleted.
    pub(super) fn changed(&mut self, key: &ObjectKey) {
        if self.keys.insert(key.clone()) {
            self.items.push_back(Item::Key(key.clone()));
        }
    }

    pub(super) fn status_changed(&mut self, status: &WatchStatus) {
        if status.synced && !std::mem::replace(&mut self.synced, true) {
            self.items.push_back(Item::Synced);
        }
        self.problem.clone_from(&status.problem);
    }

    pub(super) fn take(&mut self) -> Option<PendingEvent> {
        match self.items.pop_front() {
            Some(Item::Synced) => Some(PendingEvent::Synced),
            Some(Item::Key(key)) => {
                self.keys.remove(&key);
                Some(PendingEvent::Changed(key))
            }
            None => self.problem.take().map(PendingEvent::Failing),
        }
    }
}
