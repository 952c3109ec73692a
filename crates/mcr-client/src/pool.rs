//! The connections to one API server: a request takes one that is idle, or makes one.
//!
//! hyper-util's client dials as soon as no connection is idle, and one is idle only some turns of the runtime after its
//! answer was read. When a fleet starts, up to half of the watches would leave the connection of their list behind and
//! make another, each with a TLS handshake and the memory of a connection. Here a connection comes back with the last
//! piece of its answer, and whoever takes it waits until it is ready.
//!
//! A GET goes over a [plain connection](mcr_h1), which costs a watch 25 kB less than one of hyper's. A plain connection can
//! become one of hyper's at any time, and never goes back.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header::HOST};
use http_body::{Body as _, Frame, SizeHint};
use hyper::{
    body::Incoming,
    client::conn::http1::{Builder, SendRequest},
};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use mcr_access::BoxError;
use mcr_h1::{MAX_HEAD, RequestFailed, serialize};
use tokio::{
    runtime::Handle,
    task::JoinHandle,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    Settings,
    connect::{Connector, Stream},
    request::Class,
};

type Connection = mcr_h1::Connection<Box<Stream>>;
type Content = mcr_h1::Content<Box<Stream>>;

/// How many idle connections are kept; clusters that are well have one, which their watch is about to take.
const MAX_IDLE: usize = 2;

/// For how long a connection may go on writing a request that has been answered already.
const READY_WITHIN: Duration = Duration::from_secs(1);

/// See the module. When it and the last answer are dropped, the connections close.
pub(super) struct Pool {
    connector: Connector,
    server: Uri,
    host: HeaderValue,
    idle: Arc<Idle>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("no connection")]
    Connect(#[source] BoxError),
    #[error("no answer")]
    Send(#[source] hyper::Error),
    #[error("no answer")]
    Get(#[source] mcr_h1::Error),
}

impl Pool {
    /// `server` has a host.
    pub(super) fn new(connector: Connector, server: &Uri, settings: &Settings) -> Result<Self, http::Error> {
        let host = server.host().unwrap_or_default();
        let default = if server.scheme() == Some(&http::uri::Scheme::HTTP) {
            80
        } else {
            443
        };
        let host = match server.port_u16().filter(|port| *port != default) {
            Some(port) => HeaderValue::try_from(format!("{host}:{port}"))?,
            None => HeaderValue::from_str(host)?,
        };
        Ok(Self {
            connector,
            server: server.clone(),
            host,
            idle: Arc::new(Idle {
                kept: Mutex::default(),
                at_most: settings.idle_timeout,
            }),
        })
    }

    /// Sends a request whose URI is a path and query; returns when the head of the answer is there. Dropping the future
    /// gives the request up, and with it the connection it was sent over.
    pub(super) async fn send(
        &self,
        mut request: Request<Body>,
        class: Class,
    ) -> Result<Response<Answer>, SendError> {
        request
            .headers_mut()
            .entry(HOST)
            .or_insert_with(|| self.host.clone());
        let is_plain = request.method() == Method::GET
            && class != Class::Upgrade
            && request.body().size_hint().exact() == Some(0);
        // What lasts is worth a connection of its own that needs less memory.
        let lasts = matches!(class, Class::Watch | Class::Follow);
        if is_plain && (lasts || !self.idle.has_only_hyper()) {
            let response = self.get(&serialize(&request)).await?;
            return Ok(response.map(|content| Answer::plain(content, &self.idle)));
        }
        loop {
            let (mut sender, fresh) = match self.idle.take_hyper().await {
                Some(sender) => (sender, None),
                None => {
                    let (sender, connection) = self.hyper().await?;
                    (sender, Some(connection))
                }
            };
            let mut failed = match sender.try_send_request(request).await {
                Ok(response) => return Ok(self.answer(sender, response)),
                Err(failed) => failed,
            };
            request = match (failed.take_message(), fresh) {
                // The server closed it while it was idle: the request was not sent.
                (Some(unsent), None) => unsent,
                // What went wrong, the connection knows better.
                (Some(_), Some(connection)) => {
                    return Err(SendError::Send(match connection.await {
                        Ok(Err(error)) => error,
                        _ => failed.into_error(),
                    }));
                }
                (None, _) => return Err(SendError::Send(failed.into_error())),
            };
        }
    }

    async fn get(&self, request: &[u8]) -> Result<Response<Content>, SendError> {
        loop {
            let (connection, is_fresh) = match self.idle.take_plain() {
                Some(connection) => (connection, false),
                None => (Connection::new(Box::new(self.dial().await?)), true),
            };
            match connection.send(request).await {
                Ok(response) => return Ok(response),
                // The server closed it while it was idle. Nothing came back, and a GET can be sent again (RFC 9110,
                // section 9.2.2).
                Err(RequestFailed {
                    response_began: false,
                    ..
                }) if !is_fresh => {}
                Err(failed) => return Err(SendError::Get(failed.error)),
            }
        }
    }

    fn answer(&self, sender: SendRequest<Body>, response: Response<Incoming>) -> Response<Answer> {
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        response.map(|body| Answer::Hyper {
            body,
            way_back: (!switched).then(|| (sender, Arc::downgrade(&self.idle))),
        })
    }

    async fn dial(&self) -> Result<Stream, SendError> {
        tracing::trace!(server = %self.host.to_str().unwrap_or_default(), "no connection is idle: making one");
        let connecting = Box::pin(self.connector.connect(&self.server));
        connecting.await.map_err(SendError::Connect)
    }

    /// The task of the connection ends with the sender and the body.
    async fn hyper(&self) -> Result<(SendRequest<Body>, JoinHandle<hyper::Result<()>>), SendError> {
        let stream = match self.idle.take_plain() {
            Some(connection) => *connection.into_inner(),
            None => self.dial().await?,
        };
        let mut http = Builder::new();
        http.max_buf_size(MAX_HEAD);
        let (sender, connection) = http
            .handshake(TokioIo::new(stream))
            .await
            .map_err(SendError::Send)?;
        Ok((sender, tokio::spawn(connection.with_upgrades())))
    }
}

/// The body of an answer. Its connection is free for the next request when it has been read to its end, and closes when it
/// is dropped before.
pub(super) enum Answer {
    Plain {
        content: Content,
        idle: Weak<Idle>,
    },
    Hyper {
        body: Incoming,
        way_back: Option<(SendRequest<Body>, Weak<Idle>)>,
    },
}

impl Answer {
    fn plain(content: Content, idle: &Arc<Idle>) -> Self {
        let mut answer = Self::Plain {
            content,
            idle: Arc::downgrade(idle),
        };
        answer.free();
        answer
    }

    /// Hands the connection to the next request if the answer has been received.
    fn free(&mut self) {
        match self {
            Self::Plain { content, idle } => {
                if let Some(connection) = content.take_connection()
                    && let Some(idle) = idle.upgrade()
                {
                    idle.put(Free::Plain(connection));
                }
            }
            Self::Hyper { way_back, .. } => {
                if let Some((sender, idle)) = way_back.take()
                    && let Some(idle) = idle.upgrade()
                {
                    idle.put(Free::Hyper(sender));
                }
            }
        }
    }

    /// Appends what has come to `whole`; for the rest as [`poll_frame`](http_body::Body::poll_frame).
    pub(super) fn poll_append(
        &mut self,
        context: &mut Context<'_>,
        whole: &mut Vec<u8>,
    ) -> Poll<Option<Result<(), BoxError>>> {
        if let Self::Plain { content, .. } = self {
            let read = ready!(content.poll_append(context, whole));
            self.free();
            return Poll::Ready(read.map(|read| read.map_err(Into::into)));
        }
        let frame = ready!(Pin::new(self).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| whole.extend_from_slice(frame.data_ref().map_or(&[], |data| data)))
        }))
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let (body, way_back) = match &mut *self {
            Self::Plain { content, .. } => {
                let next = ready!(Pin::new(content).poll_frame(context));
                self.free();
                return Poll::Ready(next.map(|next| next.map_err(Into::into)));
            }
            Self::Hyper { body, way_back } => (body, way_back),
        };
        let next = ready!(Pin::new(&mut *body).poll_frame(context));
        if matches!(next, Some(Err(_))) {
            *way_back = None;
        } else if next.is_none() || body.is_end_stream() {
            self.free();
        }
        Poll::Ready(next.map(|next| next.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Plain { content, .. } => content.is_end_stream(),
            Self::Hyper { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Plain { content, .. } => content.size_hint(),
            Self::Hyper { body, .. } => body.size_hint(),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // Those without content are never read.
        if self.is_end_stream() {
            self.free();
        }
    }
}

/// A connection with nothing under way.
pub(super) enum Free {
    Plain(Connection),
    Hyper(SendRequest<Body>),
}

impl Free {
    fn is_closed(&self) -> bool {
        match self {
            // Found out when it is taken.
            Self::Plain(_) => false,
            Self::Hyper(sender) => sender.is_closed(),
        }
    }
}

/// The connections with nothing under way.
pub(super) struct Idle {
    kept: Mutex<Kept>,
    at_most: Duration,
}

#[derive(Default)]
struct Kept {
    /// Since when, the longest first.
    free: Vec<(Instant, Free)>,
    /// Closes what is idle for too long; there is one while anything is.
    reaper: Option<AbortOnDropHandle<()>>,
}

impl Kept {
    /// The last of a kind.
    fn take(&mut self, is_wanted: impl Fn(&Free) -> bool) -> Option<Free> {
        let last = self.free.iter().rposition(|(_, free)| is_wanted(free))?;
        let (_, taken) = self.free.remove(last);
        if self.free.is_empty() {
            // Most clusters never have one again.
            *self = Self::default();
        }
        Some(taken)
    }
}

impl Idle {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(self: &Arc<Self>, connection: Free) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mut kept = self.kept();
        kept.free.retain(|(_, free)| !free.is_closed());
        if connection.is_closed() || kept.free.len() >= MAX_IDLE {
            return;
        }
        let now = Instant::now();
        // Most are taken at once, for a watch that lasts.
        kept.free.reserve_exact(1);
        kept.free.push((now, connection));
        if kept.reaper.is_none() {
            let reaper = runtime.spawn(reap(Arc::downgrade(self), now + self.at_most));
            kept.reaper = Some(AbortOnDropHandle::new(reaper));
        }
    }

    fn has_only_hyper(&self) -> bool {
        let kept = self.kept();
        let mut free = kept.free.iter().map(|(_, free)| free);
        !kept.free.is_empty() && free.all(|free| matches!(free, Free::Hyper(_)))
    }

    /// The one that was used last. None if there is none that can be used.
    fn take_plain(&self) -> Option<Connection> {
        loop {
            let Free::Plain(mut connection) = self.kept().take(|free| matches!(free, Free::Plain(_)))? else {
                return None;
            };
            if connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// The one that was used last. None if there is none that can be used.
    async fn take_hyper(&self) -> Option<SendRequest<Body>> {
        loop {
            let taken = self.kept().take(|free| matches!(free, Free::Hyper(_)))?;
            let Free::Hyper(mut sender) = taken else {
                return None;
            };
            // Its answer has been read, so this takes a turn of its task, unless it is closing.
            if sender.is_ready() || matches!(timeout(READY_WITHIN, sender.ready()).await, Ok(Ok(()))) {
                return Some(sender);
            }
        }
    }

    /// Closes what is idle for too long; says when to look again.
    fn reap(&self) -> Option<Instant> {
        let mut kept = self.kept();
        let now = Instant::now();
        kept.free
            .retain(|(since, free)| *since + self.at_most > now && !free.is_closed());
        let next = kept.free.first().map(|(since, _)| *since + self.at_most);
        if next.is_none() {
            // It is the one that asks.
            drop(kept.reaper.take().map(AbortOnDropHandle::detach));
        }
        next
    }
}

async fn reap(idle: Weak<Idle>, first: Instant) {
    let mut next = Some(first);
    while let Some(at) = next {
        sleep_until(at).await;
        next = idle.upgrade().and_then(|idle| idle.reap());
    }
}
