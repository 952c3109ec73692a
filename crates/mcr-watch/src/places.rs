//! How the objects of a scope endpoint are divided among its clusters.

use std::{borrow::Cow, sync::Arc};

use mcr_store::ObjectMetadata;

use crate::request::WatchRequest;

/// Which cluster behind an endpoint an object belongs to. The functions must be quick and do no I/O. Panics are caught: the
/// object then counts as unreadable.
pub trait Places: Send + Sync + 'static {
    /// The place of an object. None if it belongs to no cluster.
    fn place<'o>(&self, object: &ObjectMetadata<'o>) -> Option<Placement<'o>>;

    /// Whether [`localize`](Self::localize) has to be called for the objects of a kind.
    fn localizes(&self, wanted: &WatchRequest) -> bool;

    /// Changes an object from its form at the endpoint to its form in its cluster.
    fn localize(&self, place: &str, object: &mut serde_json::Value);

    /// Whether every object that leaves the endpoint was deleted. Otherwise its cluster may be moving to another endpoint.
    fn deletions_are_certain(&self) -> bool;
}

/// The cluster that an object of a scope belongs to, and the namespace of the object in that cluster.
///
/// ```
/// use mcr_watch::Placement;
///
/// let placement = Placement::new("tenant-a").in_namespace("default");
/// assert_eq!(placement.place(), "tenant-a");
/// assert_eq!(placement.namespace(), Some("default"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement<'o> {
    place: Cow<'o, str>,
    namespace: Option<Arc<str>>,
}

impl<'o> Placement<'o> {
    /// An object of the cluster at `place`. The object keeps its namespace.
    pub fn new(place: impl Into<Cow<'o, str>>) -> Self {
        Self {
            place: place.into(),
            namespace: None,
        }
    }

    /// Gives the object another namespace in its cluster than at the endpoint.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// The place of the cluster.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The namespace of the object in its cluster. `None` if the object keeps its namespace.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}
