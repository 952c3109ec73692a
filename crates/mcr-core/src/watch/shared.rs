//! One watch of one kind in one cluster, shared by everyone who asked for it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::SystemTime,
};

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use super::{
    WatchError, WatchRequest,
    contents::Contents,
    mirror::{Mirror, Taken},
    scoped::ScopeWatch,
};
use crate::{
    latest::Latest,
    store::{Interner, Item, NotAnObject, ObjectChange},
};

/// How a watch is doing.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct WatchStatus {
    /// Whether a complete list has been read since the cluster was engaged. Stays true when the watch breaks
    /// later: the store then is old, not incomplete.
    pub synced: bool,
    /// What stands in the way at the moment.
    pub problem: Option<WatchProblem>,
    /// How many objects of lists and events were left out because they could not be read.
    pub skipped: u64,
    /// How many complete lists have been read.
    pub lists: u64,
    /// When something was last heard on this watch.
    pub last_event: Option<SystemTime>,
}

/// What stands in the way of a watch, and since when.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WatchProblem {
    /// What it is.
    pub error: Arc<WatchError>,
    /// When this kind of problem was first seen.
    pub since: SystemTime,
}

/// Takes the changes of a watch.
///
/// Called from the watch's own task, one change after the other, with no lock of the store held. It must be
/// quick and must not block: everything else of this watch waits for it. In particular it must neither watch
/// the same kind of the same cluster nor drop a [`WatchHandle`](crate::WatchHandle) of it, which would wait for
/// the sink itself. A sink that panics misses that change and is told the next.
pub trait ChangeSink: Send + Sync + 'static {
    /// An object changed.
    fn changed(&self, change: &ObjectChange);

    /// The watch's status changed (synced, blocked, recovered).
    fn status_changed(&self, status: &WatchStatus) {
        let _ = status;
    }
}

/// See the module.
pub(crate) struct SharedWatch {
    id: u64,
    request: WatchRequest,
    /// Replaced when the cluster moves to another endpoint of its scope.
    contents: ArcSwap<Contents>,
    status: Latest<WatchStatus>,
    /// Where the objects come from, for a cluster in a scope.
    scope: Mutex<Option<Arc<ScopeWatch>>>,
    /// Held while the watch goes from one place to another: whoever joins, moves, leaves or takes a sink back does so
    /// before or after that, never in between.
    moving: Mutex<()>,
    stop: CancellationToken,
    gone: AtomicBool,
}

impl SharedWatch {
    pub(crate) fn new(request: WatchRequest, stop: CancellationToken) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            request,
            contents: ArcSwap::default(),
            status: Latest::default(),
            scope: Mutex::default(),
            moving: Mutex::default(),
            stop,
            gone: AtomicBool::new(false),
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn request(&self) -> &WatchRequest {
        &self.request
    }

    pub(crate) fn contents(&self) -> Arc<Contents> {
        self.contents.load_full()
    }

    pub(crate) fn status(&self) -> WatchStatus {
        let mut status = self.status.read(WatchStatus::clone);
        status.skipped = self.contents.load().skipped.load(Ordering::Relaxed);
        if let Some(scope) = &*self.scope() {
            status.last_event = scope.last_event();
        }
        status
    }

    /// Resolves when a complete list has been read. Cancel safe.
    pub(crate) async fn synced(&self) {
        self.status.wait(|status| status.synced.then_some(())).await;
    }

    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    pub(crate) fn stop(&self) {
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
    pub(crate) fn mark_gone(&self) {
        self.gone.store(true, Ordering::Release);
        self.stop();
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn scope(&self) -> MutexGuard<'_, Option<Arc<ScopeWatch>>> {
        self.scope.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moving(&self) -> MutexGuard<'_, ()> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a sink and tells it everything that is there.
    pub(crate) fn subscribe(&self, sink: Arc<dyn ChangeSink>) -> u64 {
        let mut contents = self.contents();
        let id = contents.subscribe(&self.request, self.id, sink, |sink| {
            sink.status_changed(&self.status());
        });
        // Moved meanwhile, perhaps without this sink.
        loop {
            let now = self.contents();
            if Arc::ptr_eq(&contents, &now) {
                return id;
            }
            contents.hand_over(&self.request, self.id, &now);
            contents = now;
        }
    }

    pub(crate) fn unsubscribe(&self, id: u64) {
        // A sink that is being carried elsewhere is in neither place.
        let _moving = self.moving();
        self.contents().unsubscribe(id);
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
    pub(crate) fn join_with(&self, join: impl FnOnce()) {
        let _moving = self.moving();
        join();
    }

    /// Reads its objects from a place in a scope from now on, which replaces any it read from before. Only to be
    /// called within [`join_with`](Self::join_with).
    pub(crate) fn joined(&self, scope: Arc<ScopeWatch>, contents: Arc<Contents>) {
        let left = self.scope().replace(scope.clone());
        match left {
            None => self.move_to(contents),
            Some(left) => {
                // What the place it leaves does to its objects there says nothing about them elsewhere.
                let own = self.contents().split(self.id);
                self.move_to(own);
                if !Arc::ptr_eq(&left, &scope) {
                    left.leave(self);
                }
                scope.await_list(self);
            }
        }
        self.follow(&scope);
        if self.stop.is_cancelled() {
            self.leave_scope();
        }
    }

    /// Goes on with the contents of the place it was waiting for, unless it has left meanwhile.
    pub(super) fn arrive(&self, place: impl FnOnce() -> Option<Arc<Contents>>) {
        let _moving = self.moving();
        if let Some(contents) = place() {
            self.move_to(contents);
        }
    }

    /// Goes on with other contents; what is different there is told.
    fn move_to(&self, contents: Arc<Contents>) {
        // In this order: whoever subscribes to the old ones from now on sees that it has to move as well.
        let old = self.contents.swap(contents.clone());
        old.hand_over(&self.request, self.id, &contents);
    }

    /// Takes over how the watch of its scope is doing.
    pub(super) fn follow(&self, from: &ScopeWatch) {
        self.set_status(|status| {
            // One that it has left may not have heard of it yet.
            if !self
                .scope()
                .as_ref()
                .is_some_and(|scope| std::ptr::eq(&**scope, from))
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
    pub(crate) fn refuse(&self, error: WatchError) {
        self.failed(error);
    }
}

impl Mirror for SharedWatch {
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
        self.contents.load().store().len()
    }

    fn begin_listing(&self) {
        self.contents.load().store().begin_listing();
    }

    fn finish_listing(&self, complete: bool) {
        self.contents()
            .apply(&self.request, |store| store.finish_listing(complete));
        self.listed();
    }

    fn abort_listing(&self) {
        self.contents.load().store().finish_listing(false);
    }

    fn put(
        &self,
        item: Item<'_>,
        initial: bool,
        interner: &mut Interner,
    ) -> Result<Option<Taken>, NotAnObject> {
        let closed = item.and_then(|object| object.close(None, interner));
        let object = Arc::new(closed.inspect_err(|error| self.contents.load().skip(error))?);
        self.contents()
            .apply(&self.request, |store| store.upsert(object.clone(), initial));
        Ok(Some(Taken { place: None, object }))
    }

    fn delete(&self, item: Item<'_>, interner: &mut Interner) -> Result<Option<Taken>, NotAnObject> {
        let object = item?.close(None, interner)?;
        let object = Arc::new(object);
        self.contents()
            .apply(&self.request, |store| store.delete(object.clone()));
        Ok(Some(Taken { place: None, object }))
    }

    fn known(&self) -> &Latest<WatchStatus> {
        &self.status
    }

    fn status_changed(&self) {
        self.contents()
            .tell(&self.request, self.id, |sink| sink.status_changed(&self.status()));
    }
}

impl WatchStatus {
    pub(super) fn listed(&mut self) {
        self.synced = true;
        self.lists += 1;
        self.problem = None;
        self.last_event = Some(SystemTime::now());
    }

    pub(super) fn failed(&mut self, error: WatchError) {
        let same = self
            .problem
            .as_ref()
            .filter(|p| std::mem::discriminant(&*p.error) == std::mem::discriminant(&error));
        let since = same.map_or_else(SystemTime::now, |problem| problem.since);
        self.problem = Some(WatchProblem {
            error: Arc::new(error),
            since,
        });
    }
}

impl std::fmt::Debug for SharedWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedWatch")
            .field("request", &self.request)
            .field("objects", &self.contents.load().store().len())
            .finish_non_exhaustive()
    }
}
