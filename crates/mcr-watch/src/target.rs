//! What a driver reports, and where the objects that it keeps equal to those of the API server are.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use futures::future::BoxFuture;
use mcr_client::internal::Observable;
use mcr_store::{Encoder, Item, NotAnObject, Object, ObjectKey};

use crate::{
    error::WatchError,
    status::{WatchProblem, WatchStatus},
};

/// What a driver reports to its target, one event after the other.
pub enum TargetEvent<'a> {
    /// A list begins: every object counts as unseen until it is put in.
    ListBegins,
    /// The list that has begun broke off. It deletes nothing.
    ListFailed,
    /// The list has ended, and its objects are put in.
    Listed {
        /// Whether the objects that are still unseen are deleted.
        complete: bool,
        /// The places that are left out from now on, and no others. The list deletes nothing there.
        left_out: &'a LeftOut,
    },
    /// An object is put in. None of a place that is left out is.
    Put {
        /// The object.
        object: &'a PlacedObject,
        /// Whether it comes from a list.
        initial: bool,
    },
    /// An object is deleted, unless the one that is held was created later
    /// ([`Incarnation::outlives`](mcr_store::Incarnation::outlives)).
    Deleted(&'a PlacedObject),
    /// Between two lists: these places are left out from now on, and no others.
    LeftOut(&'a LeftOut),
    /// The API server has answered. A problem stays, because it may occur again at once.
    Received,
    /// The watch works. A problem is over.
    Recovered,
    /// A list or a watch has failed.
    Failed(WatchError),
}

/// The objects of one watch: those of one cluster, or those of all clusters of a scope endpoint.
///
/// Only one driver calls it, one call after the other.
pub trait WatchTarget: Send + Sync + 'static {
    /// Encodes an object. Returns none if the object does not belong here.
    fn encode(&self, item: Item<'_>, encoder: &mut Encoder) -> Encoded;

    /// Applies an event.
    ///
    /// # Errors
    /// If the object of a [`Put`](TargetEvent::Put) can't be read. Other events have no error.
    fn apply(&self, event: TargetEvent<'_>) -> Result<(), UnreadableObject>;

    /// The memory that the objects of a place take, in bytes; none: those of a target without places. A target that keeps
    /// something else instead of objects returns 0.
    fn held_bytes(&self, place: Option<&str>) -> usize {
        let _ = place;
        0
    }

    /// Whether the list that has begun must not come from the API server's cache, because the cache may be behind the objects
    /// that somebody brings. The driver asks for the first list only: no object may go back in time by a later one.
    fn needs_newest(&self) -> bool {
        false
    }

    /// Resolves when the target needs a list during a watch; none if it never does. Cancel safe.
    fn relist(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }
}

/// Changes the status of a target by an event. Returns whether subscribers have to be called.
pub(crate) fn update_status(status: &Observable<WatchStatus>, event: TargetEvent<'_>) -> bool {
    match event {
        TargetEvent::Listed { .. } => status.change(WatchStatus::listed),
        TargetEvent::Failed(error) => status.change(|status| status.failed(error)),
        TargetEvent::LeftOut(_) => {}
        TargetEvent::Received => {
            return status.change_if(|status| {
                status.last_event = Some(SystemTime::now());
                false
            });
        }
        TargetEvent::Recovered => {
            return status.change_if(|status| {
                status.last_event = Some(SystemTime::now());
                status.problem.take().is_some()
            });
        }
        TargetEvent::ListBegins
        | TargetEvent::ListFailed
        | TargetEvent::Put { .. }
        | TargetEvent::Deleted(_) => return false,
    }
    true
}

/// The places of a scope whose objects take too much memory, with the reasons.
pub(crate) type LeftOut = BTreeMap<Arc<str>, WatchProblem>;

/// An object of a list or an event; none if it does not belong to the target.
pub(crate) type Encoded = Result<Option<PlacedObject>, UnreadableObject>;

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

/// What distinguishes an object from the others of its watch: its place and its key.
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
