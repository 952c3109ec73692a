//! How to reach a cluster: [`Access`], and [`Scope`], which one kind of access names.
//!
//! The two types share a file because each contains the other: a scope has an access for each of its endpoints.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use mcr_access::{EndpointAccess, KubeconfigAccess, Trust, internal::namespace};
use tokio::sync::watch;

use crate::layout::ScopeLayout;

/// How to reach a cluster.
///
/// ```
/// use mcr_core::{Access, Credential, Endpoint, EndpointAccess, StaticCredential, Trust};
///
/// # fn example(kubeconfig: &[u8], client: kube::Client) {
/// let from_kubeconfig = Access::kubeconfig(kubeconfig, Trust::Untrusted);
///
/// let server = Endpoint::new(http::Uri::from_static("https://10.0.0.1:6443"));
/// let from_endpoint = Access::from(EndpointAccess::new(server, StaticCredential::new(Credential::token("secret"))));
///
/// let from_client = Access::from(client);
/// # }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum Access {
    /// The text of a kubeconfig. The fleet parses it once, when it is announced. A cluster whose kubeconfig can't be used is
    /// Unreachable, and shows the error.
    Kubeconfig(KubeconfigAccess),
    /// The address of an API server and a source of credentials, also those that a kubeconfig was parsed into. The fleet judges
    /// an untrusted one by its own policy whenever it connects, whatever policy the provider has judged it by.
    Endpoint(Box<EndpointAccess>),
    /// A client that is ready to use.
    ///
    /// The fleet can't see the address and the credentials of such a client. A provider that announces another client for
    /// the same cluster therefore announces a change of address: each kind is listed once and compared.
    ///
    /// If a future or a body of a service in the client panics, the request fails. If `poll_ready` or `call` panics, the
    /// client is unusable from then on: the cluster becomes Unreachable until its provider announces another client.
    Client(ReadyClient),
    /// A place in a scope: one of the many clusters behind an endpoint. [`Scope::place`] creates it.
    Scoped(ScopedAccess),
}

impl Access {
    /// Access by the current context of a kubeconfig, which the fleet parses. A provider that wants to announce an unusable one as
    /// [`Broken`](crate::Change::Broken) calls [`KubeconfigAccess::parse`] itself, and announces the result.
    pub fn kubeconfig(yaml: impl AsRef<[u8]>, trust: Trust) -> Self {
        Self::Kubeconfig(KubeconfigAccess::new(yaml, trust))
    }

    /// The namespace of requests that name none. `None` for a kubeconfig that is not parsed.
    pub(crate) fn default_namespace(&self) -> Option<Arc<str>> {
        match self {
            Self::Endpoint(endpoint) => Some(endpoint.default_namespace.clone()),
            Self::Client(client) => Some(namespace::interned(client.client.default_namespace())),
            // The caller asks the layout of the scope.
            Self::Scoped(_) | Self::Kubeconfig(_) => None,
        }
    }
}

impl From<kube::Client> for Access {
    fn from(client: kube::Client) -> Self {
        Self::Client(ReadyClient::new(client))
    }
}

impl From<KubeconfigAccess> for Access {
    fn from(kubeconfig: KubeconfigAccess) -> Self {
        Self::Kubeconfig(kubeconfig)
    }
}

impl From<EndpointAccess> for Access {
    fn from(endpoint: EndpointAccess) -> Self {
        Self::Endpoint(Box::new(endpoint))
    }
}

// Each variant shows itself without credentials.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubeconfig(kubeconfig) => kubeconfig.fmt(f),
            Self::Endpoint(endpoint) => endpoint.fmt(f),
            Self::Client(_) => f.write_str("Client(..)"),
            Self::Scoped(scoped) => scoped.fmt(f),
        }
    }
}

/// A client that the user has built.
///
/// Clones count as the same client. The number distinguishes clients, because two `kube::Client`s can't be compared.
#[derive(Clone)]
pub struct ReadyClient {
    pub(crate) client: kube::Client,
    pub(crate) id: u64,
}

impl ReadyClient {
    /// Takes a client, and gives it a number that no other client of this process has.
    pub fn new(client: kube::Client) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            client,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// A layout with the endpoints that serve it.
///
/// Clones are the same scope. The provider that created the scope adds and removes its endpoints. A fleet connects to an
/// endpoint when the first cluster behind it joins, and disconnects when the last one has left.
///
/// A change of an endpoint costs as much as the same change of a cluster:
///
/// - New credentials are swapped below the watches.
/// - At a new address of the same API server, each kind is listed once and compared.
/// - Another API server is another endpoint: the clusters behind it leave and are engaged anew.
///
/// The UID of the namespace `kube-system` identifies the API server. If the credentials may not read it, every new address
/// counts as another API server.
///
/// ```
/// use mcr_core::{Access, ClusterSpec, ScopeLayout, Trust, scope::Scope};
///
/// # fn example(workspaces: impl ScopeLayout, kubeconfig: &[u8]) -> Result<(), mcr_core::InvalidClusterName> {
/// let scope = Scope::new(workspaces);
/// scope.set_endpoint("shard-1", Access::kubeconfig(kubeconfig, Trust::Trusted));
/// let spec = ClusterSpec::named("344qdshnqz45fjlp", scope.place("shard-1", "344qdshnqz45fjlp"))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Scope(Arc<Inner>);

struct Inner {
    id: u64,
    name: Box<str>,
    watch_prefix: Box<str>,
    layout: Arc<dyn ScopeLayout>,
    endpoints: watch::Sender<Endpoints>,
}

/// The access and the declared identity of each endpoint, by its name. Each call of [`Scope::set_endpoint`] allocates a new
/// `Arc`, so that a subscriber can tell which endpoint was set.
pub(crate) type Endpoints = BTreeMap<Arc<str>, Arc<(Access, Option<Arc<str>>)>>;

impl Scope {
    /// A scope without endpoints. Calls [`ScopeLayout::name`] and [`ScopeLayout::watch_prefix`] once, and keeps the results.
    pub fn new(layout: impl ScopeLayout) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(Arc::new(Inner {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            name: layout.name().into(),
            watch_prefix: layout.watch_prefix().into(),
            layout: Arc::new(layout),
            endpoints: watch::Sender::default(),
        }))
    }

    /// The name of the layout.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Adds an endpoint, or changes the access of an endpoint.
    ///
    /// Setting the same access again costs nothing. A place in a scope can't be an endpoint, because it has no connection:
    /// clusters behind such an endpoint stay Unreachable and show that as the reason.
    pub fn set_endpoint(&self, name: impl Into<Arc<str>>, access: impl Into<Access>) {
        self.set_endpoint_with_identity(name, access, None);
    }

    /// Does the same, and declares the identity of the API server, in place of the UID of the namespace `kube-system`.
    pub fn set_endpoint_with_identity(
        &self,
        name: impl Into<Arc<str>>,
        access: impl Into<Access>,
        identity: impl Into<Option<Arc<str>>>,
    ) {
        let (name, endpoint) = (name.into(), Arc::new((access.into(), identity.into())));
        let insert = |endpoints: &mut Endpoints| _ = endpoints.insert(name, endpoint);
        self.0.endpoints.send_modify(insert);
    }

    /// Removes an endpoint.
    ///
    /// Its clusters are Unreachable until their provider removes them or announces them at another endpoint, or until the
    /// endpoint is set again. Their stores stay readable.
    pub fn remove_endpoint(&self, name: &str) {
        self.0
            .endpoints
            .send_if_modified(|endpoints| endpoints.remove(name).is_some());
    }

    /// The names of the endpoints.
    pub fn endpoints(&self) -> Vec<Arc<str>> {
        self.0.endpoints.borrow().keys().cloned().collect()
    }

    /// The access of one cluster of this scope.
    ///
    /// `endpoint` names the endpoint that serves the cluster. The endpoint may be set later. `place` is where the cluster is
    /// behind that endpoint, as the layout names it.
    ///
    /// A cluster that is announced again at another endpoint moves: its stores are kept, the new endpoint is listed, and
    /// subscribers receive the differences. A cluster can move only if its provider declares its
    /// [identity](crate::ClusterSpec::identity). Without a declared identity, a cluster at another place or endpoint is
    /// another cluster.
    pub fn place(&self, endpoint: impl Into<Arc<str>>, place: impl Into<Arc<str>>) -> Access {
        self.place_without(endpoint, place, BTreeMap::new())
    }

    /// Does the same for a cluster that may not have some kinds which the endpoint lists for all its clusters.
    ///
    /// `withheld` has the reason for each such kind, by `<plural>` or `<plural>.<group>`. The kind is blocked in this cluster,
    /// with that reason. Once the cluster is announced without it, the kind is listed, and the cluster goes on as it is.
    pub fn place_without(
        &self,
        endpoint: impl Into<Arc<str>>,
        place: impl Into<Arc<str>>,
        withheld: BTreeMap<String, String>,
    ) -> Access {
        Access::Scoped(ScopedAccess {
            scope: self.clone(),
            endpoint: endpoint.into(),
            place: place.into(),
            withheld: (!withheld.is_empty()).then(|| withheld.into()),
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    pub(crate) fn watch_prefix(&self) -> &str {
        &self.0.watch_prefix
    }

    pub(crate) fn layout(&self) -> &Arc<dyn ScopeLayout> {
        &self.0.layout
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Endpoints> {
        self.0.endpoints.subscribe()
    }
}

impl PartialEq for Scope {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Scope {}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("layout", &self.name())
            .field("endpoints", &self.endpoints())
            .finish()
    }
}

/// The access of one cluster in a scope: an endpoint, and a place behind it. [`Scope::place`] creates it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopedAccess {
    pub(crate) scope: Scope,
    pub(crate) endpoint: Arc<str>,
    pub(crate) place: Arc<str>,
    pub(crate) withheld: Option<Arc<BTreeMap<String, String>>>,
}

impl ScopedAccess {
    /// Whether both are the same place.
    pub(crate) fn is_at(&self, other: &Self) -> bool {
        self.scope == other.scope && self.endpoint == other.endpoint && self.place == other.place
    }
}
