use serde_json::Value;

use super::binding::FINALIZER;
use super::condition;
use super::reconcile::Reconcile;
use crate::kinds::BINDINGS;
use crate::state::Key;
use mcr_testkit::sim::object::text;

impl Reconcile<'_> {
    /// Deletes the bound objects of a binding that is being deleted. When none are left, removes the binding.
    pub(super) fn unbind(&mut self, key: &Key) {
        let Some((shard, object)) = self.read(BINDINGS, key) else {
            return;
        };
        if text(&object, "deletionTimestamp").is_empty() {
            return;
        }
        let tables = self
            .state
            .bindings
            .get(key)
            .map(|binding| binding.tables.clone())
            .unwrap_or_default();
        let kinds = shard.server.store().kinds(&key.0).clone();
        let mut left = 0;
        for (_, table) in &tables {
            let Some(kind) = kinds.of_table(table) else {
                continue;
            };
            for path in shard.paths(&key.0, table) {
                let held = shard.get(&key.0, table, &path);
                if held.is_some_and(|object| text(&object, "deletionTimestamp").is_empty()) {
                    shard.delete(&key.0, &kind, &path);
                }
            }
            left += shard.paths(&key.0, table).len();
        }
        if left > 0 {
            shard.edit(&key.0, BINDINGS, &key.1, |object| {
                let message = format!("{left} bound objects remain, which have finalizers");
                let why = Some(("SomeResourcesRemain", &*message));
                condition::set(object, "BindingResourceDeleteSuccess", "False", why);
            });
            return;
        }
        for (name, _) in &tables {
            shard.server.store().kinds_mut(&key.0).remove_crd(name);
        }
        let claimed = self.replace_claims(key, Vec::new());
        self.label_all(shard, &key.0, &claimed);
        shard.edit(&key.0, BINDINGS, &key.1, |object| {
            drop_finalizer(object, FINALIZER)
        });
    }
}

pub(super) fn drop_finalizer(object: &mut Value, finalizer: &str) {
    let Some(list) = object["metadata"]["finalizers"].as_array_mut() else {
        return;
    };
    list.retain(|one| one != finalizer);
    if list.is_empty()
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove("finalizers");
    }
}
