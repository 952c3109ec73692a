//! How a cluster is reached: what providers hand over, and how far it is trusted.

mod contexts;
mod credential;
mod document;
mod error;
mod exec;
mod fields;
mod file;
mod kubeconfig;
pub(crate) mod pem;
mod policy;
mod user;

use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

#[cfg(feature = "fuzzing")]
pub(crate) use self::{document::Document, exec::output as exec_output, kubeconfig::link as link_kubeconfig};
use crate::scope::ScopedAccess;
pub use contexts::{ContextAccess, KubeconfigFile, Kubeconfigs, contexts};
pub use credential::{
    Basic, ClientCertificate, Credential, CredentialError, CredentialSource, Fingerprint, Impersonation,
    Refresh, StaticCredential,
};
pub(crate) use error::list;
pub use error::{AccessError, Place};
pub use exec::{ApiVersion, ExecPlugin};
use kubeconfig::Found;
pub use kubeconfig::check;
pub(crate) use kubeconfig::{
    Resolved, at_hand, default_namespace, is_unread, look_into, resolve, settled, usual_namespace,
};
pub use policy::{AccessPolicy, AddressPolicy, CredentialPluginPolicy, ForbiddenAddress};

/// How to reach a cluster.
#[derive(Clone)]
#[non_exhaustive]
pub enum Access {
    /// A kubeconfig, as bytes.
    Kubeconfig(KubeconfigAccess),
    /// An address and something that hands out credentials.
    Parts(Box<Parts>),
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

impl From<Parts> for Access {
    fn from(parts: Parts) -> Self {
        Self::Parts(Box::new(parts))
    }
}

// Kubeconfigs hold credentials, so no part of their content is shown.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubeconfig(kubeconfig) => kubeconfig.fmt(f),
            Self::Parts(parts) => parts.fmt(f),
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

/// Who wrote a kubeconfig, and so what it may make this process do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trust {
    /// Written by whoever runs this process (a file named on its command line): it may name files to read
    /// and programs to execute.
    Trusted,
    /// Written by someone who can only write a Secret or a custom resource: inline data only. Programs,
    /// auth providers, file paths, unverified TLS and proxies are refused unless the
    /// [`AccessPolicy`](crate::AccessPolicy) allows them.
    Untrusted,
}

/// Access by a kubeconfig.
#[derive(Clone)]
#[non_exhaustive]
pub struct KubeconfigAccess {
    /// The kubeconfig, YAML or JSON.
    pub yaml: Arc<[u8]>,
    /// How far it is trusted.
    pub trust: Trust,
    /// The context to use; without it the kubeconfig's current context.
    pub context: Option<Arc<str>>,
    /// The folder that relative paths in a trusted kubeconfig start from.
    pub base_dir: Option<PathBuf>,
    /// What was found in it, for all clones of it.
    found: Arc<OnceLock<Found>>,
}

impl KubeconfigAccess {
    /// Access by the current context of a kubeconfig.
    pub fn new(yaml: impl AsRef<[u8]>, trust: Trust) -> Self {
        Self {
            yaml: Arc::from(yaml.as_ref()),
            trust,
            context: None,
            base_dir: None,
            found: Arc::default(),
        }
    }

    /// Chooses a context.
    #[must_use]
    pub fn context(mut self, context: impl Into<Arc<str>>) -> Self {
        self.context = Some(context.into());
        // Clones that chose another one have found something else.
        self.found = Arc::default();
        self
    }

    /// Sets the folder that relative paths start from.
    #[must_use]
    pub fn base_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.base_dir = Some(dir.into());
        self
    }
}

impl fmt::Debug for KubeconfigAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubeconfig")
            .field("bytes", &self.yaml.len())
            .field("trust", &self.trust)
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}

/// Access by an address and a source of credentials.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Parts {
    /// Where the API server is and how it proves who it is.
    pub endpoint: Endpoint,
    /// Hands out credentials, now and when they expire.
    pub credentials: Arc<dyn CredentialSource>,
    /// The namespace of requests that name none.
    pub default_namespace: Arc<str>,
}

impl Parts {
    /// An address and a source of credentials, with `default` as the default namespace.
    pub fn new(endpoint: Endpoint, credentials: impl CredentialSource) -> Self {
        Self {
            endpoint,
            credentials: Arc::new(credentials),
            default_namespace: usual_namespace(),
        }
    }
}

/// Where an API server is and how it proves who it is. Two equal endpoints can share connections' TLS state.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Endpoint {
    /// `https://host:port/path`; plain http is accepted.
    pub server: http::Uri,
    /// The certificate authorities that sign the server's certificate, PEM; without it the system's.
    pub certificate_authority: Option<Arc<[u8]>>,
    /// The name the server's certificate must carry, if it is not the host of `server`.
    pub tls_server_name: Option<Arc<str>>,
    /// Accept any server certificate.
    pub insecure_skip_tls_verify: bool,
    /// An http, https or socks5 proxy.
    pub proxy: Option<http::Uri>,
}

impl Endpoint {
    /// An endpoint whose certificate is checked against the system's certificate authorities.
    pub fn new(server: http::Uri) -> Self {
        Self {
            server,
            certificate_authority: None,
            tls_server_name: None,
            insecure_skip_tls_verify: false,
            proxy: None,
        }
    }

    /// Sets the certificate authorities, PEM.
    #[must_use]
    pub fn certificate_authority(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.certificate_authority = Some(Arc::from(pem.as_ref()));
        self
    }
}

// An address of a proxy can hold a password.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("server", &plain(&self.server))
            .field(
                "certificate_authority",
                &self.certificate_authority.as_ref().map(|pem| pem.len()),
            )
            .field("tls_server_name", &self.tls_server_name)
            .field("insecure_skip_tls_verify", &self.insecure_skip_tls_verify)
            .field("proxy", &self.proxy.as_ref().map(plain))
            .finish()
    }
}

/// An address without user name, password and query.
pub(crate) fn plain(uri: &http::Uri) -> String {
    let scheme = uri
        .scheme_str()
        .map(|scheme| format!("{scheme}://"))
        .unwrap_or_default();
    let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}{}{port}{}", uri.host().unwrap_or_default(), uri.path())
}
