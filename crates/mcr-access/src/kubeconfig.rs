//! A kubeconfig as it was handed over, and the result of reading it.

use std::{
    fmt,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use crate::{AccessPolicy, CredentialSource, Endpoint, Resolved, Trust};

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
    /// The result of reading it, shared by all clones.
    pub(crate) found: Arc<OnceLock<Found>>,
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

/// What was found in a kubeconfig.
pub(crate) struct Found {
    pub(crate) yaml: Arc<[u8]>,
    pub(crate) context: Option<Arc<str>>,
    pub(crate) default_namespace: Arc<str>,
    /// None if it names files or programs, in which something else may be found each time.
    pub(crate) link: Option<FoundLink>,
}

#[derive(Clone)]
pub(crate) struct FoundLink {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) credentials: Arc<dyn CredentialSource>,
}

impl KubeconfigAccess {
    fn found(&self) -> Option<&Found> {
        // The fields are public: they may have been changed since.
        let same = |found: &&Found| Arc::ptr_eq(&found.yaml, &self.yaml) && found.context == self.context;
        self.found.get().filter(same)
    }

    /// Whether the kubeconfig has been read.
    #[doc(hidden)]
    pub fn is_read(&self) -> bool {
        self.found().is_some()
    }

    /// The namespace of the context; none as long as the kubeconfig has not been read.
    pub fn default_namespace(&self) -> Option<Arc<str>> {
        self.found().map(|found| found.default_namespace.clone())
    }

    /// The result of an earlier [`resolve`](crate::resolve), if the kubeconfig names neither files nor programs and the policy
    /// allows it.
    pub fn resolved(&self, policy: &AccessPolicy) -> Option<Resolved> {
        let found = self.found()?;
        let FoundLink {
            endpoint,
            credentials,
        } = found.link.as_ref()?;
        // The policy can refuse nothing else of it. Reading the kubeconfig again tells why it refuses.
        let allowed = self.trust == Trust::Trusted
            || (!endpoint.insecure_skip_tls_verify
                && endpoint.proxy.is_none()
                && literal(&endpoint.server).is_none_or(|address| policy.addresses.check(address).is_ok()));
        allowed.then(|| Resolved {
            endpoint: endpoint.clone(),
            credentials: credentials.clone(),
            default_namespace: found.default_namespace.clone(),
            trust: self.trust,
        })
    }

    /// The same access without the text of its kubeconfig, if all that it leads to is known: the text can be longer than
    /// everything else that is held of a cluster. Only for use with this policy.
    #[doc(hidden)]
    #[must_use]
    pub fn settled(self, policy: &AccessPolicy) -> Self {
        let (Some(_), Some(found)) = (self.resolved(policy), self.found()) else {
            return self;
        };
        let yaml: Arc<[u8]> = Arc::default();
        Self {
            found: Arc::new(OnceLock::from(Found {
                yaml: yaml.clone(),
                context: found.context.clone(),
                default_namespace: found.default_namespace.clone(),
                link: found.link.clone(),
            })),
            yaml,
            trust: self.trust,
            context: self.context.clone(),
            base_dir: None,
        }
    }

    /// A path in a kubeconfig starts from the folder of the kubeconfig.
    pub(crate) fn absolute(&self, path: &str) -> PathBuf {
        match &self.base_dir {
            Some(dir) => dir.join(path),
            None => PathBuf::from(path),
        }
    }
}

/// The IP address in the URL of a server; none if it has a host name.
pub(crate) fn literal(server: &http::Uri) -> Option<IpAddr> {
    let host = server.host()?.trim_start_matches('[').trim_end_matches(']');
    host.parse().ok()
}
