//! The clusters of the inner provider, and what to announce about them. No I/O: the caller passes the time.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::take,
    sync::Arc,
    time::Duration,
};

use mcr_core::{
    Access, Availability, Change, ClusterName, ClusterSpec,
    hub::{Requests, Ticket, jitter},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    access,
    known::{CLUSTER_ID, CLUSTER_SET, Known, Properties},
    statuses::MemberStatus,
};

/// The pause after the first failed probe. It doubles with each further failure, up to the refresh interval.
const FIRST_RETRY: Duration = Duration::from_secs(15);

pub(crate) struct Members {
    refresh: Duration,
    members: BTreeMap<ClusterName, Member>,
    /// What earlier discoveries have learned about clusters that this one has not announced yet.
    remembered: BTreeMap<ClusterName, Known>,
    synced: bool,
    probes: Requests<ClusterName>,
    /// The properties that a cluster may set.
    may_set: Arc<BTreeSet<String>>,
}

struct Member {
    /// The last spec from the inner provider.
    spec: ClusterSpec,
    known: Known,
    /// Whether the inner provider has since announced that the description is unusable.
    broken: bool,
    error: Option<Arc<str>>,
}

/// A probe to be run.
pub(crate) struct Probe {
    pub(crate) ticket: Ticket,
    /// The spec from the inner provider.
    pub(crate) spec: ClusterSpec,
    /// Cancelled when the answer is no longer needed.
    pub(crate) stop: CancellationToken,
}

impl Members {
    pub(crate) fn new(refresh: Duration, at_once: usize, remembered: BTreeMap<ClusterName, Known>) -> Self {
        Self {
            refresh,
            members: BTreeMap::new(),
            remembered,
            synced: false,
            probes: Requests::new(at_once, (FIRST_RETRY.min(refresh), refresh)),
            may_set: Arc::default(),
        }
    }

    pub(crate) fn may_set(self, may_set: Arc<BTreeSet<String>>) -> Self {
        Self { may_set, ..self }
    }

    /// The inner provider has announced a cluster.
    pub(crate) fn upsert(&mut self, spec: ClusterSpec, now: Instant) -> Vec<Change> {
        let name = spec.name.clone();
        let mut probe = match self.members.get(&name) {
            Some(member) => {
                member.broken
                    || !can_be_probed(&member.spec)
                    || !access::is_same(&member.spec.access, &spec.access)
            }
            None => true,
        };
        let member = self.members.entry(name.clone()).or_insert_with(|| Member {
            known: self.remembered.remove(&name).unwrap_or_default(),
            spec: spec.clone(),
            broken: false,
            error: None,
        });
        probe |= member.known.follow(&spec);
        member.spec = spec;
        member.broken = false;
        if !can_be_probed(&member.spec) {
            self.probes.cancel(&name);
        } else if probe {
            self.probes.cancel(&name);
            self.probes.plan(&name, now);
            member.error = None;
        }
        member.known.announce(&member.spec, &self.may_set)
    }

    /// The inner provider has announced that the description of a cluster is unusable. The cluster is not probed,
    /// because its access may be outdated.
    pub(crate) fn broken(&mut self, name: &ClusterName) {
        self.probes.cancel(name);
        if let Some(member) = self.members.get_mut(name) {
            member.broken = true;
        }
    }

    /// The inner provider has announced that a cluster is gone.
    pub(crate) fn remove(&mut self, name: &ClusterName) {
        self.probes.cancel(name);
        self.members.remove(name);
        self.remembered.remove(name);
    }

    /// The inner provider has announced all existing clusters.
    pub(crate) fn synced(&mut self) {
        self.synced = true;
    }

    /// The next probe that is due, if another one may run.
    pub(crate) fn start_probe(&mut self, now: Instant) -> Option<Probe> {
        let request = self.probes.start(now)?;
        Some(Probe {
            ticket: request.ticket,
            spec: self.members.get(&request.key)?.spec.clone(),
            stop: request.stop,
        })
    }

    /// A probe has ended. `answer` is `None` if it was cancelled.
    pub(crate) fn probed(
        &mut self,
        name: &ClusterName,
        ticket: Ticket,
        answer: Option<Result<Properties, Arc<str>>>,
        now: Instant,
    ) -> Vec<Change> {
        // If not current, the cluster has another access by now, or another cluster has its name.
        let current = self.probes.ended(name, ticket);
        let (Some(member), Some(answer)) = (self.members.get_mut(name), answer.filter(|_| current)) else {
            return Vec::new();
        };
        match answer {
            Ok(found) => {
                let spread = self.refresh / 5;
                let pause = self.refresh - spread / 2 + jitter(spread);
                self.probes.succeeded(name, now);
                self.probes.plan(name, now + pause);
                member.error = None;
                let before = member.known.properties(&member.spec);
                member.known.found = Some(found);
                if before == member.known.properties(&member.spec) {
                    return Vec::new();
                }
                member.known.announce(&member.spec, &self.may_set)
            }
            Err(error) => {
                self.probes.failed(name, now, Duration::ZERO);
                member.error = Some(error);
                Vec::new()
            }
        }
    }

    /// When the next probe is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.probes.next_due()
    }

    /// The status of a cluster for users. `None` if there is no such cluster.
    pub(crate) fn status(&self, name: &ClusterName) -> Option<MemberStatus> {
        let member = self.members.get(name)?;
        let properties = member.known.properties(&member.spec);
        let get = |name| properties.get(name).map(|value| Arc::from(value.as_str()));
        Some(MemberStatus {
            name: name.clone(),
            cluster_id: get(CLUSTER_ID),
            cluster_set: get(CLUSTER_SET),
            answered: member.known.found.is_some(),
            last_error: member.error.clone(),
        })
    }

    /// Returns what the next discovery needs, and removes it here.
    pub(crate) fn take_memory(&mut self) -> BTreeMap<ClusterName, Known> {
        let mut memory = take(&mut self.remembered);
        if self.synced {
            memory.clear();
        }
        let members = take(&mut self.members).into_iter();
        memory.extend(members.map(|(name, member)| (name, member.known)));
        memory
    }
}

/// A suspended cluster is not expected to answer, and a place in a scope has no connection of its own.
fn can_be_probed(spec: &ClusterSpec) -> bool {
    spec.availability == Availability::Available && !matches!(spec.access, Access::Scoped(_))
}

#[cfg(test)]
mod tests;
