//! Puts a controller together.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use futures::FutureExt;
use kube::Resource;
use mcr_core::{BoxError, Cluster, Fleet, FleetEvent, WatchRequest};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::{
    BuiltController, ClusterEnqueue, Enqueue, WatchOptions,
    plan::{MapFleet, RunClusterSource, RunSource, Weigh},
};
use crate::{
    BuildError, ClusterSelector, Predicate, Reconciler, RequestKey,
    mapper::{self, OwnerKind, Watched},
    queue::{Backoff, QueueConfig},
    reconciler::Aware,
    request::Target,
};

/// Puts a controller together: what it watches, in which clusters, and how it works.
///
/// `K` is its primary kind, the one whose objects are reconciled; `()` for a controller without one. All clusters
/// share one fair queue: however much happens in one, the others get their turn.
///
/// ```
/// use std::{sync::Arc, time::Duration};
///
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use mcr::{Action, ClusterSelector, Controller, Request, Watched};
///
/// async fn reconcile(request: Request<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
///     println!("{} of {}", request.name(), request.cluster.name());
///     Ok(Action::requeue(Duration::from_secs(600)))
/// }
///
/// let controller = Controller::<ConfigMap>::new("copier")
///     .clusters(ClusterSelector::label("env", "prod"))
///     .watch_request(|watch| watch.labels("copy=yes"))
///     .owns::<Secret>()
///     .timeout(Duration::from_secs(60))
///     .build(reconcile, Arc::new(()))?;
/// assert_eq!(controller.name(), "copier");
/// # Ok::<(), mcr::BuildError>(())
/// ```
///
/// # Watches
/// A request is dispatched once all watches of its cluster have been listed (those that are
/// [optional](WatchOptions::optional) don't count). A kind that can't be listed in a cluster keeps the requests
/// of that cluster back and shows in [`ControllerStatus`](super::ControllerStatus); other clusters go on.
///
/// # What can't be written
/// There is one primary kind at most, and only a primary kind owns anything:
///
/// ```compile_fail
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use mcr::Controller;
/// let two_primaries = Controller::<(ConfigMap, Secret)>::new("x");
/// ```
/// ```compile_fail
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use mcr::Controller;
/// let a_second_primary = Controller::<ConfigMap>::new("x").new::<Secret>("y");
/// ```
/// ```compile_fail
/// # use k8s_openapi::api::core::v1::Secret;
/// # use mcr::Controller;
/// let owns_without_primary = Controller::named("x").owns::<Secret>();
/// ```
/// ```compile_fail
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use mcr::{BoxError, Controller, Request};
/// # use std::sync::Arc;
/// async fn of_secrets(_: Request<Secret>, _: Arc<()>) -> Result<(), BoxError> { Ok(()) }
/// let reconciler_of_another_kind = Controller::<ConfigMap>::new("x").build(of_secrets, Arc::new(()));
/// ```
/// The same, as it should be:
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use mcr::{BoxError, Controller, Request};
/// # use std::sync::Arc;
/// async fn of_maps(_: Request<ConfigMap>, _: Arc<()>) -> Result<(), BoxError> { Ok(()) }
/// let controller = Controller::<ConfigMap>::new("x").owns::<Secret>().build(of_maps, Arc::new(()));
/// ```
///
/// # Deletions
/// That an object was deleted is told as [`RequestObject::Deleted`](crate::RequestObject::Deleted), while the
/// program runs. A cluster that leaves is not a deletion of its objects.
#[must_use = "a controller does nothing until it is built and run"]
pub struct Controller<K> {
    pub(super) name: Arc<str>,
    pub(super) clusters: ClusterSelector,
    pub(super) primary: Option<Primary>,
    pub(super) watches: Vec<Secondary>,
    pub(super) event_filter: Vec<Predicate>,
    pub(super) fleet_maps: Vec<MapFleet>,
    pub(super) sources: Vec<RunSource>,
    pub(super) cluster_sources: Vec<RunClusterSource>,
    pub(super) queue: QueueConfig,
    pub(super) timeout: Option<Duration>,
    pub(super) release_jitter: Duration,
    pub(super) shutdown_grace: Duration,
    pub(super) weigh: Option<Weigh>,
    _kind: PhantomData<fn() -> K>,
}

pub(super) struct Primary {
    pub(super) kind: WatchRequest,
    pub(super) request: WatchRequest,
    pub(super) owner: OwnerKind,
    pub(super) predicates: Vec<Predicate>,
}

pub(super) struct Secondary {
    pub(super) kind: WatchRequest,
    pub(super) options: WatchOptions,
    /// None: whoever owns the object.
    pub(super) map: Option<mapper::MapChange>,
    pub(super) every_owner: bool,
}

impl<K> Controller<K> {
    pub(super) fn with_primary(name: impl Into<Arc<str>>, primary: Option<Primary>) -> Self {
        Self {
            name: name.into(),
            clusters: ClusterSelector::default(),
            primary,
            watches: Vec::new(),
            event_filter: Vec::new(),
            fleet_maps: Vec::new(),
            sources: Vec::new(),
            cluster_sources: Vec::new(),
            queue: QueueConfig::default()
                .concurrency(256)
                .cluster_concurrency(8)
                .start_gated(true),
            timeout: None,
            release_jitter: Duration::from_secs(1),
            shutdown_grace: Duration::from_secs(30),
            weigh: None,
            _kind: PhantomData,
        }
    }

    /// Chooses the clusters to work on. Default: all but the one named `hub`.
    ///
    /// Watches follow it unless their options say otherwise. It is asked again when a cluster's labels change.
    pub fn clusters(mut self, clusters: ClusterSelector) -> Self {
        self.clusters = clusters;
        self
    }

    /// Lets only these changes of any watch through, before the watch's own predicates. Raw sources and fleet
    /// events are not concerned. Several filters must all agree.
    pub fn event_filter(mut self, predicate: Predicate) -> Self {
        self.event_filter.push(predicate);
        self
    }

    /// Watches another kind; `map` says whom an object concerns: keys of the same cluster
    /// ([`ObjectKey`](mcr_core::ObjectKey)), or of any ([`RequestKey`]).
    ///
    /// For only the metadata, watch `PartialObjectMeta<W>`.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Node};
    /// # use mcr::{Controller, ObjectKey, Watched};
    /// let controller = Controller::<ConfigMap>::new("labels")
    ///     .watches(|node: Watched<Node>| node.object.metadata.name.clone().map(|name| ObjectKey::namespaced("nodes", name)));
    /// # let _ = controller;
    /// ```
    pub fn watches<W, I>(self, map: impl Fn(Watched<W>) -> I + Send + Sync + 'static) -> Self
    where
        W: Resource<DynamicType = ()> + DeserializeOwned + 'static,
        I: IntoIterator<Item: Into<Target>>,
    {
        self.watches_with(&(), map, WatchOptions::new())
    }

    /// As [`watches`](Self::watches), with options, and for kinds known at run time.
    pub fn watches_with<W, I>(
        mut self,
        dynamic: &W::DynamicType,
        map: impl Fn(Watched<W>) -> I + Send + Sync + 'static,
        options: WatchOptions,
    ) -> Self
    where
        W: Resource + DeserializeOwned + 'static,
        I: IntoIterator<Item: Into<Target>>,
    {
        let (kind, map) = (WatchRequest::with::<W>(dynamic), Some(mapper::typed(map)));
        self.watches.push(Secondary {
            kind,
            options,
            map,
            every_owner: false,
        });
        self
    }

    /// Turns joins, leaves and changes of clusters into requests, in any cluster.
    ///
    /// Requests for a cluster that has not joined yet are kept for it.
    ///
    /// ```
    /// # use mcr::{Controller, FleetEvent, ObjectKey, RequestKey};
    /// let controller = Controller::named("inventory").watches_fleet(|event, _fleet| match event {
    ///     FleetEvent::Engaged(cluster) => vec![RequestKey::new(cluster.name().clone(), ObjectKey::cluster_scoped("self"))],
    ///     _ => vec![],
    /// });
    /// # let _ = controller;
    /// ```
    pub fn watches_fleet<I>(mut self, map: impl Fn(&FleetEvent, &Fleet) -> I + Send + Sync + 'static) -> Self
    where
        I: IntoIterator<Item = RequestKey>,
    {
        self.fleet_maps.push(Arc::new(move |event, fleet| {
            map(event, fleet).into_iter().collect()
        }));
        self
    }

    /// Adds a source of requests of one's own: a task that asks for requests in any cluster, for as long as the
    /// controller runs. It must end soon after its token is cancelled. One that fails or panics is started again
    /// after a pause; one that returns `Ok` has ended.
    ///
    /// ```
    /// # use mcr::{Controller, ClusterName, Enqueue, ObjectKey, RequestKey};
    /// # use tokio_util::sync::CancellationToken;
    /// # let (_send, receive) = tokio::sync::watch::channel(0);
    /// let controller = Controller::named("webhooks").source(move |enqueue: Enqueue, stop: CancellationToken| {
    ///     let mut receive = receive.clone();
    ///     async move {
    ///         let cluster = ClusterName::new("prod")?;
    ///         while let Some(Ok(())) = stop.run_until_cancelled(receive.changed()).await {
    ///             enqueue.add(RequestKey::new(cluster.clone(), ObjectKey::cluster_scoped("all")));
    ///         }
    ///         Ok(())
    ///     }
    /// });
    /// # let _ = controller;
    /// ```
    pub fn source<Fut>(
        mut self,
        source: impl Fn(Enqueue, CancellationToken) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.sources
            .push(Arc::new(move |enqueue, stop| source(enqueue, stop).boxed()));
        self
    }

    /// Adds a source of requests that runs once in each cluster of the controller, from its joining to its
    /// leaving.
    ///
    /// Its token is cancelled when the cluster leaves; after the grace period it is aborted.
    pub fn cluster_source<Fut>(
        mut self,
        source: impl Fn(Cluster, ClusterEnqueue, CancellationToken) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.cluster_sources.push(Arc::new(move |cluster, enqueue, stop| {
            source(cluster, enqueue, stop).boxed()
        }));
        self
    }

    /// How many reconciles run at once in all clusters. Default 256: a reconcile that waits costs little, and
    /// those of clusters that just died must not keep the others from running.
    pub fn concurrency(mut self, limit: usize) -> Self {
        self.queue = self.queue.concurrency(limit);
        self
    }

    /// How many reconciles run at once in one cluster. Default 8.
    pub fn cluster_concurrency(mut self, limit: usize) -> Self {
        self.queue = self.queue.cluster_concurrency(limit);
        self
    }

    /// Waits until an object has been quiet for this long before it is reconciled, but not longer than ten times
    /// this. Default: no wait.
    pub fn debounce(mut self, quiet: Duration) -> Self {
        self.queue = self.queue.debounce(quiet);
        self
    }

    /// The pauses after failures of one object. Default: 5 ms, doubling up to 1000 s.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.queue = self.queue.backoff(backoff);
        self
    }

    /// How long one reconcile may take; after that it is dropped at its next await and counts as failed.
    /// Default: as long as it likes. (Requests of a cluster's client have deadlines of their own.)
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// The share of each cluster in the dispatches, relative to the others. Default: 1 for all; 0 counts as 1.
    ///
    /// Weights decide whose turn it is when several clusters could be served. A cluster that has as many reconciles
    /// running as [`cluster_concurrency`](Self::cluster_concurrency) allows takes no turn, so its weight has no effect
    /// until one of them ends: a weight that is to give a cluster more at once needs a limit that leaves room for it.
    pub fn weight_by(mut self, weight: impl Fn(&Cluster) -> u32 + Send + Sync + 'static) -> Self {
        self.weigh = Some(Arc::new(weight));
        self
    }

    /// The requests of a cluster that can be reached again are released after a random part of this, so that
    /// clusters that come back together don't start together. Default 1 second.
    pub fn release_jitter(mut self, most: Duration) -> Self {
        self.release_jitter = most;
        self
    }

    /// How long running reconciles may take to end when the controller stops. Default 30 seconds.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.shutdown_grace = grace;
        self
    }
}

impl<K> Controller<K>
where
    K: DeserializeOwned + Send + Sync + 'static,
{
    /// Finishes the controller with a multi-cluster aware [`Reconciler`].
    ///
    /// The result is handed to a [`Manager`](crate::Manager), or [run](BuiltController::run) by itself.
    ///
    /// # Errors
    /// [`BuildError`] if the controller would never do anything, or a setting makes no sense.
    pub fn build<Ctx>(
        self,
        reconciler: impl Reconciler<K, Ctx>,
        ctx: Arc<Ctx>,
    ) -> Result<BuiltController, BuildError>
    where
        Ctx: Send + Sync + 'static,
    {
        self.finish(Arc::new(Aware::<K, _, Ctx>::new(reconciler, ctx)))
    }
}

impl<K> fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watches: Vec<String> = self
            .primary
            .iter()
            .map(|primary| primary.request.to_string())
            .chain(self.watches.iter().map(|watch| watch.kind.to_string()))
            .collect();
        f.debug_struct("Controller")
            .field("name", &self.name)
            .field("clusters", &self.clusters)
            .field("watches", &watches)
            .finish_non_exhaustive()
    }
}
