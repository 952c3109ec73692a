//! A watch on its own, for objects that describe clusters.

mod event;
mod pending;
mod projections;
mod target;

use std::sync::Arc;

use kube::Client;
use mcr_access::{AccessPolicy, ClusterName};
use mcr_client::{Dialer, Transport};
use mcr_store::{Object, ObjectKey, TemplateRegistry};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::event::HubEvent;
use self::target::{HubTarget, Projection};
use crate::{
    WatchRequest, WatchSettings, WatchStatus,
    driver::{DriverEnv, drive},
    health::{Health, Phase},
    target::WatchTarget,
};

/// Watches objects of one kind in a hub, for providers that find clusters in Secrets or custom resources.
///
/// Fleets use the same watch. The API server applies the selectors. No part of a response body gets into the log. An object
/// is only [`Deleted`](HubEvent::Deleted) if the API server has reported it, or if a complete list lacks the object. After
/// a failure the watch tries again, with growing pauses. Dropping the `HubWatch` ends it.
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
    client: Client,
    settings: Arc<WatchSettings>,
    projection: Arc<Projection<T>>,
    target: Arc<HubTarget<T>>,
    _stop: DropGuard,
}

impl HubWatch {
    /// Starts a watch that keeps whole objects and reports each change of them. Log lines name its cluster `hub`, unless
    /// [`name`](Self::name) sets another name.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn new(client: Client, request: WatchRequest) -> Self {
        Self::with_settings(client, request, Arc::default())
    }

    /// Starts a watch with other timeouts. Not part of the API.
    #[doc(hidden)]
    pub fn with_settings(client: Client, request: WatchRequest, settings: Arc<WatchSettings>) -> Self {
        Self::start(hub(), client, request, settings, Projection::whole().into())
    }
}

impl<T: Clone + PartialEq + Send + Sync + 'static> HubWatch<T> {
    /// Starts a watch that keeps `project(object)` of each object instead of the object.
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
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn projected(
        client: Client,
        request: WatchRequest,
        project: impl Fn(&Object) -> Option<T> + Send + Sync + 'static,
    ) -> Self {
        Self::projected_with_settings(client, request, Arc::default(), project)
    }

    /// Like [`projected`](Self::projected), with other timeouts. Not part of the API.
    #[doc(hidden)]
    pub fn projected_with_settings(
        client: Client,
        request: WatchRequest,
        settings: Arc<WatchSettings>,
        project: impl Fn(&Object) -> Option<T> + Send + Sync + 'static,
    ) -> Self {
        Self::start(hub(), client, request, settings, Projection::of(project).into())
    }
}

impl<T: Clone + Send + 'static> HubWatch<T> {
    /// Sets the name of the cluster in log lines. Call it before the first [`next`](Self::next): it starts the watch anew.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    #[must_use]
    pub fn name(self, name: ClusterName) -> Self {
        let request = self.target.query().clone();
        Self::start(name, self.client, request, self.settings, self.projection)
    }

    fn start(
        name: ClusterName,
        client: Client,
        request: WatchRequest,
        settings: Arc<WatchSettings>,
        projection: Arc<Projection<T>>,
    ) -> Self {
        let stop = CancellationToken::new();
        let templates = Arc::new(TemplateRegistry::new(request.encoding()));
        let target = Arc::new(HubTarget::new(request, projection.clone(), stop.clone()));
        if let Err(error) = target.query().check() {
            target.failed(error);
        } else {
            let transport = Transport::new(name.clone());
            transport.swap(Dialer::new(&AccessPolicy::default()).client_channel(client.clone()));
            let env = DriverEnv {
                cluster: name,
                transport,
                health: Arc::new(Health::new(Phase::Up { endpoint: 1 })),
                list_permits: Arc::new(Semaphore::new(1)),
                settings: settings.clone(),
                counts: Arc::default(),
                templates,
            };
            tokio::spawn(drive(target.clone(), env));
        }
        Self {
            client,
            settings,
            projection,
            target,
            _stop: stop.drop_guard(),
        }
    }

    /// Waits for the next event. Cancel safe. The events never end.
    ///
    /// Several changes of one object may be one event.
    pub async fn next(&mut self) -> HubEvent<T> {
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

fn hub() -> ClusterName {
    ClusterName::unchecked("hub")
}

impl<T: Send + 'static> std::fmt::Debug for HubWatch<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HubWatch")
            .field("request", self.target.query())
            .field("objects", &self.target.objects())
            .finish_non_exhaustive()
    }
}
