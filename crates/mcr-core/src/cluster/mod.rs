//! The handle of one cluster.

mod late;
mod watches;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, OnceLock, Weak},
    time::SystemTime,
};

use arc_swap::ArcSwap;
use kube::{
    Api, Client, Resource,
    core::NamespaceResourceScope,
    runtime::events::{Recorder, Reporter},
};
use mcr_access::internal::namespace;
use mcr_client::{Transport, internal::Observable};
use mcr_watch::internal::{Health, Phase};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Capabilities, ClusterName,
    fleet::{ClusterState, Description, FleetShared, Seat},
};
use late::LateTransport;
use watches::Watches;

pub use watches::{KindStatus, WatchHandle};

/// One cluster of the fleet, from its engagement to its end.
///
/// A handle is cheap to clone and keeps working through rotations of credentials and changes of address. When
/// the cluster leaves, or another one takes its name, [`token`](Self::token) is cancelled, its stores read as
/// [`StoreError::Gone`](crate::StoreError::Gone) and its client answers with an error at once; a handle never turns into a handle of
/// the cluster that came after.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    name: ClusterName,
    provider: Arc<str>,
    epoch: u64,
    facts: ArcSwap<Facts>,
    state: Observable<StateSince>,
    transport: LateTransport,
    /// None for clusters in scopes.
    health: OnceLock<Arc<Health>>,
    token: CancellationToken,
    /// Everything that must end before the cluster counts as gone: its watches and running reconciles.
    tasks: TaskTracker,
    watches: Mutex<Watches>,
    recorder: OnceLock<Box<Recorder>>,
    standing: Standing,
    fleet: Weak<FleetShared>,
}

/// How a cluster is connected.
pub(crate) enum Standing {
    /// By itself.
    Own,
    /// By itself, as the endpoint of a scope: no cluster of the fleet, but the connection of those behind it.
    Hidden,
    /// Through the endpoint of a scope.
    Seated(Arc<Seat>),
}

/// What can change about a cluster without it becoming another one.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// What its provider said last, for its labels and properties.
    pub(crate) spec: Arc<Description>,
    pub(crate) identity: Option<Arc<str>>,
    /// Of the description in use, for requests that name none.
    pub(crate) default_namespace: Arc<str>,
    pub(crate) credential_expires: Option<SystemTime>,
    pub(crate) last_probe: Option<SystemTime>,
    /// What is wrong though the cluster goes on as it was.
    pub(crate) warning: Option<Arc<str>>,
}

impl Facts {
    /// What a provider says of a cluster.
    pub(crate) fn announced(spec: &Arc<Description>) -> Self {
        Self {
            spec: spec.clone(),
            identity: spec.identity.clone(),
            default_namespace: spec
                .default_namespace
                .clone()
                .unwrap_or_else(namespace::default_name),
            credential_expires: None,
            last_probe: None,
            warning: None,
        }
    }
}

/// A state and when it was entered.
#[derive(Debug, Clone)]
pub(crate) struct StateSince {
    pub(crate) state: ClusterState,
    pub(crate) since: SystemTime,
}

impl Cluster {
    pub(crate) fn new(
        name: ClusterName,
        provider: Arc<str>,
        epoch: u64,
        facts: Facts,
        fleet: &Arc<FleetShared>,
        standing: Standing,
    ) -> Self {
        let first = StateSince {
            state: ClusterState::Discovered,
            since: SystemTime::now(),
        };
        if !matches!(standing, Standing::Hidden) {
            fleet.counts().entered(&first.state);
        }
        let cluster = Self(Arc::new(Inner {
            name,
            provider,
            epoch,
            facts: ArcSwap::from_pointee(facts),
            state: Observable::new(first),
            transport: LateTransport::default(),
            health: OnceLock::new(),
            token: fleet.token().child_token(),
            tasks: TaskTracker::new(),
            watches: Mutex::default(),
            recorder: OnceLock::new(),
            standing,
            fleet: Arc::downgrade(fleet),
        }));
        if !cluster.is_seated() {
            // It is connected in a moment.
            cluster.transport();
        }
        cluster
    }

    /// The name.
    pub fn name(&self) -> &ClusterName {
        &self.0.name
    }

    /// The name of the provider that announced it.
    pub fn provider(&self) -> &str {
        &self.0.provider
    }

    /// Numbers the engagements of the fleet: a cluster that comes back, or is replaced, has a higher one.
    pub fn epoch(&self) -> u64 {
        self.0.epoch
    }

    /// Its labels as last announced.
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.0.facts.load().spec.labels.to_map()
    }

    /// One label.
    pub fn label(&self, key: &str) -> Option<String> {
        self.0.facts.load().spec.labels.get(key).map(str::to_owned)
    }

    /// Its properties as last announced.
    pub fn properties(&self) -> BTreeMap<String, String> {
        self.0.facts.load().spec.properties.to_map()
    }

    /// What makes it this cluster, as far as is known: what its provider declared, or else the UID of its
    /// `kube-system` namespace.
    pub fn identity(&self) -> Option<Arc<str>> {
        self.0.facts.load().identity.clone()
    }

    /// Its state now.
    pub fn state(&self) -> ClusterState {
        self.0.state.read(|now| now.state.clone())
    }

    /// When its state was entered.
    pub fn state_since(&self) -> SystemTime {
        self.0.state.read(|now| now.since)
    }

    /// Waits for a state; cancel safe. Returns the state it was in last if the cluster ends before.
    pub async fn wait_for(&self, mut wanted: impl FnMut(&ClusterState) -> bool) -> ClusterState {
        let found = |now: &StateSince| {
            (wanted(&now.state) || now.state == ClusterState::Gone).then(|| now.state.clone())
        };
        self.0.state.wait(found).await
    }

    /// Cancelled when the cluster leaves the fleet. Work for the cluster should end then.
    pub fn token(&self) -> &CancellationToken {
        &self.0.token
    }

    /// A client of this cluster.
    ///
    /// Built on first use, shared, and good for the cluster's whole life: credentials and addresses change
    /// below it. While the cluster is not connected or suspended its requests fail at once with the reason,
    /// and no request waits longer than its deadline.
    ///
    /// Its default namespace is that of the kubeconfig's context, of the [`EndpointAccess`](crate::EndpointAccess), of the ready
    /// client, or
    /// what the layout of its scope says. If another is announced, clients taken later have that one, and those taken
    /// before keep theirs.
    ///
    /// # Panics
    /// If called for the first time outside of a tokio runtime.
    pub fn client(&self) -> Client {
        let transport = self.transport();
        match &self.0.standing {
            Standing::Seated(seat) => {
                seat.in_place(|layout, place| transport.client(&layout.default_namespace(place)))
            }
            Standing::Own | Standing::Hidden => transport.client(&self.0.facts.load().default_namespace),
        }
    }

    /// All objects of a kind, in every namespace.
    pub fn api<K: Resource<DynamicType: Default>>(&self) -> Api<K> {
        Api::all(self.client())
    }

    /// The objects of a kind in one namespace.
    pub fn namespaced<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
    {
        Api::namespaced(self.client(), namespace)
    }

    /// The recorder of Kubernetes events of this cluster; one per cluster, so that equal events of different
    /// clusters are never counted as one.
    pub fn recorder(&self) -> Recorder {
        let reporter = || Reporter {
            controller: self.reporter_name(),
            instance: None,
        };
        self.0
            .recorder
            .get_or_init(|| Box::new(Recorder::new(self.client(), reporter())))
            .as_ref()
            .clone()
    }

    fn reporter_name(&self) -> String {
        self.0.fleet.upgrade().map_or_else(
            || "mcr".to_owned(),
            |fleet| fleet.settings().event_reporter.clone(),
        )
    }

    /// Runs a future as part of the cluster: the cluster does not count as gone before it has ended.
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

    /// What its API can do that not every API can.
    pub fn capabilities(&self) -> Capabilities {
        match &self.0.standing {
            Standing::Seated(seat) => seat.host().scope().layout().capabilities(),
            Standing::Own | Standing::Hidden => Capabilities::default(),
        }
    }

    /// The name of the scope it is part of, if it is part of one.
    pub fn scope(&self) -> Option<Arc<str>> {
        match &self.0.standing {
            Standing::Seated(seat) => Some(seat.host().scope().name().into()),
            Standing::Own | Standing::Hidden => None,
        }
    }

    pub(crate) fn is_seated(&self) -> bool {
        self.seat().is_some()
    }

    /// Where it stands, if it is part of a scope.
    pub(crate) fn seat(&self) -> Option<&Arc<Seat>> {
        match &self.0.standing {
            Standing::Seated(seat) => Some(seat),
            Standing::Own | Standing::Hidden => None,
        }
    }

    /// The cluster whose connection it is reached by: itself, but for a cluster in a scope.
    pub(crate) fn connection(&self) -> Self {
        match &self.0.standing {
            Standing::Seated(seat) => seat.host().connection().unwrap_or_else(|| self.clone()),
            Standing::Own | Standing::Hidden => self.clone(),
        }
    }

    /// Whether this and the other are handles of the same engagement of the same cluster.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn facts(&self) -> Arc<Facts> {
        self.0.facts.load_full()
    }

    pub(crate) fn change_facts(&self, change: impl Fn(&mut Facts)) {
        self.0.facts.rcu(|facts| {
            let mut facts = Facts::clone(facts);
            change(&mut facts);
            facts
        });
    }

    /// What its requests go through. Made when first asked for.
    pub(crate) fn transport(&self) -> &Transport {
        self.0
            .transport
            .get(|| match (&self.0.standing, self.0.fleet.upgrade()) {
                (Standing::Seated(seat), Some(fleet)) => fleet.transport_to(&self.0.name, seat),
                (Standing::Own | Standing::Hidden, Some(fleet)) => {
                    let settings = fleet.settings().transport.clone();
                    Transport::with_settings(self.0.name.clone(), settings)
                }
                (_, None) => Transport::new(self.0.name.clone()),
            })
    }

    /// When anything was last received through its own transport.
    pub(crate) fn last_heard(&self) -> Option<SystemTime> {
        self.0.transport.made()?.last_heard()
    }

    /// Makes requests fail at once with this reason, or lets them through again.
    pub(crate) fn block(&self, reason: Option<Arc<str>>) {
        self.0.transport.block(reason);
    }

    /// Lets no request through any more.
    pub(crate) fn cut(&self) {
        self.0.transport.close();
    }

    /// What its supervisor and its watches tell each other.
    pub(crate) fn health(&self) -> &Arc<Health> {
        self.0.health.get_or_init(|| Arc::new(Health::new(Phase::Down)))
    }

    /// Says whether it is another than before.
    pub(crate) fn set_default_namespace(&self, namespace: &Arc<str>) -> bool {
        let changed = self.0.facts.load().default_namespace != *namespace;
        if changed {
            self.change_facts(|facts| facts.default_namespace.clone_from(namespace));
        }
        changed
    }

    /// Enters a state; says whether it is another than before.
    pub(crate) fn set_state(&self, state: ClusterState) -> bool {
        self.set_state_if(state, |_| true)
    }

    /// Enters a state unless the one it is in forbids it; says whether it is another than before.
    pub(crate) fn set_state_if(&self, state: ClusterState, may: impl FnOnce(&ClusterState) -> bool) -> bool {
        self.0.state.change_if(|current| {
            if !may(&current.state) {
                return false;
            }
            let changed = current.state != state;
            // A new reason for being unreachable does not make it unreachable since now.
            if !current.state.same_kind(&state) {
                current.since = SystemTime::now();
                if let Some(fleet) = self.0.fleet.upgrade()
                    && !matches!(self.0.standing, Standing::Hidden)
                {
                    fleet.counts().entered(&state);
                }
            }
            current.state = state;
            changed
        })
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.health().set_phase(phase);
    }

    /// Ends everything: no store is readable and no request gets through after this.
    pub(crate) fn close(&self) {
        self.0.token.cancel();
        self.close_watches();
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
