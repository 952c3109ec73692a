//! How a cluster is reached: what providers hand over, and how far it is trusted.

mod contexts;
mod credential;
pub(crate) mod document;
pub(crate) mod error;

use std::{fmt, path::PathBuf, sync::Arc};

pub use contexts::{ContextAccess, KubeconfigFile, contexts};
pub use credential::{
    Basic, ClientCertificate, Credential, CredentialError, CredentialSource, Fingerprint, Impersonation,
    Refresh, StaticCredential,
};
pub use error::{AccessError, Place};

/// How to reach a cluster.
#[derive(Clone)]
#[non_exhaustive]
pub enum Access {
    /// A kubeconfig, as bytes.
    Kubeconfig(KubeconfigAccess),
    /// An address and something that hands out credentials.
    Parts(Parts),
    /// A client that is ready to use. The fleet can't see its address or credentials: announcing another
    /// client for the same cluster counts as a change of credentials unless the declared identity differs.
    Client(kube::Client),
}

impl Access {
    /// Access by the current context of a kubeconfig.
    pub fn kubeconfig(yaml: impl AsRef<[u8]>, trust: Trust) -> Self {
        Self::Kubeconfig(KubeconfigAccess::new(yaml, trust))
    }
}

impl From<kube::Client> for Access {
    fn from(client: kube::Client) -> Self {
        Self::Client(client)
    }
}

impl From<KubeconfigAccess> for Access {
    fn from(kubeconfig: KubeconfigAccess) -> Self {
        Self::Kubeconfig(kubeconfig)
    }
}

impl From<Parts> for Access {
    fn from(parts: Parts) -> Self {
        Self::Parts(parts)
    }
}

// Kubeconfigs hold credentials, so no part of their content is shown.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubeconfig(kubeconfig) => kubeconfig.fmt(f),
            Self::Parts(parts) => parts.fmt(f),
            Self::Client(_) => f.write_str("Client(..)"),
        }
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
}

impl KubeconfigAccess {
    /// Access by the current context of a kubeconfig.
    pub fn new(yaml: impl AsRef<[u8]>, trust: Trust) -> Self {
        Self {
            yaml: Arc::from(yaml.as_ref()),
            trust,
            context: None,
            base_dir: None,
        }
    }

    /// Chooses a context.
    #[must_use]
    pub fn context(mut self, context: impl Into<Arc<str>>) -> Self {
        self.context = Some(context.into());
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
            default_namespace: "default".into(),
        }
    }
}

/// Where an API server is and how it proves who it is. Two equal endpoints can share connections' TLS state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
