//! One watch of one kind in one cluster, shared by everyone who asked for it.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::SystemTime,
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{WatchError, WatchRequest};
use crate::store::{Object, ObjectChange, ObjectKey, StoreCore};

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
    request: WatchRequest,
    store: StoreCore,
    status: watch::Sender<WatchStatus>,
    /// Held while a change is applied and told, so that a newcomer gets every object exactly once.
    sinks: Mutex<Vec<(u64, Arc<dyn ChangeSink>)>>,
    next_sink: AtomicU64,
    stop: CancellationToken,
    gone: AtomicBool,
}

impl SharedWatch {
    pub(crate) fn new(request: WatchRequest, stop: CancellationToken) -> Self {
        Self {
            request,
            store: StoreCore::default(),
            status: watch::Sender::new(WatchStatus::default()),
            sinks: Mutex::default(),
            next_sink: AtomicU64::new(0),
            stop,
            gone: AtomicBool::new(false),
        }
    }

    pub(crate) fn request(&self) -> &WatchRequest {
        &self.request
    }

    pub(crate) fn store(&self) -> &StoreCore {
        &self.store
    }

    pub(crate) fn status(&self) -> WatchStatus {
        self.status.borrow().clone()
    }

    pub(crate) fn subscribe_status(&self) -> watch::Receiver<WatchStatus> {
        self.status.subscribe()
    }

    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// The cluster is gone: the store must not be read any more.
    pub(crate) fn mark_gone(&self) {
        self.gone.store(true, Ordering::Release);
        self.stop.cancel();
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn sinks(&self) -> MutexGuard<'_, Vec<(u64, Arc<dyn ChangeSink>)>> {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a sink and tells it everything that is there.
    pub(crate) fn subscribe(&self, sink: Arc<dyn ChangeSink>) -> u64 {
        let mut sinks = self.sinks();
        let id = self.next_sink.fetch_add(1, Ordering::Relaxed);
        for object in self.store.all() {
            self.tell(|| sink.changed(&ObjectChange::added(object, true)));
        }
        self.tell(|| sink.status_changed(&self.status()));
        sinks.push((id, sink));
        id
    }

    pub(crate) fn unsubscribe(&self, id: u64) {
        self.sinks().retain(|(known, _)| *known != id);
    }

    /// Changes the store and tells everyone what changed.
    fn apply(&self, change: impl FnOnce(&StoreCore) -> Vec<ObjectChange>) {
        let sinks = self.sinks();
        for change in change(&self.store) {
            for (_, sink) in sinks.iter() {
                self.tell(|| sink.changed(&change));
            }
        }
    }

    pub(crate) fn begin_listing(&self) {
        self.store.begin_listing();
    }

    pub(crate) fn upsert(&self, object: Object, initial: bool) {
        self.apply(|store| store.upsert(object, initial));
    }

    pub(crate) fn delete(&self, object: Object) {
        self.apply(|store| store.delete(object).into_iter().collect());
    }

    pub(crate) fn abort_listing(&self) {
        self.store.finish_listing(false);
    }

    /// An object was there that could not be read.
    pub(crate) fn skip(&self, key: Option<&ObjectKey>) {
        if let Some(key) = key {
            self.store.saw(key);
        }
        self.status.send_modify(|status| status.skipped += 1);
    }

    /// Ends a listing. With `complete` what was not in it is deleted.
    pub(crate) fn finish_listing(&self, complete: bool) {
        self.apply(|store| store.finish_listing(complete));
        self.set_status(|status| {
            status.synced = true;
            status.lists += 1;
            status.problem = None;
            status.last_event = Some(SystemTime::now());
        });
    }

    /// Something came, but it may yet turn out to be the same problem again.
    pub(crate) fn noted(&self) {
        self.status.send_if_modified(|status| {
            status.last_event = Some(SystemTime::now());
            false
        });
    }

    /// Something came that shows that the watch works.
    pub(crate) fn heard(&self) {
        let clears = self.status.borrow().problem.is_some();
        if clears {
            self.set_status(|status| status.problem = None);
        }
        self.noted();
    }

    pub(crate) fn failed(&self, error: WatchError) {
        self.set_status(|status| {
            let same = status
                .problem
                .as_ref()
                .filter(|p| std::mem::discriminant(&*p.error) == std::mem::discriminant(&error));
            let since = same.map_or_else(SystemTime::now, |problem| problem.since);
            status.problem = Some(WatchProblem {
                error: Arc::new(error),
                since,
            });
        });
    }

    fn set_status(&self, change: impl FnOnce(&mut WatchStatus)) {
        self.status.send_modify(change);
        let status = self.status();
        for (_, sink) in self.sinks().iter() {
            self.tell(|| sink.status_changed(&status));
        }
    }

    /// Tells a sink something. A sink that panics has missed it; the watch, which belongs to others too, goes on.
    fn tell(&self, tell: impl FnOnce()) {
        if std::panic::catch_unwind(AssertUnwindSafe(tell)).is_err() {
            tracing::error!(kind = %self.request, "a sink of a watch panicked and has missed what it was told");
        }
    }
}

impl std::fmt::Debug for SharedWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedWatch")
            .field("request", &self.request)
            .field("objects", &self.store.len())
            .finish_non_exhaustive()
    }
}
