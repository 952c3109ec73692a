//! One discovery. It has no task: the inner discovery and the probes are polled with it and dropped with it.

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

/// When and how often clusters are probed.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) refresh: Duration,
    pub(crate) timeout: Duration,
    pub(crate) at_once: usize,
    pub(crate) may_set: Arc<BTreeSet<String>>,
}

pub(crate) enum Event {
    /// The inner provider has announced something.
    Announced(Result<Change, BoxError>),
    /// A probe has ended. The answer is none if it was cancelled.
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
                        tracing::debug!(cluster = %name, %error, "ClusterProperties not read, the last known ones stay");
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

    /// What to announce after a change of the inner provider, which is passed on in any case.
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
                // An earlier discovery named clusters that this one did not.
                self.shared.names().iter().for_each(|name| self.show(name));
            }
            _ => {}
        }
        vec![change]
    }

    /// Shows what is known of a cluster now.
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
        self.shared.leave_memory(self.members.take_memory());
    }
}
