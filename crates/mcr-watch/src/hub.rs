//! A watch on its own, for objects that describe clusters.

mod event;
mod pending;
mod projections;
mod target;

use std::{borrow::Cow, sync::Arc};

use kube::Client;
use mcr_access::{AccessPolicy, ClusterName};
use mcr_client::{Dialer, Settings, Transport, internal::Sender};
use mcr_store::{Object, ObjectKey, ObjectMetadata, TemplateRegistry};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::event::HubEvent;
use self::target::{HubTarget, Projection};
use crate::{
    budget::ListBudget,
    driver::{DriverEnv, drive},
    health::Health,
    request::WatchRequest,
    settings::WatchSettings,
    status::WatchStatus,
};

/// Watches objects of one kind in a hub, for providers that find clusters in Secrets or custom resources.
///
/// Fleets use the same watch. The API server applies the selectors. No part of a response body gets into the log. An object
/// is only [`Deleted`](HubEvent::Deleted) if the API server has reported it, or if a complete list lacks the object. After
/// a failure the watch tries again, with growing pauses. It starts with the first call of [`next`](HubWatch::next), and
/// ends when the `HubWatch` is dropped.
///
/// [`new`](HubWatch::new) keeps whole objects. [`projected`](HubWatch::projected) keeps the part of each object that matters,
/// and reports no other changes.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::Secret;
/// use mcr_watch::{HubEvent, HubWatch, WatchRequest};
///
/// # async fn example(client: kube::Client) -> Result<(), mcr_store::DecodeError> {
/// let request = WatchRequest::of::<Secret>().namespace("fleet").labels("example.com/kubeconfig=true");
/// let mut secrets = HubWatch::new(client, request);
/// loop {
///     match secrets.next().await {
///         HubEvent::Applied(key, object) => {
///             let secret: Secret = object.decode()?;
///             println!("{key} has {} keys", secret.data.map_or(0, |data| data.len()));
///         }
///         HubEvent::Deleted(key) => println!("{key} is gone"),
///         HubEvent::Synced => println!("the first list is complete"),
///         HubEvent::Failing(problem) => eprintln!("{}", problem.error),
///         _ => {}
///     }
/// }
/// # }
/// ```
pub struct HubWatch<T = Arc<Object>> {
    request: WatchRequest,
    target: Arc<HubTarget<T>>,
    /// None once the watch has started, and if its request is invalid.
    start: Option<Start>,
    _stop: DropGuard,
}

/// What a watch is started with.
struct Start {
    name: ClusterName,
    client: Client,
    settings: Arc<WatchSettings>,
    stop: CancellationToken,
}

impl HubWatch {
    /// A watch that keeps whole objects and reports each change of them. Log lines name its cluster `hub`, unless
    /// [`name`](Self::name) sets another name.
    pub fn new(client: Client, request: WatchRequest) -> Self {
        Self::with(client, request, Projection::whole())
    }
}

impl<T: Clone + PartialEq + Send + Sync + 'static> HubWatch<T> {
    /// A watch that keeps `project(object)` of each object instead of the object.
    ///
    /// A change of an object that leaves its projection equal brings no event, such as a heartbeat in its status. `None`:
    /// the object counts as not there. It takes no memory, and brings no event, or [`Deleted`](HubEvent::Deleted) if it was
    /// there before. To report an object that can't be decoded, project a `Result`: with `None` it would count as deleted.
    /// An object that is deleted and created again with an equal projection may bring no event; add its UID to the projection
    /// to notice that.
    ///
    /// `project` runs in the task of the watch, so it must be quick and must not block. If it panics, the panic is logged;
    /// the watch keeps the projection that it has, counts the object in [`WatchStatus::skipped`], and calls `project` again
    /// when the object changes or is listed again. `T` is cloned for each event: an `Arc` keeps that cheap.
    ///
    /// ```no_run
    /// use std::collections::BTreeMap;
    ///
    /// use mcr_watch::{HubEvent, HubWatch, WatchRequest};
    /// use serde::Deserialize;
    ///
    /// #[derive(Clone, PartialEq, Deserialize)]
    /// struct Node {
    ///     spec: Spec,
    /// }
    /// #[derive(Clone, PartialEq, Deserialize)]
    /// struct Spec {
    ///     #[serde(default)]
    ///     unschedulable: bool,
    /// }
    ///
    /// # async fn example(client: kube::Client) {
    /// // The kubelet updates the status of its Node every few minutes. That brings no event here.
    /// let request = WatchRequest::of::<k8s_openapi::api::core::v1::Node>();
    /// let mut nodes = HubWatch::projected(client, request, |object| object.decode::<Node>().ok());
    /// loop {
    ///     if let HubEvent::Applied(key, node) = nodes.next().await {
    ///         println!("{key}: {}", if node.spec.unschedulable { "cordoned" } else { "in use" });
    ///     }
    /// }
    /// # }
    /// ```
    pub fn projected(
        client: Client,
        request: WatchRequest,
        project: impl Fn(&Object) -> Option<T> + Send + Sync + 'static,
    ) -> Self {
        Self::with(client, request, Projection::of(project))
    }

    /// Like [`projected`](Self::projected), for an address that serves the objects of many clusters, such as
    /// `/clusters/*` of kcp.
    ///
    /// `cluster` names the cluster of an object. In the key of the object, and in the object that `project` gets, that name
    /// takes the place of the namespace: two clusters may have objects of the same name. Therefore use it for kinds that
    /// are cluster-scoped. `None`: the object is left out.
    ///
    /// ```no_run
    /// use kube::core::{ApiResource, GroupVersionKind};
    /// use mcr_watch::{HubEvent, HubWatch, WatchRequest};
    ///
    /// # async fn example(wildcard: kube::Client) {
    /// let kind = GroupVersionKind::gvk("apis.kcp.io", "v1alpha2", "APIBinding");
    /// let request = WatchRequest::resource(&ApiResource::from_gvk_with_plural(&kind, "apibindings"));
    /// let mut bindings = HubWatch::projected_by_cluster(
    ///     wildcard,
    ///     request,
    ///     |metadata| metadata.annotation("kcp.io/cluster"),
    ///     |_| Some(()),
    /// );
    /// if let HubEvent::Applied(key, ()) = bindings.next().await {
    ///     println!("workspace {} has a binding {}", key.namespace.unwrap_or_default(), key.name);
    /// }
    /// # }
    /// ```
    pub fn projected_by_cluster(
        client: Client,
        request: WatchRequest,
        cluster: impl for<'o> Fn(&ObjectMetadata<'o>) -> Option<Cow<'o, str>> + Send + Sync + 'static,
        project: impl Fn(&Object) -> Option<T> + Send + Sync + 'static,
    ) -> Self {
        let projection = Projection::of(project).by_cluster(cluster);
        Self::with(client, request, projection)
    }
}

impl<T: Clone + Send + 'static> HubWatch<T> {
    /// Sets the name of the cluster in log lines. Call it before the first [`next`](Self::next); later it has no effect.
    #[must_use]
    pub fn name(mut self, name: ClusterName) -> Self {
        if let Some(start) = &mut self.start {
            start.name = name;
        }
        self
    }

    /// Sets timeouts and sizes. A provider passes those that it gets from the fleet. Call it before the first
    /// [`next`](Self::next); later it has no effect.
    #[must_use]
    pub fn settings(mut self, settings: impl Into<Arc<WatchSettings>>) -> Self {
        if let Some(start) = &mut self.start {
            start.settings = settings.into();
        }
        self
    }

    fn with(client: Client, request: WatchRequest, projection: Projection<T>) -> Self {
        let stop = CancellationToken::new();
        let target = Arc::new(HubTarget::new(projection));
        let start = match request.check() {
            Ok(()) => Some(Start {
                name: ClusterName::unchecked("hub"),
                client,
                settings: Arc::default(),
                stop: stop.clone(),
            }),
            Err(error) => {
                target.failed(error);
                None
            }
        };
        Self {
            request,
            target,
            start,
            _stop: stop.drop_guard(),
        }
    }

    /// Starts the watch, or does nothing if it has started.
    fn ensure_started(&mut self) {
        let Some(start) = self.start.take() else { return };
        let transport = Transport::new(start.name.clone());
        let mut settings = Settings::default();
        settings.set_user_agent(start.settings.user_agent.clone(), Some(Sender::Provider));
        let dialer = Dialer::with_settings(&AccessPolicy::default(), settings.into());
        transport.swap(dialer.client_channel(start.client));
        let env = DriverEnv {
            cluster: start.name,
            health: Arc::new(Health::unsupervised(transport.link())),
            transport,
            list_budget: Arc::new(ListBudget::new(&start.settings)),
            settings: start.settings,
            counts: Arc::default(),
            templates: Arc::new(TemplateRegistry::new(self.request.encoding())),
        };
        let target = self.target.clone();
        tokio::spawn(drive(target, self.request.clone(), start.stop, env));
    }

    /// Waits for the next event. Cancel safe. The events never end.
    ///
    /// Several changes of one object may be one event.
    ///
    /// # Panics
    /// If the first call is polled outside of a tokio runtime.
    pub async fn next(&mut self) -> HubEvent<T> {
        self.ensure_started();
        loop {
            if let Some(event) = self.target.try_next() {
                return event;
            }
            self.target.notified().await;
        }
    }

    /// The projection of the object as it is now, if there is one; from [`new`](HubWatch::new), the object.
    pub fn get(&self, key: &ObjectKey) -> Option<T> {
        self.target.get(key)
    }

    /// The status of the watch.
    pub fn status(&self) -> WatchStatus {
        self.target.status()
    }
}

impl<T: Send + 'static> std::fmt::Debug for HubWatch<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HubWatch")
            .field("request", &self.request)
            .field("objects", &self.target.len())
            .finish_non_exhaustive()
    }
}
