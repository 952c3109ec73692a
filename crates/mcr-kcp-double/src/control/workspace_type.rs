use serde_json::{Value, json};

use super::reconcile::Reconcile;
use crate::kinds::TYPES;
use crate::shard::Shard;
use crate::state::Key;

impl Reconcile<'_> {
    /// Handles a written WorkspaceType: sets the URLs of both virtual workspaces on every shard.
    pub(super) fn handle_workspace_type(&self, shard: &Shard, key: &Key) {
        let name = format!("{}:{}", key.0, key.1);
        let mut all: Vec<Value> = Vec::new();
        for one in &self.inner.shards {
            for kind in ["initializing", "terminating"] {
                let url = format!("{}/services/{kind}workspaces/{name}", one.url);
                all.push(json!({ "url": url, "type": kind }));
            }
        }
        shard.edit(&key.0, TYPES, &key.1, |object| {
            object["status"]["virtualWorkspaces"] = all.into()
        });
    }
}
