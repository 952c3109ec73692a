use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Response};
use http_body_util::BodyExt;

use super::body::SimBody;
use super::error::SimError;
use super::handle::{handle, refusal};
use super::state::ClusterState;

/// A simulated cluster as a tower service, for requests with any body. To listen on a port, use
/// [`SimServer`](super::SimServer).
#[derive(Clone, Debug)]
pub struct SimService {
    cluster: Arc<ClusterState>,
    /// Added to requests that have no `Authorization` header.
    authorization: Option<HeaderValue>,
}

impl SimService {
    pub(super) fn new(cluster: Arc<ClusterState>) -> Self {
        Self {
            cluster,
            authorization: None,
        }
    }

    /// Adds this bearer token to requests that have no token.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.authorization = HeaderValue::from_str(&format!("Bearer {token}")).ok();
        self
    }

    /// Answers a request.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<SimBody>
    where
        B: http_body::Body<Data = Bytes>,
    {
        let (mut parts, body) = request.into_parts();
        if let Some(authorization) = &self.authorization {
            let headers = &mut parts.headers;
            headers
                .entry(AUTHORIZATION)
                .or_insert_with(|| authorization.clone());
        }
        match body.collect().await {
            Ok(body) => handle(&self.cluster, &parts, &body.to_bytes(), None),
            Err(_) => refusal(&SimError::body_ended()),
        }
    }
}

impl<B> tower::Service<Request<B>> for SimService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<SimBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}
