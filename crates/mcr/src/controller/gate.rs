//! The sync gate: no request of a cluster is dispatched before its watches have listed.

use mcr_core::WatchStatus;

/// Whether a controller dispatches requests of a cluster, and if not, why.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "gate", content = "kinds", rename_all = "camelCase")]
#[non_exhaustive]
pub enum GateStatus {
    /// Everything that has to be listed is.
    Open,
    /// These watches have not listed yet.
    Waiting(Vec<WaitingKind>),
    /// At least one of these watches can't be listed until someone changes something: it is forbidden, or its
    /// kind is not served.
    Blocked(Vec<WaitingKind>),
}

impl GateStatus {
    /// Whether requests are dispatched.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }
}

/// A watch that keeps a gate closed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct WaitingKind {
    /// What is watched.
    pub watch: String,
    /// What stands in the way, if known, and what to do about it.
    pub reason: Option<String>,
    /// Whether someone has to change something before it can be listed.
    pub blocked: bool,
}

/// The watches of one cluster that count.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// By the watch's number in its controller.
    watches: Vec<Seen>,
    /// Told by a watch of an engagement that is over: nothing counts any more.
    pub(crate) closed: bool,
}

#[derive(Debug, Default)]
enum Seen {
    /// It is not watched here, or does not count.
    #[default]
    Nothing,
    Synced,
    /// In a box: that of a cluster that works is given back.
    NotSynced(Box<WaitingKind>),
}

impl Gate {
    /// A watch begins that has to be listed before the gate opens.
    pub(crate) fn expect(&mut self, at: usize, watch: String) {
        if self.watches.len() <= at {
            self.watches.reserve_exact(at + 1 - self.watches.len());
            self.watches.resize_with(at + 1, Seen::default);
        }
        self.watches[at] = Seen::NotSynced(Box::new(WaitingKind {
            watch,
            reason: None,
            blocked: false,
        }));
    }

    /// A watch ends, or can't be expected to be listed.
    pub(crate) fn forget(&mut self, at: usize) {
        if let Some(watch) = self.watches.get_mut(at) {
            *watch = Seen::Nothing;
        }
    }

    /// A watch says how it is doing.
    pub(crate) fn told(&mut self, at: usize, status: &WatchStatus) {
        let problem = status.problem.as_ref().map(|problem| &problem.error);
        let reason = problem.map(|error| error.to_string());
        self.note(
            at,
            status.synced,
            reason,
            problem.is_some_and(|error| error.is_blocked()),
        );
    }

    fn note(&mut self, at: usize, synced: bool, reason: Option<String>, blocked: bool) {
        let Some(seen) = self.watches.get_mut(at) else {
            return;
        };
        match seen {
            Seen::Nothing | Seen::Synced => {}
            Seen::NotSynced(_) if synced => *seen = Seen::Synced,
            Seen::NotSynced(waiting) => {
                waiting.reason = reason;
                waiting.blocked = blocked;
            }
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.watches.iter().any(|seen| matches!(seen, Seen::NotSynced(_)))
    }

    pub(crate) fn status(&self) -> GateStatus {
        let waiting: Vec<WaitingKind> = self
            .watches
            .iter()
            .filter_map(|seen| match seen {
                Seen::Nothing | Seen::Synced => None,
                Seen::NotSynced(waiting) => Some(WaitingKind::clone(waiting)),
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
        let mut gate = Gate::default();
        assert!(gate.is_open(), "nothing expected");
        gate.expect(0, "configmaps".into());
        gate.expect(2, "secrets".into());
        assert_eq!(gate.is_open(), gate.status().is_open());
        gate.note(0, true, None, false);
        assert!(!gate.is_open());
        gate.note(1, false, None, false);
        gate.note(2, true, None, false);
        assert!(gate.is_open());
        // A watch that breaks after it listed has an old store, not an incomplete one.
        gate.note(2, false, Some("broken off".into()), false);
        assert!(gate.status().is_open());
    }

    #[test]
    fn a_kind_that_cant_be_listed_blocks_and_says_why() {
        let mut gate = Gate::default();
        gate.expect(0, "configmaps".into());
        gate.expect(1, "secrets".into());
        assert!(matches!(gate.status(), GateStatus::Waiting(kinds) if kinds.len() == 2));
        gate.note(0, true, None, false);
        gate.note(1, false, Some("forbidden".into()), true);
        let GateStatus::Blocked(kinds) = gate.status() else {
            panic!("{:?}", gate.status())
        };
        assert_eq!(
            (kinds.len(), kinds[0].watch.as_str(), kinds[0].reason.as_deref()),
            (1, "secrets", Some("forbidden"))
        );
        gate.forget(1);
        assert!(gate.status().is_open());
    }
}
