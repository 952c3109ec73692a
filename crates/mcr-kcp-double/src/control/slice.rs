use serde_json::{Value, json};

use super::condition;
use super::reconcile::Reconcile;
use crate::kinds::SLICES;
use crate::state::Key;

impl Reconcile<'_> {
    /// Handles a written endpoint slice.
    pub(super) fn handle_slice(&mut self, key: &Key) {
        let Some((_, object)) = self.read(SLICES, key) else {
            for export in self.state.exports.values_mut() {
                export.slices.remove(key);
            }
            return;
        };
        if let Some(export) = self.export_of(&key.0, &object["spec"]["export"]) {
            self.export_mut(&export).slices.insert(key.clone());
        }
        self.publish(key, &object);
    }

    pub(super) fn publish_endpoints(&mut self, export: &Key) {
        for slice in self.export_mut(export).slices.clone() {
            if let Some((_, object)) = self.read(SLICES, &slice) {
                self.publish(&slice, &object);
            }
        }
    }

    /// Writes the URLs of the shards that have a binding. If there are none, the field is absent.
    fn publish(&mut self, key: &Key, object: &Value) {
        let export_key = self.export_of(&key.0, &object["spec"]["export"]);
        let found = export_key.and_then(|export_key| {
            let export = self.state.exports.get(&export_key)?;
            let used = |number: usize| export.on.get(number).is_some_and(|on| !on.bindings.is_empty());
            let shards = self.inner.shards.iter().filter(|shard| used(shard.number));
            let url = |base: &str| format!("{base}/services/apiexport/{}/{}", export_key.0, export_key.1);
            let urls: Vec<Value> = shards.map(|shard| json!({ "url": url(&shard.url) })).collect();
            export.exists.then_some(urls)
        });
        let Some(shard) = self.shard_of(&key.0) else {
            return;
        };
        shard.edit(&key.0, SLICES, &key.1, |object| {
            let urls = found.unwrap_or_default();
            condition::ok(object, &["APIExportValid", "PartitionValid"]);
            if !urls.is_empty() {
                object["status"]["endpoints"] = urls.into();
            } else if let Some(status) = object["status"].as_object_mut() {
                status.remove("endpoints");
            }
        });
    }
}
