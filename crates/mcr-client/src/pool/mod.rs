//! A pool of connections to one API server.
//!
//! hyper-util's client dials as soon as no connection is idle, and a connection becomes idle only some turns of the runtime
//! after its response was read. When a fleet starts, up to half of the watches would dial again instead of taking over the
//! connection of their list, each with a TLS handshake and the memory of another connection. In this pool a connection becomes
//! idle with the last part of its response. The next request takes it, and waits until the connection is ready.
//!
//! A GET runs over a [connection of mcr-h1](mcr_h1), which saves 25 kB for each watch compared with a connection of hyper.
//! hyper can take over a connection of mcr-h1 between two requests. A connection of hyper stays with hyper.

mod body;
mod hyper_connection;
mod idle;

use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header::HOST};
use http_body::Body as _;
use hyper::body::Incoming;
use kube::client::Body;
use mcr_access::{BoxError, internal::split_zone};
use mcr_h1::{RequestFailed, serialize};

pub(crate) use self::body::PooledBody;
use self::{
    body::H1Content,
    hyper_connection::{HyperConnection, Unanswered},
    idle::{H1Connection, IdleConnections},
};
use crate::{
    connect::{Connector, Stream},
    request::RequestClass,
    settings::Settings,
};

/// A pool of connections to one API server. Dropping it closes the idle connections; each other connection closes after its
/// response.
pub(super) struct Pool {
    connector: Connector,
    server: Uri,
    host: HeaderValue,
    idle: Arc<IdleConnections>,
}

/// Marks a response over a connection that was opened for its request. It is an extension of the response.
#[derive(Clone, Copy)]
pub(crate) struct NewConnection;

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("no connection")]
    Connect(#[source] BoxError),
    #[error("no answer")]
    Hyper(#[source] hyper::Error),
    #[error("no answer")]
    H1(#[source] mcr_h1::Error),
}

impl Pool {
    /// `server` must have a host.
    ///
    /// # Errors
    ///
    /// If the host is not a valid header value.
    pub(super) fn new(connector: Connector, server: &Uri, settings: &Settings) -> Result<Self, http::Error> {
        // The zone of an IPv6 address means nothing to the server.
        let host = match split_zone(server.host().unwrap_or_default()) {
            (address, Some(_)) => format!("[{address}]"),
            _ => server.host().unwrap_or_default().to_owned(),
        };
        let default = if server.scheme() == Some(&http::uri::Scheme::HTTP) {
            80
        } else {
            443
        };
        let host = match server.port_u16().filter(|port| *port != default) {
            Some(port) => HeaderValue::try_from(format!("{host}:{port}"))?,
            None => HeaderValue::from_str(&host)?,
        };
        Ok(Self {
            connector,
            server: server.clone(),
            host,
            idle: Arc::new(IdleConnections::new(settings.idle_timeout)),
        })
    }

    pub(super) fn is_direct(&self) -> bool {
        self.connector.is_direct()
    }

    /// Sends a request whose URI is a path and query, and returns with the head of the response. Dropping the future cancels
    /// the request, and closes its connection.
    pub(super) async fn send(
        &self,
        mut request: Request<Body>,
        class: RequestClass,
    ) -> Result<Response<PooledBody>, SendError> {
        request
            .headers_mut()
            .entry(HOST)
            .or_insert_with(|| self.host.clone());
        let fits_h1 = request.method() == Method::GET
            && class != RequestClass::Upgrade
            && request.body().size_hint().exact() == Some(0);
        // For a long response, a new connection of mcr-h1 is worth its handshake, because it saves memory for so long.
        let is_long = matches!(class, RequestClass::Watch | RequestClass::Follow);
        if fits_h1 && (is_long || !self.idle.has_only_hyper()) {
            let response = self.send_h1(&serialize(&request)).await?;
            return Ok(response.map(|content| PooledBody::h1(content, &self.idle)));
        }
        loop {
            let (connection, is_fresh) = match self.idle.take_hyper().await {
                Some(connection) => (connection, false),
                None => self.connect_hyper().await?,
            };
            request = match connection.send(request).await {
                Ok((response, connection)) => {
                    let response = self.hyper_response(connection, response);
                    return Ok(marked(response, is_fresh));
                }
                // The server closed the connection while it was idle: the request was not sent.
                Err(Unanswered {
                    unsent: Some(unsent), ..
                }) if !is_fresh => unsent,
                Err(Unanswered { error, .. }) => return Err(SendError::Hyper(error)),
            };
        }
    }

    async fn send_h1(&self, request: &[u8]) -> Result<Response<H1Content>, SendError> {
        loop {
            let (connection, is_fresh) = match self.idle.take_h1() {
                Some(connection) => (connection, false),
                None => (H1Connection::new(Box::new(self.dial().await?)), true),
            };
            match connection.send(request).await {
                Ok(response) => return Ok(marked(response, is_fresh)),
                // The server closed the connection while it was idle. No byte of a response arrived, so the GET can be sent
                // again (RFC 9110, section 9.2.2).
                Err(RequestFailed {
                    response_began: false,
                    ..
                }) if !is_fresh => {}
                Err(failed) => return Err(SendError::H1(failed.error)),
            }
        }
    }

    fn hyper_response(
        &self,
        connection: Option<HyperConnection>,
        response: Response<Incoming>,
    ) -> Response<PooledBody> {
        let is_upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        response.map(|body| PooledBody::Hyper {
            body,
            connection: connection
                .filter(|_| !is_upgraded)
                .map(|connection| (connection, Arc::downgrade(&self.idle))),
        })
    }

    async fn dial(&self) -> Result<Stream, SendError> {
        tracing::trace!(server = %self.host.to_str().unwrap_or_default(), "no connection is idle: dialing");
        let connecting = Box::pin(self.connector.connect(&self.server));
        connecting.await.map_err(SendError::Connect)
    }

    /// Gives hyper an idle connection or a new one, and returns whether it is a new one.
    async fn connect_hyper(&self) -> Result<(HyperConnection, bool), SendError> {
        let (stream, is_fresh) = match self.idle.take_h1() {
            Some(connection) => (*connection.into_inner(), false),
            None => (self.dial().await?, true),
        };
        let connection = HyperConnection::start(stream).await.map_err(SendError::Hyper)?;
        Ok((connection, is_fresh))
    }
}

fn marked<B>(mut response: Response<B>, is_fresh: bool) -> Response<B> {
    if is_fresh {
        response.extensions_mut().insert(NewConnection);
    }
    response
}
