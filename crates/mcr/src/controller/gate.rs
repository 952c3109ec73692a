//! The sync gate: a controller dispatches no request of a cluster before all its watches have listed there.

use std::collections::{BTreeSet, HashSet};

use mcr_core::{ObjectKey, WatchStatus};

/// Whether the sync gate of a cluster lets requests through, and if not, why.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "gate", content = "kinds", rename_all = "camelCase")]
#[non_exhaustive]
pub enum GateStatus {
    /// All watches that are not optional have listed. Requests may be dispatched.
    Open,
    /// These watches have not listed yet. Requests wait for them.
    Waiting(Vec<WaitingKind>),
    /// These watches have not listed yet, and at least one of them can't: it is forbidden, or its kind is not served.
    /// Requests wait until someone corrects that.
    Blocked(Vec<WaitingKind>),
}

impl GateStatus {
    /// Whether requests may be dispatched.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }
}

/// A watch that keeps a gate closed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct WaitingKind {
    /// The watched kind, with its namespace and selectors.
    pub watch: String,
    /// Why the watch has not listed, if known, and how to correct it.
    pub reason: Option<String>,
    /// Whether the watch can list only after someone corrects something.
    pub blocked: bool,
}

/// The sync gate of one cluster. It is open when every watch that is not optional has listed.
#[derive(Debug, Default)]
pub(crate) struct SyncGate {
    /// The states of the watches, by the number of the watch in its controller.
    watches: Vec<WatchState>,
    /// The cluster has left the controller: later statuses of its watches have no effect.
    pub(crate) retired: bool,
    /// Whether it has been open.
    opened: bool,
    /// Whether the cluster is not Ready, so that nothing is dispatched. A cluster in a scope may be fed all the same.
    pub(crate) parked: bool,
    /// The objects of the primary kind that have appeared since the gate closed again, or the cluster was parked.
    appeared: HashSet<ObjectKey>,
    /// The watches that are blocked now, optional ones included.
    blocked: BTreeSet<usize>,
}

#[derive(Debug, Default)]
enum WatchState {
    /// The kind is not watched in this cluster, or its watch is optional.
    #[default]
    Ignored,
    Synced,
    /// In a box, so that the gate of a synced cluster takes little memory.
    Waiting(Box<WaitingKind>),
}

impl SyncGate {
    /// Adds a watch that has to list before the gate opens.
    pub(crate) fn add_watch(&mut self, at: usize, watch: String) {
        if self.watches.len() <= at {
            self.watches.reserve_exact(at + 1 - self.watches.len());
            self.watches.resize_with(at + 1, WatchState::default);
        }
        self.watches[at] = WatchState::Waiting(Box::new(WaitingKind {
            watch,
            reason: None,
            blocked: false,
        }));
    }

    /// Removes a watch.
    pub(crate) fn remove_watch(&mut self, at: usize) {
        if let Some(watch) = self.watches.get_mut(at) {
            *watch = WatchState::Ignored;
        }
    }

    /// Updates a watch from its status. Returns whether a kind that was blocked is watched again.
    pub(crate) fn update_watch(&mut self, at: usize, status: &WatchStatus) -> bool {
        let problem = status.problem.as_ref().map(|problem| &problem.error);
        let reason = problem.map(|error| error.to_string());
        self.set(
            at,
            status.synced,
            reason,
            problem.is_some_and(|error| error.is_blocked()),
        );
        match problem {
            Some(error) if error.is_blocked() => {
                self.blocked.insert(at);
                false
            }
            Some(_) => false,
            None => status.synced && self.blocked.remove(&at),
        }
    }

    /// Whether requests may be dispatched. From the first time on, reconciles may have seen the objects that exist.
    pub(crate) fn opens(&mut self) -> bool {
        let is_open = self.is_open();
        if is_open && !self.parked {
            self.opened = true;
            self.appeared = HashSet::new();
        }
        is_open
    }

    /// Notes an object of the primary kind that has appeared.
    pub(crate) fn appeared(&mut self, key: &ObjectKey) {
        if self.opened && (self.parked || !self.is_open()) {
            self.appeared.insert(key.clone());
        }
    }

    /// Whether no reconcile can have seen an object that has left. Forgets that it appeared.
    pub(crate) fn left_unseen(&mut self, key: &ObjectKey) -> bool {
        !self.opened || self.appeared.remove(key)
    }

    fn set(&mut self, at: usize, synced: bool, reason: Option<String>, blocked: bool) {
        let Some(state) = self.watches.get_mut(at) else {
            return;
        };
        match state {
            WatchState::Ignored | WatchState::Synced => {}
            WatchState::Waiting(_) if synced => *state = WatchState::Synced,
            WatchState::Waiting(waiting) => {
                waiting.reason = reason;
                waiting.blocked = blocked;
            }
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self
            .watches
            .iter()
            .any(|state| matches!(state, WatchState::Waiting(_)))
    }

    pub(crate) fn status(&self) -> GateStatus {
        let waiting: Vec<WaitingKind> = self
            .watches
            .iter()
            .filter_map(|state| match state {
                WatchState::Ignored | WatchState::Synced => None,
                WatchState::Waiting(waiting) => Some(WaitingKind::clone(waiting)),
            })
            .collect();
        match waiting.iter().any(|waiting| waiting.blocked) {
            _ if waiting.is_empty() => GateStatus::Open,
            true => GateStatus::Blocked(waiting),
            false => GateStatus::Waiting(waiting),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_when_everything_expected_is_listed() {
        let mut gate = SyncGate::default();
        assert!(gate.is_open(), "nothing expected");
        gate.add_watch(0, "configmaps".into());
        gate.add_watch(2, "secrets".into());
        assert_eq!(gate.is_open(), gate.status().is_open());
        gate.set(0, true, None, false);
        assert!(!gate.is_open());
        gate.set(1, false, None, false);
        gate.set(2, true, None, false);
        assert!(gate.is_open());
        // The store of a watch that breaks after it listed is outdated, but complete.
        gate.set(2, false, Some("broken off".into()), false);
        assert!(gate.status().is_open());
    }

    #[test]
    fn a_kind_that_cant_be_listed_blocks_and_says_why() {
        let mut gate = SyncGate::default();
        gate.add_watch(0, "configmaps".into());
        gate.add_watch(1, "secrets".into());
        assert!(matches!(gate.status(), GateStatus::Waiting(kinds) if kinds.len() == 2));
        gate.set(0, true, None, false);
        gate.set(1, false, Some("forbidden".into()), true);
        let GateStatus::Blocked(kinds) = gate.status() else {
            panic!("{:?}", gate.status())
        };
        assert_eq!(
            (kinds.len(), kinds[0].watch.as_str(), kinds[0].reason.as_deref()),
            (1, "secrets", Some("forbidden"))
        );
        gate.remove_watch(1);
        assert!(gate.status().is_open());
    }
}
