//! The objects of one kind in one cluster, and who is told of their changes.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use mcr_store::{NotAnObject, ObjectChange, ObjectStore};

use crate::{ChangeSink, WatchRequest};

/// See the module.
#[derive(Default)]
pub struct Cache {
    store: ObjectStore,
    /// Held while a change is applied and told, so that a newcomer gets every object exactly once.
    sinks: Mutex<Vec<Sink>>,
    /// How many objects were left out because they could not be read.
    pub skipped: AtomicU64,
}

struct Sink {
    id: u64,
    /// The watch it came through: the cache of a place in a scope may be read through several.
    watch: u64,
    sink: Arc<dyn ChangeSink>,
}

impl Cache {
    /// The objects.
    pub fn store(&self) -> &ObjectStore {
        &self.store
    }

    fn sinks(&self) -> MutexGuard<'_, Vec<Sink>> {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a sink and tells it everything that is there, and then whatever `then` tells it.
    pub fn subscribe(
        &self,
        request: &WatchRequest,
        watch: u64,
        sink: Arc<dyn ChangeSink>,
        then: impl FnOnce(&dyn ChangeSink),
    ) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut sinks = self.sinks();
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        for object in self.store.all() {
            tell(request, || sink.changed(&ObjectChange::added(object, true)));
        }
        tell(request, || then(&*sink));
        // Most have one for ever, and there are as many of these as clusters and kinds.
        sinks.reserve_exact(1);
        sinks.push(Sink { id, watch, sink });
        id
    }

    /// Removes a sink.
    pub fn unsubscribe(&self, id: u64) {
        self.sinks().retain(|known| known.id != id);
    }

    /// Forgets every sink of a watch.
    pub fn unsubscribe_watch(&self, watch: u64) {
        self.sinks().retain(|known| known.watch != watch);
    }

    /// Changes the store and tells everyone what changed.
    pub fn apply<C>(&self, request: &WatchRequest, change: impl FnOnce(&ObjectStore) -> C)
    where
        C: IntoIterator<Item = ObjectChange>,
    {
        let sinks = self.sinks();
        for change in change(&self.store) {
            for known in sinks.iter() {
                tell(request, || known.sink.changed(&change));
            }
        }
    }

    /// Takes in what is only elsewhere, until a complete list says that it is gone.
    pub fn keep(&self, request: &WatchRequest, elsewhere: &Self) {
        self.apply(request, |store| {
            let missing = elsewhere
                .store
                .all()
                .into_iter()
                .filter(|object| store.get(object.key()).is_none());
            missing
                .flat_map(|object| store.upsert(object, true))
                .collect::<Vec<_>>()
        });
    }

    /// An object was there that could not be read.
    pub fn skip(&self, error: &NotAnObject) {
        if let Some(key) = &error.key {
            self.store.saw(key);
        }
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells the sinks of one watch something.
    pub fn tell(&self, request: &WatchRequest, watch: u64, what: impl Fn(&dyn ChangeSink)) {
        for known in self.sinks().iter().filter(|known| known.watch == watch) {
            tell(request, || what(&*known.sink));
        }
    }

    /// Hands the sinks of one watch over to other cache and tells them what is different there.
    pub fn hand_over(&self, request: &WatchRequest, watch: u64, to: &Self) {
        if std::ptr::eq(self, to) {
            return;
        }
        // In the order of their addresses, so that two that hand over to each other never wait for each other.
        let first = std::ptr::from_ref(self) < std::ptr::from_ref(to);
        let (mut from, mut into) = if first {
            let from = self.sinks();
            (from, to.sinks())
        } else {
            let into = to.sinks();
            (self.sinks(), into)
        };
        let (moving, staying) = std::mem::take(&mut *from)
            .into_iter()
            .partition(|known| known.watch == watch);
        *from = staying;
        let moving: Vec<Sink> = moving;
        for change in self.store.difference(&to.store) {
            for known in &moving {
                tell(request, || known.sink.changed(&change));
            }
        }
        into.extend(moving);
    }

    /// The same objects once more, with the sinks of one watch.
    pub fn split(&self, watch: u64) -> Arc<Self> {
        let mut from = self.sinks();
        let (moving, staying) = std::mem::take(&mut *from)
            .into_iter()
            .partition(|known| known.watch == watch);
        *from = staying;
        Arc::new(Self {
            store: self.store.copy(),
            sinks: Mutex::new(moving),
            skipped: AtomicU64::new(self.skipped.load(Ordering::Relaxed)),
        })
    }
}

/// Tells a sink something. A sink that panics has missed it; the watch, which belongs to others too, goes on.
fn tell(request: &WatchRequest, tell: impl FnOnce()) {
    if std::panic::catch_unwind(AssertUnwindSafe(tell)).is_err() {
        tracing::error!(kind = %request, "a sink of a watch panicked and has missed what it was told");
    }
}
