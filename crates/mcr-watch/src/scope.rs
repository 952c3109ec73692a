//! One watch of one kind for all clusters behind one scope endpoint.

mod uncertain;

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use mcr_client::internal::Observable;
use mcr_store::{
    Encoder, Indexer, Item, NotAnObject, Object, ObjectChange, ObjectKey, ObjectStore, ParsedObject,
    RawObject,
};
use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    cache::Cache,
    driver::{DriverEnv, drive},
    places::Places,
    request::WatchRequest,
    shared::{Feed, SharedWatch},
    status::{WatchProblem, WatchStatus},
    target::{Encoded, LeftOut, PlacedObject, TargetEvent, UnreadableObject, WatchTarget, update_status},
};

/// Distributes the objects of an endpoint to the caches of its places, and lets the watches of clusters read those caches.
///
/// It also keeps the objects of places that belong to no cluster of the fleet. A cluster that joins later finds its objects
/// without a list.
pub struct ScopeWatch {
    places: Arc<dyn Places>,
    /// The request of the clusters.
    request: WatchRequest,
    /// The request to the endpoint.
    query: WatchRequest,
    state: Mutex<State>,
    indexers: Mutex<Vec<(Arc<str>, Indexer)>>,
    status: Observable<WatchStatus>,
    /// The number of unreadable objects whose place is not known.
    skipped: AtomicU64,
    relist: Notify,
    /// A deletion has begun to be uncertain.
    uncertain: Notify,
    /// Called without any lock when the last reader has left.
    on_last_reader_left: Box<dyn Fn(&WatchRequest) + Send + Sync>,
    stop: CancellationToken,
}

#[derive(Default)]
struct State {
    places: HashMap<Arc<str>, PlaceCache>,
    /// By the id of the watch.
    readers: HashMap<u64, Reader>,
    /// Ids of readers that came from another endpoint and wait for a list that begins after they came.
    awaiting_next_list: Vec<u64>,
    /// Ids of readers that wait for the end of the list under way.
    awaiting_current_list: Vec<u64>,
    listing: bool,
    /// The places whose objects take too much memory, with the reasons.
    left_out: LeftOut,
    /// The deletions of objects that the caches still hold, by place and key.
    uncertain: HashMap<(Arc<str>, ObjectKey), Deletion>,
}

/// A deletion that may be the cleanup behind a cluster that has moved.
struct Deletion {
    /// The last version of the object.
    last: Arc<Object>,
    /// Whether the deletion has waited through a whole delay when the current one ends.
    due: bool,
}

/// The objects of one place, and the number of readers at that place.
#[derive(Default)]
struct PlaceCache {
    cache: Arc<Cache>,
    readers: usize,
}

/// The watch of a cluster, and the place where it reads.
#[derive(Clone)]
struct Reader {
    watch: Arc<SharedWatch>,
    place: Arc<str>,
}

impl ScopeWatch {
    /// A watch without readers. `request` is the request of the clusters, and `query` the one to the endpoint.
    pub fn new(
        places: Arc<dyn Places>,
        request: WatchRequest,
        query: WatchRequest,
        indexers: Vec<(Arc<str>, Indexer)>,
        on_last_reader_left: Box<dyn Fn(&WatchRequest) + Send + Sync>,
    ) -> Self {
        Self {
            places,
            request,
            query,
            state: Mutex::default(),
            indexers: Mutex::new(indexers),
            status: Observable::default(),
            skipped: AtomicU64::new(0),
            relist: Notify::new(),
            uncertain: Notify::new(),
            on_last_reader_left,
            stop: CancellationToken::new(),
        }
    }

    /// Lists and watches until the watch is stopped. `delay`: the time for which an uncertain deletion waits.
    pub fn run(
        self: Arc<Self>,
        env: DriverEnv,
        delay: Duration,
    ) -> impl Future<Output = ()> + Send + 'static {
        let health = env.health.clone();
        let driver = drive(self.clone(), self.query.clone(), self.stop.clone(), env);
        async move {
            tokio::select! {
                () = driver => {}
                () = self.confirm_deletions(delay, &health) => {}
            }
        }
    }

    /// The request of the clusters.
    pub fn request(&self) -> &WatchRequest {
        &self.request
    }

    /// Ends the watch.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// The number of places, and the number of readers.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.places.len(), state.readers.len())
    }

    /// Whether the watch of any cluster reads here.
    pub fn has_readers(&self) -> bool {
        !self.state().readers.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Adds an index to all caches, including caches of places that come later. Replaces an index of the same name.
    pub fn add_index(&self, name: &Arc<str>, indexer: &Indexer) {
        {
            let mut indexers = self.indexers.lock();
            indexers.retain(|(known, _)| known != name);
            indexers.push((name.clone(), indexer.clone()));
        }
        let caches: Vec<Arc<Cache>> = {
            let state = self.state();
            // A reader that waits for a list reads from a cache of its own until then.
            let own = state.waiting().map(|reader| reader.watch.cache());
            let caches = state.places.values().map(|place| place.cache.clone());
            caches.chain(own).collect()
        };
        for cache in caches {
            cache.store().add_index(name.clone(), indexer.clone());
        }
    }

    fn cache_of(&self, state: &mut State, place: &str) -> Arc<Cache> {
        if let Some(known) = state.places.get(place) {
            return known.cache.clone();
        }
        let new = PlaceCache::default();
        for (name, indexer) in self.indexers.lock().iter() {
            new.cache.store().add_index(name.clone(), indexer.clone());
        }
        if state.listing {
            new.cache.store().begin_listing();
        }
        let cache = new.cache.clone();
        state.places.insert(place.into(), new);
        cache
    }

    fn cache(&self, place: &str) -> Arc<Cache> {
        self.cache_of(&mut self.state(), place)
    }

    /// Changes the objects of a place.
    fn apply_at<C>(&self, place: &str, change: impl Fn(&ObjectStore) -> C)
    where
        C: IntoIterator<Item = ObjectChange>,
    {
        loop {
            let cache = self.cache(place);
            cache.apply(&self.request, &change);
            // A reader that leaves removes an empty cache, perhaps this cache just before the change. The change is then
            // applied again, to the new cache of the place.
            if Arc::ptr_eq(&cache, &self.cache(place)) {
                return;
            }
        }
    }

    /// Adds a reader, and returns the cache of its place. `None` if the watch reads there already.
    pub fn admit(&self, watch: &Arc<SharedWatch>, place: &Arc<str>) -> Option<Arc<Cache>> {
        let mut state = self.state();
        let reader = Reader {
            watch: watch.clone(),
            place: place.clone(),
        };
        if state.reads_at(watch.id(), place) {
            return None;
        }
        if let Some(before) = state.readers.insert(watch.id(), reader) {
            // The cluster moves to another place behind the same endpoint.
            state.stop_waiting(watch.id());
            state.leave_place(&before.place);
        }
        let cache = self.cache_of(&mut state, place);
        if let Some(at) = state.places.get_mut(place) {
            at.readers += 1;
        }
        Some(cache)
    }

    /// The place and the localized form of an object. `None` if the object belongs to no cluster, or if the clusters did not
    /// request its namespace.
    fn locate(&self, item: Item<'_>, encoder: &mut Encoder) -> Encoded {
        let raw = item?;
        let Some(placement) = catch_panic("place", || self.places.place(raw.metadata()))? else {
            return Ok(None);
        };
        let (place, namespace) = (placement.place(), placement.namespace());
        let object = if catch_panic("localizes", || self.places.localizes(&self.request))? {
            let localized = self.localize(&raw, place)?;
            ParsedObject::read(&localized)?
                .object()
                .encode(namespace, encoder)
        } else {
            raw.encode(namespace, encoder)
        };
        let object = object.map_err(|error| {
            self.cache(place).skip(&error);
            self.state().remove_if_idle(place);
            UnreadableObject {
                place: Some(place.into()),
                error,
            }
        })?;
        let wanted = self.request.namespace_name();
        if wanted.is_some() && wanted != object.key().namespace.as_deref() {
            return Ok(None);
        }
        let cache = self.state().places.get(place).map(|at| at.cache.clone());
        let object = cache.unwrap_or_default().held_or(object);
        let place = Some(place.into());
        Ok(Some(PlacedObject { place, object }))
    }

    fn localize(&self, object: &RawObject<'_>, place: &str) -> Result<Box<RawValue>, NotAnObject> {
        let unreadable = |error: serde_json::Error| NotAnObject::nameless(mcr_store::describe(&error));
        let mut value: serde_json::Value = serde_json::from_slice(&object.json()).map_err(unreadable)?;
        catch_panic("localize", || self.places.localize(place, &mut value))?;
        serde_json::value::to_raw_value(&value).map_err(unreadable)
    }
}

/// Calls a function of the layout. A panic makes the object unreadable: the watch of all clusters continues without it, and
/// deletes nothing that is missing in a list.
fn catch_panic<T>(function: &str, call: impl FnOnce() -> T) -> Result<T, NotAnObject> {
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|_| NotAnObject::nameless(format!("the scope's layout panicked in {function}")))
}

impl State {
    /// The readers that wait for a list.
    fn waiting(&self) -> impl Iterator<Item = &Reader> {
        let waiting = self.awaiting_next_list.iter().chain(&self.awaiting_current_list);
        waiting.filter_map(|id| self.readers.get(id))
    }

    /// The cache of a place, if a reader takes its objects from there. A reader that waits for a list does not.
    fn cache_in_use(&self, place: &str) -> Option<&Cache> {
        let waiting = self.waiting().filter(|reader| &*reader.place == place);
        let at = self.places.get(place)?;
        (at.readers > waiting.count()).then_some(&at.cache)
    }

    /// Removes a watch from the readers that wait for a list. If the watch comes back, it waits for a later list.
    fn stop_waiting(&mut self, watch: u64) {
        self.awaiting_next_list.retain(|id| *id != watch);
        self.awaiting_current_list.retain(|id| *id != watch);
    }

    fn reads_at(&self, watch: u64, place: &str) -> bool {
        self.readers
            .get(&watch)
            .is_some_and(|reader| &*reader.place == place)
    }

    /// Counts one reader less at a place.
    fn leave_place(&mut self, place: &str) -> Option<Arc<Cache>> {
        let at = self.places.get_mut(place)?;
        at.readers -= 1;
        let cache = at.cache.clone();
        self.remove_if_idle(place);
        Some(cache)
    }

    fn remove_if_idle(&mut self, place: &str) {
        if self.places.get(place).is_some_and(PlaceCache::is_idle) {
            self.places.remove(place);
        }
    }
}

impl PlaceCache {
    fn is_idle(&self) -> bool {
        self.readers == 0 && self.cache.store().is_empty()
    }
}

impl Feed for ScopeWatch {
    fn status(&self) -> WatchStatus {
        let mut status = self.status.read(WatchStatus::clone);
        status.skipped = self.skipped.load(Ordering::Relaxed);
        status
    }

    fn problem_of(&self, watch: &SharedWatch) -> Option<WatchProblem> {
        let state = self.state();
        let reader = state.readers.get(&watch.id())?;
        state.left_out.get(&reader.place).cloned()
    }

    fn leave(&self, watch: &SharedWatch) {
        let cache = {
            let mut state = self.state();
            let Some(reader) = state.readers.remove(&watch.id()) else {
                return;
            };
            state.stop_waiting(watch.id());
            state.leave_place(&reader.place)
        };
        if let Some(cache) = cache {
            cache.unsubscribe_watch(watch.id());
        }
        if !self.has_readers() {
            (self.on_last_reader_left)(&self.request);
        }
    }

    /// The caches here may be older than the cache that the watch brings from another endpoint. Before this endpoint has been
    /// listed again, a missing object is no proof of a delete.
    fn await_list(&self, watch: &SharedWatch) {
        self.state().awaiting_next_list.push(watch.id());
        self.relist.notify_one();
    }
}

/// The events of the driver.
impl ScopeWatch {
    fn begin_listing(&self) {
        let mut state = self.state();
        state.listing = true;
        let waiting = std::mem::take(&mut state.awaiting_next_list);
        state.awaiting_current_list.extend(waiting);
        for place in state.places.values() {
            place.cache.store().begin_listing();
        }
    }

    fn finish_listing(&self, complete: bool, left_out: &LeftOut) {
        let caches: Vec<(Arc<str>, Arc<Cache>, bool)> = {
            let mut state = self.state();
            state.listing = false;
            state.left_out.clone_from(left_out);
            let caches = state.places.iter().map(|(name, place)| {
                let complete = complete && !left_out.contains_key(name);
                (name.clone(), place.cache.clone(), complete)
            });
            caches.collect()
        };
        let deletions_are_uncertain = self.deletions_are_uncertain();
        for (place, cache, complete) in caches {
            let uncertain = complete && deletions_are_uncertain;
            let unseen = uncertain.then(|| cache.store().take_unlisted());
            for object in unseen.into_iter().flatten() {
                self.remove(&place, object, uncertain);
            }
            cache.apply(&self.request, |store| store.finish_listing(complete));
        }
        let arrived = {
            let mut state = self.state();
            state.places.retain(|_, place| !place.is_idle());
            let waiting = std::mem::take(&mut state.awaiting_current_list);
            let arrived = waiting.iter().filter_map(|id| state.readers.get(id));
            arrived.cloned().collect::<Vec<Reader>>()
        };
        for Reader { watch, place } in arrived {
            watch.arrive(|| {
                let mut state = self.state();
                let still = state.reads_at(watch.id(), &place);
                let cache = still.then(|| self.cache_of(&mut state, &place))?;
                let complete = complete && !left_out.contains_key(&place);
                drop(state);
                if !complete {
                    // An incomplete list deletes nothing. Nor may one unreadable object keep clusters from arriving.
                    cache.add_missing(&self.request, &watch.cache());
                }
                Some(cache)
            });
        }
    }

    fn abort_listing(&self) {
        let mut state = self.state();
        state.listing = false;
        let waiting = std::mem::take(&mut state.awaiting_current_list);
        state.awaiting_next_list.extend(waiting);
        for place in state.places.values() {
            place.cache.store().finish_listing(false);
        }
    }

    fn put(&self, place: &Arc<str>, object: &Arc<Object>, initial: bool) {
        let named = (place.clone(), object.key().clone());
        self.state().uncertain.remove(&named);
        self.apply_at(place, |store| store.upsert(object.clone(), initial));
    }

    fn change_status(&self, event: TargetEvent<'_>) {
        if update_status(&self.status, event) {
            let readers: Vec<Reader> = self.state().readers.values().cloned().collect();
            for reader in readers {
                reader.watch.update_status(self);
            }
        }
    }
}

impl WatchTarget for ScopeWatch {
    fn encode(&self, item: Item<'_>, encoder: &mut Encoder) -> Encoded {
        self.locate(item, encoder).inspect_err(|unreadable| {
            if unreadable.error.key.is_none() {
                self.skipped.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    fn apply(&self, event: TargetEvent<'_>) -> Result<(), UnreadableObject> {
        match event {
            TargetEvent::ListBegins => self.begin_listing(),
            TargetEvent::ListFailed => self.abort_listing(),
            TargetEvent::Listed { complete, left_out } => self.finish_listing(complete, left_out),
            TargetEvent::Put {
                object:
                    PlacedObject {
                        place: Some(place),
                        object,
                    },
                initial,
            } => {
                self.put(place, object, initial);
            }
            TargetEvent::Deleted(PlacedObject {
                place: Some(place),
                object,
            }) => {
                self.remove(place, object.clone(), self.deletions_are_uncertain());
            }
            TargetEvent::LeftOut(places) => self.state().left_out.clone_from(places),
            _ => {}
        }
        self.change_status(event);
        Ok(())
    }

    fn held_bytes(&self, place: Option<&str>) -> usize {
        let state = self.state();
        let at = place.and_then(|place| state.places.get(place));
        at.map_or(0, |at| at.cache.store().held_bytes())
    }

    // The cache that a cluster brings from another endpoint may be newer than the cache of the API server.
    fn needs_newest(&self) -> bool {
        !self.state().awaiting_current_list.is_empty()
    }

    fn relist(&self) -> Option<BoxFuture<'_, ()>> {
        Some(Box::pin(async {
            while self.state().awaiting_next_list.is_empty() {
                self.relist.notified().await;
            }
        }))
    }
}

#[cfg(test)]
mod tests;
