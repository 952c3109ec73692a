//! Sends requests to one API server with one credential.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{
    HeaderValue, Request, Response,
    header::{CONNECTION, USER_AGENT},
};
use kube::client::{AuthError, Body};
use mcr_access::BoxError;

use crate::{
    answer_body::AnswerBody,
    body::ResponseBody,
    error::{TransportError, TransportErrorKind},
    explain::explain,
    headers::Header,
    pool::{Pool, SendError},
    prefix::{AbsolutePath, prefixed, with_base_path},
    request::{HeadTimeout, RequestClass, RequestInfo},
    settings::Settings,
    user_code::{CLIENT, CatchPanic},
};

/// Sends the requests of a cluster through the connection of another cluster, which has its own credentials.
pub trait Route: Send + Sync + 'static {
    /// Sends a request whose URI is a path and query.
    ///
    /// # Errors
    ///
    /// Why there is no response. The channel returns a [`TransportError`] unchanged.
    fn send(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>>;
}

/// Marks a request after which its connection closes. It is an extension of the request.
#[derive(Clone, Copy)]
pub(crate) struct LastRequest;

/// The connections to one API server with one credential.
///
/// They close when the last clone of the channel and the last response are dropped.
#[derive(Clone)]
pub struct Channel(Arc<ChannelInner>);

struct ChannelInner {
    backend: Backend,
    /// Precedes the path of each request without [`AbsolutePath`].
    prefix: Option<Arc<str>>,
    settings: Arc<Settings>,
}

#[derive(Clone)]
enum Backend {
    Pooled(Arc<PooledBackend>),
    Client(kube::Client),
    Route(Arc<dyn Route>),
}

/// A pool of connections, and what a channel adds to each request that uses them.
pub(crate) struct PooledBackend {
    pub(crate) pool: Pool,
    /// The path of the server's address, which precedes the path of every request.
    pub(crate) base_path: Box<str>,
    /// The headers of the credential. A slice, because there is mostly one, and a `HeaderMap` takes 600 bytes.
    pub(crate) headers: Box<[Header]>,
    /// Whether the credential is empty.
    pub(crate) lacks_credential: bool,
    /// Whether lists may be compressed with gzip.
    pub(crate) accepts_gzip: bool,
}

impl Channel {
    pub(crate) fn pooled(backend: PooledBackend, settings: Arc<Settings>) -> Self {
        Self::new(Backend::Pooled(Arc::new(backend)), settings)
    }

    pub(crate) fn client(client: kube::Client, settings: Arc<Settings>) -> Self {
        Self::new(Backend::Client(client), settings)
    }

    pub(crate) fn route(route: Arc<dyn Route>, settings: Arc<Settings>) -> Self {
        Self::new(Backend::Route(route), settings)
    }

    fn new(backend: Backend, settings: Arc<Settings>) -> Self {
        Self(Arc::new(ChannelInner {
            backend,
            prefix: None,
            settings,
        }))
    }

    /// The same channel, with `prefix` before the path of each request.
    #[must_use]
    pub fn with_prefix(self, prefix: &str) -> Self {
        if prefix.is_empty() {
            return self;
        }
        Self(Arc::new(ChannelInner {
            backend: self.0.backend.clone(),
            prefix: Some(prefix.into()),
            settings: self.0.settings.clone(),
        }))
    }

    /// Whether the channel uses the connection of another cluster.
    pub(super) fn is_route(&self) -> bool {
        matches!(self.0.backend, Backend::Route(_))
    }

    /// Whether the channel has TCP connections of its own to the address of the server. The kernel notices then if the network is
    /// dead: through a proxy it sees only the proxy.
    #[doc(hidden)]
    pub fn is_direct(&self) -> bool {
        matches!(&self.0.backend, Backend::Pooled(backend) if backend.pool.is_direct())
    }

    /// Whether the channel is known to send no credential, although one is wanted.
    #[doc(hidden)]
    pub fn lacks_credential(&self) -> bool {
        let lacks = matches!(&self.0.backend, Backend::Pooled(backend) if backend.lacks_credential);
        lacks && !self.0.settings.allow_anonymous
    }

    /// Whether lists may be compressed with gzip. Behind a route the layout reads them.
    pub(super) fn accepts_gzip(&self) -> bool {
        match &self.0.backend {
            Backend::Pooled(backend) => backend.accepts_gzip,
            Backend::Client(_) => self.0.settings.gzip_lists,
            Backend::Route(_) => false,
        }
    }

    /// Whether the user may be anonymous: the operator allows it, and there is no credential that would prove nothing.
    pub(super) fn may_be_anonymous(&self) -> bool {
        let has = matches!(&self.0.backend, Backend::Pooled(backend) if !backend.lacks_credential);
        self.0.settings.allow_anonymous && !has
    }

    /// Sends a request whose URI is a path and query, and returns with the head of the response. Dropping the future cancels the
    /// request.
    ///
    /// # Errors
    ///
    /// If connecting fails, or no head of a response arrives within [`Settings::head_timeout`], or
    /// [`Settings::watch_head_timeout`] for a watch, unless the request asks for more time. A response with an error status is not
    /// an error.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<ResponseBody>, TransportError> {
        let info = RequestInfo::of(&request);
        let settings = &self.0.settings;
        let after = match info.class {
            RequestClass::Watch => settings.watch_head_timeout,
            _ => settings.head_timeout,
        };
        let asked = request.extensions().get::<HeadTimeout>();
        let after = asked.map_or(after, |asked| after.max(asked.0));
        let sent = tokio::time::timeout(after, self.dispatch(request, &info)).await;
        sent.unwrap_or_else(|_| {
            let kind = TransportErrorKind::Timeout { after };
            Err(TransportError::new(info.operation.clone(), kind))
        })
    }

    async fn dispatch(
        &self,
        mut request: Request<Body>,
        info: &RequestInfo,
    ) -> Result<Response<ResponseBody>, TransportError> {
        let read_timeout = match info.class {
            RequestClass::Unary | RequestClass::Proxy => Some(self.0.settings.read_timeout),
            RequestClass::Watch | RequestClass::Follow | RequestClass::Upgrade => None,
        };
        if let Some(prefix) = &self.0.prefix
            && request.extensions().get::<AbsolutePath>().is_none()
        {
            *request.uri_mut() = prefixed(prefix, request.uri()).map_err(|error| bad_path(info, error))?;
        }
        let settings = &self.0.settings;
        let sender = settings.sender.or_else(|| request.extensions().get().copied());
        let agent = settings.user_agent.value(sender);
        match &self.0.backend {
            Backend::Pooled(backend) => {
                request.headers_mut().insert(USER_AGENT, agent.clone());
                let PooledBackend {
                    pool,
                    base_path,
                    headers,
                    ..
                } = &**backend;
                *request.uri_mut() =
                    with_base_path(base_path, request.uri()).map_err(|error| bad_path(info, error))?;
                for (name, _) in headers {
                    request.headers_mut().remove(name);
                }
                for (name, value) in headers {
                    request.headers_mut().append(name, value.clone());
                }
                if request.extensions().get::<LastRequest>().is_some() {
                    request
                        .headers_mut()
                        .insert(CONNECTION, HeaderValue::from_static("close"));
                }
                let response = pool
                    .send(request, info.class)
                    .await
                    .map_err(|error| failed(info, error.into()))?;
                Ok(response.map(|body| ResponseBody::pooled(body, info.clone(), read_timeout)))
            }
            Backend::Client(client) => {
                // A client that has a User-Agent of its own puts that into the request later.
                request.headers_mut().insert(USER_AGENT, agent.clone());
                // Converts the error inside, because the services below the client are user code, and so is the text of their
                // errors.
                let sent = async {
                    client
                        .send(request)
                        .await
                        .map_err(|error| failed(info, error.into()))
                };
                let response = CatchPanic::new(CLIENT, Box::pin(sent))
                    .await
                    .map_err(|panicked| failed(info, panicked.into()))??;
                Ok(response.map(|body| ResponseBody::client(body, info.clone(), read_timeout)))
            }
            Backend::Route(route) => {
                // The layout may rewrite the path so that it no longer shows the class.
                request.extensions_mut().insert(info.class);
                let response = route.send(request).await.map_err(|error| {
                    // The connection behind the route has already explained the error.
                    match error.downcast::<TransportError>() {
                        Ok(error) => *error,
                        Err(error) => failed(info, error),
                    }
                })?;
                Ok(response.map(|body| ResponseBody::routed(body, info.clone(), read_timeout)))
            }
        }
    }
}

fn bad_path(info: &RequestInfo, error: http::Error) -> TransportError {
    let problem = "the path of the request does not fit behind the path of the server's address".to_owned();
    let kind = TransportErrorKind::MalformedResponse { problem };
    TransportError::new(info.operation.clone(), kind).with_source(error)
}

fn failed(info: &RequestInfo, error: BoxError) -> TransportError {
    let explanation = explain(error.as_ref());
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error.as_ref());
    let (mut connecting, mut login) = (false, false);
    while let Some(error) = next {
        login |= error.is::<AuthError>();
        let pool_error = error.downcast_ref::<SendError>();
        connecting |= matches!(pool_error, Some(SendError::Connect(_)));
        // A `kube::Client` that the user has built (`Access::Client`) may use the client of hyper-util instead of the
        // pool.
        let legacy = error.downcast_ref::<hyper_util::client::legacy::Error>();
        connecting |= legacy.is_some_and(hyper_util::client::legacy::Error::is_connect);
        next = error.source();
    }
    let kind = if connecting || login {
        TransportErrorKind::Connect { explanation }
    } else {
        TransportErrorKind::Interrupted { explanation }
    };
    let failed = TransportError::new(info.operation.clone(), kind);
    // It quotes what a credential plugin wrote, and many show the sources of an error.
    if login { failed } else { failed.with_source(error) }
}
