//! The children, and what one discovery leaves to the next.
//!
//! As in the `clusters` provider there is no channel that could fill up: a discovery that was woken compares what
//! there is with what it runs.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mcr_core::{ClusterName, Provider};
use tokio::sync::Notify;

use crate::{ChildState, ChildStatus, MultiError, book::Book, names};

/// Numbers the children: another child of the same name has another one.
pub(crate) type ChildId = u64;

/// What was chosen when the provider was built.
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
    /// How often its held clusters were let go.
    releases: u64,
    /// What the last discovery knew of it. None while one runs.
    book: Option<Book>,
}

/// A child as a discovery sees it.
pub(crate) struct Wanted {
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
        let mut state = self.lock();
        let id = state.next_id;
        match state.children.entry(name.clone()) {
            Entry::Occupied(_) => return Err(MultiError::NameTaken(name.to_string())),
            Entry::Vacant(place) => place.insert(Child {
                id,
                provider,
                status: ChildStatus::new(name),
                releases: 0,
                book: None,
            }),
        };
        state.next_id += 1;
        self.tell(state);
        Ok(())
    }

    pub(crate) fn remove(&self, name: &str) -> bool {
        let mut state = self.lock();
        let Some(mut child) = state.children.remove(name) else {
            return false;
        };
        let left = child.book.take().into_iter().flat_map(Book::into_names);
        state.departed.extend(left);
        self.tell(state);
        // Only now, without the lock: what a provider does when it is dropped is its own affair.
        drop(child);
        true
    }

    pub(crate) fn release_held(&self, name: &str) -> bool {
        let mut state = self.lock();
        let Some(child) = state.children.get_mut(name) else {
            return false;
        };
        child.releases += 1;
        self.tell(state);
        true
    }

    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        self.lock().children.keys().cloned().collect()
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.lock().children.contains_key(name)
    }

    pub(crate) fn status(&self, name: &str) -> Option<ChildStatus> {
        self.lock().children.get(name).map(|child| child.status.clone())
    }

    pub(crate) fn statuses(&self) -> Vec<ChildStatus> {
        let state = self.lock();
        state
            .children
            .values()
            .map(|child| child.status.clone())
            .collect()
    }

    /// The children there should be, and the version of that, unless the version is this one.
    pub(crate) fn wanted(&self, known: Option<u64>) -> Option<(u64, Vec<Wanted>)> {
        let state = self.lock();
        if known == Some(state.version) {
            return None;
        }
        let children = state.children.iter().map(|(name, child)| Wanted {
            id: child.id,
            name: name.clone(),
            provider: child.provider.clone(),
            releases: child.releases,
        });
        Some((state.version, children.collect()))
    }

    /// What an earlier discovery left to be removed.
    pub(crate) fn take_departed(&self) -> Vec<ClusterName> {
        std::mem::take(&mut self.lock().departed)
    }

    /// A discovery starts a child; returns what an earlier one knew of it.
    pub(crate) fn begin(&self, name: &str, id: ChildId) -> Book {
        let mut book = None;
        self.with(name, id, |child| {
            child.status.started();
            book = child.book.take();
        });
        let mut book = book.unwrap_or_default();
        book.begin_discovery();
        book
    }

    /// A discovery ends, and leaves what it knows of a child to the next.
    pub(crate) fn leave(&self, name: &str, id: ChildId, book: Book) {
        let mut left = Some(book);
        self.with(name, id, |child| {
            child.book = left.take();
            child.status.state = ChildState::Waiting;
        });
        // The child was removed, and the discovery did not live to hear of it.
        self.depart(left.into_iter().flat_map(Book::into_names));
    }

    /// Removals that were not said before a discovery ended.
    pub(crate) fn depart(&self, names: impl IntoIterator<Item = ClusterName>) {
        self.lock().departed.extend(names);
    }

    pub(crate) fn update(&self, name: &str, id: ChildId, change: impl FnOnce(&mut ChildStatus)) {
        self.with(name, id, |child| change(&mut child.status));
    }

    /// Does nothing if the child has been removed.
    fn with(&self, name: &str, id: ChildId, change: impl FnOnce(&mut Child)) {
        if let Some(child) = self.lock().children.get_mut(name).filter(|child| child.id == id) {
            change(child);
        }
    }

    fn tell(&self, mut state: MutexGuard<'_, State>) {
        state.version += 1;
        drop(state);
        self.changed.notify_waiters();
    }

    // No user code runs under the lock, so a poisoned one still holds a consistent state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
