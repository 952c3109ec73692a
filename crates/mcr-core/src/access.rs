//! The ways to reach a cluster, as providers announce them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use mcr_access::{
    AccessError, AccessPolicy, EndpointAccess, KubeconfigAccess, Resolved, Trust,
    internal::{namespace, resolve_with},
    resolve,
};

use crate::scope::ScopedAccess;

/// How to reach a cluster.
#[derive(Clone)]
#[non_exhaustive]
pub enum Access {
    /// A kubeconfig, as bytes.
    Kubeconfig(KubeconfigAccess),
    /// An address and something that hands out credentials.
    Endpoint(Box<EndpointAccess>),
    /// A client that is ready to use. The fleet can't see its address or credentials, so announcing another
    /// client for the same cluster counts as a change of address: one list and a comparison.
    ///
    /// A panic in a future or a body of one of its services is a failed request. A panic in `poll_ready` or `call` ends the
    /// client for good: the cluster says that it needs another one.
    Client(ReadyClient),
    /// A place in a scope: one of the many clusters behind an endpoint. Made by [`Scope::place`](crate::scope::Scope::place).
    Scoped(ScopedAccess),
}

impl Access {
    /// Access by the current context of a kubeconfig.
    pub fn kubeconfig(yaml: impl AsRef<[u8]>, trust: Trust) -> Self {
        Self::Kubeconfig(KubeconfigAccess::new(yaml, trust))
    }

    /// Finds out what it takes to connect. Reads the files that a kubeconfig names, but connects to nothing and runs nothing.
    pub(crate) fn resolve(&self, policy: &AccessPolicy) -> Result<ResolvedAccess, AccessError> {
        match self {
            Self::Kubeconfig(kubeconfig) => resolve(kubeconfig, policy).map(ResolvedAccess::Endpoint),
            Self::Endpoint(endpoint) => Ok(ResolvedAccess::Endpoint(endpoint.resolved())),
            Self::Client(client) => Ok(ResolvedAccess::Client(client.clone())),
            Self::Scoped(_) => Err(AccessError::invalid(
                "access",
                "is a place in a scope where a connection is needed; give a kubeconfig, an address or a client",
            )),
        }
    }

    /// [`resolve`](Self::resolve), if that needs neither parsing nor files.
    pub(crate) fn resolved(&self, policy: &AccessPolicy) -> Option<ResolvedAccess> {
        match self {
            Self::Kubeconfig(kubeconfig) => kubeconfig.resolved(policy).map(ResolvedAccess::Endpoint),
            Self::Endpoint(_) | Self::Client(_) => self.resolve(policy).ok(),
            Self::Scoped(_) => None,
        }
    }

    /// The namespace of requests that name none, as far as it is known without reading a kubeconfig.
    pub(crate) fn default_namespace(&self) -> Option<Arc<str>> {
        match self {
            Self::Kubeconfig(kubeconfig) => kubeconfig.default_namespace(),
            Self::Endpoint(endpoint) => Some(endpoint.default_namespace.clone()),
            Self::Client(client) => Some(namespace::interned(client.client().default_namespace())),
            // The layout of its scope knows.
            Self::Scoped(_) => None,
        }
    }

    /// Whether it is a kubeconfig that nobody has read yet.
    pub(crate) fn is_unread(&self) -> bool {
        matches!(self, Self::Kubeconfig(kubeconfig) if !kubeconfig.is_read())
    }

    /// Reads a kubeconfig, but none of the files that it names. An error shows when the access is used.
    pub(crate) fn read(&self, policy: &AccessPolicy) {
        if let Self::Kubeconfig(kubeconfig) = self {
            let _ = resolve_with(kubeconfig, policy, false);
        }
    }

    /// The same access without the text of its kubeconfig, if all that it leads to is known. Only for use with this policy.
    pub(crate) fn settled(self, policy: &AccessPolicy) -> Self {
        match self {
            Self::Kubeconfig(kubeconfig) => Self::Kubeconfig(kubeconfig.without_text(policy)),
            other => other,
        }
    }
}

/// What it takes to connect.
pub(crate) enum ResolvedAccess {
    /// An address and a source of credentials.
    Endpoint(Resolved),
    /// A client of the user's.
    Client(ReadyClient),
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

impl From<ScopedAccess> for Access {
    fn from(scoped: ScopedAccess) -> Self {
        Self::Scoped(scoped)
    }
}

impl From<EndpointAccess> for Access {
    fn from(endpoint: EndpointAccess) -> Self {
        Self::Endpoint(Box::new(endpoint))
    }
}

// Kubeconfigs hold credentials, so no part of their content is shown.
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

/// A client made elsewhere. Clones of it count as the same client, which `kube::Client` itself can't tell.
#[derive(Clone)]
pub struct ReadyClient {
    client: kube::Client,
    id: u64,
}

impl ReadyClient {
    /// Takes a client.
    pub fn new(client: kube::Client) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            client,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }

    pub(crate) fn client(&self) -> &kube::Client {
        &self.client
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}
