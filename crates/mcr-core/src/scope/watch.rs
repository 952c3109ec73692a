//! One watch of one kind for all clusters behind one endpoint.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use futures::future::BoxFuture;
use mcr_client::internal::Observable;
use mcr_store::{
    Encoder, Indexer, Item, NotAnObject, Object, ObjectChange, ObjectStore, ParsedObject, RawObject,
};
use mcr_watch::{
    WatchRequest, WatchStatus,
    internal::{Cache, Feed, PlacedObject, SharedWatch, WatchTarget},
};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::ScopeLayout;

/// Takes the objects of a whole endpoint apart into those of its clusters.
///
/// Objects of places that no cluster of the fleet stands for are held as well, so that a cluster that joins
/// finds its objects without a list.
pub(crate) struct ScopeWatch {
    layout: Arc<dyn ScopeLayout>,
    /// As the clusters ask for it.
    request: WatchRequest,
    /// As the endpoint is asked for it.
    query: WatchRequest,
    places: Mutex<Places>,
    indexers: Mutex<Vec<(Arc<str>, Indexer)>>,
    status: Observable<WatchStatus>,
    /// Objects that could not be read, of no cluster that is known.
    skipped: AtomicU64,
    relist: Notify,
    /// Called, with no lock held, when the last watch has left.
    unread: Box<dyn Fn(&WatchRequest) + Send + Sync>,
    stop: CancellationToken,
}

#[derive(Default)]
struct Places {
    cache: HashMap<Arc<str>, Place>,
    /// Who reads what, by the watch's id.
    readers: HashMap<u64, Reader>,
    /// Those that came from another endpoint and wait for a list that began after they came.
    arriving: Vec<u64>,
    /// Those of them that the list under way is for.
    boarding: Vec<u64>,
    listing: bool,
}

#[derive(Default)]
struct Place {
    cache: Arc<Cache>,
    readers: usize,
}

/// An object as its cluster sees it, and where that is.
struct Located {
    place: Arc<str>,
    object: Object,
}

#[derive(Clone)]
struct Reader {
    watch: Arc<SharedWatch>,
    place: Arc<str>,
}

impl ScopeWatch {
    pub(crate) fn new(
        layout: Arc<dyn ScopeLayout>,
        request: WatchRequest,
        query: WatchRequest,
        indexers: Vec<(Arc<str>, Indexer)>,
        unread: Box<dyn Fn(&WatchRequest) + Send + Sync>,
    ) -> Self {
        Self {
            layout,
            request,
            query,
            places: Mutex::default(),
            indexers: Mutex::new(indexers),
            status: Observable::default(),
            skipped: AtomicU64::new(0),
            relist: Notify::new(),
            unread,
            stop: CancellationToken::new(),
        }
    }

    pub(crate) fn request(&self) -> &WatchRequest {
        &self.request
    }

    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    pub(crate) fn status(&self) -> WatchStatus {
        let mut status = self.status.read(WatchStatus::clone);
        status.skipped = self.skipped.load(Ordering::Relaxed);
        status
    }

    /// How many places there are, and how many watches read from them.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let places = self.places();
        (places.cache.len(), places.readers.len())
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.places().readers.is_empty()
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn indexers(&self) -> MutexGuard<'_, Vec<(Arc<str>, Indexer)>> {
        self.indexers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an index to what is and will be there; an index of the same name is replaced.
    pub(crate) fn add_index(&self, name: &Arc<str>, indexer: &Indexer) {
        {
            let mut indexers = self.indexers();
            indexers.retain(|(known, _)| known != name);
            indexers.push((name.clone(), indexer.clone()));
        }
        let (everything, readers) = {
            let places = self.places();
            let readers: Vec<Arc<SharedWatch>> =
                places.arriving().map(|reader| reader.watch.clone()).collect();
            (places.all(), readers)
        };
        // Those that wait for a list read from contents of their own until then.
        let own = readers.iter().map(|reader| reader.cache());
        for cache in everything.into_iter().chain(own) {
            cache.store().add_index(name.clone(), indexer.clone());
        }
    }

    fn at(&self, places: &mut Places, place: &str) -> Arc<Cache> {
        if let Some(known) = places.cache.get(place) {
            return known.cache.clone();
        }
        let new = Place::default();
        for (name, indexer) in self.indexers().iter() {
            new.cache.store().add_index(name.clone(), indexer.clone());
        }
        if places.listing {
            new.cache.store().begin_listing();
        }
        let cache = new.cache.clone();
        places.cache.insert(place.into(), new);
        cache
    }

    fn cache_at(&self, place: &str) -> Arc<Cache> {
        self.at(&mut self.places(), place)
    }

    /// Changes the objects of a place.
    fn apply<C>(&self, place: &str, change: impl Fn(&ObjectStore) -> C)
    where
        C: IntoIterator<Item = ObjectChange>,
    {
        loop {
            let cache = self.cache_at(place);
            cache.apply(&self.request, &change);
            // Whoever leaves takes an empty place along, which may have been this one a moment ago.
            if Arc::ptr_eq(&cache, &self.cache_at(place)) {
                return;
            }
        }
    }

    /// Counts a watch of a cluster among those that read from here, and gives it the objects of its place; none if it
    /// reads there already.
    pub(crate) fn admit(&self, watch: &Arc<SharedWatch>, place: &Arc<str>) -> Option<Arc<Cache>> {
        let mut places = self.places();
        let reader = Reader {
            watch: watch.clone(),
            place: place.clone(),
        };
        if places.reads_at(watch.id(), place) {
            return None;
        }
        if let Some(before) = places.readers.insert(watch.id(), reader) {
            // It goes from one place to another behind the same endpoint.
            places.leave_line(watch.id());
            places.left(&before.place);
        }
        let cache = self.at(&mut places, place);
        if let Some(at) = places.cache.get_mut(place) {
            at.readers += 1;
        }
        Some(cache)
    }

    /// Where an object belongs; none if it belongs to no cluster.
    fn locate(&self, item: Item<'_>, encoder: &mut Encoder) -> Result<Option<Located>, NotAnObject> {
        let opened = item?;
        let Some(placement) = guarded("place", || self.layout.place(opened.metadata()))? else {
            return Ok(None);
        };
        let namespace = placement.namespace.as_deref();
        let object = if guarded("localizes", || self.layout.localizes(&self.request))? {
            let localized = self.localize(&opened, &placement.place)?;
            let opened = ParsedObject::read(&localized)?;
            opened.object().encode(namespace, encoder)
        } else {
            opened.encode(namespace, encoder)
        };
        let object = object.map_err(|error| {
            self.cache_at(&placement.place).skip(&error);
            self.places().prune(&placement.place);
            error.at(&placement.place)
        })?;
        let wanted = self.request.namespace_name();
        if wanted.is_some() && wanted != object.key().namespace.as_deref() {
            return Ok(None);
        }
        Ok(Some(Located {
            place: placement.place.as_ref().into(),
            object,
        }))
    }

    fn localize(&self, object: &RawObject<'_>, place: &str) -> Result<Box<RawValue>, NotAnObject> {
        let fault = |error: serde_json::Error| NotAnObject::nameless(mcr_store::describe(&error));
        let mut value: serde_json::Value = serde_json::from_slice(&object.json()).map_err(fault)?;
        guarded("localize", || self.layout.localize(place, &mut value))?;
        serde_json::value::to_raw_value(&value).map_err(fault)
    }
}

/// A layout that panics on one object must not end the watch of all clusters: the object counts as one that can't be
/// read, so it is left out and nothing is taken for deleted.
fn guarded<T>(function: &str, call: impl FnOnce() -> T) -> Result<T, NotAnObject> {
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|_| NotAnObject::nameless(format!("the scope's layout panicked in {function}")))
}

impl Places {
    /// Who waits for a list.
    fn arriving(&self) -> impl Iterator<Item = &Reader> {
        let waiting = self.arriving.iter().chain(&self.boarding);
        waiting.filter_map(|id| self.readers.get(id))
    }

    fn all(&self) -> Vec<Arc<Cache>> {
        self.cache.values().map(|place| place.cache.clone()).collect()
    }

    /// It does not wait for a list any more. Should it come back, the list that it waits for then is another one.
    fn leave_line(&mut self, watch: u64) {
        self.arriving.retain(|id| *id != watch);
        self.boarding.retain(|id| *id != watch);
    }

    fn reads_at(&self, watch: u64, place: &str) -> bool {
        self.readers
            .get(&watch)
            .is_some_and(|reader| &*reader.place == place)
    }

    /// A place has one reader less.
    fn left(&mut self, place: &str) -> Option<Arc<Cache>> {
        let at = self.cache.get_mut(place)?;
        at.readers -= 1;
        let cache = at.cache.clone();
        self.prune(place);
        Some(cache)
    }

    /// Forgets a place that has no objects and that nobody reads.
    fn prune(&mut self, place: &str) {
        if self.cache.get(place).is_some_and(Place::is_idle) {
            self.cache.remove(place);
        }
    }
}

impl Place {
    fn is_idle(&self) -> bool {
        self.readers == 0 && self.cache.store().is_empty()
    }
}

impl Feed for ScopeWatch {
    fn status(&self) -> WatchStatus {
        Self::status(self)
    }

    fn last_event(&self) -> Option<SystemTime> {
        self.status.read(|status| status.last_event)
    }

    /// A cluster does not read from here any more.
    fn leave(&self, watch: &SharedWatch) {
        let cache = {
            let mut places = self.places();
            let Some(reader) = places.readers.remove(&watch.id()) else {
                return;
            };
            places.leave_line(watch.id());
            places.left(&reader.place)
        };
        if let Some(cache) = cache {
            cache.unsubscribe_watch(watch.id());
        }
        if self.is_unread() {
            (self.unread)(&self.request);
        }
    }

    /// A watch comes from another endpoint. What this one has of its cluster is old until it is listed again: were it
    /// believed at once, what has not arrived yet would be taken for deleted.
    fn await_list(&self, watch: &SharedWatch) {
        self.places().arriving.push(watch.id());
        self.relist.notify_one();
    }
}

impl WatchTarget for ScopeWatch {
    fn query(&self) -> &WatchRequest {
        &self.query
    }

    fn stopped(&self) -> &CancellationToken {
        &self.stop
    }

    fn objects(&self) -> usize {
        let all = self.places().all();
        all.iter().map(|cache| cache.store().len()).sum()
    }

    fn begin_listing(&self) {
        let mut places = self.places();
        places.listing = true;
        let arriving = std::mem::take(&mut places.arriving);
        places.boarding.extend(arriving);
        for place in places.cache.values() {
            place.cache.store().begin_listing();
        }
    }

    fn finish_listing(&self, complete: bool) {
        let everything = {
            let mut places = self.places();
            places.listing = false;
            places.all()
        };
        for cache in everything {
            cache.apply(&self.request, |store| store.finish_listing(complete));
        }
        let arrived = {
            let mut places = self.places();
            places.cache.retain(|_, place| !place.is_idle());
            let boarding = std::mem::take(&mut places.boarding);
            let arrived = boarding.iter().filter_map(|id| places.readers.get(id));
            arrived.cloned().collect::<Vec<Reader>>()
        };
        for Reader { watch, place } in arrived {
            watch.arrive(|| {
                let mut places = self.places();
                let still = places.reads_at(watch.id(), &place);
                let cache = still.then(|| self.at(&mut places, &place))?;
                drop(places);
                if !complete {
                    // Nothing may be taken for deleted by such a list, nor may one object that can't be read keep
                    // clusters from arriving.
                    cache.add_missing(&self.request, &watch.cache());
                }
                Some(cache)
            });
        }
        self.listed();
    }

    fn abort_listing(&self) {
        let mut places = self.places();
        places.listing = false;
        let boarding = std::mem::take(&mut places.boarding);
        places.arriving.extend(boarding);
        for place in places.cache.values() {
            place.cache.store().finish_listing(false);
        }
    }

    fn put(
        &self,
        item: Item<'_>,
        initial: bool,
        encoder: &mut Encoder,
    ) -> Result<Option<PlacedObject>, NotAnObject> {
        let located = self.locate(item, encoder).inspect_err(|error| {
            if error.key.is_none() {
                self.skipped.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        let Some(Located { place, object }) = located else {
            return Ok(None);
        };
        let object = Arc::new(object);
        self.apply(&place, |store| store.upsert(object.clone(), initial));
        Ok(Some(PlacedObject {
            place: Some(place),
            object,
        }))
    }

    fn delete(&self, item: Item<'_>, encoder: &mut Encoder) -> Result<Option<PlacedObject>, NotAnObject> {
        let Some(Located { place, object }) = self.locate(item, encoder)? else {
            return Ok(None);
        };
        let object = Arc::new(object);
        self.apply(&place, |store| store.delete(object.clone()));
        self.places().prune(&place);
        Ok(Some(PlacedObject {
            place: Some(place),
            object,
        }))
    }

    fn driver_status(&self) -> &Observable<WatchStatus> {
        &self.status
    }

    fn status_changed(&self) {
        let readers: Vec<Arc<SharedWatch>> = {
            let places = self.places();
            places
                .readers
                .values()
                .map(|reader| reader.watch.clone())
                .collect()
        };
        for reader in readers {
            reader.update_status(self);
        }
    }

    fn may_list_from_cache(&self) -> bool {
        // What a cluster brought along from another endpoint may be newer than what is in a cache.
        Self::status(self).lists == 0 && self.objects() == 0 && self.places().arriving.is_empty()
    }

    fn relist_failed(&self) {
        if !self.places().arriving.is_empty() {
            self.relist.notify_one();
        }
    }

    fn relist(&self) -> Option<BoxFuture<'_, ()>> {
        Some(Box::pin(self.relist.notified()))
    }
}

impl std::fmt::Debug for ScopeWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScopeWatch")
            .field("scope", &self.layout.name())
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
