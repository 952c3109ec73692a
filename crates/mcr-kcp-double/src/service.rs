use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Response};
use http_body_util::BodyExt;

use super::inner::Inner;
use super::path::{self, Entry};
use super::rewrite::set_path;
use mcr_testkit::sim::SimBody;

/// The front proxy or a shard of the double as a tower service, for any request body.
#[derive(Clone, Debug)]
pub(super) struct KcpService {
    inner: Arc<Inner>,
    entry: Entry,
    /// Comes before the path of each request.
    prefix: Arc<str>,
    authorization: Option<HeaderValue>,
}

impl KcpService {
    pub(super) fn new(inner: Arc<Inner>, entry: Entry) -> Self {
        Self {
            inner,
            entry,
            prefix: "".into(),
            authorization: None,
        }
    }

    pub(super) fn below(mut self, path: &str) -> Self {
        self.prefix = path.into();
        self
    }

    /// Adds this bearer token to requests that have none.
    pub(super) fn with_token(mut self, token: &str) -> Self {
        self.authorization = HeaderValue::from_str(&format!("Bearer {token}")).ok();
        self
    }

    /// Answers a request.
    ///
    /// # Errors
    ///
    /// With `ConnectionRefused` while the shard is stopped, and if the body of the request ends early.
    async fn answer<B>(&self, request: Request<B>) -> io::Result<Response<SimBody>>
    where
        B: http_body::Body<Data = Bytes>,
    {
        let (mut parts, body) = request.into_parts();
        let Ok(body) = body.collect().await else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let is_up = || {
            if self.entry.is_stopped(&self.inner) {
                Err(io::ErrorKind::ConnectionRefused)
            } else {
                Ok(())
            }
        };
        is_up()?;
        if let Some(authorization) = &self.authorization {
            let headers = &mut parts.headers;
            headers
                .entry(AUTHORIZATION)
                .or_insert_with(|| authorization.clone());
        }
        let path = format!("{}{}", self.prefix, parts.uri.path());
        let query = parts.uri.query().map(str::to_owned);
        set_path(&mut parts, &path, query.as_deref());
        let response = path::answer(&self.inner, self.entry, parts, &body.to_bytes());
        // A watch that begins while the shard stops must not go on.
        is_up()?;
        Ok(response)
    }
}

impl<B> tower::Service<Request<B>> for KcpService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<SimBody>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { service.answer(request).await })
    }
}
