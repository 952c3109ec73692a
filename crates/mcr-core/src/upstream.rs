//! The connection of a scope endpoint, as a layout uses it.

use std::{fmt, sync::Arc};

use http::{Request, Response};
use kube::client::Body;
use mcr_client::{
    Transport,
    internal::{AbsolutePath, prefixed},
};

use mcr_access::BoxError;
use mcr_client::AnswerBody;

/// The connection of a scope endpoint, for the requests of the clusters behind it.
///
/// The fleet passes it to [`ScopeLayout::send`](crate::ScopeLayout::send). Clones use the same connection.
#[derive(Clone, Debug)]
pub struct Upstream(Arc<dyn EndpointConnection>);

/// The connection of one endpoint, which the fleet may replace at any time.
pub(crate) trait EndpointConnection: fmt::Debug + Send + Sync {
    /// The transport of the connection. An error if the endpoint is not connected yet.
    fn transport(&self) -> Result<Transport, BoxError>;
}

impl Upstream {
    pub(crate) fn new(connection: Arc<dyn EndpointConnection>) -> Self {
        Self(connection)
    }

    /// Sends a request with the credentials of the endpoint.
    ///
    /// The URI of the request is a path, below the address of the endpoint, and a query.
    ///
    /// # Errors
    /// If no response comes: the endpoint is not connected, the connection broke, or a timeout expired. A response with an
    /// error status is `Ok`.
    ///
    /// # Cancellation
    /// Dropping the future cancels the request.
    pub async fn send(&self, mut request: Request<Body>) -> Result<Response<AnswerBody>, BoxError> {
        let transport = self.0.transport()?;
        request.extensions_mut().insert(AbsolutePath);
        let response = transport.send(request).await?;
        Ok(response.map(AnswerBody::new))
    }

    /// Puts `prefix` in front of the path of a request, and [sends](Self::send) the request.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send), and an error if the prefix and the path are no valid URI together.
    ///
    /// # Cancellation
    /// Dropping the future cancels the request.
    pub async fn send_below(
        &self,
        prefix: &str,
        mut request: Request<Body>,
    ) -> Result<Response<AnswerBody>, BoxError> {
        *request.uri_mut() = prefixed(prefix, request.uri())?;
        self.send(request).await
    }
}
