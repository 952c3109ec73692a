//! The objects of one kind in one cluster, and the subscribers to their changes.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use mcr_store::{NotAnObject, Object, ObjectChange, ObjectStore};
use parking_lot::{Mutex, MutexGuard};

use crate::{request::WatchRequest, sink::ChangeSink};

/// A store and its subscribers.
#[derive(Default)]
pub struct Cache {
    store: ObjectStore,
    /// Locked while a change is applied and passed on, so that a new subscriber receives each object exactly once.
    subscribers: Mutex<Vec<Subscriber>>,
    /// How many objects were left out because they could not be read.
    pub skipped: AtomicU64,
}

struct Subscriber {
    id: u64,
    /// The watch that the subscriber belongs to: several watches may read the cache of one place in a scope.
    watch: u64,
    sink: Arc<dyn ChangeSink>,
}

impl Cache {
    /// The objects.
    pub fn store(&self) -> &ObjectStore {
        &self.store
    }

    fn subscribers(&self) -> MutexGuard<'_, Vec<Subscriber>> {
        self.subscribers.lock()
    }

    /// Adds a subscriber. The sink receives all objects, and then the calls of `finally`.
    pub fn subscribe(
        &self,
        request: &WatchRequest,
        watch: u64,
        sink: Arc<dyn ChangeSink>,
        finally: impl FnOnce(&dyn ChangeSink),
    ) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut subscribers = self.subscribers();
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        for object in self.store.all() {
            call(request, || sink.changed(&ObjectChange::added(object, true)));
        }
        call(request, || finally(&*sink));
        // There is a cache for each cluster and kind, and most have one subscriber for ever.
        subscribers.reserve_exact(1);
        subscribers.push(Subscriber { id, watch, sink });
        id
    }

    /// Removes a subscriber.
    pub fn unsubscribe(&self, id: u64) {
        self.subscribers().retain(|known| known.id != id);
    }

    /// Removes all subscribers of a watch.
    pub fn unsubscribe_watch(&self, watch: u64) {
        self.subscribers().retain(|known| known.watch != watch);
    }

    /// Changes the store and passes the changes to all subscribers.
    pub fn apply<C>(&self, request: &WatchRequest, change: impl FnOnce(&ObjectStore) -> C)
    where
        C: IntoIterator<Item = ObjectChange>,
    {
        let subscribers = self.subscribers();
        for change in change(&self.store) {
            for known in subscribers.iter() {
                call(request, || known.sink.changed(&change));
            }
        }
    }

    /// Adds the objects that only the other cache has. They stay until a complete list lacks them.
    pub fn add_missing(&self, request: &WatchRequest, other: &Self) {
        self.apply(request, |store| {
            let missing = other
                .store
                .all()
                .into_iter()
                .filter(|object| store.get(object.key()).is_none());
            missing
                .flat_map(|object| store.upsert(object, true))
                .collect::<Vec<_>>()
        });
    }

    /// The object that the store holds if it has the same JSON, or this one. Objects that wait for the end of a list are then
    /// held once.
    pub fn held_or(&self, object: Object) -> Arc<Object> {
        let held = self.store.get(object.key());
        held.filter(|held| held.same_content(&object))
            .unwrap_or_else(|| Arc::new(object))
    }

    /// Counts an object that exists and could not be read, so that a listing does not delete it.
    pub fn skip(&self, error: &NotAnObject) {
        if let Some(key) = &error.key {
            self.store.mark_listed(key);
        }
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls all sinks of one watch.
    pub fn notify(&self, request: &WatchRequest, watch: u64, what: impl Fn(&dyn ChangeSink)) {
        for known in self.subscribers().iter().filter(|known| known.watch == watch) {
            call(request, || what(&*known.sink));
        }
    }

    /// Moves the subscribers of one watch to another cache. They receive the differences between the two.
    pub fn move_subscribers(&self, request: &WatchRequest, watch: u64, to: &Self) {
        if std::ptr::eq(self, to) {
            return;
        }
        // In the order of their addresses, so that two moves in opposite directions never wait for each other.
        let first = std::ptr::from_ref(self) < std::ptr::from_ref(to);
        let (mut from, mut into) = if first {
            let from = self.subscribers();
            (from, to.subscribers())
        } else {
            let into = to.subscribers();
            (self.subscribers(), into)
        };
        let moving = take_subscribers(&mut from, watch);
        for change in self.store.difference(&to.store) {
            for known in &moving {
                call(request, || known.sink.changed(&change));
            }
        }
        into.extend(moving);
    }

    /// A copy of the objects, which takes over the subscribers of one watch.
    pub fn split(&self, watch: u64) -> Arc<Self> {
        let mut from = self.subscribers();
        let moving = take_subscribers(&mut from, watch);
        Arc::new(Self {
            store: self.store.copy(),
            subscribers: Mutex::new(moving),
            skipped: AtomicU64::new(self.skipped.load(Ordering::Relaxed)),
        })
    }
}

fn take_subscribers(from: &mut Vec<Subscriber>, watch: u64) -> Vec<Subscriber> {
    let all = std::mem::take(from).into_iter();
    let (moving, staying) = all.partition(|known| known.watch == watch);
    *from = staying;
    moving
}

/// Calls a sink. A panic of the sink does not end the watch, which has other subscribers, too.
fn call(request: &WatchRequest, call: impl FnOnce()) {
    if std::panic::catch_unwind(AssertUnwindSafe(call)).is_err() {
        tracing::error!(kind = %request, "a sink of a watch panicked and has missed a change");
    }
}
