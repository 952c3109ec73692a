//! The objects of a hub, as a driver keeps them.

use std::{
    borrow::Cow,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use mcr_client::internal::Observable;
use mcr_store::{Encoder, Item, NotAnObject, Object, ObjectKey, ObjectMetadata};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::{
    event::HubEvent,
    pending::{Pending, PendingEvent},
    projections::Projections,
};
use crate::{
    counters::count,
    error::WatchError,
    status::WatchStatus,
    target::{Encoded, LeftOut, PlacedObject, TargetEvent, UnreadableObject, WatchTarget, update_status},
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
    projection: Projection<T>,
    /// Locked together, so that an event and the projection that it brings belong together.
    state: Mutex<State<T>>,
    notify: Notify,
    status: Observable<WatchStatus>,
    skipped: AtomicU64,
}

struct State<T> {
    projections: Projections<T>,
    pending: Pending,
}

impl<T> HubTarget<T> {
    pub(super) fn new(projection: Projection<T>) -> Self {
        Self {
            state: Mutex::new(State {
                projections: Projections::new(projection.same),
                pending: Pending::default(),
            }),
            projection,
            notify: Notify::new(),
            status: Observable::default(),
            skipped: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }

    pub(super) fn len(&self) -> usize {
        self.state().projections.len()
    }

    pub(super) fn status(&self) -> WatchStatus {
        let mut status = self.status.read(WatchStatus::clone);
        status.skipped = self.skipped.load(Ordering::Relaxed);
        status
    }

    pub(super) fn failed(&self, error: WatchError) {
        self.change_status(TargetEvent::Failed(error));
    }

    fn change_status(&self, event: TargetEvent<'_>) {
        if update_status(&self.status, event) {
            let status = self.status();
            self.state().pending.status_changed(&status);
            self.notify.notify_one();
        }
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

    /// Objects that are distinguished by cluster have it as their place.
    fn placed(&self, object: Arc<Object>) -> PlacedObject {
        let cluster = self.projection.cluster.as_ref();
        let place = cluster.and_then(|_| object.key().namespace.clone());
        PlacedObject { place, object }
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

    fn delete(&self, object: &Object) {
        let mut state = self.state();
        if state.projections.delete(object.key(), object.incarnation()) {
            state.pending.changed(object.key());
            drop(state);
            self.notify.notify_one();
        }
    }

    fn finish_listing(&self, complete: bool, left_out: &LeftOut) {
        if !complete {
            return;
        }
        let mut state = self.state();
        let State { projections, pending } = &mut *state;
        projections.keep(|key| key.namespace.as_ref().is_some_and(|of| left_out.contains_key(of)));
        for key in projections.finish_listing() {
            pending.changed(&key);
        }
    }

    /// Counts an object that exists and could not be read, so that a listing does not delete it.
    fn skip(&self, error: &NotAnObject) {
        if let Some(key) = &error.key {
            self.state().projections.mark_listed(key);
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
    fn encode(&self, item: Item<'_>, encoder: &mut Encoder) -> Encoded {
        let encoded = self.encode_object(item, encoder);
        let object = encoded.inspect_err(|error| self.skip(error))?;
        Ok(object.map(|object| self.placed(object)))
    }

    fn apply(&self, event: TargetEvent<'_>) -> Result<(), UnreadableObject> {
        match event {
            TargetEvent::ListBegins => self.state().projections.begin_listing(),
            TargetEvent::Listed { complete, left_out } => self.finish_listing(complete, left_out),
            TargetEvent::Put { object, .. } => {
                let object = &object.object;
                let put = || self.place(object, self.project(object)?);
                put().inspect_err(|error| self.skip(error))?;
            }
            TargetEvent::Deleted(object) => self.delete(&object.object),
            // The next listing begins anew.
            _ => {}
        }
        self.change_status(event);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
