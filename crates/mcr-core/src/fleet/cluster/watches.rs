//! The watches of one cluster.

use std::sync::{Arc, Mutex};

use mcr_access::internal::lock;
use mcr_watch::{WatchRequest, internal::SharedWatch};

/// The watches of one cluster, one for each request.
#[derive(Default)]
pub(super) struct Watches {
    /// A list, because a cluster has few watches.
    pub(super) entries: Vec<Entry>,
    /// Set when the cluster leaves. No watch starts after that.
    pub(super) closed: bool,
}

pub(super) struct Entry {
    pub(super) watch: Arc<SharedWatch>,
    /// The number of [`WatchHandle`](super::WatchHandle)s. The watch ends with the last one.
    pub(super) handles: usize,
}

impl Watches {
    pub(super) fn get(&mut self, request: &WatchRequest) -> Option<&mut Entry> {
        self.entries
            .iter_mut()
            .find(|entry| entry.watch.request() == request)
    }

    /// Ends all watches for good.
    pub(super) fn close(watches: &Mutex<Self>) {
        let ended: Vec<Entry> = {
            let mut watches = lock(watches);
            watches.closed = true;
            std::mem::take(&mut watches.entries)
        };
        // Without the lock: `mark_gone` waits for sinks, and a sink may use the cluster.
        for entry in ended {
            entry.watch.mark_gone();
        }
    }
}
