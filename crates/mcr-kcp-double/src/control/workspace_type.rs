use serde_json::{Value, json};

use super::reconcile::Reconcile;
use crate::kinds::TYPES;
use crate::shard::Shard;
use crate::state::Key;

impl Reconcile<'_> {
    /// A WorkspaceType was written: it names both virtual workspaces of every shard.
    pub(super) fn workspace_type(&self, shard: &Shard, at: &Key) {
        let name = format!("{}:{}", at.0, at.1);
        let mut all: Vec<Value> = Vec::new();
        for one in &self.inner.shards {
            for kind in ["initializing", "terminating"] {
                let url = format!("{}/services/{kind}workspaces/{name}", one.url);
                all.push(json!({ "url": url, "type": kind }));
            }
        }
        shard.edit(&at.0, TYPES, &at.1, |object| {
            object["status"]["virtualWorkspaces"] = all.into()
        });
    }
}
