//! The mapping without a fleet. All clusters of one host share it.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use mcr_core::{AnswerBody, BoxError};

use crate::{
    error::{AnswerError, NamespaceError},
    kinds::{Host, Kinds},
    mapping::names::Names,
    send::send,
};

/// The mapping between namespaces as clusters and their host, without a fleet: for programs that need a client for which one
/// namespace is a whole cluster.
///
/// Clones share a cache of the kinds of the host, so use one mapping for each host.
///
/// ```
/// use mcr_provider_namespace::NamespaceMapping;
/// # async fn example(host: kube::Client) -> Result<(), mcr_provider_namespace::NamespaceError> {
/// let island = NamespaceMapping::new().client(&host, "island")?;
/// assert_eq!(island.default_namespace(), "default");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct NamespaceMapping {
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) keep: bool,
}

impl NamespaceMapping {
    /// A mapping in which the only namespace of a cluster is `default`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the namespace keeps its real name inside its cluster. Default: no.
    #[must_use]
    pub fn keep_names(mut self, keep: bool) -> Self {
        self.keep = keep;
        self
    }

    /// A client for which `namespace` of the host is a whole cluster. It does not check that the namespace exists.
    ///
    /// # Errors
    /// [`NamespaceError::Name`] if the name is no valid name of a namespace.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn client(&self, host: &kube::Client, namespace: &str) -> Result<kube::Client, NamespaceError> {
        let place: Arc<str> = namespace.into();
        let names = Names::of(&place, self.keep).ok_or_else(|| NamespaceError::Name(namespace.to_owned()))?;
        let (mapping, host) = (self.clone(), of_client(host.clone()));
        let service = tower::service_fn(move |request| mapping.send(place.clone(), request, host.clone()));
        Ok(kube::Client::new(service, &*names.inside))
    }

    /// Sends a request of the cluster of the namespace `place`.
    pub(crate) fn send(
        &self,
        place: Arc<str>,
        request: Request<Body>,
        host: Host,
    ) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>> {
        let mapping = self.clone();
        Box::pin(async move {
            let names = Names::of(&place, mapping.keep).ok_or(AnswerError::NoNamespace)?;
            send(names, &mapping.kinds, request, host).await
        })
    }
}

/// The host of a ready client.
pub(crate) fn of_client(client: kube::Client) -> Host {
    Arc::new(move |request| {
        let client = client.clone();
        Box::pin(async move {
            let response = client.send(request).await?;
            Ok(response.map(AnswerBody::new))
        })
    })
}
