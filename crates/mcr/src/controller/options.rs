//! The options of the secondary watches of a controller.

use std::fmt;

use mcr_core::WatchRequest;

use crate::{ClusterSelector, Predicate};

/// The options of a secondary watch. By default it watches the clusters of its controller.
///
/// ```
/// use mcr::{ClusterSelector, Predicate, WatchOptions};
///
/// let options = WatchOptions::new()
///     .clusters(ClusterSelector::hub())
///     .request(|watch| watch.namespace("fleet").labels("kind=quota"))
///     .predicate(Predicate::spec_changed())
///     .optional();
/// # let _ = options;
/// ```
#[derive(Default)]
#[must_use]
pub struct WatchOptions {
    pub(crate) clusters: Option<ClusterSelector>,
    pub(crate) predicates: Vec<Predicate>,
    pub(crate) request: Option<Box<dyn FnOnce(WatchRequest) -> WatchRequest + Send>>,
    pub(crate) optional: bool,
}

impl WatchOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Watches these clusters instead of those of the controller.
    pub fn clusters(mut self, clusters: ClusterSelector) -> Self {
        self.clusters = Some(clusters);
        self
    }

    /// Ignores changes that do not pass this predicate. With several predicates, a change must pass all.
    pub fn predicate(mut self, predicate: Predicate) -> Self {
        self.predicates.push(predicate);
        self
    }

    /// Limits the watched objects to a namespace, or by a label or field selector. The change must keep the kind; otherwise
    /// `build` returns [`BuildError::OtherKind`](crate::BuildError::OtherKind).
    pub fn request(mut self, change: impl FnOnce(WatchRequest) -> WatchRequest + Send + 'static) -> Self {
        self.request = Some(Box::new(change));
        self
    }

    /// Leaves this watch out of the sync gate: requests do not wait until it has listed. The reconciler must handle a store
    /// that is empty, and a kind that does not exist in the cluster.
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
}

impl fmt::Debug for WatchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchOptions")
            .field("clusters", &self.clusters)
            .field("predicates", &self.predicates.len())
            .field("optional", &self.optional)
            .finish_non_exhaustive()
    }
}

/// The options of a watch of owned objects.
///
/// ```
/// use mcr::{OwnsOptions, WatchOptions};
///
/// let options = OwnsOptions::new().metadata_only().every_owner().watch(WatchOptions::new().optional());
/// # let _ = options;
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct OwnsOptions {
    pub(crate) watch: WatchOptions,
    pub(crate) every_owner: bool,
    pub(crate) metadata_only: bool,
}

impl OwnsOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds requests for every owner of the primary kind, not only for the owner that controls the object.
    pub fn every_owner(mut self) -> Self {
        self.every_owner = true;
        self
    }

    /// Watches and stores only the metadata, which is enough to find owners. The store is then read as
    /// `PartialObjectMeta<K>`.
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// Sets the options that any secondary watch has.
    pub fn watch(mut self, options: WatchOptions) -> Self {
        self.watch = options;
        self
    }
}
