//! An address and a source of credentials.

use std::sync::Arc;

use crate::{CredentialSource, Endpoint, Resolved, Trust, namespace::usual};

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
            default_namespace: usual(),
        }
    }
    /// The same as the result of resolving a trusted kubeconfig.
    pub fn resolved(&self) -> Resolved {
        Resolved {
            endpoint: Arc::new(self.endpoint.clone()),
            credentials: self.credentials.clone(),
            default_namespace: self.default_namespace.clone(),
            trust: Trust::Trusted,
        }
    }
}
