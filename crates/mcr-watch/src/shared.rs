//! One watch of one kind in one cluster, shared by all its subscribers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use arc_swap::ArcSwap;
use mcr_client::internal::Observable;
use mcr_store::{Encoder, Item};
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::{
    cache::Cache,
    error::WatchError,
    request::WatchRequest,
    sink::ChangeSink,
    status::{KindStatus, WatchProblem, WatchStatus},
    target::{Encoded, PlacedObject, TargetEvent, UnreadableObject, WatchTarget, update_status},
};

/// A watch that fills the caches of several others, as the watch of a scope endpoint fills those of its clusters.
pub trait Feed: Send + Sync + 'static {
    /// The status of the feed.
    fn status(&self) -> WatchStatus;

    /// Why the feed leaves out the objects of a watch, if it does.
    fn problem_of(&self, watch: &SharedWatch) -> Option<WatchProblem> {
        let _ = watch;
        None
    }

    /// Stops filling the cache of a watch.
    fn leave(&self, watch: &SharedWatch);

    /// Lists, and then calls [`SharedWatch::arrive`] of a watch that comes from another feed. Only a list that starts
    /// after this call counts.
    fn await_list(&self, watch: &SharedWatch);
}

/// The cache and the status of a watch. A driver fills the cache, or a [`Feed`] if the cluster is in a scope.
pub struct SharedWatch {
    id: u64,
    request: WatchRequest,
    /// Replaced when the cluster moves to another place in its scope.
    cache: ArcSwap<Cache>,
    status: Observable<WatchStatus>,
    /// For a cluster in a scope.
    feed: Mutex<Option<Arc<dyn Feed>>>,
    /// Locked while the watch moves from one cache to another, so that a join, an arrival, a stop or an unsubscription
    /// comes before or after a move, never in between.
    moving: Mutex<()>,
    /// Set while the watch waits for a list at the place to which it has moved.
    awaits_list: AtomicBool,
    /// Set while the cluster may not have the kind, although its feed lists the kind for other clusters.
    withheld: Mutex<Option<Box<Withheld>>>,
    stop: CancellationToken,
    gone: AtomicBool,
}

struct Withheld {
    problem: WatchProblem,
    /// Whether the kind has been granted since, and only its objects may still be on their way.
    granted: bool,
}

impl Withheld {
    fn is_reason(&self, reason: &str) -> bool {
        matches!(&*self.problem.error, WatchError::NotInScope { message } if message == reason)
    }
}

/// A kind that was withheld from a cluster has been granted. The grant is over when the store has the objects.
#[must_use = "the kind stays blocked until the grant is finished"]
pub struct Grant(Arc<WatchError>);

impl SharedWatch {
    /// A watch without objects, which ends when `stop` is cancelled.
    pub fn new(request: WatchRequest, stop: CancellationToken) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            request,
            cache: ArcSwap::default(),
            status: Observable::default(),
            feed: Mutex::default(),
            moving: Mutex::default(),
            awaits_list: AtomicBool::new(false),
            withheld: Mutex::default(),
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

    /// The status of the watch.
    pub fn status(&self) -> WatchStatus {
        let mut status = self.status.read(WatchStatus::clone);
        status.skipped = self.cache.load().skipped.load(Ordering::Relaxed);
        if let Some(feed) = &*self.feed() {
            status.last_event = feed.status().last_event;
        }
        status
    }

    /// The status of the watch, as data.
    pub fn kind_status(&self) -> KindStatus {
        let (status, cache) = (self.status(), self.cache());
        let problem = status.problem.map(|problem| problem.error);
        KindStatus {
            watch: self.request.to_string(),
            kind: self.request.resource_name(),
            blocked: problem.as_ref().is_some_and(|error| error.is_blocked()),
            synced: status.synced,
            objects: cache.store().len(),
            bytes: cache.store().bytes(),
            held_bytes: cache.store().held_bytes(),
            skipped: status.skipped,
            lists: status.lists,
            last_event: status.last_event,
            problem: problem.map(|error| error.to_string()),
        }
    }

    /// Whether a complete list has been read. Stays true.
    pub fn is_synced(&self) -> bool {
        self.status.read(|status| status.synced)
    }

    /// Waits until a complete list has been read. Cancel safe.
    pub async fn synced(&self) {
        self.status.wait(|status| status.synced.then_some(())).await;
    }

    /// Cancelled when the watch is stopped.
    pub fn stopped(&self) -> &CancellationToken {
        &self.stop
    }

    /// Ends the watch.
    pub fn stop(&self) {
        self.stop.cancel();
        let _moving = self.moving();
        self.leave_feed();
    }

    fn leave_feed(&self) {
        let feed = self.feed().take();
        if let Some(feed) = feed {
            feed.leave(self);
        }
    }

    /// Ends the watch because the cluster is gone. Its store must not be read any more.
    pub fn mark_gone(&self) {
        self.gone.store(true, Ordering::Release);
        self.stop();
    }

    /// Whether the cluster is gone.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn feed(&self) -> MutexGuard<'_, Option<Arc<dyn Feed>>> {
        self.feed.lock()
    }

    fn moving(&self) -> MutexGuard<'_, ()> {
        self.moving.lock()
    }

    /// Adds a sink, which first receives all objects and the status. Returns its id.
    pub fn subscribe(&self, sink: Arc<dyn ChangeSink>) -> u64 {
        let mut cache = self.cache();
        let id = cache.subscribe(&self.request, self.id, sink, |sink| {
            sink.status_changed(&self.status());
        });
        // The watch may have moved to another cache meanwhile, without this sink.
        loop {
            let now = self.cache();
            if Arc::ptr_eq(&cache, &now) {
                return id;
            }
            cache.move_subscribers(&self.request, self.id, &now);
            cache = now;
        }
    }

    /// Removes the sink with this id.
    pub fn unsubscribe(&self, id: u64) {
        // During a move the sink may be in neither of the two caches.
        let _moving = self.moving();
        self.cache().unsubscribe(id);
    }

    fn change_status(&self, event: TargetEvent<'_>) {
        if update_status(&self.status, event) {
            self.status_changed();
        }
    }

    fn status_changed(&self) {
        self.cache()
            .notify(&self.request, self.id, |sink| sink.status_changed(&self.status()));
    }
}

/// Watches of clusters in a scope.
impl SharedWatch {
    /// Runs `join`, one call after the other: of two calls at once, the one that reads the cluster's place last must also
    /// be the last to join.
    pub fn join_with<T>(&self, join: impl FnOnce() -> T) -> T {
        let _moving = self.moving();
        join()
    }

    /// Withholds the kind from the cluster for this reason: the kind is blocked, whatever the feed reports. `None` grants the
    /// kind. The caller then has to run [`confirm_grant`](crate::internal::confirm_grant). Call it only inside the closure
    /// that is given to [`join_with`](Self::join_with).
    pub fn withhold(&self, reason: Option<&str>) -> Option<Grant> {
        let blocked = |message: &str| {
            WatchProblem::new(WatchError::NotInScope {
                message: message.to_owned(),
            })
        };
        let grant = {
            let mut withheld = self.withheld.lock();
            match (withheld.as_deref_mut(), reason) {
                (None, None) => return None,
                (Some(now), None) if now.granted => return None,
                (Some(now), None) => {
                    now.granted = true;
                    now.problem = blocked("it has just been granted, and its objects are being compared");
                    Some(Grant(now.problem.error.clone()))
                }
                (Some(now), Some(reason)) if now.is_reason(reason) => return None,
                (_, Some(reason)) => {
                    *withheld = Some(Box::new(Withheld {
                        problem: blocked(reason),
                        granted: false,
                    }));
                    None
                }
            }
        };
        self.copy_status();
        grant
    }

    /// Whether the kind has not been withheld again since the grant.
    pub(crate) fn is_granted(&self, grant: &Grant) -> bool {
        let withheld = self.withheld.lock();
        let error = withheld.as_ref().map(|withheld| &withheld.problem.error);
        error.is_some_and(|error| Arc::ptr_eq(error, &grant.0))
    }

    /// Ends a grant. `complete`: the store has all objects. Otherwise it has them after the next list of the feed.
    pub(crate) fn finish_grant(&self, grant: &Grant, complete: bool) {
        let _moving = self.moving();
        if !self.is_granted(grant) {
            return;
        }
        *self.withheld.lock() = None;
        let feed = self.feed().clone();
        if let Some(feed) = feed.filter(|_| !complete) {
            self.awaits_list.store(true, Ordering::Release);
            feed.await_list(self);
        }
        self.copy_status();
    }

    /// Copies the status of the current feed.
    fn copy_status(&self) {
        let feed = self.feed().clone();
        if let Some(feed) = feed {
            self.update_status(&*feed);
        }
    }

    /// Reads the objects from the cache of a place in a scope from now on. That replaces the place that the watch read
    /// before. Call it only inside the closure that is given to [`join_with`](Self::join_with).
    pub fn join(&self, feed: Arc<dyn Feed>, cache: Arc<Cache>) {
        let left = self.feed().replace(feed.clone());
        match left {
            None => self.move_to(cache),
            Some(left) => {
                // Keep a copy: what becomes of the objects at the old place proves nothing about those at the new one.
                let own = self.cache().split(self.id);
                self.move_to(own);
                if !std::ptr::addr_eq(Arc::as_ptr(&left), Arc::as_ptr(&feed)) {
                    left.leave(self);
                }
                self.awaits_list.store(true, Ordering::Release);
                feed.await_list(self);
            }
        }
        self.update_status(&*feed);
        if self.stop.is_cancelled() {
            self.leave_feed();
        }
    }

    /// Moves to the cache of the place that the watch waited for; `cache` returns none if it has left meanwhile.
    pub fn arrive(&self, cache: impl FnOnce() -> Option<Arc<Cache>>) {
        let _moving = self.moving();
        if let Some(cache) = cache() {
            self.move_to(cache);
            self.awaits_list.store(false, Ordering::Release);
        }
    }

    /// Reads another cache from now on. The subscribers receive the differences.
    fn move_to(&self, cache: Arc<Cache>) {
        // In this order: a sink that subscribes to the old cache after the swap sees that it has to move as well.
        let old = self.cache.swap(cache.clone());
        old.move_subscribers(&self.request, self.id, &cache);
    }

    /// Copies the status of a feed, if the watch still belongs to it.
    pub fn update_status(&self, from: &dyn Feed) {
        self.status.change(|status| {
            // A feed that the watch has left may not know that yet.
            if !self
                .feed()
                .as_ref()
                .is_some_and(|feed| std::ptr::addr_eq(&raw const **feed, from))
            {
                return;
            }
            // Read inside of this closure, so that of two updates at once the later status is set last.
            let feed = from.status();
            // A listed kind stays listed: at another endpoint the objects are old at first, not incomplete. A kind that was
            // never listed is incomplete until the watch has arrived, although its new place is listed. Of a kind that is
            // withheld or left out, the feed does not have the objects of the cluster.
            let withheld = self.withheld.lock();
            let withheld = withheld.as_ref().map(|withheld| withheld.problem.clone());
            let own = withheld.or_else(|| from.problem_of(self));
            let awaits_list = self.awaits_list.load(Ordering::Acquire);
            status.synced |= feed.synced && !awaits_list && own.is_none();
            status.lists = feed.lists;
            status.problem = own.or(feed.problem);
        });
        self.status_changed();
    }

    /// Sets an error for a kind that can't be watched in this cluster, whatever its API server answers.
    pub fn refuse(&self, error: WatchError) {
        self.change_status(TargetEvent::Failed(error));
    }
}

impl WatchTarget for SharedWatch {
    fn encode(&self, item: Item<'_>, encoder: &mut Encoder) -> Encoded {
        let encoded = item.and_then(|object| object.encode(None, encoder));
        let object = encoded.inspect_err(|error| self.cache.load().skip(error))?;
        let object = self.cache.load().held_or(object);
        Ok(Some(PlacedObject { place: None, object }))
    }

    fn apply(&self, event: TargetEvent<'_>) -> Result<(), UnreadableObject> {
        let (cache, request) = (self.cache.load(), &self.request);
        match event {
            TargetEvent::ListBegins => cache.store().begin_listing(),
            TargetEvent::ListFailed => drop(cache.store().finish_listing(false)),
            TargetEvent::Listed { complete, .. } => {
                cache.apply(request, |store| store.finish_listing(complete));
            }
            TargetEvent::Put { object, initial } => {
                cache.apply(request, |store| store.upsert(object.object.clone(), initial));
            }
            TargetEvent::Deleted(object) => {
                cache.apply(request, |store| store.delete(object.object.clone()));
            }
            _ => {}
        }
        self.change_status(event);
        Ok(())
    }

    fn held_bytes(&self, _: Option<&str>) -> usize {
        self.cache.load().store().held_bytes()
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
