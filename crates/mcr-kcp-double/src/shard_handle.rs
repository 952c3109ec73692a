use std::sync::Arc;

use super::inner::Inner;
use super::shard::Shard;
use mcr_testkit::sim::SimAuditLog;

/// A shard of the double. Cheap to clone.
#[derive(Clone, Debug)]
pub struct KcpShard {
    inner: Arc<Inner>,
    number: usize,
}

impl KcpShard {
    pub(super) fn new(inner: Arc<Inner>, number: usize) -> Self {
        Self { inner, number }
    }

    fn get(&self) -> Option<&Shard> {
        self.inner.shard(self.number)
    }

    /// The name: `root`, `shard-1`.
    pub fn name(&self) -> &str {
        self.get().map_or("", |shard| &shard.name)
    }

    /// `https://<address>`: endpoints of slices begin with it.
    pub fn url(&self) -> &str {
        self.get().map_or("", |shard| &shard.url)
    }

    /// The version of the last write. It counts the writes of all logical clusters of the shard.
    pub fn resource_version(&self) -> u64 {
        self.get().map_or(0, |shard| shard.server.store().version)
    }

    /// Drops the history up to a version. Watches from an older version get 410.
    pub fn compact(&self, version: u64) {
        if let Some(shard) = self.get() {
            shard.server.store().compact(version);
        }
    }

    /// How many watches are open, of workspaces and virtual workspaces.
    pub fn watches(&self) -> usize {
        self.get().map_or(0, |shard| shard.server.open_watches())
    }

    /// How many objects there are in all logical clusters.
    pub fn objects(&self) -> usize {
        self.get().map_or(0, |shard| shard.server.store().object_count())
    }

    /// The requests so far, with their whole paths.
    pub fn audit(&self) -> SimAuditLog {
        self.get().map(|shard| shard.server.audit()).unwrap_or_default()
    }

    /// Ends all open watches.
    pub fn end_watches(&self) {
        if let Some(shard) = self.get() {
            shard.server.end_watches();
        }
    }

    /// Stops the shard: watches end, and clients in memory cannot connect. See
    /// [`KcpServer::stop_shard`](super::KcpServer::stop_shard) for a shard behind TLS.
    pub fn stop(&self) {
        if let Some(shard) = self.get() {
            shard.set_down(true);
        }
    }

    /// Starts the shard again, with its data.
    pub fn start(&self) {
        if let Some(shard) = self.get() {
            shard.set_down(false);
        }
    }
}
