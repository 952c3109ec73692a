//! One Shoot with its kubeconfig, and what is to be said of it. No I/O.

use std::{sync::Arc, time::Duration};

use mcr_core::{
    Access, BrokenCluster, Change, ClusterName, ClusterSpec, Fingerprint, ObjectKey, Trust,
    internal::{Backoff, Line, Ticket},
};
use tokio::time::Instant;

use crate::{
    facts::{Facts, PROJECT_PROPERTY, State, map},
    kubeconfig::{Failure, Held},
};

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) facts: Arc<Facts>,
    /// Why the Shoot can't be decoded any more. The facts are those from before.
    pub(crate) unreadable: Option<Arc<str>>,
    pub(crate) attempt: Attempt,
    pub(crate) held: Option<Held>,
    /// Why the last attempt failed.
    pub(crate) failure: Option<Failure>,
    pub(crate) backoff: Backoff,
    pub(crate) announced: Announced,
    /// The content of the kubeconfig that was announced last. None if there is none, or once a suspension has ended its use.
    announced_kubeconfig: Option<Fingerprint>,
}

/// The request for a kubeconfig.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    None,
    Planned,
    Running(Ticket),
}

/// What was announced last.
#[derive(Debug, Clone)]
pub(crate) enum Announced {
    Nothing,
    Waiting(Arc<Facts>, Arc<str>),
    Good(Arc<Facts>, Fingerprint),
    Broken(Arc<str>),
}

impl Announced {
    /// Whether both say the same.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nothing, Self::Nothing) => true,
            (Self::Waiting(a, why), Self::Waiting(b, other)) => why == other && a.same_description(b),
            (Self::Good(a, content), Self::Good(b, other)) => content == other && a.same_description(b),
            (Self::Broken(why), Self::Broken(other)) => why == other,
            _ => false,
        }
    }
}

/// What is to be said of a cluster.
pub(crate) enum Verdict<'a> {
    Good(&'a Held),
    Waiting(Arc<str>),
    Broken(Arc<str>),
}

impl Member {
    pub(crate) fn new(facts: Arc<Facts>, held: Option<Held>, pauses: (Duration, Duration)) -> Self {
        let unreadable = match &facts.state {
            State::Unreadable(why) => Some(why.clone()),
            _ => None,
        };
        Self {
            facts,
            unreadable,
            attempt: Attempt::None,
            held,
            failure: None,
            backoff: Backoff::new(pauses.0, pauses.1),
            announced: Announced::Nothing,
            announced_kubeconfig: None,
        }
    }

    /// The Shoot was created or changed.
    pub(crate) fn learn(&mut self, facts: Arc<Facts>) {
        let State::Unreadable(why) = &facts.state else {
            self.unreadable = None;
            self.facts = facts;
            return;
        };
        self.unreadable = Some(why.clone());
        // The Secret in a seed may be a new one, although its Cluster can't be decoded.
        if facts.in_seed.is_some() {
            Arc::make_mut(&mut self.facts).place = facts.place;
        }
    }

    /// Whether the Shoot is to have a kubeconfig, if it does not wait. One that can't be decoded keeps what it has: the kubeconfig in
    /// use is renewed, and no other one is asked for.
    pub(crate) fn wants_kubeconfig(&self) -> bool {
        self.unreadable.is_none() || self.announced_kubeconfig.is_some()
    }

    /// Why the cluster can't be used now, if the Shoot says so. A cluster that was engaged stays so while its control plane
    /// moves: the fleet finds out by itself whether it answers.
    pub(crate) fn waits(&self, engaged: bool) -> Option<&Arc<str>> {
        match &self.facts.state {
            _ if self.unreadable.is_some() => None,
            State::Waiting(why) => Some(why),
            State::Moving(why) if !engaged => Some(why),
            _ => None,
        }
    }

    /// The API server of the Shoot has refused the kubeconfig with this content. When another one is to be asked for, if this is
    /// news.
    ///
    /// A kubeconfig is used for `at_least` before, so that one that is always refused does not keep the garden busy.
    pub(crate) fn refused(&self, content: Fingerprint, at_least: Duration) -> Option<Instant> {
        let held = self.held.as_ref().filter(|held| held.fingerprint == content)?;
        let is_new = self.attempt == Attempt::Planned && self.failure.is_none();
        is_new.then(|| held.issued() + at_least)
    }

    /// The line in which it waits for the next kubeconfig.
    pub(crate) fn line(&self) -> Line {
        match self.failure {
            Some(_) => Line::Failing,
            None => Line::Healthy,
        }
    }

    /// When the next kubeconfig is needed.
    pub(crate) fn due(&self, now: Instant) -> Instant {
        match &self.held {
            Some(held) if held.place == self.facts.place && self.failure.is_none() => held.renew_at,
            _ => now,
        }
    }

    /// None if something is not known yet.
    pub(crate) fn verdict(&self, engaged: bool, now: Instant) -> Option<Verdict<'_>> {
        if let Some(why) = &self.unreadable {
            return Some(Verdict::Broken(why.clone()));
        }
        if let Some(why) = self.waits(engaged) {
            return Some(Verdict::Waiting(why.clone()));
        }
        match (&self.held, &self.failure) {
            (Some(held), None) => Some(Verdict::Good(held)),
            (Some(held), Some(failure)) if !failure.unusable && held.ends > now => Some(Verdict::Good(held)),
            (_, None) => None,
            (_, Some(failure)) if failure.absent => Some(Verdict::Waiting(failure.why.clone())),
            (held, Some(failure)) => {
                let why = match held.as_ref().filter(|held| held.ends <= now) {
                    Some(_) => format!(
                        "its kubeconfig has expired, and there is no new one: {}",
                        failure.why
                    )
                    .into(),
                    None => failure.why.clone(),
                };
                // As broken, a suspended cluster would still be shown with the reason of its suspension.
                Some(match &self.announced {
                    Announced::Waiting(..) => {
                        Verdict::Waiting(format!("it is ready, but there is no kubeconfig: {why}").into())
                    }
                    _ => Verdict::Broken(why),
                })
            }
        }
    }

    /// Notes what is announced.
    pub(crate) fn note_announced(&mut self, announced: Announced) {
        match &announced {
            Announced::Good(_, content) => self.announced_kubeconfig = Some(*content),
            Announced::Waiting(..) => self.announced_kubeconfig = None,
            Announced::Nothing | Announced::Broken(_) => {}
        }
        self.announced = announced;
    }

    /// The change that announces the renewed kubeconfig of a Shoot that can't be decoded, with the facts from before. It is to be
    /// followed by what is wrong: a fleet keeps the last good description of a broken cluster.
    pub(crate) fn renewed_unread(&self, name: ClusterName, project: &str) -> Option<(Announced, Change)> {
        let held = self.held.as_ref().filter(|_| self.unreadable.is_some())?;
        let is_new = self.announced_kubeconfig? != held.fingerprint;
        is_new.then(|| {
            let spec = self.facts.spec(name, project, held.access.clone());
            (
                Announced::Good(self.facts.clone(), held.fingerprint),
                Change::Upsert(spec),
            )
        })
    }

    /// The change that says it, and what is said then. None if that was said last.
    pub(crate) fn announcement(
        &self,
        key: &ObjectKey,
        name: ClusterName,
        project: &str,
        verdict: Verdict<'_>,
    ) -> Option<(Announced, Change)> {
        let facts = &self.facts;
        let announced = match &verdict {
            Verdict::Good(held) => Announced::Good(facts.clone(), held.fingerprint),
            Verdict::Waiting(why) => Announced::Waiting(facts.clone(), why.clone()),
            Verdict::Broken(why) => Announced::Broken(why.clone()),
        };
        if announced.is(&self.announced) {
            return None;
        }
        let change = match verdict {
            Verdict::Good(held) => Change::Upsert(facts.spec(name, project, held.access.clone())),
            Verdict::Waiting(why) => {
                let nowhere = Access::kubeconfig("", Trust::Untrusted);
                Change::Upsert(facts.spec(name, project, nowhere).suspended(why))
            }
            Verdict::Broken(why) => Change::Broken(BrokenCluster::new(name, format!("Shoot {key}"), why)),
        };
        Some((announced, change))
    }
}

impl Facts {
    fn spec(&self, name: ClusterName, project: &str, access: impl Into<Access>) -> ClusterSpec {
        let mut spec = ClusterSpec::new(name, access.into());
        spec.identity.clone_from(&self.uid);
        spec.labels = map(&self.labels);
        spec.properties = map(&self.properties);
        spec.properties.insert(PROJECT_PROPERTY.into(), project.into());
        spec
    }
}
