//! Access by an endpoint and a source of credentials.

use std::sync::Arc;

use crate::{credential::CredentialSource, endpoint::Endpoint, namespace, resolved::Resolved, trust::Trust};

/// Access to a cluster by its endpoint and a source of credentials, without a kubeconfig. It is trusted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndpointAccess {
    /// The address of the API server, and how to verify its certificate.
    pub endpoint: Endpoint,
    /// The source of credentials for the API server.
    pub credentials: Arc<dyn CredentialSource>,
    /// The namespace of requests that name none.
    pub default_namespace: Arc<str>,
}

impl EndpointAccess {
    /// Access by this endpoint and this source of credentials. The default namespace is `default`.
    pub fn new(endpoint: Endpoint, credentials: impl CredentialSource) -> Self {
        Self {
            endpoint,
            credentials: Arc::new(credentials),
            default_namespace: namespace::default_name(),
        }
    }

    /// Returns this access in the form in which [`resolve`](crate::resolve) returns a trusted kubeconfig.
    pub fn resolved(&self) -> Resolved {
        Resolved {
            endpoint: Arc::new(self.endpoint.clone()),
            credentials: self.credentials.clone(),
            default_namespace: self.default_namespace.clone(),
            trust: Trust::Trusted,
        }
    }
}
