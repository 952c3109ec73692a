use std::sync::Arc;

use super::shard::Shard;
use mcr_testkit::sim::SimAuditLog;

/// A shard of the double. Cheap to clone.
#[derive(Clone, Debug)]
pub struct KcpShard(pub(super) Arc<Shard>);

impl KcpShard {
    /// The name: `root`, `shard-1`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// `https://<address>`, which is the beginning of the endpoints in slices.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// The version of the last write in any logical cluster of the shard.
    pub fn resource_version(&self) -> u64 {
        self.0.server.store().version
    }

    /// Drops the history up to a version. Watches from an older version get 410.
    pub fn compact(&self, version: u64) {
        self.0.server.store().compact(version);
    }

    /// How many watches of workspaces and virtual workspaces are open.
    pub fn watches(&self) -> usize {
        self.0.server.open_watches()
    }

    /// The requests so far, with their whole paths.
    pub fn audit(&self) -> SimAuditLog {
        self.0.server.audit()
    }

    /// Ends all open watches.
    pub fn end_watches(&self) {
        self.0.server.end_watches();
    }
}
