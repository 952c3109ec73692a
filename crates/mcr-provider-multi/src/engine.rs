//! The set of providers behind one discovery, and the changes that the discovery has not announced yet.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use mcr_core::{BrokenCluster, Change, ClusterName, ClusterSink, ClusterSpec, ProviderId, ProviderSet};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    children::{Children, Options},
    status::{ChildState, ChildStatus},
};

/// Runs the children of one discovery at a time, and remembers their clusters for the next discovery.
pub(crate) struct Engine {
    pub(crate) set: Arc<ProviderSet<Queue>>,
    running: AtomicBool,
}

impl Engine {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            set: Arc::new(ProviderSet::new(Queue::default(), options.removal_grace)),
            running: AtomicBool::new(false),
        }
    }

    /// Marks the engine as running. Returns false if it was running already.
    pub(crate) fn begin(&self) -> bool {
        let idle = !self.running.swap(true, Ordering::SeqCst);
        if idle {
            self.set.sink().begin();
        }
        idle
    }

    pub(crate) fn end(&self) {
        self.running.store(false, Ordering::SeqCst);
    }

    /// Adds new children to the set, and removes children that are gone.
    pub(crate) fn follow(&self, children: &Children) {
        let ids: BTreeSet<ProviderId> = children.values().map(|child| child.id).collect();
        // Removals come first, because a new child may have the name of an old one.
        for gone in self.set.ids().into_iter().filter(|id| !ids.contains(id)) {
            self.set.remove(gone);
        }
        for child in children.values() {
            self.set.add(child.id, child.provider.clone());
        }
    }

    /// Announces clusters of earlier discoveries that this one has not announced, if their child has not synced or
    /// holds them. Otherwise a listener would consider them gone.
    pub(crate) fn announce_rest(&self) {
        for id in self.set.ids() {
            let Some(status) = self.set.status(id) else {
                continue;
            };
            let known = self.set.known(id);
            if !status.synced {
                tracing::warn!(child = %status.name, known = known.len(), "a child has not announced all its clusters yet; the clusters of its earlier discoveries stay until it has");
            }
            for cluster in known.into_iter().filter(|cluster| cluster.held || !status.synced) {
                if !self.set.sink().pending.lock().announced.contains(&cluster.name) {
                    let spec = cluster.spec.map(|spec| Change::Upsert((*spec).clone()));
                    let broken = cluster.broken.map(Change::Broken);
                    let changes = spec.into_iter().chain(broken);
                    changes.for_each(|change| self.set.sink().push(change));
                }
            }
        }
    }

    /// The status of a child. `None` if the set does not contain the child yet.
    pub(crate) fn status(&self, name: &Arc<str>, id: ProviderId) -> Option<ChildStatus> {
        let status = self.set.status(id)?;
        let known = self.set.known(id);
        let last_error: Option<Arc<str>> = status.last_error.map(Into::into);
        let state = match (status.failing_since, &last_error) {
            _ if !self.running.load(Ordering::SeqCst) => ChildState::Waiting,
            (Some(since), Some(error)) => ChildState::Failing {
                error: error.clone(),
                since,
            },
            _ => ChildState::Running,
        };
        Some(ChildStatus {
            name: name.clone(),
            state,
            synced: status.synced,
            restarts: status.restarts,
            last_error,
            clusters: known.len(),
            held: known.iter().filter(|cluster| cluster.held).count(),
        })
    }
}

/// The changes that a discovery has not announced yet. A child waits until its changes are announced, so there are
/// never more changes than clusters.
#[derive(Default)]
pub(crate) struct Queue {
    pending: Mutex<Pending>,
    pub(crate) filled: Notify,
    emptied: Notify,
}

#[derive(Default)]
struct Pending {
    changes: VecDeque<Change>,
    /// The clusters that this discovery has announced.
    announced: BTreeSet<ClusterName>,
}

impl Queue {
    /// Prepares for a new discovery. It announces all clusters again, and the removals that the last discovery has not
    /// announced.
    fn begin(&self) {
        let mut pending = self.pending.lock();
        pending
            .changes
            .retain(|change| matches!(change, Change::Remove(_)));
        pending.announced.clear();
    }

    pub(crate) fn push(&self, change: Change) {
        let mut pending = self.pending.lock();
        match &change {
            Change::Upsert(ClusterSpec { name, .. }) | Change::Broken(BrokenCluster { name, .. }) => {
                pending.announced.insert(name.clone());
            }
            _ => {}
        }
        pending.changes.push_back(change);
        drop(pending);
        self.filled.notify_one();
    }

    pub(crate) fn pop(&self) -> Option<Change> {
        let mut pending = self.pending.lock();
        let change = pending.changes.pop_front();
        if pending.changes.is_empty() {
            self.emptied.notify_waiters();
        }
        change
    }
}

impl ClusterSink for Queue {
    type Spec = ClusterSpec;

    async fn store(&self, spec: ClusterSpec) -> ClusterSpec {
        spec
    }

    fn set(&self, _: &Arc<str>, _: &ClusterName, spec: &Arc<ClusterSpec>) {
        self.push(Change::Upsert((**spec).clone()));
    }

    fn unset(&self, name: &ClusterName) {
        self.push(Change::Remove(name.clone()));
    }

    fn show_broken(&self, name: &ClusterName, broken: Option<&BrokenCluster>) {
        self.push(match broken {
            Some(broken) => Change::Broken(broken.clone()),
            None => Change::Remove(name.clone()),
        });
    }

    async fn ready(&self) {
        self.filled.notify_one();
        let emptied = self.emptied.notified();
        tokio::pin!(emptied);
        emptied.as_mut().enable();
        if !self.pending.lock().changes.is_empty() {
            emptied.await;
        }
    }
}
