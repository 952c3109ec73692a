//! The events of a hub.

use std::sync::Arc;

use mcr_store::{Object, ObjectKey};

use crate::status::WatchProblem;

/// An event of a [`HubWatch`](crate::HubWatch).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum HubEvent<T = Arc<Object>> {
    /// The object was created or changed, or existed at the start. With its projection, or the whole object.
    Applied(ObjectKey, T),
    /// The object was deleted, or its projection became `None`.
    Deleted(ObjectKey),
    /// All objects that existed at the start have been reported. Comes once.
    Synced,
    /// The objects can't be listed or watched at the moment. The watch tries again by itself, and keeps the objects that it
    /// has.
    Failing(WatchProblem),
    /// The objects can be watched again after an outage. Only a watch of a provider on `mcr_core::hub` reports it.
    Recovered,
}
