//! The state that a transport shares with the bodies of its responses.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use mcr_access::ClusterName;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{error::TransportErrorKind, link::Link, settings::Settings};

static START: LazyLock<(Instant, SystemTime)> = LazyLock::new(|| (Instant::now(), SystemTime::now()));

/// Reasons to probe a cluster that have come since the last probe began, each with the time when it came first.
#[derive(Debug, Clone, Copy, Default)]
pub struct Doubts {
    /// A request could not connect, broke off, or waits in vain.
    pub failed: Option<Instant>,
    /// A request opened a connection, which may lead to another cluster.
    pub dialed: Option<Instant>,
    /// Work waits or runs.
    pub works: Option<Instant>,
}

pub(crate) struct TransportState {
    pub(crate) cluster: ClusterName,
    pub(crate) settings: Arc<Settings>,
    /// Cancelled when the transport is closed.
    pub(crate) closed: CancellationToken,
    pub(crate) open_bodies: AtomicUsize,
    pub(crate) open_watches: AtomicUsize,
    /// Whether requests and watches may use the connection.
    pub(crate) link: Link,
    pub(crate) doubts: Mutex<Doubts>,
    /// Notified of each doubt. Holds one notice at most.
    pub(crate) probe_wanted: Notify,
    /// Milliseconds after [`START`]; 0 for never.
    last_received: AtomicU64,
}

impl TransportState {
    pub(crate) fn new(cluster: ClusterName, settings: Arc<Settings>) -> Self {
        LazyLock::force(&START);
        Self {
            cluster,
            settings,
            closed: CancellationToken::new(),
            open_bodies: AtomicUsize::new(0),
            open_watches: AtomicUsize::new(0),
            doubts: Mutex::default(),
            link: Link::default(),
            probe_wanted: Notify::new(),
            last_received: AtomicU64::new(0),
        }
    }

    /// The error of a request that was ended.
    pub(crate) fn ended(&self) -> TransportErrorKind {
        if self.closed.is_cancelled() {
            return TransportErrorKind::Gone;
        }
        let reason = self.link.reason();
        TransportErrorKind::Lost {
            reason: reason.unwrap_or_else(|| "it is connected again".into()),
        }
    }

    /// Adds a reason to probe the cluster.
    pub(crate) fn doubt(&self, reason: fn(&mut Doubts) -> &mut Option<Instant>) {
        let mut doubts = self.doubts.lock();
        let reason = reason(&mut doubts);
        if reason.is_none() {
            *reason = Some(Instant::now());
            self.probe_wanted.notify_one();
        }
    }

    /// Records that the cluster has sent something.
    pub(crate) fn received(&self) {
        let millis = u64::try_from(START.0.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_received.store(millis.max(1), Ordering::Relaxed);
    }

    /// When the cluster last sent something, on the wall clock.
    pub(crate) fn last_received(&self) -> Option<SystemTime> {
        self.received_after().map(|after| START.1 + after)
    }

    /// When the cluster last sent something, on the monotonic clock.
    pub(crate) fn last_received_at(&self) -> Option<Instant> {
        self.received_after().map(|after| START.0 + after)
    }

    fn received_after(&self) -> Option<Duration> {
        match self.last_received.load(Ordering::Relaxed) {
            0 => None,
            millis => Some(Duration::from_millis(millis)),
        }
    }
}
