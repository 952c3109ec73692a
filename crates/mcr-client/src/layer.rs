//! Layers of the program over the requests of a cluster.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use mcr_access::BoxError;
use tower::{Layer, Service, ServiceExt, util::BoxCloneSyncService};

use crate::{
    answer_body::AnswerBody,
    body::ResponseBody,
    channel::Channel,
    error::{TransportError, TransportErrorKind},
    request::{RequestClass, RequestInfo},
    user_code::{CatchPanic, Panicked, TRANSPORT_LAYER, catch_panic},
};

type Layered = BoxCloneSyncService<Request<Body>, Response<AnswerBody>, BoxError>;

/// A [`tower::Layer`] over the requests of one cluster.
///
/// The layer wraps one service, which is kept as long as the cluster: over new credentials, a new address and outages. So the state of
/// a limit is kept, too. It receives every request that the client of the cluster and its watches send, once for each time the
/// request is sent: a request that is repeated after a 401 comes twice.
///
/// The URI of a request has only a path and a query. The request has no credentials: they are added below the layer. Time
/// limits of the fleet begin below the layer as well, so a layer that delays a request has to bound the delay. The layer must pass on the extensions of
/// requests. If it panics, the request fails. Probes of the fleet and requests of credential sources do not pass it.
///
/// ```
/// use http::{HeaderValue, Request};
/// use mcr_client::TransportLayer;
/// use tower::util::MapRequestLayer;
///
/// let audited = TransportLayer::new(MapRequestLayer::new(|mut request: Request<_>| {
///     request.headers_mut().insert("x-audit", HeaderValue::from_static("tenant-controller"));
///     request
/// }));
/// # let _: TransportLayer = audited;
/// ```
pub struct TransportLayer {
    service: Result<Layered, Panicked>,
    watches: bool,
}

impl TransportLayer {
    /// A layer over all requests, also those that open watches.
    pub fn new<L, B>(layer: L) -> Self
    where
        L: Layer<RequestService>,
        L::Service: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>, Future: Send + 'static>
            + Clone
            + Send
            + Sync
            + 'static,
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let service = catch_panic(TRANSPORT_LAYER, || {
            let service = layer.layer(RequestService(()));
            let service = service.map_response(|response: Response<B>| response.map(AnswerBody::new));
            BoxCloneSyncService::new(service.map_err(Into::into))
        });
        Self {
            service,
            watches: true,
        }
    }

    /// The layer does not receive requests that open watches and followed logs.
    #[must_use]
    pub fn without_watches(mut self) -> Self {
        self.watches = false;
        self
    }

    /// A layer with which every request fails, because the code that should make the layer has panicked.
    #[doc(hidden)]
    pub fn panicked(panicked: Panicked) -> Self {
        Self {
            service: Err(panicked),
            watches: true,
        }
    }

    /// Whether requests of this class pass the layer.
    pub(crate) fn receives(&self, class: RequestClass) -> bool {
        self.watches || !matches!(class, RequestClass::Watch | RequestClass::Follow)
    }

    /// Sends a request through the layer over a channel.
    pub(crate) async fn send(
        &self,
        channel: &Channel,
        mut request: Request<Body>,
        info: &RequestInfo,
    ) -> Result<Response<ResponseBody>, TransportError> {
        let service = self
            .service
            .clone()
            .map_err(|panicked| failed(info, panicked.into()))?;
        // The layer may change the path, but not how the request is treated.
        request.extensions_mut().insert(info.class);
        request.extensions_mut().insert(channel.clone());
        let sent = CatchPanic::new(TRANSPORT_LAYER, Box::pin(service.oneshot(request))).await;
        let response = sent
            .map_err(Into::into)
            .flatten()
            .map_err(|error| failed(info, error))?;
        Ok(response.map(|body| ResponseBody::layered(body, info.clone())))
    }
}

impl fmt::Debug for TransportLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransportLayer")
            .field("watches", &self.watches)
            .finish_non_exhaustive()
    }
}

fn failed(info: &RequestInfo, error: BoxError) -> TransportError {
    match error.downcast::<TransportError>() {
        Ok(error) => *error,
        Err(error) => {
            let problem = error.to_string();
            TransportError::new(info.operation.clone(), TransportErrorKind::Layer { problem })
                .with_source(error)
        }
    }
}

/// The service below a [`TransportLayer`]. It sends a request over the connection that the cluster has now.
#[derive(Debug, Clone)]
pub struct RequestService(());

impl Service<Request<Body>> for RequestService {
    type Response = Response<ResponseBody>;
    type Error = TransportError;
    type Future = BoxFuture<'static, Result<Self::Response, TransportError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let channel = request.extensions_mut().remove::<Channel>();
        Box::pin(async move {
            let Some(channel) = channel else {
                let problem = "the layer has dropped the extensions of the request; pass them on".to_owned();
                let operation = RequestInfo::of(&request).operation;
                return Err(TransportError::new(
                    operation,
                    TransportErrorKind::Layer { problem },
                ));
            };
            channel.send(request).await
        })
    }
}

/// A layer that limits the rate of requests, as the `QPS` and `Burst` of client-go do. Requests wait for their turn in the order in which
/// they come; dropping a request gives up its turn.
///
/// ```
/// use mcr_client::{RequestLimit, TransportLayer};
///
/// let limited = TransportLayer::new(RequestLimit::new(20, 30)).without_watches();
/// # let _: TransportLayer = limited;
/// ```
#[derive(Debug, Clone)]
pub struct RequestLimit(Arc<leaky_bucket::RateLimiter>);

impl RequestLimit {
    /// At most so many requests a second, and so many at once after a pause, or those of a hundredth of a second if they are more. 0
    /// counts as 1.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let (per_second, burst) = (per_second.max(1), burst.max(1));
        // As few at a time as possible, so that waiting requests are spread over the second. The limiter counts milliseconds.
        let refill = per_second.div_ceil(100);
        let limiter = leaky_bucket::RateLimiter::builder()
            .initial(burst as usize)
            .max(burst.max(refill) as usize)
            .refill(refill as usize)
            .interval(Duration::from_secs(1) * refill / per_second)
            .build();
        Self(Arc::new(limiter))
    }
}

impl<S> Layer<S> for RequestLimit {
    type Service = LimitedRequests<S>;

    fn layer(&self, inner: S) -> LimitedRequests<S> {
        LimitedRequests {
            limiter: self.0.clone(),
            inner,
        }
    }
}

/// The service of a [`RequestLimit`].
#[derive(Debug, Clone)]
pub struct LimitedRequests<S> {
    limiter: Arc<leaky_bucket::RateLimiter>,
    inner: S,
}

impl<S> Service<Request<Body>> for LimitedRequests<S>
where
    S: Service<Request<Body>, Future: Send, Response: Send, Error: Send> + Clone + Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (limiter, inner) = (self.limiter.clone(), self.inner.clone());
        Box::pin(async move {
            limiter.acquire_owned(1).await;
            inner.oneshot(request).await
        })
    }
}
