//! One way to one API server with one credential.

use std::{sync::Arc, time::Duration};

use base64::Engine;
use futures::future::BoxFuture;
use http::{
    HeaderName, HeaderValue, Request, Response, Uri,
    header::{AUTHORIZATION, CONNECTION, USER_AGENT},
    uri::PathAndQuery,
};
use kube::client::Body;
use secrecy::ExposeSecret;

use super::{
    body::{AnswerBody, ResponseBody},
    connect::Connector,
    error::{TransportError, TransportErrorKind},
    explain::explain,
    pool::{Pool, SendError},
    request::{Class, Operation},
    tls::TlsCache,
};
use crate::{
    AccessError, AccessPolicy, AddressPolicy, BoxError, Credential, Endpoint, Impersonation, Trust,
    foreign::{CLIENT, Foreign},
};

/// Times and sizes of connections.
#[derive(Debug, Clone)]
pub struct Settings {
    /// For DNS, TCP, proxy and TLS together.
    pub connect_timeout: Duration,
    /// From a request to the head of its answer, connecting included.
    pub head_timeout: Duration,
    /// For how long a body that is not a stream may be silent.
    pub silence: Duration,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
    /// Over how long a time watches end after a swap of credentials.
    pub retire_spread: Duration,
    /// How long such a watch waits for the end of a line.
    pub retire_line: Duration,
    /// How long a request that was refused with 401 waits for newer credentials.
    pub refresh_wait: Duration,
    /// For how long after a refresh that brought nothing newer 401 is just passed on.
    pub refresh_pause: Duration,
    pub(crate) user_agent: HeaderValue,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(30),
            silence: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            retire_spread: Duration::from_secs(18),
            retire_line: Duration::from_secs(10),
            refresh_wait: Duration::from_secs(10),
            refresh_pause: Duration::from_secs(10),
            user_agent: HeaderValue::from_static(concat!("mcr/", env!("CARGO_PKG_VERSION"))),
        }
    }
}

/// Makes [stacks](Stack); one per fleet. Holds what they share.
#[derive(Clone)]
pub(crate) struct Dialer(Arc<Shared>);

struct Shared {
    policy: AccessPolicy,
    settings: Arc<Settings>,
    tls: TlsCache,
}

impl Dialer {
    pub(crate) fn new(policy: &AccessPolicy) -> Self {
        Self::with_settings(policy, Settings::default().into())
    }

    pub(crate) fn with_settings(policy: &AccessPolicy, settings: Arc<Settings>) -> Self {
        Self(Arc::new(Shared {
            policy: policy.clone(),
            settings,
            tls: TlsCache::default(),
        }))
    }

    /// Prepares a way to an API server; connects only when used.
    pub(crate) fn stack(
        &self,
        endpoint: &Endpoint,
        credential: &Credential,
        trust: Trust,
    ) -> Result<Stack, AccessError> {
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
        let way = Way::Wire(Arc::new(Wire {
            pool,
            path: endpoint.server.path().trim_end_matches('/').into(),
            headers: headers(credential, settings)?.into(),
        }));
        Ok(Stack(Arc::new(Inner {
            way,
            prefix: None,
            settings: settings.clone(),
        })))
    }

    /// A way through a client that someone else made.
    pub(crate) fn client_stack(&self, client: kube::Client) -> Stack {
        Stack(Arc::new(Inner {
            way: Way::Client(client),
            prefix: None,
            settings: self.0.settings.clone(),
        }))
    }

    /// A way that leads through another cluster's connection.
    pub(crate) fn route_stack(&self, route: Arc<dyn Route>) -> Stack {
        Stack(Arc::new(Inner {
            way: Way::Route(route),
            prefix: None,
            settings: self.0.settings.clone(),
        }))
    }
}

/// Leads requests to a cluster that has no connection of its own. Credentials are looked after where it leads to.
pub(crate) trait Route: Send + Sync + 'static {
    fn send(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>>;
}

/// Marks a request whose path is complete already.
#[derive(Clone, Copy)]
pub(crate) struct Complete;

/// Marks a request whose connection nobody is going to need after it.
#[derive(Clone, Copy)]
pub(crate) struct LastRequest;

/// One way to one API server with one credential. When the last clone and the last answer are dropped, its
/// connections close.
#[derive(Clone)]
pub(crate) struct Stack(Arc<Inner>);

struct Inner {
    way: Way,
    /// Stands before the path of each request that is not [`Complete`].
    prefix: Option<Arc<str>>,
    settings: Arc<Settings>,
}

#[derive(Clone)]
enum Way {
    Wire(Arc<Wire>),
    Client(kube::Client),
    Route(Arc<dyn Route>),
}

struct Wire {
    pool: Pool,
    /// Stands before the path of every request.
    path: Box<str>,
    /// Those of every request: one or two, for which a map takes 600 bytes.
    headers: Box<[Header]>,
}

type Header = (HeaderName, HeaderValue);

impl Stack {
    /// The same way, with something before the path of each request.
    #[must_use]
    pub(crate) fn below(self, prefix: &str) -> Self {
        if prefix.is_empty() {
            return self;
        }
        Self(Arc::new(Inner {
            way: self.0.way.clone(),
            prefix: Some(prefix.into()),
            settings: self.0.settings.clone(),
        }))
    }

    /// Whether it leads through another cluster's connection.
    pub(super) fn is_route(&self) -> bool {
        matches!(self.0.way, Way::Route(_))
    }

    /// Sends a request whose URI is a path and query, and returns when the head of the answer is there.
    /// Dropping the future gives the request up.
    pub(crate) async fn send(
        &self,
        request: Request<Body>,
    ) -> Result<Response<ResponseBody>, TransportError> {
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
        match &self.0.way {
            Way::Wire(wire) => {
                let Wire { pool, path, headers } = &**wire;
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
                Ok(response.map(|body| ResponseBody::wire(body, operation.clone(), silence)))
            }
            Way::Client(client) => {
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
            Way::Route(route) => {
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
pub(crate) fn prefixed(prefix: &str, request: &Uri) -> Result<Uri, http::Error> {
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

fn headers(credential: &Credential, settings: &Settings) -> Result<Vec<Header>, AccessError> {
    let mut headers = vec![(USER_AGENT, settings.user_agent.clone())];
    let secret = |field: &str, value: String| {
        let mut value = HeaderValue::try_from(value).map_err(|_| {
            AccessError::invalid(
                field,
                "holds characters that don't fit into a header; copy it again",
            )
        })?;
        value.set_sensitive(true);
        Ok(value)
    };
    if let Some(token) = &credential.token {
        let token = format!("Bearer {}", token.expose_secret().trim());
        headers.push((AUTHORIZATION, secret("token", token)?));
    } else if let Some(basic) = &credential.basic {
        let login = format!("{}:{}", basic.username, basic.password.expose_secret());
        let login = base64::engine::general_purpose::STANDARD.encode(login);
        headers.push((AUTHORIZATION, secret("username", format!("Basic {login}"))?));
    }
    if let Some(impersonation) = &credential.impersonate {
        impersonate(&mut headers, impersonation)?;
    }
    Ok(headers)
}

fn impersonate(headers: &mut Vec<Header>, who: &Impersonation) -> Result<(), AccessError> {
    let unfit = || {
        AccessError::invalid(
            "as",
            "or one of its groups or extras holds characters that don't fit into a header; correct it",
        )
    };
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| unfit());
    headers.push((HeaderName::from_static("impersonate-user"), value(&who.user)?));
    if let Some(uid) = &who.uid {
        headers.push((HeaderName::from_static("impersonate-uid"), value(uid)?));
    }
    for group in &who.groups {
        headers.push((HeaderName::from_static("impersonate-group"), value(group)?));
    }
    for (key, values) in &who.extra {
        let name = HeaderName::try_from(format!("impersonate-extra-{}", percent_encoded(key)))
            .map_err(|_| unfit())?;
        for text in values {
            headers.push((name.clone(), value(text)?));
        }
    }
    Ok(())
}

/// Header names are case-insensitive and narrow; the API server undoes percent encoding in these.
fn percent_encoded(key: &str) -> String {
    let mut name = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'_') {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
    }
    name
}
