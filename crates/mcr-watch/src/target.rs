//! The objects that a driver keeps equal to those of the API server.

use std::{sync::Arc, time::SystemTime};

use futures::future::BoxFuture;
use mcr_client::internal::Observable;
use mcr_store::{Encoder, Item, NotAnObject, Object, ObjectKey};
use tokio_util::sync::CancellationToken;

use crate::{WatchError, WatchRequest, WatchStatus};

/// The objects of one watch: those of one cluster, or those of all clusters of a scope endpoint.
///
/// Only one driver calls it, one call after the other.
pub trait WatchTarget: Send + Sync + 'static {
    /// The kind and the selectors that are sent to the API server.
    fn query(&self) -> &WatchRequest;

    /// Cancelled when nobody needs the watch any more.
    fn stopped(&self) -> &CancellationToken;

    /// The number of objects.
    fn objects(&self) -> usize;

    /// The memory that the objects take, in bytes. A target that keeps something else instead of objects returns 0.
    fn held_bytes(&self) -> usize;

    /// Starts a listing: every object counts as unseen until it is put in.
    fn begin_listing(&self);

    /// Ends a listing. If it was `complete`, deletes the objects that are still unseen.
    fn finish_listing(&self, complete: bool);

    /// Ends a listing that broke off. Deletes nothing.
    fn abort_listing(&self);

    /// Encodes an object. Returns none if the object does not belong here.
    fn encode(&self, item: Item<'_>, encoder: &mut Encoder)
    -> Result<Option<PlacedObject>, UnreadableObject>;

    /// Puts an object in. `initial`: it comes from a list.
    fn put(&self, object: &PlacedObject, initial: bool) -> Result<(), UnreadableObject>;

    /// Deletes an object, unless the one that is held was created later ([`Incarnation::outlives`](mcr_store::Incarnation::outlives)).
    fn delete(&self, object: &PlacedObject);

    /// The status as the driver changes it.
    fn driver_status(&self) -> &Observable<WatchStatus>;

    /// Tells the subscribers that the status has changed.
    fn status_changed(&self);

    /// The API server has answered. A problem stays, because it may occur again at once.
    fn received(&self) {
        self.driver_status().change_if(|status| {
            status.last_event = Some(SystemTime::now());
            false
        });
    }

    /// The watch works. A problem is over.
    fn recovered(&self) {
        let had_problem = self.driver_status().read(|status| status.problem.is_some());
        if had_problem {
            self.driver_status().change(|status| status.problem = None);
            self.status_changed();
        }
        self.received();
    }

    /// A list has ended.
    fn listed(&self) {
        self.driver_status().change(WatchStatus::listed);
        self.status_changed();
    }

    /// A list or a watch has failed.
    fn failed(&self, error: WatchError) {
        self.driver_status().change(|status| status.failed(error));
        self.status_changed();
    }

    /// Whether the listing that has begun may come from the API server's cache, which can be behind: only if no object can go
    /// back in time.
    fn may_list_from_cache(&self) -> bool {
        self.driver_status().read(|status| status.lists == 0) && self.objects() == 0
    }

    /// The list that [`relist`](Self::relist) asked for has failed. A target that still needs it asks again.
    fn relist_failed(&self) {}

    /// Resolves when the target needs a list during a watch; none if it never does. Cancel safe.
    fn relist(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }
}

/// An object of a list or an event; none if it does not belong to the target.
pub type Encoded = Result<Option<PlacedObject>, UnreadableObject>;

/// An object of a list or an event that can't be read.
#[derive(Debug)]
pub struct UnreadableObject {
    /// The place in a scope that the object belongs to; none outside of scopes, or if the place is not known.
    pub place: Option<Arc<str>>,
    /// The reason, with the key of the object if it could be read.
    pub error: NotAnObject,
}

impl From<NotAnObject> for UnreadableObject {
    fn from(error: NotAnObject) -> Self {
        Self { place: None, error }
    }
}

/// An object of a list or an event, with its place.
pub struct PlacedObject {
    /// The place in a scope that the object belongs to; none outside of scopes.
    pub place: Option<Arc<str>>,
    /// The object.
    pub object: Arc<Object>,
}

/// What tells an object apart from the others of its watch: its place and its key.
pub(crate) type Named = (Option<Arc<str>>, ObjectKey);

impl PlacedObject {
    pub(crate) fn named(&self) -> Named {
        (self.place.clone(), self.object.key().clone())
    }

    /// The resource version, if it is a number; otherwise 0.
    pub(crate) fn version(&self) -> u64 {
        self.object.resource_version().parse().unwrap_or_default()
    }
}
