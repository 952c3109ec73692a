//! The objects of a hub, as a driver keeps them.

use std::{
    borrow::Cow,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use mcr_access::internal::lock;
use mcr_client::internal::Observable;
use mcr_store::{Encoder, Item, NotAnObject, Object, ObjectKey, ObjectMetadata};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    event::HubEvent,
    pending::{Pending, PendingEvent},
    projections::Projections,
};
use crate::{
    WatchRequest, WatchStatus,
    counters::count,
    target::{Encoded, PlacedObject, UnreadableObject, WatchTarget},
};

/// Returns the part of an object that is kept; none if the object counts as not there.
type Project<T> = dyn Fn(&Arc<Object>) -> Option<T> + Send + Sync;

/// How the part of an object that is kept is made and compared.
pub(super) struct Projection<T> {
    /// May panic.
    project: Box<Project<T>>,
    /// Whether two projections are the same, so that nothing has changed. May panic.
    same: fn(&T, &T) -> bool,
    /// The cluster of an object, which takes the place of its namespace. None: objects keep their namespaces. May panic.
    cluster: Option<Box<ClusterOf>>,
}

/// Names the cluster of an object; none if the object is left out.
type ClusterOf = dyn for<'o> Fn(&ObjectMetadata<'o>) -> Option<Cow<'o, str>> + Send + Sync;

impl Projection<Arc<Object>> {
    /// The whole object.
    pub(super) fn whole() -> Self {
        Self {
            project: Box::new(|object| Some(object.clone())),
            same: |held, new| held.same_content(new),
            cluster: None,
        }
    }
}

impl<T: PartialEq> Projection<T> {
    pub(super) fn of(project: impl Fn(&Object) -> Option<T> + Send + Sync + 'static) -> Self {
        Self {
            project: Box::new(move |object| project(object)),
            same: T::eq,
            cluster: None,
        }
    }

    pub(super) fn by_cluster(
        self,
        cluster: impl for<'o> Fn(&ObjectMetadata<'o>) -> Option<Cow<'o, str>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            cluster: Some(Box::new(cluster)),
            ..self
        }
    }
}

/// The projections of the objects, and the events that the caller has not taken yet.
pub(super) struct HubTarget<T> {
    request: WatchRequest,
    projection: Projection<T>,
    /// Locked together, so that an event and the projection that it brings belong together.
    state: Mutex<State<T>>,
    notify: Notify,
    status: Observable<WatchStatus>,
    skipped: AtomicU64,
    stop: CancellationToken,
}

struct State<T> {
    projections: Projections<T>,
    pending: Pending,
}

impl<T> HubTarget<T> {
    pub(super) fn new(request: WatchRequest, projection: Projection<T>, stop: CancellationToken) -> Self {
        Self {
            request,
            state: Mutex::new(State {
                projections: Projections::new(projection.same),
                pending: Pending::default(),
            }),
            projection,
            notify: Notify::new(),
            status: Observable::default(),
            skipped: AtomicU64::new(0),
            stop,
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }

    pub(super) fn status(&self) -> WatchStatus {
        let mut status = self.status.read(WatchStatus::clone);
        status.skipped = self.skipped.load(Ordering::Relaxed);
        status
    }

    /// Resolves after an event came.
    pub(super) async fn notified(&self) {
        self.notify.notified().await;
    }

    /// Encodes an object. None if it is left out, because it belongs to no cluster.
    fn encode_object(
        &self,
        item: Item<'_>,
        encoder: &mut Encoder,
    ) -> Result<Option<Arc<Object>>, NotAnObject> {
        let object = item?;
        let mut cluster = None;
        if let Some(of) = &self.projection.cluster {
            let of = || of(object.metadata());
            let named = std::panic::catch_unwind(AssertUnwindSafe(of));
            cluster = named.map_err(|_| NotAnObject::nameless(PANICKED))?;
            if cluster.is_none() {
                return Ok(None);
            }
        }
        object
            .encode(cluster.as_deref(), encoder)
            .map(|object| Some(Arc::new(object)))
    }

    /// Calls the projection, without a lock.
    fn project(&self, object: &Arc<Object>) -> Result<Option<T>, NotAnObject> {
        let project = || (self.projection.project)(object);
        std::panic::catch_unwind(AssertUnwindSafe(project)).map_err(|_| panicked(object.key()))
    }

    fn place(&self, object: &Object, projection: Option<T>) -> Result<(), NotAnObject> {
        let key = object.key();
        let place = || {
            let mut state = self.state();
            if state.projections.put(key, object.incarnation(), projection) {
                state.pending.changed(key);
                drop(state);
                self.notify.notify_one();
            }
        };
        // The comparison is the caller's code, too.
        std::panic::catch_unwind(AssertUnwindSafe(place)).map_err(|_| panicked(key))
    }

    /// Counts an object that exists and could not be read, so that a listing does not delete it.
    fn skip(&self, error: &NotAnObject) {
        if let Some(key) = &error.key {
            self.state().projections.saw(key);
        }
        count(&self.skipped);
    }
}

impl<T: Clone> HubTarget<T> {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<T> {
        self.state().projections.get(key).cloned()
    }

    pub(super) fn try_next(&self) -> Option<HubEvent<T>> {
        let mut state = self.state();
        Some(match state.pending.take()? {
            PendingEvent::Changed(key) => match state.projections.get(&key) {
                Some(projection) => HubEvent::Applied(key, projection.clone()),
                None => HubEvent::Deleted(key),
            },
            PendingEvent::Synced => HubEvent::Synced,
            PendingEvent::Failing(problem) => HubEvent::Failing(problem),
        })
    }
}

const PANICKED: &str =
    "the projection of this HubWatch panicked; the panic's message, which is logged before, says where";

fn panicked(key: &ObjectKey) -> NotAnObject {
    let mut error = NotAnObject::nameless(PANICKED);
    error.key = Some(key.clone());
    error
}

impl<T: Send + 'static> WatchTarget for HubTarget<T> {
    fn query(&self) -> &WatchRequest {
        &self.request
    }

    fn stopped(&self) -> &CancellationToken {
        &self.stop
    }

    fn objects(&self) -> usize {
        self.state().projections.len()
    }

    fn held_bytes(&self) -> usize {
        0
    }

    fn begin_listing(&self) {
        self.state().projections.begin_listing();
    }

    fn finish_listing(&self, complete: bool) {
        if complete {
            let mut state = self.state();
            for key in state.projections.finish_listing() {
                state.pending.changed(&key);
            }
        }
        // Wakes the caller, too.
        self.listed();
    }

    // The next listing begins anew.
    fn abort_listing(&self) {}

    fn encode(&self, item: Item<'_>, encoder: &mut Encoder) -> Encoded {
        let encoded = self.encode_object(item, encoder);
        let object = encoded.inspect_err(|error| self.skip(error))?;
        Ok(object.map(|object| PlacedObject { place: None, object }))
    }

    fn put(
        &self,
        PlacedObject { object, .. }: &PlacedObject,
        _initial: bool,
    ) -> Result<(), UnreadableObject> {
        let put = || self.place(object, self.project(object)?);
        Ok(put().inspect_err(|error| self.skip(error))?)
    }

    fn delete(&self, PlacedObject { object, .. }: &PlacedObject) {
        let mut state = self.state();
        if state.projections.delete(object.key(), object.incarnation()) {
            state.pending.changed(object.key());
            drop(state);
            self.notify.notify_one();
        }
    }

    fn driver_status(&self) -> &Observable<WatchStatus> {
        &self.status
    }

    fn status_changed(&self) {
        let status = self.status();
        self.state().pending.status_changed(&status);
        self.notify.notify_one();
    }
}

#[cfg(test)]
mod tests;
