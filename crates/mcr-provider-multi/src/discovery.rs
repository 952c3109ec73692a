//! One discovery of all children. It has no task and no channel: children are polled with it and dropped with it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::SystemTime,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use mcr_core::{Change, ClusterName, DiscoverySettings};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    child::{Failed, Run},
    inventory::Inventory,
    names::Prefix,
    registry::{ChildId, DesiredChild, Registry},
    sync_barrier::SyncBarrier,
};

/// What was heard of a child, with the child to be listened to again.
type Step = (Run, Result<Change, Failed>);

pub(crate) struct Running {
    registry: Arc<Registry>,
    stop: CancellationToken,
    /// Those of the fleet, for the children.
    settings: DiscoverySettings,
    /// The version of the children that this discovery has seen.
    seen: Option<u64>,
    children: BTreeMap<ChildId, Child>,
    /// What is waited for of each child. Fair: a child that always has something to say waits for the others.
    steps: FuturesUnordered<BoxFuture<'static, Option<Step>>>,
    sync_barrier: SyncBarrier,
    /// What is to be said before anything else is listened to; never more than the clusters there are.
    ready: VecDeque<Change>,
}

struct Child {
    name: Arc<str>,
    prefix: Prefix,
    stop: CancellationToken,
    inventory: Inventory,
    releases: u64,
}

impl Running {
    pub(crate) fn start(
        registry: Arc<Registry>,
        stop: CancellationToken,
        settings: DiscoverySettings,
    ) -> Self {
        let deadline = Instant::now() + registry.options.sync_timeout;
        let departed = registry.take_departed();
        let mut running = Self {
            stop,
            settings,
            seen: None,
            children: BTreeMap::new(),
            steps: FuturesUnordered::new(),
            sync_barrier: SyncBarrier::new([], deadline),
            ready: departed.into_iter().map(Change::Remove).collect(),
            registry,
        };
        running.follow();
        running.sync_barrier = SyncBarrier::new(running.children.keys().copied(), deadline);
        running
    }

    /// The next change. Cancel safe: what was not returned is returned by the next call.
    pub(crate) async fn next(&mut self) -> Change {
        loop {
            let registry = self.registry.clone();
            let changed = registry.changed.notified();
            tokio::pin!(changed);
            // Listen first, look second: a change between the two must not be slept through.
            changed.as_mut().enable();
            self.follow();
            if self.ready.is_empty() && self.sync_barrier.opens(Instant::now()) {
                self.all_synced();
            }
            if let Some(change) = self.ready.pop_front() {
                return change;
            }
            let due = self.due();
            let due = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(step) = self.steps.next(), if !self.steps.is_empty() => self.received(step),
                () = due => self.sweep(Instant::now()),
                () = changed => {}
            }
        }
    }

    /// Starts the children that are new and lets go of those that were removed.
    fn follow(&mut self) {
        let Some((version, desired)) = self.registry.desired(self.seen) else {
            return;
        };
        self.seen = Some(version);
        let desired: BTreeMap<ChildId, DesiredChild> =
            desired.into_iter().map(|child| (child.id, child)).collect();
        // First those that go: a new child may have the name of an old one.
        let gone: Vec<ChildId> = self
            .children
            .keys()
            .filter(|id| !desired.contains_key(id))
            .copied()
            .collect();
        for id in gone {
            self.sync_barrier.done(id);
            if let Some(child) = self.children.remove(&id) {
                child.stop.cancel();
                self.ready
                    .extend(child.inventory.into_names().map(Change::Remove));
            }
        }
        for (id, desired) in desired {
            match self.children.get_mut(&id) {
                Some(child) if child.releases < desired.releases => {
                    child.releases = desired.releases;
                    let released = child.inventory.release_held();
                    self.ready.extend(released.into_iter().map(Change::Remove));
                    self.show(id);
                }
                Some(_) => {}
                None => self.begin(desired),
            }
        }
    }

    fn begin(&mut self, desired: DesiredChild) {
        let stop = self.stop.child_token();
        let inventory = self.registry.begin(&desired.name, desired.id);
        let child = Child {
            prefix: Prefix::new(&desired.name, &self.registry.options.separator),
            name: desired.name,
            stop: stop.clone(),
            inventory,
            releases: desired.releases,
        };
        self.children.insert(desired.id, child);
        let run = Run::new(desired.id, desired.provider, stop, self.settings.clone());
        self.steps.push(run.next().boxed());
    }

    fn received(&mut self, step: Option<Step>) {
        // None of a child that was stopped; and one may have been removed after it spoke.
        let Some((run, received)) = step else { return };
        let id = run.id;
        let Some(child) = self.children.get_mut(&id) else {
            return;
        };
        match received {
            Ok(change) => self.announced(id, change),
            Err(Failed { error, retry_in }) => {
                tracing::warn!(child = %child.name, %error, ?retry_in, "the discovery of a child failed, starting it again");
                child.inventory.begin_round();
                let error = Arc::from(error);
                self.registry
                    .update(&child.name, id, |status| status.failed(error, SystemTime::now()));
            }
        }
        self.show(id);
        self.steps.push(run.next().boxed());
    }

    fn announced(&mut self, id: ChildId, change: Change) {
        let Some(child) = self.children.get_mut(&id) else {
            return;
        };
        match change {
            Change::Upsert(mut spec) => {
                let Some(name) = child.named(&spec.name) else {
                    return;
                };
                spec.name = name;
                spec.announced_by.get_or_insert_with(|| child.name.clone());
                child.inventory.upsert(spec.clone());
                self.ready.push_back(Change::Upsert(spec));
            }
            Change::Broken(mut broken) => {
                let Some(name) = child.named(&broken.name) else {
                    return;
                };
                broken.name = name;
                child.inventory.broken(broken.clone());
                self.ready.push_back(Change::Broken(broken));
            }
            Change::Remove(name) => {
                let Some(name) = child.named(&name) else { return };
                child.inventory.remove(&name);
                self.ready.push_back(Change::Remove(name));
            }
            Change::Synced => {
                let held = child
                    .inventory
                    .synced(Instant::now(), self.registry.options.removal_grace);
                if let Some(held) = held {
                    tracing::error!(child = %child.name, missing = held.missing, of = held.known, "a restarted discovery no longer names most clusters of a child: none is removed. If they are really gone, call MultiHandle::release_held");
                }
                self.registry.update(&child.name, id, |status| status.synced());
                self.sync_barrier.done(id);
            }
            other => {
                tracing::error!(child = %child.name, change = ?other, "a child says what this version of the provider does not know, left out");
            }
        }
    }

    /// All children have synced or had their time. What is still missing of them is said for them, or else the
    /// listener would take it for gone.
    fn all_synced(&mut self) {
        for id in self.sync_barrier.late() {
            if let Some(child) = self.children.get(&id) {
                tracing::warn!(child = %child.name, known = child.inventory.len(), "a child has not yet said which clusters it has; those known from before stay until it does");
            }
        }
        for child in self.children.values_mut() {
            self.ready.extend(child.inventory.rest());
        }
        self.ready.push_back(Change::Synced);
    }

    fn sweep(&mut self, now: Instant) {
        let mut swept = Vec::new();
        for (id, child) in &mut self.children {
            let gone = child.inventory.sweep(now);
            if !gone.is_empty() {
                tracing::info!(child = %child.name, clusters = ?gone, "a restarted child no longer names these clusters, removed after their grace");
                self.ready.extend(gone.into_iter().map(Change::Remove));
                swept.push(*id);
            }
        }
        for id in swept {
            self.show(id);
        }
    }

    /// When something is to be done even if nothing is heard until then.
    fn due(&self) -> Option<Instant> {
        let sweeps = self
            .children
            .values()
            .filter_map(|child| child.inventory.next_sweep());
        sweeps.chain(self.sync_barrier.deadline()).min()
    }

    fn show(&self, id: ChildId) {
        if let Some(child) = self.children.get(&id) {
            let (clusters, held) = (child.inventory.len(), child.inventory.held());
            self.registry.update(&child.name, id, |status| {
                status.clusters = clusters;
                status.held = held;
            });
        }
    }
}

impl Child {
    fn named(&self, cluster: &ClusterName) -> Option<ClusterName> {
        self.prefix
            .join(cluster)
            .inspect_err(|error| {
                tracing::error!(%error, child = %self.name, "cluster left out: its name with that of its child is not a valid cluster name");
            })
            .ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let pending = self.ready.drain(..).filter_map(|change| match change {
            Change::Remove(name) => Some(name),
            _ => None,
        });
        self.registry.depart(pending);
        for (id, child) in std::mem::take(&mut self.children) {
            self.registry.leave(&child.name, id, child.inventory);
        }
    }
}
