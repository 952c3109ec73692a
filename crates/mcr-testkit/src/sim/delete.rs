use std::sync::Arc;

use serde_json::{Value, json};

use super::clock;
use super::error::SimError;
use super::kinds::Kind;
use super::object::{Object, has_finalizers, metadata_mut, text};
use super::store::Store;
use super::write::{Done, Write};

/// Deletions. An object with finalizers is only marked as deleted.
impl Write<'_> {
    pub(super) fn delete(&self, store: &mut Store, options: &Value) -> Result<Done, SimError> {
        let live = self.live(store)?;
        if self.kind.is_namespaces() && matches!(self.name, "default" | "kube-system" | "kube-public") {
            let message = format!(
                "{} is forbidden: this namespace may not be deleted",
                self.kind.quoted(self.name)
            );
            return Err(SimError::new(403, "Forbidden", message).with(self.kind.details(self.name)));
        }
        let mut object = live.value_as(self.kind);
        self.check_delete_preconditions(options, &object)?;
        if !text(&object, "deletionTimestamp").is_empty() {
            return Ok(Done::with(live));
        }
        if can_be_removed(self.kind, &object) {
            if !self.dry_run {
                self.remove(store, &live);
            }
            let reported = if self.dry_run {
                live
            } else {
                Arc::new(live.at(store.version))
            };
            return Ok(Done {
                removed: true,
                ..Done::with(reported)
            });
        }
        let metadata = metadata_mut(&mut object);
        metadata.insert("deletionTimestamp".to_owned(), clock::now().into());
        if !self.kind.is_namespaces() {
            metadata.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
        }
        if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
            metadata.insert("generation".to_owned(), (generation + 1).into());
        }
        if self.kind.is_namespaces() {
            object["status"] = json!({ "phase": "Terminating" });
        }
        let object = self.commit(store, object)?;
        if self.kind.is_namespaces() && self.cluster.settings.finish_namespaces && !self.dry_run {
            self.finish_namespace(store, &object);
        }
        Ok(Done::with(object))
    }

    fn check_delete_preconditions(&self, options: &Value, object: &Value) -> Result<(), SimError> {
        let wanted = &options["preconditions"];
        let refuse = |message: String| {
            let named = format!("{} \"{}\"", self.kind.kind_in_conflicts(), self.name);
            let message = format!("Operation cannot be fulfilled on {named}: {message}");
            let mut details = self.kind.details(self.name);
            details["kind"] = (*self.kind.kind).into();
            Err(SimError::new(409, "Conflict", message).with(details))
        };
        for (field, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            let live = text(object, field);
            if let Some(wanted) = wanted[field].as_str()
                && wanted != live
            {
                let changed = match field {
                    "uid" => "The object might have been deleted and then recreated",
                    _ => "The object might have been modified",
                };
                return refuse(format!(
                    "the {what} in the precondition ({wanted}) does not match the {what} in record ({live}). {changed}"
                ));
            }
        }
        Ok(())
    }

    /// Deletes all objects in a namespace, then the namespace.
    fn finish_namespace(&self, store: &mut Store, namespace: &Object) {
        let within = self.cluster.prefix(self.name);
        let kinds = store.kinds(&self.cluster.part).clone();
        let tables = store.resources().into_iter();
        let kinds = tables.filter_map(|table| kinds.of_table(&table).filter(|kind| kind.namespaced));
        let kinds: Vec<Arc<Kind>> = kinds.collect();
        for kind in &kinds {
            let names = store
                .current(&kind.table, &within, "")
                .map(|object| object.name().to_owned());
            for name in names.collect::<Vec<_>>() {
                let write = Write::new(self.cluster, kind, self.name, &name, "");
                // This can't fail, because the object was found under the same lock.
                let _ = write.delete(store, &json!({}));
            }
        }
        let left = |kind: &Arc<Kind>| store.current(&kind.table, &within, "").next().is_some();
        if !kinds.iter().any(left) {
            store.remove(&self.kind.table, &namespace.key);
        }
    }
}

/// Whether a deleted object can be removed, because it has no finalizers left.
pub(super) fn can_be_removed(kind: &Kind, object: &Value) -> bool {
    let held = kind.is_namespaces()
        && object["spec"]["finalizers"]
            .as_array()
            .is_some_and(|finalizers| !finalizers.is_empty());
    !held && !has_finalizers(object)
}
