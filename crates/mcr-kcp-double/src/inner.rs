use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::delays::KcpDelays;
use super::directory::{Directory, Entry};
use super::names;
use super::shard::Shard;
use super::state::State;
use super::user::KcpUser;

/// The data of the double.
///
/// Locks are always taken in this order: control plane, store of a shard, directory.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) shards: Vec<Arc<Shard>>,
    pub(super) directory: Arc<Directory>,
    /// The users by their bearer tokens.
    pub(super) users: Mutex<HashMap<String, Arc<KcpUser>>>,
    pub(super) control: Mutex<State>,
    pub(super) delays: KcpDelays,
    /// `https://<address>` of the front proxy.
    pub(super) url: String,
    pub(super) admin_token: String,
    pub(super) seed: u64,
    /// How many logical clusters were made so far.
    pub(super) made: AtomicU64,
    /// Notified when a delayed step was added.
    pub(super) timed: Arc<Notify>,
    /// The task that runs delayed steps. It is aborted when the last handle is dropped.
    pub(super) timer: Mutex<Option<JoinHandle<()>>>,
}

impl Inner {
    pub(super) fn shard(&self, number: usize) -> Option<&Shard> {
        self.shards.get(number).map(|shard| &**shard)
    }

    pub(super) fn shard_of(&self, entry: &Entry) -> Option<&Shard> {
        self.shard(entry.shard)
    }

    pub(super) fn shard_named(&self, name: &str) -> Option<&Arc<Shard>> {
        self.shards.iter().find(|shard| &*shard.name == name)
    }

    pub(super) fn next_cluster_id(&self) -> Arc<str> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        names::cluster_id(self.seed, number).into()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.lock().take() {
            timer.abort();
        }
    }
}
