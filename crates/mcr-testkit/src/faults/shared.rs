//! The state that the tasks of a proxy share with its handles.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicU64},
};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    certificates::Certificates,
    faulty_stream::{Mode, Wire},
    rules::Rules,
    stale::Memory,
    upstream::UpstreamClient,
};

/// The shared state of a proxy.
pub(super) struct Shared {
    pub(super) name: Option<String>,
    pub(super) upstream: UpstreamClient,
    pub(super) certificates: Arc<Certificates>,
    pub(super) rules: watch::Sender<Rules>,
    pub(super) wire: watch::Sender<Wire>,
    pub(super) address: watch::Sender<SocketAddr>,
    /// How often a fault changed an answer or a line of a watch.
    pub(super) hits: Arc<AtomicU64>,
    pub(super) memory: Arc<Memory>,
    pub(super) next_connection: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) open: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) token: CancellationToken,
    /// Held while faults change.
    pub(super) changing: tokio::sync::Mutex<Changing>,
    pub(super) trouble: Mutex<Option<String>>,
}

#[derive(Default)]
pub(super) struct Changing {
    pub(super) last_id: u64,
    /// The mode that the listener is in. `None` if it is unknown: before the first change, or after a cancelled one.
    pub(super) met: Option<Mode>,
}

impl Shared {
    pub(super) fn trouble(&self, what: String) {
        *self.trouble.lock() = Some(what);
    }
}
