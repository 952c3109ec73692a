//! Who may read what the server serves.

use std::{fmt, future::ready, path::PathBuf, sync::Arc, time::Duration};

use futures::FutureExt;
use kube::Client;

use crate::leader::MakeClient;

/// How long a decision of the hub is kept.
const CACHE_TTL: Duration = Duration::from_secs(30);

/// The longest time for the same.
const MOST_CACHE_TTL: Duration = Duration::from_secs(3600);

/// Who may read `/clusters`, `/metrics` and the routes of the program; see [`ServerOptions::access`](super::ServerOptions::access).
///
/// Each request is checked by itself, so a connection that stays open gives no right that its token has lost. What can't be checked
/// is refused.
#[derive(Clone)]
pub struct ServerAccess(pub(super) Kind);

#[derive(Clone)]
pub(super) enum Kind {
    Open,
    Hub { client: MakeClient, cache_ttl: Duration },
    TokenFile(PathBuf),
    ClientCertificates(PathBuf),
}

impl ServerAccess {
    /// Those whose bearer token a cluster accepts (TokenReview), and to whom its RBAC grants the verb `get` on the path as a
    /// `nonResourceURL` (SubjectAccessReview). This is the default of kubebuilder's projects.
    ///
    /// The user of the client needs `create` on `tokenreviews.authentication.k8s.io` and
    /// `subjectaccessreviews.authorization.k8s.io`, which the ClusterRole `system:auth-delegator` grants.
    pub fn hub(client: Client) -> Self {
        Self::hub_from(Arc::new(move || ready(Ok((client.clone(), None))).boxed()))
    }

    pub(crate) fn hub_from(client: MakeClient) -> Self {
        Self(Kind::Hub {
            client,
            cache_ttl: CACHE_TTL,
        })
    }

    /// Those who send one of the bearer tokens in this file, which has one token on each line and nothing else. Each
    /// request reads the file, so a token that is removed is refused at once.
    pub fn token_file(path: impl Into<PathBuf>) -> Self {
        Self(Kind::TokenFile(path.into()))
    }

    /// Those who show a client certificate of the authorities in this file. All certificates of these authorities are
    /// accepted, so give an authority that is made for this. Needs [TLS](super::ServerOptions::tls); a connection lives for two
    /// minutes at most after its certificate was checked. The file is read with those of [TLS](super::TlsFiles), every ten seconds; if it
    /// can't be used, everybody is refused. There are no lists of revoked certificates.
    pub fn client_certificates(authorities: impl Into<PathBuf>) -> Self {
        Self(Kind::ClientCertificates(authorities.into()))
    }

    /// Everybody who can connect.
    pub fn open() -> Self {
        Self(Kind::Open)
    }

    /// Sets how long a decision of the [hub](Self::hub) is kept, which is how long a token or a right that is revoked still reads.
    /// Default 30 seconds, an hour at most. Refusals are kept for 10 seconds at most. Without effect on other kinds.
    pub fn cache_ttl(mut self, ttl: Duration) -> Self {
        if let Kind::Hub { cache_ttl, .. } = &mut self.0 {
            *cache_ttl = ttl.min(MOST_CACHE_TTL);
        }
        self
    }

    /// Whether callers send a token, which has to be kept from others on the way.
    pub(super) fn needs_token(&self) -> bool {
        matches!(self.0, Kind::Hub { .. } | Kind::TokenFile(_))
    }
}

impl fmt::Debug for ServerAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Open => f.write_str("Open"),
            Kind::Hub { cache_ttl, .. } => f.debug_struct("Hub").field("cache_ttl", cache_ttl).finish(),
            Kind::TokenFile(path) => f.debug_tuple("TokenFile").field(path).finish(),
            Kind::ClientCertificates(path) => f.debug_tuple("ClientCertificates").field(path).finish(),
        }
    }
}
