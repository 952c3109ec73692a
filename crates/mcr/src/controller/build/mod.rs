//! Builds a controller: collects its settings, checks them, and makes a plan without the Rust types of its objects.

mod options;
mod primary;

pub use self::options::{OwnsOptions, WatchOptions};
pub use self::primary::PrimaryKind;

use std::{error::Error, fmt, marker::PhantomData, sync::Arc, time::Duration};

use futures::FutureExt;
use kube::Resource;
use mcr_core::{BoxError, Cluster, Fleet, FleetEvent, HUB, WatchRequest};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::{
    built::BuiltController,
    engine::{
        Core,
        enqueue::{ClusterEnqueue, Enqueue},
        plan::{Plan, Settings, WatchPlan},
    },
    follow::source::Sources,
};
use crate::{
    action::Action,
    error::BuildError,
    mapper::{self, IntoTargets, OwnerKind, Watched},
    predicate::Predicate,
    queue::{Backoff, FairQueue, QueueConfig},
    reconciler::{MultiCluster, OnError, Reconciler, RunReconcile},
    request::RequestKey,
    selector::ClusterSelector,
};

/// Builds a controller: sets the kinds and clusters to watch, and how requests are dispatched.
///
/// `K` is the primary kind, whose objects the controller reconciles. Without a primary kind, `K` is `()`. All clusters
/// share one fair queue: a busy cluster does not keep the others waiting.
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
/// A request is dispatched once all watches in its cluster have listed, except the [optional](WatchOptions::optional) ones.
/// If a kind can't be listed in a cluster, the requests of that cluster wait, and
/// [`ControllerStatus`](crate::ControllerStatus) shows the reason. Other clusters go on.
///
/// A watch of the hub ([`ClusterSelector::hub`]) gates the requests for all clusters: the controller dispatches none of
/// them before this watch has listed the hub once. [`WatchOptions::gates_all`] describes the exceptions, and how to
/// change this.
///
/// # What can't be written
/// A controller has at most one primary kind, and only objects of a primary kind own others:
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
/// This compiles:
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use mcr::{BoxError, Controller, Request};
/// # use std::sync::Arc;
/// async fn of_maps(_: Request<ConfigMap>, _: Arc<()>) -> Result<(), BoxError> { Ok(()) }
/// let controller = Controller::<ConfigMap>::new("x").owns::<Secret>().build(of_maps, Arc::new(()));
/// ```
///
/// # Deletions
/// After an object is deleted, its requests have [`RequestObject::Deleted`](crate::RequestObject::Deleted).
///
/// With a label or field selector in [`watch_request`](Self::watch_request), requests have
/// [`LeftWatch`](crate::RequestObject::LeftWatch) both after a deletion and when the object no longer matches. To find
/// out which of the two happened, call [`Request::confirm_deleted`](crate::Request::confirm_deleted), which asks the
/// API server.
///
/// The controller does not report deletions that happen while the program does not run, or while it is a
/// [standby](crate::ManagerBuilder::leader_election). If a cluster leaves, its objects do not count as deleted.
#[must_use = "a controller does nothing until it is built and run"]
pub struct Controller<K> {
    settings: Settings,
    primary: Option<Primary>,
    watches: Vec<Secondary>,
    event_filter: Vec<Predicate>,
    sources: Sources,
    queue: QueueConfig,
    on_error: Option<OnError>,
    _kind: PhantomData<fn() -> K>,
}

struct Primary {
    kind: WatchRequest,
    request: WatchRequest,
    owner: OwnerKind,
    predicates: Vec<Predicate>,
}

struct Secondary {
    kind: WatchRequest,
    options: WatchOptions,
    /// `None`: maps an object to its owners of the primary kind.
    map: Option<mapper::MapChange>,
    every_owner: bool,
}

impl<K> Controller<K> {
    fn with_primary(name: impl Into<Arc<str>>, primary: Option<Primary>) -> Self {
        Self {
            settings: Settings {
                name: name.into(),
                clusters: ClusterSelector::default(),
                leader_only: true,
                fleet_maps: Vec::new(),
                on_deselected: None,
                timeout: None,
                release_jitter: Duration::from_secs(1),
                shutdown_grace: Duration::from_secs(30),
                weigh: None,
            },
            primary,
            watches: Vec::new(),
            event_filter: Vec::new(),
            sources: Sources::default(),
            queue: QueueConfig::default()
                .concurrency(256)
                .cluster_concurrency(8)
                .start_gated(true),
            on_error: None,
            _kind: PhantomData,
        }
    }

    /// Selects the clusters to work on. Default: all but the one named `hub`.
    ///
    /// Watches use the same selector unless their options have another. The selector is evaluated again when the labels, properties
    /// or the state of a cluster change, or the outcome of a [check](mcr_core::ReadyCheck). What the controller wrote in a cluster that is no longer selected stays, unless
    /// [`on_deselected`](Self::on_deselected) removes it.
    ///
    /// If the selector selects none of the fleet's clusters for 10 seconds, the controller logs one warning. It logs another one
    /// only if the selector has selected a cluster since.
    pub fn clusters(mut self, clusters: ClusterSelector) -> Self {
        self.settings.clusters = clusters;
        self
    }

    /// Ignores each change that does not pass this predicate, in all watches. The filter applies before the predicates
    /// of a watch. It does not apply to sources and fleet events. With several filters, a change must pass all of them.
    pub fn event_filter(mut self, predicate: Predicate) -> Self {
        self.event_filter.push(predicate);
        self
    }

    /// Watches another kind. `map` returns the keys to reconcile when an object changes: in the same cluster
    /// ([`ObjectKey`](mcr_core::ObjectKey)), or in any cluster ([`RequestKey`]). [`Watched`] has the object, its cluster and
    /// the fleet.
    ///
    /// To watch only the metadata, use `PartialObjectMeta<W>`.
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
        I: IntoTargets,
    {
        self.watches_with(&(), map, WatchOptions::new())
    }

    /// As [`watches`](Self::watches), with options, and for kinds that are known at run time.
    pub fn watches_with<W, I>(
        mut self,
        dynamic: &W::DynamicType,
        map: impl Fn(Watched<W>) -> I + Send + Sync + 'static,
        options: WatchOptions,
    ) -> Self
    where
        W: Resource + DeserializeOwned + 'static,
        I: IntoTargets,
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

    /// Maps fleet events (clusters that join, leave or change) to requests in any cluster.
    ///
    /// The controller keeps a request for a cluster that has not joined yet until the cluster joins.
    ///
    /// A cluster may join while the watch of the hub has not listed yet. A mapper that reads the store of the hub may fail then:
    /// [`try_watches_fleet`](Self::try_watches_fleet).
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
        self.settings.fleet_maps.push(Arc::new(move |event, fleet| {
            Ok(map(event, fleet).into_iter().collect())
        }));
        self
    }

    /// As [`watches_fleet`](Self::watches_fleet), with a mapper that may fail, for example since the hub has not listed yet. It is
    /// then asked again about this event, after pauses that grow from 250 ms to 30 s, until it succeeds. An `Updated` or a
    /// `Disengaged` replaces an earlier one of the cluster; after a `Disengaged`, the mapper is not asked about what was before. So a
    /// mapper for clusters that join has to match `Updated` too. After a panic the mapper is not asked again.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Secret;
    /// # use mcr::{BoxError, Controller, Fleet, FleetEvent, HUB, RequestKey};
    /// /// A cluster that joins gets all Secrets of the hub.
    /// fn of_joined(event: &FleetEvent, fleet: &Fleet) -> Result<Vec<RequestKey>, BoxError> {
    ///     let (FleetEvent::Engaged(cluster) | FleetEvent::Updated(cluster)) = event else { return Ok(Vec::new()) };
    ///     let secrets = fleet.get(HUB)?.store::<Secret>()?.keys()?;
    ///     Ok(secrets.into_iter().map(|key| RequestKey::new(cluster.name().clone(), key)).collect())
    /// }
    /// let controller = Controller::<Secret>::new("copies").try_watches_fleet(of_joined);
    /// # let _ = controller;
    /// ```
    pub fn try_watches_fleet<I, E>(
        mut self,
        map: impl Fn(&FleetEvent, &Fleet) -> Result<I, E> + Send + Sync + 'static,
    ) -> Self
    where
        I: IntoIterator<Item = RequestKey>,
        E: Into<BoxError>,
    {
        self.settings.fleet_maps.push(Arc::new(move |event, fleet| {
            let keys = map(event, fleet).map_err(Into::into)?;
            Ok(keys.into_iter().collect())
        }));
        self
    }

    /// Cleans up in clusters that the [selector](Self::clusters) does not select, such as one that has lost a label. Without this,
    /// what the controller wrote there stays: its reconciler gets no more requests of that cluster.
    ///
    /// `clean_up` is called once for each cluster that is not selected, also after each start of the program, because a cluster may
    /// have ceased to be selected while the program did not run, and in each term as leader, because another replica may have worked
    /// there. So it must find what it deletes, best by a label that only objects of
    /// the controller carry. Two deployments of one program with different selectors need different labels, since each of them cleans
    /// up where the other works. A 404 of the kind is success: the cluster does not serve it.
    ///
    /// It is called only while all of this is certain, and waits otherwise:
    /// - The cluster has been Ready and not selected for 10 seconds, and for a second more than the
    ///   [grace period](mcr_core::FleetSettings::drain_grace) of its reconciles. None of them runs any more.
    /// - Its name, provider, labels or properties are the reason: those of the provider that came first, if two announce the name.
    ///   A [check](ClusterSelector::ready), a [function](ClusterSelector::matching) and a property that is missing are no reasons. It is
    ///   not the hub.
    /// - The selector has not failed: if the fleet has two clusters or more beside the hub, one of them is selected. And while two or
    ///   more have ceased to be selected and their clean-up has not begun, they are not more than those that are still selected.
    ///   Otherwise the log has one warning. If so many are meant to be cleaned up, restart the program.
    /// - No other name of the cluster may be selected, and the hub is Ready if the fleet has one, because it may be another name. All
    ///   providers have announced their clusters once, because one may have another name. Where
    ///   the UID of `kube-system` can't be read, and as long as one name has not answered since the start, two names are two clusters:
    ///   give them the same labels.
    /// - The [gating watches](WatchOptions::gates_all) have listed.
    ///
    /// How it is called:
    /// - It begins in 16 clusters at once, and in 16 at once where it failed the last time; one that takes more than a second does not
    ///   keep others waiting. With leader election it runs only while this process leads, with [`leader_only(false)`](Self::leader_only)
    ///   in each replica.
    /// - It has the [time limit](Self::timeout) of the controller, or else 60 s. After an error, a panic or the end of its time it is
    ///   called again, after pauses that grow from 1 s to 5 minutes. The log has the first failure in a cluster, and then one an hour.
    ///   [`ControllerStatus::pending_clean_ups`](crate::ControllerStatus::pending_clean_ups) counts the clusters where it has not
    ///   succeeded.
    /// - It is dropped at its next await when the cluster leaves or is selected again, and when the controller stops. The cluster is
    ///   reconciled again once it has been dropped.
    ///
    /// With this, a watch with [clusters of its own](WatchOptions::clusters) leads to no requests for a cluster that is not selected,
    /// unless it is the hub. A reconcile of another cluster that writes there must do without.
    ///
    /// # Errors
    /// [`build`](Self::build) returns [`BuildError::CleansUpAllButHub`] if the selector is [`ClusterSelector::hub`].
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kube::api::ListParams;
    /// # use mcr::{ClusterSelector, Controller};
    /// let controller = Controller::<ConfigMap>::new("copies")
    ///     .clusters(ClusterSelector::label("env", "prod"))
    ///     .on_deselected(|cluster, _fleet| async move {
    ///         let (copies, ours) = (cluster.namespaced::<ConfigMap>("copies"), ListParams::default().labels("example.io/copy"));
    ///         copies.delete_collection(&Default::default(), &ours).await?;
    ///         Ok(())
    ///     });
    /// # let _ = controller;
    /// ```
    pub fn on_deselected<Fut>(
        mut self,
        clean_up: impl Fn(Cluster, Fleet) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.settings.on_deselected = Some(Arc::new(move |cluster, fleet| clean_up(cluster, fleet).boxed()));
        self
    }

    /// Adds a source of requests: a task that adds requests in any cluster while the controller runs.
    ///
    /// The task must end soon after its token is cancelled. After an error or a panic, it is started again after a pause of 1
    /// second, which doubles each time up to 60 seconds. After `Ok`, it is not started again.
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
            .global
            .push(Arc::new(move |enqueue, stop| source(enqueue, stop).boxed()));
        self
    }

    /// Adds a source of requests that runs once for each cluster of the controller, while the cluster is in the controller.
    ///
    /// When the cluster leaves, the token of the source is cancelled. A source that has not ended after the grace period is
    /// aborted. Errors and panics are handled as for [`source`](Self::source).
    pub fn cluster_source<Fut>(
        mut self,
        source: impl Fn(Cluster, ClusterEnqueue, CancellationToken) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.sources.cluster.push(Arc::new(move |cluster, enqueue, stop| {
            source(cluster, enqueue, stop).boxed()
        }));
        self
    }

    /// Limits how many reconciles run at once in all clusters. Default 256: a waiting reconcile costs little, and reconciles
    /// that wait for unreachable clusters must not use up the limit.
    pub fn concurrency(mut self, limit: usize) -> Self {
        self.queue = self.queue.concurrency(limit);
        self
    }

    /// Limits how many reconciles run at once in one cluster. Default 8.
    pub fn cluster_concurrency(mut self, limit: usize) -> Self {
        self.queue = self.queue.cluster_concurrency(limit);
        self
    }

    /// Delays the reconcile of an object until it has had no change for this time, but at most for ten times this time.
    /// Default: no delay.
    pub fn debounce(mut self, quiet: Duration) -> Self {
        self.queue = self.queue.debounce(quiet);
        self
    }

    /// Sets the delays after failures of one object. Default: 5 ms, doubled each time up to 1000 s.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.queue = self.queue.backoff(backoff);
        self
    }

    /// Sets the error policy, which decides what follows an error of the reconciler that [`build`](Self::build) gets.
    ///
    /// The policy gets the error, and how many reconciles of the request failed in a row, this one included. It returns an
    /// [`Action`], or `None` for the [back-off](Self::backoff) of the controller:
    /// - [`Action::requeue`]: the request is retried after this time. The failure counts in the back-off.
    /// - [`Action::done`]: the request is not retried until its object changes. The next failure is the first again.
    ///
    /// The controller does not ask the policy in these cases:
    /// - The error is a [`TerminalError`](crate::TerminalError): the controller never retries the request.
    /// - The error is a [`ClusterNotFound`](mcr_core::ClusterNotFound) for the cluster of the request: the controller
    ///   drops the request.
    /// - The reconcile panics or exceeds its time limit: the controller retries the request after the back-off.
    ///
    /// If the policy panics, the reconcile counts as panicked.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use mcr::{Action, Controller};
    /// # use std::time::Duration;
    /// let controller = Controller::<ConfigMap>::new("copier").on_error(|error, attempt| {
    ///     match error.downcast_ref::<kube::Error>() {
    ///         Some(kube::Error::Api(status)) if status.is_forbidden() => Some(Action::requeue(Duration::from_secs(60))),
    ///         Some(_) if attempt > 10 => Some(Action::done()), // until the object changes
    ///         _ => None, // the back-off of the controller
    ///     }
    /// });
    /// # let _ = controller;
    /// ```
    pub fn on_error<A>(
        mut self,
        policy: impl Fn(&(dyn Error + 'static), u32) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Into<Option<Action>>,
    {
        self.on_error = Some(Arc::new(move |error, attempt| policy(error, attempt).into()));
        self
    }

    /// Limits the time of one reconcile. The controller drops a reconcile that takes longer at its next await, and
    /// counts it as failed. Default: no limit. (The requests that a reconcile sends to clusters have their own time
    /// limits.)
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.settings.timeout = Some(limit);
        self
    }

    /// Sets the share of each cluster in the dispatches, relative to the others. Default: 1 for all; 0 counts as 1.
    ///
    /// Weights matter when several clusters have ready requests. A cluster at its limit of
    /// [`cluster_concurrency`](Self::cluster_concurrency) is skipped, so its weight has no effect until one of its reconciles
    /// ends. A cluster with a large weight can run more reconciles at once than others only below that limit.
    pub fn weight_by(mut self, weight: impl Fn(&Cluster) -> u32 + Send + Sync + 'static) -> Self {
        self.settings.weigh = Some(Arc::new(weight));
        self
    }

    /// Sets the longest delay of requests after their cluster is reachable again. The delay is random, so that clusters that
    /// become reachable together do not start together. Default 1 second.
    pub fn release_jitter(mut self, most: Duration) -> Self {
        self.settings.release_jitter = most;
        self
    }

    /// Sets whether the controller reconciles only while this process leads, in a manager with
    /// [leader election](crate::ManagerBuilder::leader_election). Default `true`. With `false`, it reconciles in every replica.
    pub fn leader_only(mut self, leader_only: bool) -> Self {
        self.settings.leader_only = leader_only;
        self
    }

    /// Limits the time that running reconciles get to end when the controller stops. Default 30 seconds.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.settings.shutdown_grace = grace;
        self
    }
}

impl<K> Controller<K>
where
    K: DeserializeOwned + Send + Sync + 'static,
{
    /// Finishes the controller with a multi-cluster [`Reconciler`].
    ///
    /// Give the result to a [`Manager`](crate::Manager), or [run](BuiltController::run) it yourself.
    ///
    /// # Errors
    /// [`BuildError`] if nothing could ever trigger the controller, or if a setting makes no sense.
    pub fn build<Ctx>(
        mut self,
        // If a user passes kube's arguments here, the error of rustc shows the next line. It shows no hint of an
        // attribute.
        reconciler: impl Reconciler<K, Ctx>, // kube's `async fn(Arc<K>, Arc<Ctx>)` goes to `build_uniform`
        ctx: Arc<Ctx>,
    ) -> Result<BuiltController, BuildError>
    where
        Ctx: Send + Sync + 'static,
    {
        let on_error = self.on_error.take();
        self.finish(Arc::new(MultiCluster {
            reconciler,
            ctx,
            on_error,
            kind: PhantomData::<fn() -> K>,
        }))
    }
}

impl<K> Controller<K> {
    fn finish(self, reconciler: Arc<dyn RunReconcile>) -> Result<BuiltController, BuildError> {
        let settings = self.settings;
        let name = settings.name.clone();
        if name.is_empty() {
            return Err(BuildError::EmptyName);
        }
        // `build` has moved its policy into the reconciler. So this one comes with `build_uniform`, which has a policy
        // already.
        if self.on_error.is_some() {
            return Err(BuildError::TwoErrorPolicies { controller: name });
        }
        let has_no_trigger = self.primary.is_none()
            && self.watches.is_empty()
            && settings.fleet_maps.is_empty()
            && self.sources.is_empty();
        if has_no_trigger {
            return Err(BuildError::NoWatches { controller: name });
        }
        let only = settings.clusters.only_name();
        if settings.on_deselected.is_some() && only.is_some_and(|name| **name == *HUB) {
            return Err(BuildError::CleansUpAllButHub { controller: name });
        }
        for (setting, zero) in [
            ("concurrency", self.queue.concurrency == Some(0)),
            ("cluster_concurrency", self.queue.cluster_concurrency == Some(0)),
            ("timeout", settings.timeout == Some(Duration::ZERO)),
        ] {
            if zero {
                return Err(BuildError::Zero {
                    controller: name,
                    setting,
                });
            }
        }
        let check = |kind: &WatchRequest, request: WatchRequest| {
            if kind.resource_name() == request.resource_name() {
                Ok(request)
            } else {
                let (kind, other) = (kind.to_string(), request.to_string());
                Err(BuildError::OtherKind {
                    controller: name.clone(),
                    kind,
                    other,
                })
            }
        };
        let mut watches = Vec::new();
        let owner = self.primary.as_ref().map(|primary| primary.owner.clone());
        let has_primary = self.primary.is_some();
        let with_filter = |own: Vec<Predicate>| self.event_filter.iter().cloned().chain(own).collect();
        if let Some(primary) = self.primary {
            watches.push(WatchPlan {
                request: check(&primary.kind, primary.request)?,
                clusters: None,
                predicates: with_filter(primary.predicates),
                optional: false,
                gates_all: None,
                map: None,
            });
        }
        for watch in self.watches {
            let map = match (watch.map, &owner) {
                (Some(map), _) => map,
                (None, Some(owner)) => mapper::owners(owner.clone(), watch.every_owner),
                // `owns` exists only where there is a primary kind.
                (None, None) => continue,
            };
            let options = watch.options;
            let gates_all =
                options
                    .gating_cluster(&settings.clusters)
                    .map_err(|selector| BuildError::GatesAll {
                        controller: name.clone(),
                        watch: watch.kind.to_string(),
                        selector: selector.to_string(),
                    })?;
            let request = match options.request {
                Some(change) => change(watch.kind.clone()),
                None => watch.kind.clone(),
            };
            watches.push(WatchPlan {
                request: check(&watch.kind, request)?,
                clusters: options.clusters,
                predicates: with_filter(options.predicates),
                optional: options.optional,
                gates_all,
                map: Some(map),
            });
        }
        let plan = Plan {
            settings,
            watches,
            has_primary,
            reconciler,
        };
        let core = Core::new(plan, FairQueue::new(self.queue));
        Ok(BuiltController::new(core, self.sources))
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
            .field("name", &self.settings.name)
            .field("clusters", &self.settings.clusters)
            .field("watches", &watches)
            .finish_non_exhaustive()
    }
}
