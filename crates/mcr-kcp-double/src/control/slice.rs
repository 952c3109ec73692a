use serde_json::{Value, json};

use super::condition;
use super::reconcile::Reconcile;
use crate::kinds::SLICES;
use crate::state::Key;

impl Reconcile<'_> {
    /// A slice was written.
    pub(super) fn slice(&mut self, at: &Key) {
        let Some((_, object)) = self.read(SLICES, at) else {
            for export in self.state.exports.values_mut() {
                export.slices.remove(at);
            }
            return;
        };
        if let Some(export) = self.export_of(&at.0, &object["spec"]["export"]) {
            self.export_mut(&export).slices.insert(at.clone());
        }
        self.publish(at, &object);
    }

    pub(super) fn endpoints(&mut self, export: &Key) {
        for slice in self.export_mut(export).slices.clone() {
            if let Some((_, object)) = self.read(SLICES, &slice) {
                self.publish(&slice, &object);
            }
        }
    }

    /// Writes the URLs of the shards that have a binding. Without any the field is absent.
    fn publish(&mut self, at: &Key, object: &Value) {
        let key = self.export_of(&at.0, &object["spec"]["export"]);
        let found = key.and_then(|key| {
            let export = self.state.exports.get(&key)?;
            let used = |number: usize| export.on.get(number).is_some_and(|on| !on.bindings.is_empty());
            let shards = self.inner.shards.iter().filter(|shard| used(shard.number));
            let url = |base: &str| format!("{base}/services/apiexport/{}/{}", key.0, key.1);
            let urls: Vec<Value> = shards.map(|shard| json!({ "url": url(&shard.url) })).collect();
            export.exists.then_some(urls)
        });
        let Some(shard) = self.shard_of(&at.0) else { return };
        shard.edit(&at.0, SLICES, &at.1, |object| {
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
