//! The gating watches of a controller: it dispatches no request at all before each of them has listed once.

use std::{sync::Arc, time::Duration};

use mcr_core::{ClusterState, WatchStatus};
use tokio::{sync::watch, time::timeout};

/// How long the gating watches may take before the log names them.
const PATIENCE: Duration = Duration::from_secs(10);

/// A watch that keeps all requests of its controller waiting, because it has not listed yet.
/// [`WatchOptions::gates_all`](super::WatchOptions::gates_all) says which watches do.
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
    state: State,
}

#[derive(Debug)]
enum State {
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
                State::Joined { not_ready, .. } => not_ready.clone_from(&now),
                State::Missing | State::Left => {
                    watch.state = State::Joined {
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
            watch.state = State::Left;
        }
    }

    /// A watch has listed, or has a problem. Ignored while its cluster is not there.
    fn reported(&mut self, at: usize, listed: bool, now: Option<(String, bool)>) {
        self.0.retain_mut(|watch| match &mut watch.state {
            State::Joined { .. } if watch.at == at && listed => false,
            State::Joined { problem, .. } if watch.at == at => {
                problem.clone_from(&now);
                true
            }
            _ => true,
        });
    }

    fn waiting(&self) -> Vec<GatingWatch> {
        let waiting = self.0.iter().map(|watch| {
            let (reason, blocked) = match &watch.state {
                State::Missing => (
                    "the fleet has no cluster of this name; a provider must announce it".to_owned(),
                    false,
                ),
                State::Left => (
                    "the cluster left the fleet before the kind was listed; a provider must announce it again"
                        .to_owned(),
                    false,
                ),
                State::Joined {
                    not_ready: Some(state),
                    ..
                } => (format!("the cluster is {state}"), false),
                State::Joined {
                    problem: Some(problem),
                    ..
                } => problem.clone(),
                State::Joined { .. } => ("the kind is being listed".to_owned(), false),
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
            state: State::Missing,
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

    fn gating() -> GatingWatches {
        let unlisted = |at, cluster: &str| Unlisted {
            at,
            cluster: cluster.into(),
            watch: format!("kind-{at}"),
            state: State::Missing,
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
