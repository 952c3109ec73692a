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
        let (reason, blocked) = problem_of(status).unzip();
        let blocked = blocked.unwrap_or(false);
        match self.watches.get_mut(at) {
            Some(state @ WatchState::Waiting(_)) if status.synced => *state = WatchState::Synced,
            Some(WatchState::Waiting(waiting)) => {
                (waiting.reason, waiting.blocked) = (reason.clone(), blocked);
            }
            _ => {}
        }
        if blocked {
            self.blocked.insert(at);
        }
        reason.is_none() && status.synced && self.blocked.remove(&at)
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
        if waiting.is_empty() {
            GateStatus::Open
        } else if waiting.iter().any(|waiting| waiting.blocked) {
            GateStatus::Blocked(waiting)
        } else {
            GateStatus::Waiting(waiting)
        }
    }
}

/// Why a kind is not listed or no longer watched, and whether the cluster refuses it.
fn problem_of(status: &WatchStatus) -> Option<(String, bool)> {
    let error = &status.problem.as_ref()?.error;
    Some((error.to_string(), error.is_blocked()))
}

/// How long the gating watches may take before the log names them.
const PATIENCE: Duration = Duration::from_secs(10);

/// A watch that keeps all requests of its controller waiting, because it has not listed yet.
/// [`WatchOptions::gates_all`](crate::WatchOptions::gates_all) decides which watches do.
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

/// A gating watch that has not listed yet.
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

impl Unlisted {
    /// Why the watch has not listed, and whether the cluster refuses the list.
    fn reason(&self) -> (String, bool) {
        let text = match &self.state {
            UnlistedState::Missing => "the fleet has no cluster of this name; a provider must announce it",
            UnlistedState::Left => {
                "the cluster left the fleet before the kind was listed; a provider must announce it again"
            }
            UnlistedState::Joined {
                not_ready: Some(state),
                ..
            } => return (format!("the cluster is {state}"), false),
            UnlistedState::Joined {
                problem: Some(problem),
                ..
            } => return problem.clone(),
            UnlistedState::Joined { .. } => "the kind is being listed",
        };
        (text.to_owned(), false)
    }
}

/// The gating watches of a running controller that have not listed yet. One that has listed is removed, so it never gates again.
pub(crate) struct Gating(watch::Sender<Vec<Unlisted>>);

impl Gating {
    /// Each watch has its number in the controller, the name of its cluster, and its kind.
    pub(crate) fn new(watches: impl Iterator<Item = (usize, Arc<str>, String)>) -> Self {
        let unlisted = watches.map(|(at, cluster, watch)| Unlisted {
            at,
            cluster,
            watch,
            state: UnlistedState::Missing,
        });
        Self(watch::Sender::new(unlisted.collect()))
    }

    /// The cluster has joined, or its state has changed.
    pub(crate) fn joined(&self, cluster: &str, state: &ClusterState) {
        let now = (!state.is_ready()).then(|| state.to_string());
        self.change(|watch| {
            if *watch.cluster != *cluster {
                return true;
            }
            match &mut watch.state {
                UnlistedState::Joined { not_ready, .. } => not_ready.clone_from(&now),
                UnlistedState::Missing | UnlistedState::Left => {
                    watch.state = UnlistedState::Joined {
                        not_ready: now.clone(),
                        problem: None,
                    };
                }
            }
            true
        });
    }

    /// The cluster has left. Another cluster that joins under its name starts anew.
    pub(crate) fn left(&self, cluster: &str) {
        self.change(|watch| {
            if *watch.cluster == *cluster {
                watch.state = UnlistedState::Left;
            }
            true
        });
    }

    /// A watch has listed, or has a problem. Ignored while its cluster is not there.
    pub(crate) fn reported(&self, at: usize, status: &WatchStatus) {
        self.change(|watch| match &mut watch.state {
            UnlistedState::Joined { problem, .. } if watch.at == at => {
                *problem = problem_of(status);
                !status.synced
            }
            _ => true,
        });
    }

    /// Changes all watches. Removes those for which `change` returns `false`.
    fn change(&self, change: impl FnMut(&mut Unlisted) -> bool) {
        self.0.send_if_modified(|watches| {
            let was_open = watches.is_empty();
            watches.retain_mut(change);
            watches.is_empty() && !was_open
        });
    }

    /// Whether all gating watches have listed.
    pub(crate) fn is_open(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// The watches that requests wait for.
    pub(crate) fn waiting(&self) -> Vec<GatingWatch> {
        let waiting = self.0.borrow();
        let waiting = waiting.iter().map(|watch| {
            let (reason, blocked) = watch.reason();
            GatingWatch {
                cluster: watch.cluster.clone(),
                watch: watch.watch.clone(),
                reason,
                blocked,
            }
        });
        waiting.collect()
    }

    /// Waits until all gating watches have listed. Logs those that have not after some time, and again when their reasons
    /// have changed.
    pub(crate) async fn opened(&self, controller: &str) {
        let mut changes = self.0.subscribe();
        let mut logged = Vec::new();
        while timeout(PATIENCE, changes.wait_for(Vec::is_empty)).await.is_err() {
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
