//! The result of resolving an access.

use std::sync::Arc;

use crate::{credential::CredentialSource, endpoint::Endpoint, trust::Trust};

/// The endpoint of a cluster and a source of its credentials: everything that a connection needs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Resolved {
    /// The address of the API server, and how to verify its certificate.
    pub endpoint: Arc<Endpoint>,
    /// The source of credentials for the API server.
    pub credentials: Arc<dyn CredentialSource>,
    /// The namespace of requests that name none.
    pub default_namespace: Arc<str>,
    /// How far the endpoint is trusted. [`AccessPolicy::addresses`](crate::AccessPolicy::addresses) restricts an
    /// untrusted one.
    pub trust: Trust,
}
