//! The result of resolving an access.

use std::sync::Arc;

use crate::{CredentialSource, Endpoint, Trust};

/// An endpoint and a source of credentials: everything that a connection needs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Resolved {
    /// Where the API server is and how it proves its identity.
    pub endpoint: Arc<Endpoint>,
    /// Hands out credentials, now and when they expire.
    pub credentials: Arc<dyn CredentialSource>,
    /// The namespace of requests that name none.
    pub default_namespace: Arc<str>,
    /// Who wrote the endpoint down. [`AccessPolicy::addresses`](crate::AccessPolicy::addresses) limits untrusted ones.
    pub trust: Trust,
}
