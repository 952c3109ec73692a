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

/// The most idle connections of a pool. A healthy cluster has one, which its next watch takes.
const MAX_IDLE: usize = 2;

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
    /// The task that closes connections after the idle timeout. It runs while the list is not empty.
    reaper: Option<AbortOnDropHandle<()>>,
}

impl List {
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
        let now = Instant::now();
        // Exact, because a watch takes most connections at once, and the list stays small.
        list.connections.reserve_exact(1);
        list.connections.push((now, connection));
        if list.reaper.is_none() {
            let reaper = runtime.spawn(reap(Arc::downgrade(self), now + self.idle_timeout));
            list.reaper = Some(AbortOnDropHandle::new(reaper));
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
        list.connections
            .retain(|(since, connection)| *since + self.idle_timeout > now && !connection.is_closed());
        let next = list
            .connections
            .first()
            .map(|(since, _)| *since + self.idle_timeout);
        if next.is_none() {
            // Detached, because the reaper itself is the caller, and must not abort itself.
            drop(list.reaper.take().map(AbortOnDropHandle::detach));
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
