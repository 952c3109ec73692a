//! The children, and what one discovery leaves to the next.
//!
//! As in the `clusters` provider there is no channel that could fill up: a discovery that was woken compares what
//! there is with what it runs.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    sync::Arc,
    time::Duration,
};

use mcr_core::{ClusterName, Provider};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::{
    error::MultiError,
    inventory::Inventory,
    names,
    status::{ChildState, ChildStatus},
};

/// Numbers the children: another child of the same name has another one.
pub(crate) type ChildId = u64;

/// The options of a provider.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) separator: Arc<str>,
    pub(crate) removal_grace: Duration,
    pub(crate) sync_timeout: Duration,
}

pub(crate) struct Registry {
    pub(crate) options: Options,
    state: Mutex<State>,
    pub(crate) changed: Notify,
}

#[derive(Default)]
struct State {
    children: BTreeMap<Arc<str>, Child>,
    next_id: ChildId,
    /// Counts what changed of the children, so that discoveries see at a glance whether to look closer.
    version: u64,
    /// Clusters of children that were removed while no discovery was there to say so. No more than discoveries
    /// have left.
    departed: Vec<ClusterName>,
}

struct Child {
    id: ChildId,
    provider: Arc<dyn Provider>,
    status: ChildStatus,
    /// The number of calls of `release_held`.
    releases: u64,
    /// What the last discovery left. None while a discovery runs.
    inventory: Option<Inventory>,
}

/// A child that a discovery should run.
pub(crate) struct DesiredChild {
    pub(crate) id: ChildId,
    pub(crate) name: Arc<str>,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) releases: u64,
}

impl Registry {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    pub(crate) fn add(&self, name: Arc<str>, provider: Arc<dyn Provider>) -> Result<(), MultiError> {
        names::check_child(&name, &self.options.separator)?;
        let mut state = self.state.lock();
        let id = state.next_id;
        match state.children.entry(name.clone()) {
            Entry::Occupied(_) => return Err(MultiError::NameTaken(name.to_string())),
            Entry::Vacant(place) => place.insert(Child {
                id,
                provider,
                status: ChildStatus::new(name),
                releases: 0,
                inventory: None,
            }),
        };
        state.next_id += 1;
        self.notify(state);
        Ok(())
    }

    pub(crate) fn remove(&self, name: &str) -> bool {
        let mut state = self.state.lock();
        let Some(mut child) = state.children.remove(name) else {
            return false;
        };
        let left = child.inventory.take().into_iter().flat_map(Inventory::into_names);
        state.departed.extend(left);
        self.notify(state);
        // Only now, without the lock: what a provider does when it is dropped is its own affair.
        drop(child);
        true
    }

    pub(crate) fn release_held(&self, name: &str) -> bool {
        let mut state = self.state.lock();
        let Some(child) = state.children.get_mut(name) else {
            return false;
        };
        child.releases += 1;
        self.notify(state);
        true
    }

    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        self.state.lock().children.keys().cloned().collect()
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.state.lock().children.contains_key(name)
    }

    pub(crate) fn status(&self, name: &str) -> Option<ChildStatus> {
        self.state
            .lock()
            .children
            .get(name)
            .map(|child| child.status.clone())
    }

    pub(crate) fn statuses(&self) -> Vec<ChildStatus> {
        let state = self.state.lock();
        state
            .children
            .values()
            .map(|child| child.status.clone())
            .collect()
    }

    /// The children that a discovery should run, with their version; none if `known` is that version.
    pub(crate) fn desired(&self, known: Option<u64>) -> Option<(u64, Vec<DesiredChild>)> {
        let state = self.state.lock();
        if known == Some(state.version) {
            return None;
        }
        let children = state.children.iter().map(|(name, child)| DesiredChild {
            id: child.id,
            name: name.clone(),
            provider: child.provider.clone(),
            releases: child.releases,
        });
        Some((state.version, children.collect()))
    }

    /// Takes the clusters that earlier discoveries left to be removed.
    pub(crate) fn take_departed(&self) -> Vec<ClusterName> {
        std::mem::take(&mut self.state.lock().departed)
    }

    /// A discovery starts a child. Returns the inventory that the last discovery left.
    pub(crate) fn begin(&self, name: &str, id: ChildId) -> Inventory {
        let mut inventory = None;
        self.with(name, id, |child| {
            child.status.started();
            inventory = child.inventory.take();
        });
        let mut inventory = inventory.unwrap_or_default();
        inventory.begin_discovery();
        inventory
    }

    /// A discovery ends, and leaves the inventory of a child to the next discovery.
    pub(crate) fn leave(&self, name: &str, id: ChildId, inventory: Inventory) {
        let mut left = Some(inventory);
        self.with(name, id, |child| {
            child.inventory = left.take();
            child.status.state = ChildState::Waiting;
        });
        // The child was removed, and the discovery ended before it noticed.
        self.depart(left.into_iter().flat_map(Inventory::into_names));
    }

    /// Stores removals that a discovery had not announced when it ended.
    pub(crate) fn depart(&self, names: impl IntoIterator<Item = ClusterName>) {
        self.state.lock().departed.extend(names);
    }

    pub(crate) fn update(&self, name: &str, id: ChildId, change: impl FnOnce(&mut ChildStatus)) {
        self.with(name, id, |child| change(&mut child.status));
    }

    /// Does nothing if the child has been removed.
    fn with(&self, name: &str, id: ChildId, change: impl FnOnce(&mut Child)) {
        if let Some(child) = self
            .state
            .lock()
            .children
            .get_mut(name)
            .filter(|child| child.id == id)
        {
            change(child);
        }
    }

    fn notify(&self, mut state: MutexGuard<'_, State>) {
        state.version += 1;
        drop(state);
        self.changed.notify_waiters();
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("options", &self.options)
            .field("children", &self.names())
            .finish()
    }
}
