use serde_json::Value;

use super::binding::FINALIZER;
use super::condition;
use super::reconcile::Reconcile;
use crate::kinds::BINDINGS;
use crate::state::Key;
use mcr_testkit::sim::object::text;

impl Reconcile<'_> {
    /// Deletes the bound objects of a binding that is being deleted. When the last one is gone, the binding goes.
    pub(super) fn unbind(&mut self, at: &Key) {
        let Some((shard, object)) = self.read(BINDINGS, at) else {
            return;
        };
        if text(&object, "deletionTimestamp").is_empty() {
            return;
        }
        let tables = self
            .state
            .bindings
            .get(at)
            .map(|binding| binding.tables.clone())
            .unwrap_or_default();
        let kinds = shard.server.store().kinds(&at.0).clone();
        let mut left = 0;
        for (_, table) in &tables {
            let Some(kind) = kinds.of_table(table) else {
                continue;
            };
            for path in shard.paths(&at.0, table) {
                let held = shard.get(&at.0, table, &path);
                if held.is_some_and(|object| text(&object, "deletionTimestamp").is_empty()) {
                    shard.delete(&at.0, &kind, &path);
                }
            }
            left += shard.paths(&at.0, table).len();
        }
        if left > 0 {
            shard.edit(&at.0, BINDINGS, &at.1, |object| {
                let message = format!("{left} bound objects remain, which have finalizers");
                let why = Some(("SomeResourcesRemain", &*message));
                condition::set(object, "BindingResourceDeleteSuccess", "False", why);
            });
            return;
        }
        for (name, _) in &tables {
            shard.server.store().kinds_mut(&at.0).remove_crd(name);
        }
        let claimed = self.replace_claims(at, Vec::new());
        self.label_all(shard, &at.0, &claimed);
        shard.edit(&at.0, BINDINGS, &at.1, |object| drop_finalizer(object, FINALIZER));
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
