//! The connections to one API server with one credential.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, Uri, header::CONNECTION, uri::PathAndQuery};
use kube::client::Body;
use mcr_access::{AccessError, AccessPolicy, AddressPolicy, BoxError, Credential, Endpoint, Trust};

use crate::{
    AnswerBody, ResponseBody, Settings, TransportError, TransportErrorKind,
    connect::Connector,
    explain::explain,
    foreign::{CLIENT, Foreign},
    headers::{Header, headers},
    pool::{Pool, SendError},
    request::{Class, Operation},
    tls::TlsCache,
};

/// Makes [channels](Channel). One for many clusters: channels share TLS configurations where they are equal.
#[derive(Clone)]
pub struct Dialer(Arc<Shared>);

struct Shared {
    policy: AccessPolicy,
    settings: Arc<Settings>,
    tls: TlsCache,
}

impl Dialer {
    /// Makes channels under this policy.
    pub fn new(policy: &AccessPolicy) -> Self {
        Self::with_settings(policy, Settings::default().into())
    }

    /// Makes channels under this policy, with other limits in time.
    pub fn with_settings(policy: &AccessPolicy, settings: Arc<Settings>) -> Self {
        Self(Arc::new(Shared {
            policy: policy.clone(),
            settings,
            tls: TlsCache::default(),
        }))
    }

    /// A channel to an API server. It connects when it is used.
    ///
    /// # Errors
    ///
    /// The field of the endpoint or credential that can't be used, and what to do about it.
    pub fn channel(
        &self,
        endpoint: &Endpoint,
        credential: &Credential,
        trust: Trust,
    ) -> Result<Channel, AccessError> {
        let Shared {
            policy,
            settings,
            tls,
        } = &*self.0;
        let addresses = match trust {
            Trust::Trusted => AddressPolicy::any(),
            Trust::Untrusted => policy.addresses,
        };
        let host = endpoint.server.host().unwrap_or_default();
        // Literal addresses don't reach the resolver.
        if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse() {
            addresses
                .check(address)
                .map_err(|error| AccessError::refused("server", error.to_string()))?;
        }
        if host.is_empty() || !matches!(endpoint.server.scheme_str(), Some("http" | "https")) {
            return Err(AccessError::invalid(
                "server",
                "is not an address; write https://host:port",
            ));
        }
        let config = tls.config(endpoint, credential.certificate.as_ref())?;
        let proxy_tls = || tls.config(&Endpoint::new(Uri::default()), None);
        let connector = Connector::new(endpoint, config, proxy_tls, addresses, settings)?;
        let pool = Pool::new(connector, &endpoint.server, settings).map_err(|_| {
            AccessError::invalid("server", "has a host that does not fit into a header; correct it")
        })?;
        let backend = Backend::Pooled(Arc::new(Pooled {
            pool,
            path: endpoint.server.path().trim_end_matches('/').into(),
            headers: headers(credential, settings)?.into(),
        }));
        Ok(Channel(Arc::new(Inner {
            backend,
            prefix: None,
            settings: settings.clone(),
        })))
    }

    /// A channel through a client that was made elsewhere.
    pub fn client_channel(&self, client: kube::Client) -> Channel {
        Channel(Arc::new(Inner {
            backend: Backend::Client(client),
            prefix: None,
            settings: self.0.settings.clone(),
        }))
    }

    /// A channel through another cluster's connection.
    pub fn route_channel(&self, route: Arc<dyn Route>) -> Channel {
        Channel(Arc::new(Inner {
            backend: Backend::Route(route),
            prefix: None,
            settings: self.0.settings.clone(),
        }))
    }
}

/// Sends the requests of a cluster that has no connection of its own. The other connection looks after credentials.
pub trait Route: Send + Sync + 'static {
    /// Sends a request whose URI is a path and query.
    ///
    /// # Errors
    ///
    /// Why there is no answer. A [`TransportError`] is passed on as it is.
    fn send(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>>;
}

/// Marks a request whose path is complete: the prefix of the channel is not put before it.
#[derive(Clone, Copy)]
pub struct Complete;

/// Marks a request after which its connection closes.
#[derive(Clone, Copy)]
pub struct LastRequest;

/// The connections to one API server with one credential. They close when the last clone and the last answer are dropped.
#[derive(Clone)]
pub struct Channel(Arc<Inner>);

struct Inner {
    backend: Backend,
    /// Stands before the path of each request that is not [`Complete`].
    prefix: Option<Arc<str>>,
    settings: Arc<Settings>,
}

#[derive(Clone)]
enum Backend {
    Pooled(Arc<Pooled>),
    Client(kube::Client),
    Route(Arc<dyn Route>),
}

struct Pooled {
    pool: Pool,
    /// Stands before the path of every request.
    path: Box<str>,
    /// Those of every request: one or two, for which a map takes 600 bytes.
    headers: Box<[Header]>,
}

impl Channel {
    /// The same channel, with a prefix before the path of each request.
    #[must_use]
    pub fn below(self, prefix: &str) -> Self {
        if prefix.is_empty() {
            return self;
        }
        Self(Arc::new(Inner {
            backend: self.0.backend.clone(),
            prefix: Some(prefix.into()),
            settings: self.0.settings.clone(),
        }))
    }

    /// Whether it leads through another cluster's connection.
    pub(super) fn is_route(&self) -> bool {
        matches!(self.0.backend, Backend::Route(_))
    }

    /// Sends a request whose URI is a path and query, and returns when the head of the answer is there.
    /// Dropping the future gives the request up.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<ResponseBody>, TransportError> {
        let operation = Operation::of(&request);
        let settings = &self.0.settings;
        let sent = tokio::time::timeout(settings.head_timeout, self.dispatch(request, &operation)).await;
        sent.unwrap_or_else(|_| {
            let kind = TransportErrorKind::Timeout {
                after: settings.head_timeout,
            };
            Err(TransportError::new(operation.text.clone(), kind))
        })
    }

    async fn dispatch(
        &self,
        mut request: Request<Body>,
        operation: &Operation,
    ) -> Result<Response<ResponseBody>, TransportError> {
        let silence = match operation.class {
            Class::Unary | Class::Proxy => Some(self.0.settings.silence),
            Class::Watch | Class::Follow | Class::Upgrade => None,
        };
        if let Some(prefix) = &self.0.prefix
            && request.extensions().get::<Complete>().is_none()
        {
            *request.uri_mut() = prefixed(prefix, request.uri()).map_err(|error| misfit(operation, error))?;
        }
        match &self.0.backend {
            Backend::Pooled(pooled) => {
                let Pooled { pool, path, headers } = &**pooled;
                *request.uri_mut() = below(path, request.uri()).map_err(|error| misfit(operation, error))?;
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
                    .send(request, operation.class)
                    .await
                    .map_err(|error| failed(operation, error.into()))?;
                Ok(response.map(|body| ResponseBody::pooled(body, operation.clone(), silence)))
            }
            Backend::Client(client) => {
                // The services below it are the user's. So is the text of their errors.
                let sent = async {
                    client
                        .send(request)
                        .await
                        .map_err(|error| failed(operation, error.into()))
                };
                let response = Foreign::new(CLIENT, Box::pin(sent))
                    .await
                    .map_err(|panicked| failed(operation, panicked.into()))??;
                Ok(response.map(|body| ResponseBody::client(body, operation.clone(), silence)))
            }
            Backend::Route(route) => {
                // It can't always be told from the path as the layout rewrites it.
                request.extensions_mut().insert(operation.class);
                let response = route.send(request).await.map_err(|error| {
                    // Told by the connection it leads through, in better words than those around it.
                    match error.downcast::<TransportError>() {
                        Ok(error) => *error,
                        Err(error) => failed(operation, error),
                    }
                })?;
                Ok(response.map(|body| ResponseBody::routed(body, operation.clone(), silence)))
            }
        }
    }
}

fn misfit(operation: &Operation, error: http::Error) -> TransportError {
    let problem = "its path does not fit the server's address".to_owned();
    let kind = TransportErrorKind::MalformedResponse { problem };
    TransportError::new(operation.text.clone(), kind).with_source(error)
}

/// A path and query below another path.
pub fn prefixed(prefix: &str, request: &Uri) -> Result<Uri, http::Error> {
    let path = request.path_and_query().map_or("/", PathAndQuery::as_str);
    Ok(format!("{}{path}", prefix.trim_end_matches('/')).parse()?)
}

fn failed(operation: &Operation, error: BoxError) -> TransportError {
    let explanation = explain(error.as_ref());
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error.as_ref());
    let mut connecting = false;
    while let Some(error) = next {
        let ours = error.downcast_ref::<SendError>();
        connecting |= matches!(ours, Some(SendError::Connect(_)));
        // From a client that someone else made.
        let legacy = error.downcast_ref::<hyper_util::client::legacy::Error>();
        connecting |= legacy.is_some_and(hyper_util::client::legacy::Error::is_connect);
        next = error.source();
    }
    let kind = if connecting {
        TransportErrorKind::Connect { explanation }
    } else {
        TransportErrorKind::Interrupted { explanation }
    };
    TransportError::new(operation.text.clone(), kind).with_source(error)
}

/// The path and query of a request, below another path.
fn below(path: &str, request: &Uri) -> Result<Uri, http::Error> {
    match path {
        "" if request.authority().is_none() => Ok(request.clone()),
        path => prefixed(path, request),
    }
}
