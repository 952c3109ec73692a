//! The handle of one cluster.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
    time::SystemTime,
};

use arc_swap::ArcSwap;
use kube::{
    Api, Client, Resource,
    core::{DynamicResourceScope, NamespaceResourceScope},
    runtime::events::{Recorder, Reporter},
};
use mcr_client::{
    Transport, TransportLayer,
    internal::{
        Observable,
        user_code::{TRANSPORT_LAYER, catch_panic},
    },
};
use mcr_watch::internal::{Health, Watches};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    attachment::{Attachment, ConnectionInfo, ScopePlacement},
    info::{ClusterInfo, StateSince},
};
use crate::{
    fleet::{
        HUB,
        description::DesiredCluster,
        epoch::Epoch,
        resources::Resources,
        settings::{LayeredCluster, TransportLayers},
        state::{ClusterState, Published},
    },
    scope::Capabilities,
};
use mcr_access::ClusterName;

/// A handle of one cluster of the fleet, for one engagement.
///
/// A handle is cheap to clone. It works across new credentials and new addresses of its cluster. When the cluster
/// leaves the fleet, or another cluster takes its name, the engagement ends: [`token`](Self::token) is cancelled, the
/// stores return [`StoreError::Gone`](crate::StoreError::Gone), and requests of the client fail at once. A handle
/// never becomes a handle of the next cluster of that name.
#[derive(Clone)]
pub struct Cluster(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) name: ClusterName,
    provider: Arc<str>,
    epoch: Epoch,
    info: ArcSwap<ClusterInfo>,
    state: Observable<StateSince>,
    /// Created on first use: most clusters in scopes never send a request. Users read their stores, which the watches of the
    /// scope endpoint fill. Created with the state locked, so that it begins with the newest link.
    transport: OnceLock<Transport>,
    health: OnceLock<Arc<Health>>,
    pub(super) token: CancellationToken,
    /// The tasks that must end before the cluster is gone: its watches and running reconciles.
    pub(super) tasks: TaskTracker,
    pub(super) watches: Arc<Watches>,
    recorder: OnceLock<Box<Recorder>>,
    attachment: Attachment,
    pub(super) resources: Arc<Resources>,
}

impl Cluster {
    pub(crate) fn new(
        desired: &DesiredCluster,
        epoch: Epoch,
        resources: &Arc<Resources>,
        attachment: Attachment,
    ) -> Self {
        let first = StateSince {
            state: ClusterState::Discovered,
            since: SystemTime::now(),
            closed: false,
        };
        if !matches!(attachment, Attachment::Endpoint) {
            resources.observers.counts.entered(&first.state);
        }
        let cluster = Self(Arc::new(Inner {
            watches: Arc::new(Watches::new(desired.spec.name.clone())),
            name: desired.spec.name.clone(),
            provider: desired.provider.clone(),
            epoch,
            info: ArcSwap::from_pointee(ClusterInfo::announced(&desired.spec)),
            state: Observable::new(first),
            transport: OnceLock::new(),
            health: OnceLock::new(),
            token: resources.token.child_token(),
            tasks: TaskTracker::new(),
            recorder: OnceLock::new(),
            attachment,
            resources: resources.clone(),
        }));
        if cluster.placement().is_none() {
            // Its supervisor connects it in a moment.
            cluster.transport();
        }
        cluster
    }

    /// The name of the cluster.
    pub fn name(&self) -> &ClusterName {
        &self.0.name
    }

    /// The name of the provider that announced the cluster.
    pub fn provider(&self) -> &str {
        &self.0.provider
    }

    /// The number of the engagement. A cluster that joins later, also under the same name, has a higher one.
    pub fn epoch(&self) -> Epoch {
        self.0.epoch
    }

    /// The labels that its provider announced last.
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.0.info.load().spec.labels.to_map()
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<String> {
        self.0.info.load().spec.labels.get(key).map(str::to_owned)
    }

    /// The value of one property.
    pub fn property(&self, key: &str) -> Option<String> {
        self.0.info.load().spec.properties.get(key).map(str::to_owned)
    }

    /// The properties that its provider announced last.
    pub fn properties(&self) -> BTreeMap<String, String> {
        self.0.info.load().spec.properties.to_map()
    }

    /// The identity of the cluster: the one that its provider declares, or else the UID of its `kube-system`
    /// namespace. `None` while neither is known.
    pub fn identity(&self) -> Option<Arc<str>> {
        self.0.info.load().identity.clone()
    }

    /// Whether the cluster passes the [check](crate::FleetBuilder::ready_check) of this name. `false` before the first success, and
    /// if the fleet has no check of this name.
    pub fn passes(&self, check: &str) -> bool {
        let info = self.0.info.load();
        let mut checks = info.checks.iter();
        checks.any(|(name, fails)| **name == *check && fails.is_none())
    }

    /// Whether this is the hub: the cluster that is named [`HUB`](crate::HUB), or another name of that cluster, which answers
    /// with the UID of its `kube-system` namespace.
    ///
    /// There are other names only if [`FleetSettings::allow_duplicates`](crate::FleetSettings::allow_duplicates) is set. A cluster
    /// whose credentials may not read that namespace can't be compared. A place in a scope is never the hub, even if its host
    /// is.
    pub fn is_hub(&self) -> bool {
        let identities = &self.0.resources.identities;
        self.placement().is_none() && (self.0.name == HUB || identities.is_hub(&self.0.name))
    }

    /// The cluster beside which this one waits as [`Suspended`](ClusterState::Suspended), because it is another name of it. `None` for
    /// a cluster that is engaged, and while it is not known which cluster answers.
    pub fn same_as(&self) -> Option<ClusterName> {
        self.0.info.load().same_as.clone()
    }

    /// Its other names in the fleet, which answer with its UID.
    #[doc(hidden)]
    pub fn other_names(&self) -> Vec<ClusterName> {
        self.0.resources.identities.others(&self.0.name)
    }

    /// The current state.
    pub fn state(&self) -> ClusterState {
        self.0.state.read(|now| now.state.clone())
    }

    /// The time at which the cluster entered its current state.
    pub fn state_since(&self) -> SystemTime {
        self.0.state.read(|now| now.since)
    }

    /// Waits until the cluster is in a state that `wanted` accepts, and returns that state.
    ///
    /// Returns [`ClusterState::Gone`] if the engagement ends first. Cancel safe.
    pub async fn wait_for(&self, mut wanted: impl FnMut(&ClusterState) -> bool) -> ClusterState {
        let found = |now: &StateSince| {
            (wanted(&now.state) || now.state == ClusterState::Gone).then(|| now.state.clone())
        };
        self.0.state.wait(found).await
    }

    /// A token that is cancelled when the cluster leaves the fleet. Work for the cluster should end then.
    pub fn token(&self) -> &CancellationToken {
        &self.0.token
    }

    /// A client of this cluster.
    ///
    /// All clients of a cluster share one connection pool, which is built on first use. They work for the cluster's
    /// whole life: credentials and addresses change below them. While the cluster is not connected, or is suspended,
    /// requests fail at once with the reason. No request waits longer than its deadline.
    ///
    /// The default namespace is that of the kubeconfig's context, of the [`EndpointAccess`](crate::EndpointAccess), of the ready client,
    /// or that of the layout of the scope. If the provider announces another one, clients that are taken later have
    /// it. Clients that were taken earlier keep theirs.
    ///
    /// # Panics
    /// If called for the first time outside of a tokio runtime.
    pub fn client(&self) -> Client {
        let transport = self.transport();
        match self.placement() {
            Some(placement) => {
                let at = placement.at();
                transport.client(&at.scope.layout().default_namespace(&at.place))
            }
            None => transport.client(&self.0.info.load().default_namespace),
        }
    }

    /// An API for the objects of a kind in all namespaces.
    ///
    /// `Api` writes names into paths as they are. For names that come from data there is [`ObjectPath`](crate::ObjectPath).
    pub fn api<K: Resource<DynamicType: Default>>(&self) -> Api<K> {
        Api::all(self.client())
    }

    /// Like [`api`](Self::api), for a kind that is known at run time.
    pub fn api_with<K: Resource>(&self, dynamic: &K::DynamicType) -> Api<K> {
        Api::all_with(self.client(), dynamic)
    }

    /// An API for the objects of a kind in one namespace.
    pub fn namespaced<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
    {
        Api::namespaced(self.client(), namespace)
    }

    /// Like [`namespaced`](Self::namespaced), for a kind that is known at run time. The kind must have namespaces.
    pub fn namespaced_with<K>(&self, namespace: &str, dynamic: &K::DynamicType) -> Api<K>
    where
        K: Resource<Scope = DynamicResourceScope>,
    {
        Api::namespaced_with(self.client(), namespace, dynamic)
    }

    /// The recorder for Kubernetes events of this cluster.
    ///
    /// kube makes the name of an event from the name of its object. So an API server refuses events for RBAC objects such as
    /// `system:x:y`, whose names are no DNS names.
    ///
    /// Each cluster has its own recorder, because a recorder counts equal events as one event.
    ///
    /// # Panics
    /// If called for the first time outside of a tokio runtime.
    pub fn recorder(&self) -> Recorder {
        let reporter = || Reporter {
            controller: self.0.resources.settings.event_reporter.clone(),
            instance: None,
        };
        self.0
            .recorder
            .get_or_init(|| Box::new(Recorder::new(self.client(), reporter())))
            .as_ref()
            .clone()
    }

    /// Spawns a future that belongs to the cluster: the cluster is not [`Gone`](ClusterState::Gone) before the future
    /// has ended.
    ///
    /// The future should end soon after [`token`](Self::token) is cancelled.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn spawn<F>(&self, future: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.0.tasks.spawn(future)
    }

    /// The features of its API that some API servers lack.
    pub fn capabilities(&self) -> Capabilities {
        let of = |placement: &Arc<dyn ScopePlacement>| placement.at().scope.layout().capabilities();
        self.placement().map_or_else(Capabilities::default, of)
    }

    /// Whether every object that leaves a watch without selectors was deleted, as the layout of its scope says.
    pub fn deletions_are_certain(&self) -> bool {
        self.placement()
            .is_none_or(|placement| placement.at().scope.layout().deletions_are_certain())
    }

    /// The name of its scope, if the cluster is in a scope.
    pub fn scope(&self) -> Option<Arc<str>> {
        self.placement().map(|place| place.at().scope.name().into())
    }

    /// Its placement, if the cluster is in a scope.
    pub(crate) fn placement(&self) -> Option<&Arc<dyn ScopePlacement>> {
        match &self.0.attachment {
            Attachment::Scoped(placement) => Some(placement),
            Attachment::Own | Attachment::Endpoint => None,
        }
    }

    /// Whether this is the connection of a scope endpoint, which is no cluster of the fleet.
    pub(crate) fn is_endpoint(&self) -> bool {
        matches!(self.0.attachment, Attachment::Endpoint)
    }

    /// The connection that its requests use: that of its scope endpoint, or its own.
    pub(crate) fn connection(&self) -> ConnectionInfo {
        let endpoint = self.placement().and_then(|placement| placement.connection());
        endpoint.unwrap_or_else(|| ConnectionInfo {
            info: self.info(),
            last_received: self.last_received(),
        })
    }

    /// Whether this and the other are handles of the same engagement of the same cluster.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn info(&self) -> Arc<ClusterInfo> {
        self.0.info.load_full()
    }

    pub(crate) fn change_info(&self, change: impl Fn(&mut ClusterInfo)) {
        self.0.info.rcu(|info| {
            let mut info = ClusterInfo::clone(info);
            change(&mut info);
            info
        });
    }

    /// The transport that its requests go through, created on first use.
    pub(crate) fn transport(&self) -> &Transport {
        if let Some(created) = self.0.transport.get() {
            return created;
        }
        let name = &self.0.name;
        let layers = self.0.resources.settings.transport_layer.as_ref();
        let layer = layers.map(|TransportLayers(layers)| {
            let cluster = LayeredCluster {
                name: name.clone(),
                provider: self.0.provider.clone(),
                labels: self.labels(),
            };
            catch_panic(TRANSPORT_LAYER, || layers(&cluster)).unwrap_or_else(TransportLayer::panicked)
        });
        let create = || match self.placement() {
            Some(placement) => placement.clone().transport(name),
            None => {
                let settings = self.0.resources.settings.transport.clone();
                Transport::with_settings(name.clone(), settings)
            }
        };
        self.0.state.read(|now| {
            self.0.transport.get_or_init(|| {
                let transport = create();
                if let Some(layer) = layer {
                    transport.set_layer(layer);
                }
                if now.closed {
                    transport.close();
                } else if let ClusterState::Suspended { reason } = &now.state
                    && let Some(link) = Published::suspended(reason.clone()).link
                {
                    transport.set_link(link);
                }
                transport
            })
        })
    }

    /// When anything was last received through its own transport.
    pub(crate) fn last_received(&self) -> Option<SystemTime> {
        self.0.transport.get()?.last_received()
    }

    /// Reports that work waits or runs for the cluster, so that its silence is noticed earlier. Controllers do so every few seconds.
    #[doc(hidden)]
    pub fn report_work(&self) {
        match self.placement() {
            Some(placement) => placement.report_work(),
            None => self.transport().report_work(),
        }
    }

    /// The channel between its supervisor and the drivers of its watches.
    pub(crate) fn health(&self) -> &Arc<Health> {
        let new = || Arc::new(Health::new(self.transport().link()));
        self.0.health.get_or_init(new)
    }

    /// Sets the default namespace of clients that are taken from now on. Returns whether it differs from the one before.
    pub(crate) fn set_default_namespace(&self, namespace: &Arc<str>) -> bool {
        let changed = self.0.info.load().default_namespace != *namespace;
        if changed {
            self.change_info(|info| info.default_namespace.clone_from(namespace));
        }
        changed
    }

    /// Publishes whether the cluster can be used: first the link, which its requests and watches read, then the state, which
    /// users read. So the requests of a cluster that is shown as `Ready` are sent, and those of one that is shown as
    /// `Unreachable` fail with the reason.
    ///
    /// Returns the state before, if the new one differs.
    pub(crate) fn publish(&self, new: Published) -> Option<ClusterState> {
        self.publish_if(new, |_| true)
    }

    /// Publishes if `may` accepts the current state. Nothing brings a cluster back that leaves.
    pub(crate) fn publish_if(
        &self,
        new: Published,
        may: impl FnOnce(&ClusterState) -> bool,
    ) -> Option<ClusterState> {
        let Published { state, link, closes } = new;
        if closes {
            self.cut_off();
        }
        let mut before = None;
        self.0.state.change_if(|now| {
            if !may(&now.state) || (now.state.has_left() && !state.has_left()) {
                return false;
            }
            if let (Some(link), Some(transport)) = (link, self.0.transport.get()) {
                transport.set_link(link);
            }
            if now.state == state {
                return false;
            }
            // The cluster stays in the state since the same time if only the reason is new.
            if !now.state.same_kind(&state) {
                now.since = SystemTime::now();
                if !self.is_endpoint() {
                    self.0.resources.observers.counts.entered(&state);
                }
            }
            before = Some(std::mem::replace(&mut now.state, state));
            true
        });
        before
    }

    /// Closes its transport for good: another cluster may answer at its address.
    pub(crate) fn cut_off(&self) {
        self.0.state.change(|now| now.closed = true);
        // Without the lock, because this drops code of users.
        if let Some(transport) = self.0.transport.get() {
            transport.close();
        }
    }

    /// Cancels its token, ends its watches and accepts no new task. No store is readable after this.
    pub(crate) fn close(&self) {
        self.0.token.cancel();
        self.0.watches.close();
        self.0.tasks.close();
    }

    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.0.tasks
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.0.name)
            .field("provider", &self.0.provider)
            .field("epoch", &self.0.epoch)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
