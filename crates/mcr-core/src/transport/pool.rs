//! The connections to one API server: a request takes one that is idle, or makes one.
//!
//! hyper-util's client dials as soon as no connection is idle, and one is idle only some turns of the runtime after its
//! answer was read. When a fleet starts, up to half of the watches would leave the connection of their list behind and
//! make another, each with a TLS handshake and the memory of a connection. Here a connection comes back with the last
//! piece of its answer, and whoever takes it waits until it is ready.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Uri, header::HOST};
use http_body::{Body as _, Frame, SizeHint};
use hyper::{
    body::Incoming,
    client::conn::http1::{Builder, SendRequest},
};
use kube::client::Body;
use tokio::{
    runtime::Handle,
    task::JoinHandle,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt;

use super::{Settings, connect::Connector};
use crate::BoxError;

/// How many idle connections are kept; clusters that are well have one, which their watch is about to take.
const MAX_IDLE: usize = 2;

/// For how long a connection may go on writing a request that has been answered already.
const READY_WITHIN: Duration = Duration::from_secs(1);

/// How many bytes are read from a connection at once, which also bounds the head of an answer. hyper would grow it to
/// hundreds of KiB for a list, and a connection keeps the buffer that it waits with: all of a watch's life. Heads of API
/// servers are below 1 KiB, and what stands before them (nginx, HAProxy, Envoy) passes on 4 to 16 KiB.
const READ_BUFFER: usize = 8 << 10;

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
    pub(super) async fn send(&self, mut request: Request<Body>) -> Result<Response<Answer>, SendError> {
        request
            .headers_mut()
            .entry(HOST)
            .or_insert_with(|| self.host.clone());
        loop {
            let (mut sender, fresh) = match self.idle.take().await {
                Some(sender) => (sender, None),
                None => {
                    let (sender, connection) = self.connect().await?;
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

    fn answer(&self, sender: SendRequest<Body>, response: Response<Incoming>) -> Response<Answer> {
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        response.map(|body| Answer {
            body,
            way_back: (!switched).then(|| (sender, Arc::downgrade(&self.idle))),
        })
    }

    /// The task of the connection ends with the sender and the body.
    async fn connect(&self) -> Result<(SendRequest<Body>, JoinHandle<hyper::Result<()>>), SendError> {
        tracing::trace!(server = %self.host.to_str().unwrap_or_default(), "no connection is idle: making one");
        let io = self.connector.clone().oneshot(self.server.clone()).await;
        let mut http = Builder::new();
        http.read_buf_exact_size(Some(READ_BUFFER));
        let (sender, connection) = http
            .handshake(io.map_err(SendError::Connect)?)
            .await
            .map_err(SendError::Send)?;
        Ok((sender, tokio::spawn(connection.with_upgrades())))
    }
}

/// The body of an answer. Its connection is free for the next request when it has been read to its end, and closes when it
/// is dropped before.
pub(super) struct Answer {
    body: Incoming,
    way_back: Option<(SendRequest<Body>, Weak<Idle>)>,
}

impl Answer {
    fn free(&mut self) {
        if let Some((sender, idle)) = self.way_back.take()
            && let Some(idle) = idle.upgrade()
        {
            idle.put(sender);
        }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let next = ready!(Pin::new(&mut self.body).poll_frame(context));
        if matches!(next, Some(Err(_))) {
            self.way_back = None;
        } else if next.is_none() || self.body.is_end_stream() {
            self.free();
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // Those without content are never read.
        if self.body.is_end_stream() {
            self.free();
        }
    }
}

struct Idle {
    kept: Mutex<Kept>,
    at_most: Duration,
}

#[derive(Default)]
struct Kept {
    /// Since when, the longest first.
    senders: Vec<(Instant, SendRequest<Body>)>,
    /// Closes what is idle for too long; there is one while anything is.
    reaper: Option<AbortOnDropHandle<()>>,
}

impl Idle {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(self: &Arc<Self>, sender: SendRequest<Body>) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mut kept = self.kept();
        kept.senders.retain(|(_, sender)| !sender.is_closed());
        if sender.is_closed() || kept.senders.len() >= MAX_IDLE {
            return;
        }
        let now = Instant::now();
        kept.senders.push((now, sender));
        if kept.reaper.is_none() {
            let reaper = runtime.spawn(reap(Arc::downgrade(self), now + self.at_most));
            kept.reaper = Some(AbortOnDropHandle::new(reaper));
        }
    }

    /// The one that was used last. None if there is none that can be used.
    async fn take(&self) -> Option<SendRequest<Body>> {
        loop {
            let (_, mut sender) = self.kept().senders.pop()?;
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
        kept.senders
            .retain(|(since, sender)| *since + self.at_most > now && !sender.is_closed());
        let next = kept.senders.first().map(|(since, _)| *since + self.at_most);
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
