//! The idle connections of a pool.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::hyper_connection::HyperConnection;
use crate::connect::Stream;

/// The most idle connections of a pool: about as many as requests run at once in one cluster. With fewer, a burst of requests dials
/// again and again, and a TLS handshake costs more than the request.
const MAX_IDLE: usize = 16;

/// How many connections may be idle for the whole idle timeout. A healthy cluster has one, which its next watch takes.
const LASTING: usize = 2;

/// How long the others, which a burst of requests has left, may be idle.
const SURPLUS_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a connection may take to finish writing a request whose response has already been read.
const READY_WITHIN: Duration = Duration::from_secs(1);

pub(super) type H1Connection = mcr_h1::Connection<Box<Stream>>;

/// A connection without a request under way.
pub(super) enum IdleConnection {
    H1(H1Connection),
    Hyper(HyperConnection),
}

impl IdleConnection {
    fn is_closed(&self) -> bool {
        match self {
            // `take_h1` checks it.
            Self::H1(_) => false,
            Self::Hyper(connection) => connection.is_closed(),
        }
    }
}

/// The idle connections of a pool.
pub(crate) struct IdleConnections {
    list: Mutex<List>,
    idle_timeout: Duration,
}

#[derive(Default)]
struct List {
    /// Each with the time since when it is idle, in ascending order.
    connections: Vec<(Instant, IdleConnection)>,
    /// The task that closes connections which have been idle for too long, and when it does so next. It runs while the list is not empty.
    reaper: Option<(Instant, AbortOnDropHandle<()>)>,
}

impl List {
    /// When each connection has been idle for too long. The ones that became idle last are kept, because they are taken first.
    fn deadlines(&self, idle_timeout: Duration) -> impl Iterator<Item = Instant> {
        let surplus = self.connections.len().saturating_sub(LASTING);
        let since = self.connections.iter().map(|(since, _)| *since);
        since.enumerate().map(move |(at, since)| {
            since
                + if at < surplus {
                    idle_timeout.min(SURPLUS_TIMEOUT)
                } else {
                    idle_timeout
                }
        })
    }

    /// Takes the connection that became idle last, of those that match.
    fn take(&mut self, matches: impl Fn(&IdleConnection) -> bool) -> Option<IdleConnection> {
        let last = self
            .connections
            .iter()
            .rposition(|(_, connection)| matches(connection))?;
        let (_, taken) = self.connections.remove(last);
        if self.connections.is_empty() {
            // Frees the memory, because the list of most clusters stays empty from now on.
            *self = Self::default();
        }
        Some(taken)
    }
}

impl IdleConnections {
    pub(super) fn new(idle_timeout: Duration) -> Self {
        Self {
            list: Mutex::default(),
            idle_timeout,
        }
    }

    /// Keeps a connection for the next request, unless there are enough.
    pub(super) fn put(self: &Arc<Self>, connection: IdleConnection) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mut list = self.list.lock();
        list.connections.retain(|(_, connection)| !connection.is_closed());
        if connection.is_closed() || list.connections.len() >= MAX_IDLE {
            return;
        }
        // Exact, because a watch takes most connections at once, and most lists stay small.
        list.connections.reserve_exact(1);
        list.connections.push((Instant::now(), connection));
        let Some(first) = list.deadlines(self.idle_timeout).min() else {
            return;
        };
        if list.reaper.as_ref().is_none_or(|(at, _)| first < *at) {
            let reaper = runtime.spawn(reap(Arc::downgrade(self), first));
            list.reaper = Some((first, AbortOnDropHandle::new(reaper)));
        }
    }

    /// Whether there are idle connections, and hyper has all of them.
    pub(super) fn has_only_hyper(&self) -> bool {
        let list = self.list.lock();
        let mut connections = list.connections.iter().map(|(_, connection)| connection);
        !list.connections.is_empty()
            && connections.all(|connection| matches!(connection, IdleConnection::Hyper(_)))
    }

    /// Takes the usable connection that became idle last.
    pub(super) fn take_h1(&self) -> Option<H1Connection> {
        loop {
            let taken = self
                .list
                .lock()
                .take(|idle| matches!(idle, IdleConnection::H1(_)))?;
            let IdleConnection::H1(mut connection) = taken else {
                return None;
            };
            if connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// Takes the usable connection that became idle last.
    pub(super) async fn take_hyper(&self) -> Option<HyperConnection> {
        loop {
            let taken = self
                .list
                .lock()
                .take(|idle| matches!(idle, IdleConnection::Hyper(_)))?;
            let IdleConnection::Hyper(mut connection) = taken else {
                return None;
            };
            // The last response has been read, so hyper's task needs one turn to be ready, unless the connection closes.
            if timeout(READY_WITHIN, connection.ready()).await == Ok(true) {
                return Some(connection);
            }
        }
    }

    /// Closes connections that have been idle for too long. Returns when to call it again.
    fn reap(&self) -> Option<Instant> {
        let mut list = self.list.lock();
        let now = Instant::now();
        let due: Vec<bool> = list.deadlines(self.idle_timeout).map(|at| at <= now).collect();
        let mut due = due.into_iter();
        list.connections
            .retain(|(_, connection)| due.next() == Some(false) && !connection.is_closed());
        let next = list.deadlines(self.idle_timeout).min();
        match (next, &mut list.reaper) {
            (Some(next), Some((at, _))) => *at = next,
            // Detached, because the reaper itself is the caller, and must not abort itself.
            (None, reaper) => drop(reaper.take().map(|(_, task)| task.detach())),
            (Some(_), None) => {}
        }
        next
    }
}

async fn reap(idle: Weak<IdleConnections>, first: Instant) {
    let mut next = Some(first);
    while let Some(at) = next {
        sleep_until(at).await;
        next = idle.upgrade().and_then(|idle| idle.reap());
    }
}
