//! Access by a kubeconfig, with its cached resolution.

use std::{
    fmt,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::future::BoxFuture;

use crate::{
    credential::{Credential, CredentialError, CredentialSource, Refresh},
    endpoint::Endpoint,
    fingerprint::Fingerprint,
    policy::AccessPolicy,
    resolved::Resolved,
    trust::Trust,
};

/// Access to a cluster by a context of a kubeconfig.
///
/// [`resolve`](crate::resolve) caches its result here. Clones share the cache.
#[derive(Clone)]
#[non_exhaustive]
pub struct KubeconfigAccess {
    /// The text of the kubeconfig, in YAML or JSON.
    pub yaml: Arc<[u8]>,
    /// How far the kubeconfig is trusted.
    pub trust: Trust,
    /// The name of the context to use. `None`: the current context of the kubeconfig.
    pub context: Option<Arc<str>>,
    /// The folder to which relative paths in the kubeconfig refer. `None`: the working directory of this process.
    pub base_dir: Option<PathBuf>,
    /// The cached result of [`resolve`](crate::resolve). All clones share it.
    pub(crate) cached: Arc<OnceLock<CachedResolution>>,
}

impl KubeconfigAccess {
    /// Access by the current context of a kubeconfig.
    pub fn new(yaml: impl AsRef<[u8]>, trust: Trust) -> Self {
        Self {
            yaml: Arc::from(yaml.as_ref()),
            trust,
            context: None,
            base_dir: None,
            cached: Arc::default(),
        }
    }

    /// Sets the context to use.
    #[must_use]
    pub fn context(mut self, context: impl Into<Arc<str>>) -> Self {
        self.context = Some(context.into());
        // Clones with another context have another result.
        self.cached = Arc::default();
        self
    }

    /// Sets the folder to which relative paths in the kubeconfig refer.
    #[must_use]
    pub fn base_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.base_dir = Some(dir.into());
        self
    }
}

impl fmt::Debug for KubeconfigAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeconfigAccess")
            .field("bytes", &self.yaml.len())
            .field("trust", &self.trust)
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}

/// The result of resolving a kubeconfig, with the values that it was resolved from.
pub(crate) struct CachedResolution {
    pub(crate) yaml: Arc<[u8]>,
    pub(crate) context: Option<Arc<str>>,
    pub(crate) default_namespace: Arc<str>,
    /// `None` if the kubeconfig names files or programs, since their content can change.
    pub(crate) inline: Option<CachedEndpoint>,
}

#[derive(Clone)]
pub(crate) struct CachedEndpoint {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) credentials: Arc<dyn CredentialSource>,
}

impl KubeconfigAccess {
    /// Returns the cached resolution, unless the public fields have changed since.
    fn cached(&self) -> Option<&CachedResolution> {
        let is_current = |cached: &&CachedResolution| {
            Arc::ptr_eq(&cached.yaml, &self.yaml) && cached.context == self.context
        };
        self.cached.get().filter(is_current)
    }

    /// Returns whether the kubeconfig has been resolved or checked with success.
    #[doc(hidden)]
    pub fn is_read(&self) -> bool {
        self.cached().is_some()
    }

    /// Returns the namespace of the context. `None` before the first successful [`resolve`](crate::resolve) or
    /// [`check`](crate::check).
    pub fn default_namespace(&self) -> Option<Arc<str>> {
        self.cached().map(|cached| cached.default_namespace.clone())
    }

    /// Returns the cached result of an earlier [`resolve`](crate::resolve) or [`check`](crate::check).
    ///
    /// `None` if there is no such result, if the kubeconfig names files or programs, or if this policy does not allow it.
    /// Then [`resolve`](crate::resolve) reads the kubeconfig again, and its error says what the policy refuses.
    pub fn resolved(&self, policy: &AccessPolicy) -> Option<Resolved> {
        let cached = self.cached()?;
        let CachedEndpoint {
            endpoint,
            credentials,
        } = cached.inline.as_ref()?;
        // Without files and programs, these are all fields that a policy can refuse.
        let allowed = self.trust == Trust::Trusted
            || (!endpoint.insecure_skip_tls_verify
                && endpoint.proxy.is_none()
                && literal_ip(&endpoint.server)
                    .is_none_or(|address| policy.addresses.check(address).is_ok()));
        allowed.then(|| Resolved {
            endpoint: endpoint.clone(),
            credentials: credentials.clone(),
            default_namespace: cached.default_namespace.clone(),
            trust: self.trust,
        })
    }

    /// Drops the text of the kubeconfig if the cached resolution makes it superfluous, for use with this policy only.
    /// The text can need more memory than all other data of a cluster.
    #[doc(hidden)]
    #[must_use]
    pub fn without_text(self, policy: &AccessPolicy) -> Self {
        let (Some(_), Some(cached)) = (self.resolved(policy), self.cached()) else {
            return self;
        };
        let yaml: Arc<[u8]> = Arc::default();
        Self {
            cached: Arc::new(OnceLock::from(CachedResolution {
                yaml: yaml.clone(),
                context: cached.context.clone(),
                default_namespace: cached.default_namespace.clone(),
                inline: cached.inline.clone(),
            })),
            yaml,
            trust: self.trust,
            context: self.context.clone(),
            base_dir: None,
        }
    }

    /// Calls `refused` whenever the API server has refused the credential with a 401. For a provider that can get another one.
    ///
    /// Only after a successful [`resolve`](crate::resolve) or [`check`](crate::check) of a kubeconfig with inline data. Without
    /// these nothing is called.
    #[doc(hidden)]
    #[must_use]
    pub fn on_refusal(self, refused: impl Fn() + Send + Sync + 'static) -> Self {
        let Some((cached, inline)) = self
            .cached()
            .and_then(|cached| Some((cached, cached.inline.clone()?)))
        else {
            return self;
        };
        let credentials = Arc::new(ReportedRefusals {
            source: inline.credentials,
            refused,
        });
        let cached = CachedResolution {
            yaml: cached.yaml.clone(),
            context: cached.context.clone(),
            default_namespace: cached.default_namespace.clone(),
            inline: Some(CachedEndpoint {
                endpoint: inline.endpoint,
                credentials,
            }),
        };
        Self {
            cached: Arc::new(OnceLock::from(cached)),
            ..self
        }
    }

    /// Resolves a path in the kubeconfig against its folder.
    pub(crate) fn absolute(&self, path: &str) -> PathBuf {
        match &self.base_dir {
            Some(dir) => dir.join(path),
            None => PathBuf::from(path),
        }
    }
}

/// A source that reports when its credential was refused.
struct ReportedRefusals<F> {
    source: Arc<dyn CredentialSource>,
    refused: F,
}

impl<F: Fn() + Send + Sync + 'static> CredentialSource for ReportedRefusals<F> {
    fn fingerprint(&self) -> Fingerprint {
        self.source.fingerprint()
    }

    fn credential(&self, why: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        if matches!(why, Refresh::Unauthorized) {
            (self.refused)();
        }
        self.source.credential(why)
    }

    fn renew_every(&self) -> Option<Duration> {
        self.source.renew_every()
    }
}

/// Returns the IP address in the URL of a server, without its zone. `None` if the URL has a host name.
pub fn literal_ip(server: &http::Uri) -> Option<IpAddr> {
    let (address, _) = split_zone(server.host()?);
    address.parse().ok()
}

/// Splits the host of a URL into the host without brackets and the zone of an IPv6 address: the interface of `[fe80::1%25eth0]`,
/// as RFC 6874 writes it, and of `[fe80::1%eth0]`.
pub fn split_zone(host: &str) -> (&str, Option<&str>) {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.split_once('%') {
        Some((address, zone)) if address.contains(':') => {
            let escaped = zone.strip_prefix("25").filter(|zone| !zone.is_empty());
            (address, Some(escaped.unwrap_or(zone)))
        }
        _ => (host, None),
    }
}
