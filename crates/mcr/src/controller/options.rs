//! Options of the secondary watches of a controller.

use std::fmt;

use mcr_core::WatchRequest;

use crate::{ClusterSelector, Predicate};

/// How a secondary watch differs from the rest of its controller.
///
/// ```
/// use mcr::{ClusterSelector, Predicate, WatchOptions};
///
/// let options = WatchOptions::new()
///     .clusters(ClusterSelector::hub())
///     .request(|watch| watch.namespace("fleet").labels("kind=quota"))
///     .predicate(Predicate::generation_changed())
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
    /// No difference.
    pub fn new() -> Self {
        Self::default()
    }

    /// The clusters to watch, instead of those of the controller.
    pub fn clusters(mut self, clusters: ClusterSelector) -> Self {
        self.clusters = Some(clusters);
        self
    }

    /// Lets only these changes through. Several must all agree.
    pub fn predicate(mut self, predicate: Predicate) -> Self {
        self.predicates.push(predicate);
        self
    }

    /// Says which objects to watch: a namespace, a label or field selector. Must keep the kind.
    pub fn request(mut self, change: impl FnOnce(WatchRequest) -> WatchRequest + Send + 'static) -> Self {
        self.request = Some(Box::new(change));
        self
    }

    /// Requests don't wait for this watch to be listed: the reconciler copes with its store being empty or
    /// its kind not being there.
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

/// How a watch of owned objects differs from the rest of its controller.
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
    /// No difference.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reconciles every owner of the primary kind, not only the one that controls the object.
    pub fn every_owner(mut self) -> Self {
        self.every_owner = true;
        self
    }

    /// Watches and holds only the metadata, which is all that is needed to find owners. The store is then read
    /// as `PartialObjectMeta<K>`.
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// What any watch can differ in.
    pub fn watch(mut self, options: WatchOptions) -> Self {
        self.watch = options;
        self
    }
}
