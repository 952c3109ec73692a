//! The gates. A controller dispatches no request of a cluster before all its watches have listed there, and no request at all
//! before each of its gating watches has listed once.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use mcr_core::{ClusterState, ObjectKey, WatchStatus};
use tokio::{sync::watch, time::timeout};

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

/// How long the gating watches may take before the log names them.
const PATIENCE: Duration = Duration::from_secs(10);

/// A watch that keeps all requests of its controller waiting, because it has not listed yet.
/// [`WatchOptions::gates_all`](crate::WatchOptions::gates_all) says which watches do.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct GatingWatch {
    /// The name of the cluster in which the watch has to list.
    pub cluster: Arc<str>,
    /// The watched kind, with its namespace and selectors.
    pub watch: String,
    /// Why the watch has not listed, and how to correct it.
    pub reason: String,
    /// Whether the cluster refuses the list, because it is forbidden, or the kind is not served.
    pub blocked: bool,
}

/// The gating watches that have not listed yet. One that has listed is removed, so it never gates again.
#[derive(Debug, Default)]
struct GatingWatches(Vec<Unlisted>);

#[derive(Debug)]
struct Unlisted {
    /// The number of the watch in its controller.
    at: usize,
    cluster: Arc<str>,
    watch: String,
    state: UnlistedState,
}

#[derive(Debug)]
enum UnlistedState {
    /// The cluster has not joined.
    Missing,
    /// The cluster has joined and left.
    Left,
    Joined {
        /// The state of the cluster, unless it is Ready.
        not_ready: Option<String>,
        /// Why the kind is not listed, and whether the cluster refuses the list.
        problem: Option<(String, bool)>,
    },
}

impl GatingWatches {
    fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// The cluster has joined, or its state has changed.
    fn joined(&mut self, cluster: &str, state: &ClusterState) {
        let now = (!state.is_ready()).then(|| state.to_string());
        for watch in self.0.iter_mut().filter(|watch| *watch.cluster == *cluster) {
            match &mut watch.state {
                UnlistedState::Joined { not_ready, .. } => not_ready.clone_from(&now),
                UnlistedState::Missing | UnlistedState::Left => {
                    watch.state = UnlistedState::Joined {
                        not_ready: now.clone(),
                        problem: None,
                    };
                }
            }
        }
    }

    /// The cluster has left. Another cluster that joins under its name starts anew.
    fn left(&mut self, cluster: &str) {
        for watch in self.0.iter_mut().filter(|watch| *watch.cluster == *cluster) {
            watch.state = UnlistedState::Left;
        }
    }

    /// A watch has listed, or has a problem. Ignored while its cluster is not there.
    fn reported(&mut self, at: usize, listed: bool, now: Option<(String, bool)>) {
        self.0.retain_mut(|watch| match &mut watch.state {
            UnlistedState::Joined { .. } if watch.at == at && listed => false,
            UnlistedState::Joined { problem, .. } if watch.at == at => {
                problem.clone_from(&now);
                true
            }
            _ => true,
        });
    }

    fn waiting(&self) -> Vec<GatingWatch> {
        let waiting = self.0.iter().map(|watch| {
            let (reason, blocked) = match &watch.state {
                UnlistedState::Missing => (
                    "the fleet has no cluster of this name; a provider must announce it".to_owned(),
                    false,
                ),
                UnlistedState::Left => (
                    "the cluster left the fleet before the kind was listed; a provider must announce it again"
                        .to_owned(),
                    false,
                ),
                UnlistedState::Joined {
                    not_ready: Some(state),
                    ..
                } => (format!("the cluster is {state}"), false),
                UnlistedState::Joined {
                    problem: Some(problem),
                    ..
                } => problem.clone(),
                UnlistedState::Joined { .. } => ("the kind is being listed".to_owned(), false),
            };
            GatingWatch {
                cluster: watch.cluster.clone(),
                watch: watch.watch.clone(),
                reason,
                blocked,
            }
        });
        waiting.collect()
    }
}

/// The gating watches of a running controller.
pub(crate) struct Gating(watch::Sender<GatingWatches>);

impl Gating {
    /// Each watch has its number in the controller, the name of its cluster, and its kind.
    pub(crate) fn new(watches: impl Iterator<Item = (usize, Arc<str>, String)>) -> Self {
        let unlisted = watches.map(|(at, cluster, watch)| Unlisted {
            at,
            cluster,
            watch,
            state: UnlistedState::Missing,
        });
        Self(watch::Sender::new(GatingWatches(unlisted.collect())))
    }

    pub(crate) fn joined(&self, cluster: &str, state: &ClusterState) {
        self.change(|watches| watches.joined(cluster, state));
    }

    pub(crate) fn left(&self, cluster: &str) {
        self.change(|watches| watches.left(cluster));
    }

    /// Takes over the status of a watch of a cluster that has joined and not left.
    pub(crate) fn reported(&self, at: usize, status: &WatchStatus) {
        self.change(|watches| {
            let problem = status.problem.as_ref().map(|problem| &problem.error);
            let problem = problem.map(|error| (error.to_string(), error.is_blocked()));
            watches.reported(at, status.synced, problem);
        });
    }

    fn change(&self, change: impl FnOnce(&mut GatingWatches)) {
        self.0.send_if_modified(|watches| {
            if watches.is_open() {
                return false;
            }
            change(watches);
            watches.is_open()
        });
    }

    /// Whether all gating watches have listed.
    pub(crate) fn is_open(&self) -> bool {
        self.0.borrow().is_open()
    }

    /// The watches that requests wait for.
    pub(crate) fn waiting(&self) -> Vec<GatingWatch> {
        self.0.borrow().waiting()
    }

    /// Waits until all gating watches have listed. Logs those that have not after some time, and again when their reasons
    /// have changed.
    pub(crate) async fn opened(&self, controller: &str) {
        let mut changes = self.0.subscribe();
        let mut logged = Vec::new();
        while timeout(PATIENCE, changes.wait_for(GatingWatches::is_open))
            .await
            .is_err()
        {
            let waiting = self.waiting();
            if waiting == logged {
                continue;
            }
            let list: Vec<_> = waiting
                .iter()
                .map(|watch| format!("{} in cluster {}: {}", watch.watch, watch.cluster, watch.reason))
                .collect();
            tracing::warn!(
                controller,
                watches = %list.join("; "),
                "the controller dispatches no request before these watches have listed for the first time. If its \
                 requests don't need one of them, set WatchOptions::gates_all(false) for it",
            );
            logged = waiting;
        }
        if !logged.is_empty() {
            tracing::info!(
                controller,
                "all gating watches have listed: requests are dispatched"
            );
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
    fn a_kind_that_cant_be_listed_blocks_and_reports_why() {
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

    fn gating() -> GatingWatches {
        let unlisted = |at, cluster: &str| Unlisted {
            at,
            cluster: cluster.into(),
            watch: format!("kind-{at}"),
            state: UnlistedState::Missing,
        };
        GatingWatches(vec![unlisted(1, "hub"), unlisted(4, "b")])
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Event {
        Joined(&'static str),
        Sleeps(&'static str),
        Left(&'static str),
        Forbidden(usize),
        Fails(usize),
        Listed(usize),
    }
    use Event::{Fails, Forbidden, Joined, Left, Listed, Sleeps};

    /// What the two watches have come to, by the latest events of each.
    fn reason_after(events: &[Event], at: usize, cluster: &str) -> Option<(&'static str, bool)> {
        let (mut here, mut ready, mut problem) = (None, true, None);
        for event in events {
            match *event {
                Listed(of) if of == at && here == Some(true) => return None,
                Joined(of) | Sleeps(of) if of == cluster => {
                    (here, ready) = (Some(true), *event == Joined(of))
                }
                Left(of) if of == cluster => (here, problem) = (Some(false), None),
                Forbidden(of) | Fails(of) if of == at && here == Some(true) => {
                    problem = Some(*event == Forbidden(of));
                }
                _ => {}
            }
        }
        Some(match (here, ready, problem) {
            (None, ..) => ("the fleet has no cluster of this name", false),
            (Some(false), ..) => ("the cluster left the fleet", false),
            (_, false, _) => ("the cluster is Suspended: asleep", false),
            (_, _, Some(blocked)) => ("a problem", blocked),
            _ => ("the kind is being listed", false),
        })
    }

    #[test]
    fn in_any_order_of_events_it_opens_once_for_ever_and_names_what_it_waits_for() {
        let asleep = ClusterState::Suspended {
            reason: "asleep".into(),
        };
        let events = [
            Joined("hub"),
            Sleeps("hub"),
            Left("hub"),
            Forbidden(1),
            Fails(1),
            Listed(1),
            Joined("b"),
            Left("b"),
            Listed(4),
            Listed(2),
        ];
        let mut opened = 0;
        for number in 0..events.len().pow(5) {
            let mut gate = gating();
            let mut path = Vec::new();
            let mut rest = number;
            for _ in 0..5 {
                let event = events[rest % events.len()];
                rest /= events.len();
                path.push(event);
                let was_open = gate.is_open();
                match event {
                    Joined(cluster) => gate.joined(cluster, &ClusterState::Ready),
                    Sleeps(cluster) => gate.joined(cluster, &asleep),
                    Left(cluster) => gate.left(cluster),
                    Forbidden(at) => gate.reported(at, false, Some(("a problem".into(), true))),
                    Fails(at) => gate.reported(at, false, Some(("a problem".into(), false))),
                    Listed(at) => gate.reported(at, true, None),
                }
                assert!(gate.is_open() || !was_open, "{path:?}");
                let waiting = gate.waiting();
                let mut named = waiting.iter();
                for (at, cluster) in [(1, "hub"), (4, "b")] {
                    let Some((reason, blocked)) = reason_after(&path, at, cluster) else {
                        continue;
                    };
                    let watch = named.next().unwrap_or_else(|| panic!("{path:?}"));
                    assert_eq!(
                        (&*watch.cluster, &*watch.watch, watch.blocked),
                        (cluster, &*format!("kind-{at}"), blocked)
                    );
                    assert!(watch.reason.starts_with(reason), "{path:?}: {}", watch.reason);
                }
                assert_eq!(
                    (named.next(), gate.is_open()),
                    (None, waiting.is_empty()),
                    "{path:?}"
                );
            }
            opened += usize::from(gate.is_open());
        }
        assert!(opened > 100, "{opened}");
    }
}
