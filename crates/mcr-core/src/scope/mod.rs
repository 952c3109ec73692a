//! Scopes: one endpoint that carries many clusters.
//!
//! A kcp virtual workspace serves thousands of workspaces behind one address, and the namespaces of one API server
//! can stand for clusters. Watching each of them by itself would cost a connection, a watch and a task per cluster
//! and kind. In a scope there is one watch per kind for all of them: each event is handed to the cluster it belongs
//! to by a function of the object's metadata, and a cluster has no task and no socket of its own.
//!
//! - [`ScopeLayout`] says how clusters are laid out behind an endpoint. Write one to make a new kind of scope.
//! - [`Scope`] is a layout with its endpoints, which come and go.
//! - [`Scope::place`] is the [`Access`] of one cluster in it.

mod layout;
mod watch;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::watch as channel;

pub use layout::{Capabilities, Placement, ScopeLayout, ScopeRefusal};
pub(crate) use watch::ScopeWatch;

use crate::Access;
pub use crate::fleet::Upstream;

/// A layout with the endpoints that it is served at.
///
/// Clones are the same scope. A fleet connects to an endpoint when the first cluster of it joins and lets go of it
/// when the last one has left; the provider that made the scope says which endpoints there are and how to reach
/// them. What changes of an endpoint costs what it costs for a cluster: new credentials are swapped below the
/// watches, another address of the same server means one list and a comparison. Which server it is, is told by the UID
/// of its `kube-system` namespace; where that may not be read, another address is another server, and the clusters behind
/// it are engaged anew.
///
/// ```
/// use mcr_core::{Access, ClusterName, ClusterSpec, ScopeLayout, Trust, scope::Scope};
///
/// # fn example(workspaces: impl ScopeLayout, kubeconfig: &[u8]) -> Result<(), mcr_core::InvalidClusterName> {
/// let scope = Scope::new(workspaces);
/// scope.set_endpoint("shard-1", Access::kubeconfig(kubeconfig, Trust::Trusted));
/// let spec = ClusterSpec::new(ClusterName::new("344qdshnqz45fjlp")?, scope.place("shard-1", "344qdshnqz45fjlp"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Scope(Arc<Inner>);

struct Inner {
    id: u64,
    /// What the layout says of itself.
    name: Box<str>,
    watch_prefix: Box<str>,
    layout: Arc<dyn ScopeLayout>,
    endpoints: channel::Sender<Endpoints>,
}

/// A new allocation each time an endpoint is announced, so that it can be told which one was.
pub(crate) type Endpoints = BTreeMap<Arc<str>, Arc<Access>>;

impl Scope {
    /// A scope without endpoints. Asks the layout for its name and its prefix, once for all.
    pub fn new(layout: impl ScopeLayout) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(Arc::new(Inner {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            name: layout.name().into(),
            watch_prefix: layout.watch_prefix().into(),
            layout: Arc::new(layout),
            endpoints: channel::Sender::default(),
        }))
    }

    /// The layout's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Adds an endpoint, or says how it is reached from now on.
    ///
    /// Saying the same again costs nothing. An access that is itself a place in a scope can't be connected to; its
    /// clusters say so.
    pub fn set_endpoint(&self, name: impl Into<Arc<str>>, access: impl Into<Access>) {
        let (name, access) = (name.into(), Arc::new(access.into()));
        self.0.endpoints.send_modify(|endpoints| {
            endpoints.insert(name, access);
        });
    }

    /// Takes an endpoint away. Its clusters show as unreachable until they are announced elsewhere or removed, or
    /// the endpoint comes back; what their stores hold stays readable.
    pub fn remove_endpoint(&self, name: &str) {
        self.0
            .endpoints
            .send_if_modified(|endpoints| endpoints.remove(name).is_some());
    }

    /// The names of the endpoints.
    pub fn endpoints(&self) -> Vec<Arc<str>> {
        self.0.endpoints.borrow().keys().cloned().collect()
    }

    /// The access of one cluster of this scope: the endpoint that serves it, and its place there as the layout
    /// names it.
    ///
    /// The endpoint need not be there yet. A cluster that is announced again at another endpoint moves: its stores
    /// are kept, the new endpoint is listed and what is different is told. For that its
    /// [identity](crate::ClusterSpec::identity) has to be declared; without one, a cluster at another place or
    /// endpoint is another cluster.
    pub fn place(&self, endpoint: impl Into<Arc<str>>, place: impl Into<Arc<str>>) -> Access {
        Access::Scoped(ScopedAccess {
            scope: self.clone(),
            endpoint: endpoint.into(),
            place: place.into(),
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

    pub(crate) fn subscribe(&self) -> channel::Receiver<Endpoints> {
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

/// The place of one cluster in a scope; made by [`Scope::place`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopedAccess {
    pub(crate) scope: Scope,
    pub(crate) endpoint: Arc<str>,
    pub(crate) place: Arc<str>,
}
