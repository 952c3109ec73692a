use std::sync::Arc;

use serde_json::{Value, json};

use super::reconcile::Reconcile;
use crate::admission::{EXPORT_LABEL, PATH_ANNOTATION};
use crate::kinds::{BINDINGS, EXPORTS, TYPES};
use crate::names;
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

    /// Makes the bindings that a WorkspaceType names, with all claims of their exports accepted.
    pub(super) fn default_bindings(&self, shard: &Shard, id: &Arc<str>, of_type: &Key, object: &Value) {
        let wanted = object["spec"]["defaultAPIBindings"]
            .as_array()
            .into_iter()
            .flatten();
        for binding in wanted {
            let path = binding["path"].as_str().filter(|path| !path.is_empty());
            let Some(entry) = self.inner.directory.find(path.unwrap_or(&of_type.0)) else {
                continue;
            };
            let name = binding["export"].as_str().unwrap_or_default().to_owned();
            let key: Key = (entry.id.clone(), name);
            let Some((_, export)) = self.read(EXPORTS, &key) else {
                continue;
            };
            let claims = export["spec"]["permissionClaims"]
                .as_array()
                .into_iter()
                .flatten();
            let claims: Vec<Value> = claims
                .map(|claim| {
                    let mut claim = claim.clone();
                    claim["state"] = "Accepted".into();
                    claim["selector"] = json!({ "matchAll": true });
                    claim
                })
                .collect();
            let hash = names::export_hash(&key.0, &key.1);
            let own = self.inner.directory.by_id(id).map(|entry| entry.path.to_string());
            shard.add(id, BINDINGS, json!({
                "metadata": {
                    "name": format!("{}-{}", key.1, shard.server.suffix()),
                    "labels": { EXPORT_LABEL: hash }, "annotations": { PATH_ANNOTATION: own },
                },
                "spec": {
                    "reference": { "export": { "path": &*entry.path, "name": key.1 } }, "permissionClaims": claims,
                },
            }));
        }
    }
}
