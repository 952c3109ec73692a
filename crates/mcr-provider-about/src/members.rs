//! The clusters of the inner provider, and what to announce of them. No I/O, no clock of its own.

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

/// The pause after the first probe that fails. It doubles with each further one, up to the time of a refresh.
const FIRST_RETRY: Duration = Duration::from_secs(15);

pub(crate) struct Members {
    refresh: Duration,
    members: BTreeMap<ClusterName, Member>,
    /// What earlier discoveries knew of clusters that this one has not announced yet.
    remembered: BTreeMap<ClusterName, Known>,
    synced: bool,
    probes: Requests<ClusterName>,
    /// The properties that a cluster may set.
    may_set: Arc<BTreeSet<String>>,
}

struct Member {
    /// As the inner provider announced it last.
    spec: ClusterSpec,
    known: Known,
    /// The inner provider has announced last that its description is unusable.
    broken: bool,
    error: Option<Arc<str>>,
}

/// A probe to be run.
pub(crate) struct Probe {
    pub(crate) ticket: Ticket,
    /// The cluster, as the inner provider announced it.
    pub(crate) spec: ClusterSpec,
    /// Cancelled when nobody needs the answer any more.
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

    /// The inner provider announces a cluster.
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

    /// The inner provider announces that the description of a cluster is unusable. It is not probed, as its access may be out of date.
    pub(crate) fn broken(&mut self, name: &ClusterName) {
        self.probes.cancel(name);
        if let Some(member) = self.members.get_mut(name) {
            member.broken = true;
        }
    }

    /// The inner provider announces that a cluster is gone.
    pub(crate) fn remove(&mut self, name: &ClusterName) {
        self.probes.cancel(name);
        self.members.remove(name);
        self.remembered.remove(name);
    }

    /// The inner provider has announced all clusters that there are.
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

    /// A probe has ended. `answer` is none if it was cancelled.
    pub(crate) fn probed(
        &mut self,
        name: &ClusterName,
        ticket: Ticket,
        answer: Option<Result<Properties, Arc<str>>>,
        now: Instant,
    ) -> Vec<Change> {
        // Otherwise the cluster has another access, or another cluster has its name.
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

    /// What to show of a cluster. None if there is no such cluster.
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

    /// Takes what the next discovery has to know. Nothing is left here.
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
