//! One discovery of the provider. It spawns no task: it polls the inner discovery and the probes itself. When it is
//! dropped, it drops them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::FutureExt;
use mcr_core::{
    BoxError, Change, ClusterName, DiscoverySettings, OneOffClients,
    hub::{Decide, Outcome, Ticket},
};
use tokio::time::Instant;

use crate::{
    known::Properties,
    members::{Members, Probe},
    probe::{MAX_ANSWER, probe},
    statuses::Shared,
};

/// When the discovery probes clusters, and which properties the clusters may set.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The time between two probes of a cluster.
    pub(crate) refresh: Duration,
    /// The time limit of a probe.
    pub(crate) timeout: Duration,
    /// How many probes run at the same time.
    pub(crate) at_once: usize,
    /// The names of the properties that a cluster may set for itself.
    pub(crate) may_set: Arc<BTreeSet<String>>,
}

pub(crate) enum Event {
    /// The inner provider has announced something.
    Announced(Result<Change, BoxError>),
    /// A probe has ended. The answer is `None` if the probe was cancelled.
    Probed(ClusterName, Ticket, Option<Result<Properties, Arc<str>>>),
}

pub(crate) struct Decisions {
    timeout: Duration,
    shared: Arc<Shared>,
    clients: Arc<OneOffClients>,
    members: Members,
}

impl Decide for Decisions {
    type Event = Event;

    fn decide(&mut self, events: Vec<Event>, now: Instant) -> Outcome<Event> {
        let mut outcome = Outcome::default();
        for event in events {
            match event {
                Event::Announced(Ok(change)) => outcome.changes.extend(self.announced(change, now)),
                Event::Announced(Err(error)) => {
                    outcome.error = Some(error);
                    break;
                }
                Event::Probed(name, ticket, answer) => {
                    if let Some(Err(error)) = &answer {
                        tracing::debug!(cluster = %name, %error, "can't read the ClusterProperties; the last known ones stay in use");
                    }
                    outcome
                        .changes
                        .extend(self.members.probed(&name, ticket, answer, now));
                    self.show(&name);
                }
            }
        }
        while let Some(Probe { ticket, spec, stop }) = self.members.start_probe(now) {
            let (clients, limit) = (self.clients.clone(), self.timeout);
            let name = spec.name.clone();
            let run = async move {
                let answer = stop.run_until_cancelled(probe(&clients, spec, limit)).await;
                Event::Probed(name, ticket, answer)
            };
            outcome.tasks.push(run.boxed());
        }
        outcome
    }

    fn due(&self) -> Option<Instant> {
        self.members.next_due()
    }
}

impl Decisions {
    pub(crate) fn new(options: &Options, shared: Arc<Shared>, settings: &DiscoverySettings) -> Self {
        let members = Members::new(options.refresh, options.at_once, shared.take_memory());
        Self {
            members: members.may_set(options.may_set.clone()),
            clients: Arc::new(OneOffClients::new(settings, MAX_ANSWER)),
            timeout: options.timeout,
            shared,
        }
    }

    /// The changes to announce after a change of the inner provider. An upsert gets the properties that the cluster
    /// has reported. All other changes are passed on unchanged.
    fn announced(&mut self, change: Change, now: Instant) -> Vec<Change> {
        match change {
            Change::Upsert(spec) => {
                let name = spec.name.clone();
                let changes = self.members.upsert(spec, now);
                self.show(&name);
                return changes;
            }
            Change::Broken(ref broken) => self.members.broken(&broken.name),
            Change::Remove(ref name) => {
                self.members.remove(name);
                self.show(name);
            }
            Change::Synced => {
                self.members.synced();
                // Clusters that only an earlier discovery has announced must not be shown any more.
                self.shared.names().iter().for_each(|name| self.show(name));
            }
            _ => {}
        }
        vec![change]
    }

    /// Publishes the status of a cluster to the handle of the provider.
    fn show(&self, name: &ClusterName) {
        let mut statuses = self.shared.statuses.lock();
        match self.members.status(name) {
            Some(status) => _ = statuses.insert(name.clone(), status),
            None => _ = statuses.remove(name),
        }
    }
}

impl Drop for Decisions {
    fn drop(&mut self) {
        self.shared.set_memory(self.members.take_memory());
    }
}
