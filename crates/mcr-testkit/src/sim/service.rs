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
use super::handle::handle;
use super::state::ClusterState;

/// A simulated cluster as a tower service, for any request body; for hyper see
/// [`SimServer`](super::SimServer).
#[derive(Clone, Debug)]
pub struct SimService {
    cluster: Arc<ClusterState>,
    /// Added to requests that have no `Authorization` header.
    authorization: Option<HeaderValue>,
    certificate: Option<Arc<[u8]>>,
}

impl SimService {
    pub(super) fn new(cluster: Arc<ClusterState>) -> Self {
        Self {
            cluster,
            authorization: None,
            certificate: None,
        }
    }

    /// Adds this bearer token to requests that have none.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.authorization = HeaderValue::from_str(&format!("Bearer {token}")).ok();
        self
    }

    pub(super) fn with_certificate(mut self, der: Option<Arc<[u8]>>) -> Self {
        self.certificate = der;
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
        let Ok(body) = body.collect().await else {
            let status = SimError::bad_request("the body of the request ended early").to_status();
            let mut response = Response::new(SimBody::full(status.to_string()));
            *response.status_mut() = http::StatusCode::BAD_REQUEST;
            return response;
        };
        handle(
            &self.cluster,
            &parts,
            &body.to_bytes(),
            self.certificate.as_deref(),
        )
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
