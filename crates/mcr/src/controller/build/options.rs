//! The options of the secondary watches of a controller.

use std::{fmt, sync::Arc};

use mcr_core::{HUB, WatchRequest};

use crate::{predicate::Predicate, selector::ClusterSelector};

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
    pub(crate) gates_all: Option<bool>,
}

impl WatchOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Watches these clusters instead of those of the controller. With
    /// [`ClusterSelector::hub`], the watch [gates all requests](Self::gates_all).
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
    /// that is empty, and a kind that does not exist in the cluster. An optional watch of the hub gates nothing either, unless
    /// [`gates_all(true)`](Self::gates_all) is set.
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Sets whether all requests of the controller, in whatever cluster, wait until this watch has listed for the first time.
    /// So a reconciler that reads the hub's store never takes "not listed yet" for "not there".
    ///
    /// Without this call, a watch gates all requests if its [selector](Self::clusters) is [`ClusterSelector::hub`] and it is not
    /// [`optional`](Self::optional). `gates_all(true)` does the same for a watch with [`ClusterSelector::name`], and for an
    /// optional watch. `gates_all(false)` lets the requests of other clusters run before the watch has listed; the reconciler
    /// then must handle a store that is not listed.
    ///
    /// The first complete list opens the gate for the rest of the controller's run, also if the cluster leaves, is replaced by
    /// another one, or lists again. Sources and fleet mappers run meanwhile, and the requests that they add wait.
    /// [`ControllerStatus::gated_by`](crate::ControllerStatus::gated_by) has the reason for the wait: the cluster is missing or
    /// not Ready, or it refuses the list. The log has it after 10 seconds, and again when it has changed.
    ///
    /// ```
    /// use mcr::{ClusterSelector, WatchOptions};
    ///
    /// let settings = WatchOptions::new().clusters(ClusterSelector::name("control")).gates_all(true);
    /// let statistics = WatchOptions::new().clusters(ClusterSelector::hub()).gates_all(false);
    /// # let _ = (settings, statistics);
    /// ```
    ///
    /// # Errors
    /// With `true`, `build` returns [`BuildError::GatesAll`](crate::BuildError::GatesAll) if the clusters of the watch are not
    /// selected by one name.
    pub fn gates_all(mut self, gates: bool) -> Self {
        self.gates_all = Some(gates);
        self
    }

    /// The name of the cluster in which this watch gates all requests, if it does. `own` is the selector of the controller.
    /// An error is the selector that does not name one cluster.
    pub(super) fn gating_cluster(&self, own: &ClusterSelector) -> Result<Option<Arc<str>>, ClusterSelector> {
        let selector = self.clusters.as_ref().unwrap_or(own);
        match (self.gates_all, selector.only_name()) {
            (Some(true), None) => Err(selector.clone()),
            (Some(true), name) => Ok(name.cloned()),
            (None, Some(name)) if **name == *HUB && self.clusters.is_some() && !self.optional => {
                Ok(Some(name.clone()))
            }
            _ => Ok(None),
        }
    }
}

impl fmt::Debug for WatchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchOptions")
            .field("clusters", &self.clusters)
            .field("predicates", &self.predicates.len())
            .field("optional", &self.optional)
            .field("gates_all", &self.gates_all)
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
