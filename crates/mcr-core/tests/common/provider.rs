//! A provider of the clusters that a test announces by hand.

use std::sync::{Arc, Mutex};

use futures::{
    StreamExt,
    channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded},
    stream,
};
use mcr_core::{BrokenCluster, Change, ClusterName, ClusterSpec, Discovery, Provider};
use tokio_util::sync::CancellationToken;

/// Announces what comes from its [`Clusters`]. All that came before its discovery is there at first.
pub(crate) struct Announced {
    changes: Mutex<Option<UnboundedReceiver<Change>>>,
    /// Whether that is all that the discovery names.
    synced: bool,
}

/// Announces clusters.
#[derive(Clone)]
pub(crate) struct Clusters(Arc<UnboundedSender<Change>>);

pub(crate) fn announced(synced: bool) -> (Clusters, Announced) {
    let (sender, receiver) = unbounded();
    let changes = Mutex::new(Some(receiver));
    (Clusters(Arc::new(sender)), Announced { changes, synced })
}

impl Clusters {
    pub(crate) fn send(&self, change: Change) {
        // A fleet that has stopped takes no more.
        _ = self.0.unbounded_send(change);
    }

    pub(crate) fn add(&self, spec: ClusterSpec) {
        self.send(Change::Upsert(spec));
    }

    #[allow(dead_code, reason = "each folder uses its part")]
    pub(crate) fn broken(&self, name: ClusterName, object: &str, error: &str) {
        self.send(Change::Broken(BrokenCluster::new(name, object, error)));
    }

    pub(crate) fn remove(&self, name: &str) {
        self.send(Change::Remove(ClusterName::new(name).unwrap()));
    }
}

impl Provider for Announced {
    fn name(&self) -> &str {
        "announced"
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        let Some(mut later) = self.changes.lock().unwrap().take() else {
            panic!("there is one discovery");
        };
        let mut first = Vec::new();
        while let Ok(change) = later.try_recv() {
            first.push(change);
        }
        first.extend(self.synced.then_some(Change::Synced));
        let all = stream::iter(first).chain(later).map(Ok);
        all.take_until(stop.cancelled_owned()).boxed()
    }
}
