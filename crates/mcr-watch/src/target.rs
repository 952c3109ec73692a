//! What a driver keeps equal to what the API server has.

use std::{sync::Arc, time::SystemTime};

use mcr_client::internal::Observable;
use mcr_store::{Encoder, Item, NotAnObject, Object};
use tokio_util::sync::CancellationToken;

use crate::{WatchError, WatchRequest, WatchStatus};

/// The objects of one watch, whoever holds them: one cluster, or the many clusters of a scope.
///
/// Called by one driver only, one call after the other.
pub trait WatchTarget: Send + Sync + 'static {
    /// What is sent to the API server.
    fn query(&self) -> &WatchRequest;

    /// Cancelled when nobody wants the watch any more.
    fn stopped(&self) -> &CancellationToken;

    /// How the watch is doing.
    fn status(&self) -> WatchStatus;

    /// How many objects are held.
    fn len(&self) -> usize;

    /// Whether nothing is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is not put in from now on is held as unseen.
    fn begin_listing(&self);

    /// Ends a listing. With `complete` what was not in it is deleted.
    fn finish_listing(&self, complete: bool);

    /// Ends a listing that broke off: nothing is deleted.
    fn abort_listing(&self);

    /// Puts an object in; none if it is not held here.
    fn put(
        &self,
        item: Item<'_>,
        initial: bool,
        encoder: &mut Encoder,
    ) -> Result<Option<Applied>, NotAnObject>;

    /// Takes an object out; none if it was not held here.
    fn delete(&self, item: Item<'_>, encoder: &mut Encoder) -> Result<Option<Applied>, NotAnObject>;

    /// What is known of the watch.
    fn known(&self) -> &Observable<WatchStatus>;

    /// Tells those who follow the watch that what is known of it has changed.
    fn status_changed(&self);

    /// Something came, but it may yet turn out to be the same problem again.
    fn noted(&self) {
        self.known().change_if(|status| {
            status.last_event = Some(SystemTime::now());
            false
        });
    }

    /// Something came that shows that the watch works.
    fn heard(&self) {
        let clears = self.known().read(|status| status.problem.is_some());
        if clears {
            self.known().change(|status| status.problem = None);
            self.status_changed();
        }
        self.noted();
    }

    /// A list has ended.
    fn listed(&self) {
        self.known().change(WatchStatus::listed);
        self.status_changed();
    }

    /// A list or a watch has failed.
    fn failed(&self, error: WatchError) {
        self.known().change(|status| status.failed(error));
        self.status_changed();
    }

    /// Whether the next list may come from the API server's cache, which can be behind. Not if that would go back in
    /// time.
    fn may_read_a_cache(&self) -> bool {
        self.status().lists == 0 && self.len() == 0
    }

    /// The list that was asked for has failed; whoever still needs it asks again.
    fn list_failed(&self) {}

    /// Resolves when everything has to be listed anew, whatever the watch is at; none if nobody ever asks for that.
    /// Cancel safe.
    fn relist(&self) -> Option<futures::future::BoxFuture<'_, ()>> {
        None
    }
}

/// An object that a list or an event brought.
pub struct Applied {
    /// Whose it is, in a scope.
    pub place: Option<Arc<str>>,
    /// The object.
    pub object: Arc<Object>,
}
