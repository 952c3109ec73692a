//! The events of a hub that the caller has not taken yet. No I/O.

use std::collections::{HashSet, VecDeque};

use mcr_store::ObjectKey;

use crate::status::{WatchProblem, WatchStatus};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::WatchError;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::cluster_scoped(name)
    }

    fn all(pending: &mut Pending) -> Vec<String> {
        let shown = |event| match event {
            PendingEvent::Changed(key) => key.to_string(),
            PendingEvent::Synced => "synced".to_owned(),
            PendingEvent::Failing(problem) => problem.error.to_string(),
        };
        std::iter::from_fn(|| pending.take().map(shown)).collect()
    }

    #[test]
    fn an_object_is_pending_once() {
        let mut pending = Pending::default();
        for key in [key("a"), key("b"), key("a")] {
            pending.changed(&key);
        }
        assert_eq!((pending.items.len(), pending.keys.len()), (2, 2));
        assert_eq!(all(&mut pending), ["a", "b"]);
        assert!(pending.keys.is_empty());
    }

    #[test]
    fn a_problem_comes_last_and_not_after_its_end() {
        let mut pending = Pending::default();
        let (mut fails, well) = (WatchStatus::default(), WatchStatus::default());
        fails.failed(WatchError::Malformed("no list".into()));
        pending.status_changed(&fails);
        pending.changed(&key("a"));
        let events = all(&mut pending);
        assert!(
            events.len() == 2 && events[0] == "a" && events[1].contains("no list"),
            "{events:?}"
        );
        pending.status_changed(&fails);
        pending.status_changed(&well);
        assert_eq!(all(&mut pending), [""; 0]);
    }
}
