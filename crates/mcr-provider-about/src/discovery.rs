//! One discovery. It has no task: the inner discovery and the probes are polled with it and dropped with it.

use std::{
    collections::{BTreeSet, VecDeque},
    future::pending,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use mcr_core::{
    AccessPolicy, BoxError, Change, ClusterName, Discovery,
    internal::{OneOffClients, Ticket},
};
use tokio::time::{Instant, sleep_until};

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

pub(crate) struct Running {
    options: Options,
    shared: Arc<Shared>,
    inner: Discovery,
    clients: Arc<OneOffClients>,
    members: Members,
    probes: FuturesUnordered<BoxFuture<'static, Ended>>,
    /// What is to be announced before anything else is listened to: what one change of the inner provider, or one answer, has led to.
    ready: VecDeque<Change>,
}

/// A probe that has ended. The answer is none if it was cancelled.
struct Ended {
    name: ClusterName,
    ticket: Ticket,
    answer: Option<Result<Properties, Arc<str>>>,
}

impl Running {
    pub(crate) fn start(
        options: Options,
        shared: Arc<Shared>,
        inner: Discovery,
        policy: &AccessPolicy,
    ) -> Self {
        let memory = shared.take_memory();
        Self {
            members: Members::new(options.refresh, options.at_once, memory).may_set(options.may_set.clone()),
            clients: Arc::new(OneOffClients::new(policy, MAX_ANSWER)),
            options,
            shared,
            inner,
            probes: FuturesUnordered::new(),
            ready: VecDeque::new(),
        }
    }

    /// The next change. None when the inner discovery has ended. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Result<Change, BoxError>> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Some(Ok(change));
            }
            while let Some(probe) = self.members.start_probe(Instant::now()) {
                self.begin(probe);
            }
            let due = self.members.next_due();
            let due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                announced = self.inner.next() => match announced? {
                    Ok(change) => self.announced(change),
                    Err(error) => return Some(Err(error)),
                },
                Some(ended) = self.probes.next(), if !self.probes.is_empty() => self.ended(ended),
                () = due => {}
            }
        }
    }

    fn begin(&mut self, Probe { ticket, spec, stop }: Probe) {
        let (clients, limit) = (self.clients.clone(), self.options.timeout);
        let name = spec.name.clone();
        let run = async move {
            let answer = stop.run_until_cancelled(probe(&clients, spec, limit)).await;
            Ended { name, ticket, answer }
        };
        self.probes.push(run.boxed());
    }

    /// The inner provider has said something. It is passed on in any case.
    fn announced(&mut self, change: Change) {
        match change {
            Change::Upsert(spec) => {
                let name = spec.name.clone();
                let changes = self.members.upsert(spec, Instant::now());
                self.announce(&name, changes);
            }
            Change::Broken(broken) => {
                self.members.broken(&broken.name);
                self.ready.push_back(Change::Broken(broken));
            }
            Change::Remove(name) => {
                self.members.remove(&name);
                let removed = vec![Change::Remove(name.clone())];
                self.announce(&name, removed);
            }
            Change::Synced => {
                self.members.synced();
                for name in self.shared.names() {
                    // An earlier discovery named clusters that this one did not.
                    if self.members.status(&name).is_none() {
                        self.announce(&name, Vec::new());
                    }
                }
                self.ready.push_back(Change::Synced);
            }
            other => self.ready.push_back(other),
        }
    }

    fn ended(&mut self, Ended { name, ticket, answer }: Ended) {
        if let Some(Err(error)) = &answer {
            tracing::debug!(cluster = %name, %error, "ClusterProperties not read, the last known ones stay");
        }
        let changes = self.members.probed(&name, ticket, answer, Instant::now());
        self.announce(&name, changes);
    }

    /// Announces changes of one cluster, and shows what is known of it now.
    fn announce(&mut self, name: &ClusterName, changes: Vec<Change>) {
        self.ready.extend(changes);
        let mut statuses = self.shared.statuses.lock();
        match self.members.status(name) {
            Some(status) => _ = statuses.insert(name.clone(), status),
            None => _ = statuses.remove(name),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.leave_memory(self.members.take_memory());
    }
}
