//! One watch of one kind in one cluster, shared by everyone who asked for it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::SystemTime,
};

use arc_swap::ArcSwap;
use mcr_client::internal::Observable;
use mcr_store::{Encoder, Item, NotAnObject};
use tokio_util::sync::CancellationToken;

use crate::{
    ChangeSink, WatchError, WatchRequest, WatchStatus,
    cache::Cache,
    target::{Applied, WatchTarget},
};

/// A watch that feeds the caches of several others, as the watch of a scope feeds those of its clusters.
pub trait Feed: Send + Sync + 'static {
    /// How the feeding watch is doing.
    fn status(&self) -> WatchStatus;

    /// When the feeding watch last heard from the API server.
    fn last_event(&self) -> Option<SystemTime>;

    /// A watch is not fed any more.
    fn leave(&self, watch: &SharedWatch);

    /// A watch that was fed elsewhere waits for a list that began after it came.
    fn await_list(&self, watch: &SharedWatch);
}

/// See the module.
pub struct SharedWatch {
    id: u64,
    request: WatchRequest,
    /// Replaced when the cluster moves to another endpoint of its scope.
    cache: ArcSwap<Cache>,
    status: Observable<WatchStatus>,
    /// Where the objects come from, for a cluster in a scope.
    scope: Mutex<Option<Arc<dyn Feed>>>,
    /// Held while the watch goes from one place to another: whoever joins, moves, leaves or takes a sink back does so
    /// before or after that, never in between.
    moving: Mutex<()>,
    stop: CancellationToken,
    gone: AtomicBool,
}

impl SharedWatch {
    /// A watch without objects, which ends when `stop` is cancelled.
    pub fn new(request: WatchRequest, stop: CancellationToken) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            request,
            cache: ArcSwap::default(),
            status: Observable::default(),
            scope: Mutex::default(),
            moving: Mutex::default(),
            stop,
            gone: AtomicBool::new(false),
        }
    }

    /// A number that no other watch of this process has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The kind and selectors.
    pub fn request(&self) -> &WatchRequest {
        &self.request
    }

    /// The objects and their subscribers.
    pub fn cache(&self) -> Arc<Cache> {
        self.cache.load_full()
    }

    /// How the watch is doing.
    pub fn status(&self) -> WatchStatus {
        let mut status = self.status.read(WatchStatus::clone);
        status.skipped = self.cache.load().skipped.load(Ordering::Relaxed);
        if let Some(scope) = &*self.scope() {
            status.last_event = scope.last_event();
        }
        status
    }

    /// Resolves when a complete list has been read. Cancel safe.
    pub async fn synced(&self) {
        self.status.wait(|status| status.synced.then_some(())).await;
    }

    /// Resolves when the watch is to end. Cancel safe.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Ends the watch.
    pub fn stop(&self) {
        self.stop.cancel();
        let _moving = self.moving();
        self.leave_scope();
    }

    fn leave_scope(&self) {
        let scope = self.scope().take();
        if let Some(scope) = scope {
            scope.leave(self);
        }
    }

    /// The cluster is gone: the store must not be read any more.
    pub fn mark_gone(&self) {
        self.gone.store(true, Ordering::Release);
        self.stop();
    }

    /// Whether the cluster is gone.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn scope(&self) -> MutexGuard<'_, Option<Arc<dyn Feed>>> {
        self.scope.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moving(&self) -> MutexGuard<'_, ()> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a sink and tells it everything that is there.
    pub fn subscribe(&self, sink: Arc<dyn ChangeSink>) -> u64 {
        let mut cache = self.cache();
        let id = cache.subscribe(&self.request, self.id, sink, |sink| {
            sink.status_changed(&self.status());
        });
        // Moved meanwhile, perhaps without this sink.
        loop {
            let now = self.cache();
            if Arc::ptr_eq(&cache, &now) {
                return id;
            }
            cache.hand_over(&self.request, self.id, &now);
            cache = now;
        }
    }

    /// Removes a sink.
    pub fn unsubscribe(&self, id: u64) {
        // A sink that is being carried elsewhere is in neither place.
        let _moving = self.moving();
        self.cache().unsubscribe(id);
    }

    fn set_status(&self, change: impl FnOnce(&mut WatchStatus)) {
        self.status.change(change);
        self.status_changed();
    }
}

/// As part of a scope.
impl SharedWatch {
    /// Joins a scope, one after the other: of two that make it join at once, the one that looks last where the
    /// cluster is must have the last word.
    pub fn join_with(&self, join: impl FnOnce()) {
        let _moving = self.moving();
        join();
    }

    /// Reads its objects from a place in a scope from now on, which replaces any it read from before. Only to be
    /// called within [`join_with`](Self::join_with).
    pub fn joined(&self, scope: Arc<dyn Feed>, cache: Arc<Cache>) {
        let left = self.scope().replace(scope.clone());
        match left {
            None => self.move_to(cache),
            Some(left) => {
                // What the place it leaves does to its objects there says nothing about them elsewhere.
                let own = self.cache().split(self.id);
                self.move_to(own);
                if !std::ptr::addr_eq(Arc::as_ptr(&left), Arc::as_ptr(&scope)) {
                    left.leave(self);
                }
                scope.await_list(self);
            }
        }
        self.follow(&*scope);
        if self.stop.is_cancelled() {
            self.leave_scope();
        }
    }

    /// Goes on with the cache of the place it was waiting for, unless it has left meanwhile.
    pub fn arrive(&self, place: impl FnOnce() -> Option<Arc<Cache>>) {
        let _moving = self.moving();
        if let Some(cache) = place() {
            self.move_to(cache);
        }
    }

    /// Goes on with other cache; what is different there is told.
    fn move_to(&self, cache: Arc<Cache>) {
        // In this order: whoever subscribes to the old ones from now on sees that it has to move as well.
        let old = self.cache.swap(cache.clone());
        old.hand_over(&self.request, self.id, &cache);
    }

    /// Takes over how the watch of its scope is doing.
    pub fn follow(&self, from: &dyn Feed) {
        self.set_status(|status| {
            // One that it has left may not have heard of it yet.
            if !self
                .scope()
                .as_ref()
                .is_some_and(|scope| std::ptr::addr_eq(&raw const **scope, from))
            {
                return;
            }
            // Read here, so that of two that tell at the same time the later one is told last.
            let scope = from.status();
            // A kind that was listed stays so: at another endpoint it is old at first, not incomplete.
            status.synced |= scope.synced;
            status.lists = scope.lists;
            status.problem = scope.problem;
        });
    }

    /// The kind can't be watched in this cluster, whatever its API server says.
    pub fn refuse(&self, error: WatchError) {
        self.failed(error);
    }
}

impl WatchTarget for SharedWatch {
    fn query(&self) -> &WatchRequest {
        &self.request
    }

    fn stopped(&self) -> &CancellationToken {
        &self.stop
    }

    fn status(&self) -> WatchStatus {
        Self::status(self)
    }

    fn len(&self) -> usize {
        self.cache.load().store().len()
    }

    fn begin_listing(&self) {
        self.cache.load().store().begin_listing();
    }

    fn finish_listing(&self, complete: bool) {
        self.cache()
            .apply(&self.request, |store| store.finish_listing(complete));
        self.listed();
    }

    fn abort_listing(&self) {
        self.cache.load().store().finish_listing(false);
    }

    fn put(
        &self,
        item: Item<'_>,
        initial: bool,
        encoder: &mut Encoder,
    ) -> Result<Option<Applied>, NotAnObject> {
        let closed = item.and_then(|object| object.encode(None, encoder));
        let object = Arc::new(closed.inspect_err(|error| self.cache.load().skip(error))?);
        self.cache()
            .apply(&self.request, |store| store.upsert(object.clone(), initial));
        Ok(Some(Applied { place: None, object }))
    }

    fn delete(&self, item: Item<'_>, encoder: &mut Encoder) -> Result<Option<Applied>, NotAnObject> {
        let object = item?.encode(None, encoder)?;
        let object = Arc::new(object);
        self.cache()
            .apply(&self.request, |store| store.delete(object.clone()));
        Ok(Some(Applied { place: None, object }))
    }

    fn known(&self) -> &Observable<WatchStatus> {
        &self.status
    }

    fn status_changed(&self) {
        self.cache()
            .tell(&self.request, self.id, |sink| sink.status_changed(&self.status()));
    }
}

impl std::fmt::Debug for SharedWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedWatch")
            .field("request", &self.request)
            .field("objects", &self.cache.load().store().len())
            .finish_non_exhaustive()
    }
}
