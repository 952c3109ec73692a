//! The life of a cluster that has a connection of its own: the states, and the one function that decides. No I/O and no clock.

use std::{sync::Arc, time::Duration};

use mcr_client::{
    EndpointNumber, LinkState,
    internal::{Backoff, ConnectError},
};
use tokio::time::Instant;

use super::{
    spec_change::SpecChange,
    state::{ClusterState, Published},
};
use mcr_access::Refresh;

/// Why an engagement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The cluster was removed. It may have been announced again since.
    Left,
    /// Another cluster has taken its name or its address.
    Replaced,
    /// The fleet stops.
    Stopped,
}

/// The state of an engagement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// The cluster is in the fleet. Nothing has been done.
    Discovered,
    /// The fleet connects. `why` requests fail: it is the first time, after a suspension, or because the address has changed.
    Connecting { why: &'static str },
    /// The cluster answers.
    Ready,
    /// No attempt to connect has succeeded since the cluster stopped answering, or since the first one.
    Unreachable { reason: Arc<str> },
    /// The provider does not expect the cluster to answer.
    Suspended { reason: Arc<str> },
    /// Another name of a cluster that is engaged. Shown as suspended.
    Duplicate { reason: Arc<str> },
    /// The engagement ends.
    Draining(End),
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// The provider announces the cluster, at first or again, perhaps as suspended.
    Announced { suspended: Option<Arc<str>> },
    /// The cluster is removed, its hub takes its place, its provider declares another one, or the fleet stops.
    Ended(End),
    /// Another cluster than the known one answers.
    AnotherAnswers,
    /// The supervisor has panicked, in mcr or in code of a user, perhaps while it took this announcement.
    Panicked { suspended: Option<Arc<str>> },
    /// The time for which the state waits has come, or a duplicate may be engaged by now.
    Due,
    /// An attempt to connect has succeeded. `moved`: at another target than the last one.
    Connected { moved: bool },
    /// The cluster that answers is engaged under another name.
    Taken { reason: Arc<str> },
    /// An attempt to connect has failed.
    NotConnected(ConnectError),
    /// After that, the connection that was in use has been tried, if the newest spec lets it. `why`: the failure of the attempt.
    Fallback { answers: bool, why: ConnectError },
    /// A watch or a request has failed, or the cluster is silent.
    Doubted,
    /// A request was refused with 401.
    Refused,
    /// The credential is due for renewal.
    Expiring,
    /// The answer to a probe. `renewed`: after a renewal that has brought no newer credential.
    Probed {
        renewed: bool,
        answer: Result<(), ConnectError>,
    },
    /// A newer credential is in use.
    Renewed,
    /// The source has answered, but has no newer credential. `problem`: it has failed.
    NotRenewed { why: Refresh, problem: Option<String> },
    /// The cluster fell silent while something else was under way.
    FellSilent(ConnectError),
    /// The difference between the newest spec and the one in use, unless it can't be resolved.
    Resolved(Result<SpecChange, String>),
    /// The API server accepts the credentials of the newest spec.
    Swapped,
    /// It refuses them.
    NotSwapped(ConnectError),
}

/// What is to be done. At most one of a decision takes time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Use the new connection. Comes first: only then does the link go up.
    Adopt,
    /// Show the labels, properties and default namespace of the newest spec.
    ShowSpec,
    /// Drop the connection.
    Disconnect,
    /// Let others be engaged that are the same cluster, if this one only waits for it.
    Release,
    /// Show a problem that does not interrupt the cluster.
    Warn(String),
    /// Try to connect by the newest spec.
    Connect(Refresh),
    /// Try the connection that was in use.
    TryPrevious(ConnectError),
    /// Wait until the cluster may be engaged, or for some time.
    AwaitTurn,
    /// Probe whether the known cluster answers, not before this time.
    Probe(Instant),
    /// Probe whether the cluster accepts the credential that could not be renewed.
    ProbeCredential,
    /// Fetch a newer credential, and use it if the API server accepts it.
    Renew(Refresh),
    /// Compare the newest spec with the one in use.
    Resolve,
    /// Try the credentials of the newest spec.
    TryCredentials,
}

/// The shortest time between two probes.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// The shortest time before a spec is tried again that could not replace the one in use.
const SPEC_INTERVAL: Duration = Duration::from_secs(1);

const NOT_YET: &str = "it has not been connected yet";
const WAS_SUSPENDED: &str = "the cluster was suspended, and is being connected";
const MOVED: &str = "the cluster is being connected at its new address";
const PANICKED: &str = "its supervisor panicked, in mcr or in code of its provider; what this process has written to its \
                        standard error says where";

/// The life of a cluster: its state, and what the next decision depends on besides.
#[derive(Debug, Clone)]
pub(super) struct Life {
    pub(super) state: State,
    /// Why the provider does not expect the cluster to answer.
    suspended: Option<Arc<str>>,
    /// Whether the API server refused the credentials at the last attempt.
    refused: bool,
    endpoint: EndpointNumber,
    backoff: Backoff,
    /// When to act although nothing happens: connect again, or try again the spec that could not replace the one in use.
    pub(super) retry_at: Option<Instant>,
    pub(super) last_probe: Instant,
}

impl Life {
    pub(super) fn new(reconnect_cap: Duration, now: Instant) -> Self {
        Self {
            state: State::Discovered,
            suspended: None,
            refused: false,
            endpoint: EndpointNumber::default(),
            backoff: Backoff::new(Duration::from_millis(500), reconnect_cap),
            retry_at: None,
            last_probe: now,
        }
    }

    /// What users, requests and watches see of the state.
    pub(super) fn published(&self) -> Published {
        match &self.state {
            State::Discovered => Published::new(ClusterState::Discovered, LinkState::down(NOT_YET)),
            State::Connecting { why } => Published::new(ClusterState::Connecting, LinkState::down(*why)),
            State::Ready => Published::new(ClusterState::Ready, LinkState::Up(self.endpoint)),
            State::Unreachable { reason } => Published::new(
                ClusterState::Unreachable {
                    reason: reason.clone(),
                },
                LinkState::lost(reason.clone()),
            ),
            State::Suspended { reason } => Published::suspended(reason.clone()),
            State::Duplicate { reason } => Published::new(
                ClusterState::Suspended {
                    reason: reason.clone(),
                },
                LinkState::down(reason.clone()),
            ),
            State::Draining(end) => Published::draining(*end == End::Replaced),
        }
    }

    /// Follows an event. An event of an action that was dropped is ignored.
    pub(super) fn decide(&mut self, event: Event, now: Instant) -> Vec<Action> {
        use State::{Connecting, Draining, Duplicate, Ready, Unreachable};
        match (&self.state, event) {
            (Draining(_), _) => vec![],
            (_, Event::Ended(end)) => self.end(end),
            (_, Event::AnotherAnswers) => self.end(End::Replaced),
            (_, Event::Panicked { suspended }) => {
                self.suspended = suspended;
                let pause = self.backoff.pause();
                self.lose(ConnectError::new(PANICKED), now + pause)
            }
            (state, Event::Announced { suspended }) => {
                self.suspended = suspended;
                if let Duplicate { .. } = state {
                    // It may be of another cluster now.
                    self.state = Connecting { why: NOT_YET };
                }
                self.go_on()
            }
            (Unreachable { .. } | Ready | Duplicate { .. }, Event::Due) => self.go_on(),
            (Connecting { .. } | Unreachable { .. } | Duplicate { .. }, event) => self.attempted(event, now),
            (Ready, event) => self.serve(event, now),
            _ => vec![],
        }
    }

    /// What an attempt to connect has come to.
    fn attempted(&mut self, event: Event, now: Instant) -> Vec<Action> {
        if let Event::Connected { .. } | Event::Taken { .. } | Event::NotConnected(_) = event {
            self.last_probe = now;
        }
        match event {
            Event::Connected { moved } => {
                self.endpoint.0 += u64::from(moved);
                self.ready();
                vec![Action::Adopt]
            }
            Event::Taken { reason } => {
                self.state = State::Duplicate { reason };
                vec![Action::AwaitTurn]
            }
            Event::NotConnected(why) => vec![Action::Release, Action::TryPrevious(why)],
            Event::Fallback { answers: true, why } => {
                self.ready();
                let mut actions = vec![Action::Adopt];
                actions.extend(self.keep_last_good(&why.reason, now));
                actions
            }
            Event::Fallback { answers: false, why } => {
                let first_refusal = why.unauthorized && !self.refused;
                let pause = self.backoff.pause();
                if first_refusal {
                    // The source may have a newer credential than the refused one.
                    return self.lose_and_connect(why);
                }
                self.lose(why, now + pause)
            }
            _ => vec![],
        }
    }

    /// A cluster that answers: its health, its credentials, and changes of its spec.
    fn serve(&mut self, event: Event, now: Instant) -> Vec<Action> {
        match event {
            Event::Doubted => vec![Action::Probe(self.last_probe + PROBE_INTERVAL)],
            Event::Refused => vec![Action::Renew(Refresh::Unauthorized)],
            Event::Expiring => vec![Action::Renew(Refresh::Expiring)],
            Event::Probed { renewed, answer } => {
                self.last_probe = now;
                match answer {
                    Err(error) if error.busy => vec![],
                    Err(error) if error.unauthorized && !renewed => {
                        vec![Action::Renew(Refresh::Unauthorized)]
                    }
                    Err(error) => self.lose_and_connect(error),
                    Ok(()) => vec![],
                }
            }
            Event::FellSilent(error) => self.lose_and_connect(error),
            Event::NotRenewed { why, problem } => {
                let warning = problem.map(|problem| {
                    Action::Warn(still_in_use(&format!(
                        "its credential can't be renewed: {problem}"
                    )))
                });
                let refused = (why == Refresh::Unauthorized).then_some(Action::ProbeCredential);
                warning.into_iter().chain(refused).collect()
            }
            Event::Resolved(Err(problem)) => self.keep_last_good(&problem, now),
            Event::Resolved(Ok(SpecChange::Info)) => vec![Action::ShowSpec],
            Event::Resolved(Ok(SpecChange::Identity)) => self.end(End::Replaced),
            Event::Resolved(Ok(SpecChange::Credentials)) => vec![Action::TryCredentials],
            Event::Resolved(Ok(SpecChange::Endpoint)) => {
                // Another cluster may answer there. Nothing may use it before its identity is known.
                self.state = State::Connecting { why: MOVED };
                self.connect()
            }
            Event::Swapped => {
                self.ready();
                vec![Action::Adopt]
            }
            Event::NotSwapped(why) => {
                self.retry_spec(now);
                let reason = why.reason;
                let warning = format!("credentials refused: {reason}; keeping the previous ones");
                vec![Action::Warn(warning)]
            }
            _ => vec![],
        }
    }

    /// Follows the newest spec.
    fn go_on(&mut self) -> Vec<Action> {
        self.retry_at = None;
        if let Some(reason) = self.suspended.clone() {
            self.state = State::Suspended { reason };
            return vec![Action::Disconnect];
        }
        match &self.state {
            State::Ready => return vec![Action::Resolve],
            State::Discovered => self.state = State::Connecting { why: NOT_YET },
            State::Suspended { .. } => self.state = State::Connecting { why: WAS_SUSPENDED },
            _ => {}
        }
        self.connect()
    }

    fn connect(&mut self) -> Vec<Action> {
        self.retry_at = None;
        vec![Action::Connect(if self.refused {
            Refresh::Unauthorized
        } else {
            Refresh::First
        })]
    }

    fn ready(&mut self) {
        self.backoff.reset();
        self.refused = false;
        self.retry_at = None;
        self.state = State::Ready;
    }

    fn lose_and_connect(&mut self, why: ConnectError) -> Vec<Action> {
        self.refused = why.unauthorized;
        self.state = State::Unreachable { reason: why.reason };
        self.connect()
    }

    fn lose(&mut self, why: ConnectError, retry_at: Instant) -> Vec<Action> {
        self.refused = why.unauthorized;
        self.state = State::Unreachable { reason: why.reason };
        self.retry_at = Some(retry_at);
        vec![]
    }

    /// The cluster continues with the spec in use.
    fn keep_last_good(&mut self, problem: &str, now: Instant) -> Vec<Action> {
        self.retry_spec(now);
        vec![Action::Warn(still_in_use(problem))]
    }

    fn retry_spec(&mut self, now: Instant) {
        self.retry_at = Some(now + self.backoff.pause().max(SPEC_INTERVAL));
    }

    fn end(&mut self, end: End) -> Vec<Action> {
        self.state = State::Draining(end);
        vec![]
    }
}

fn still_in_use(problem: &str) -> String {
    format!("{problem}; its previous settings stay in use")
}

#[cfg(test)]
mod tests;
