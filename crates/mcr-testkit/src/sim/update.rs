use std::sync::Arc;

use serde_json::Value;

use super::cause::Cause;
use super::delete::can_be_removed;
use super::error::SimError;
use super::kinds::Kind;
use super::object::{Object, metadata_mut, text};
use super::store::Store;
use super::write::{Done, Write};
use super::{clock, crd, defaults, managed};

/// Changes of an existing object, by an update, a patch or an apply.
impl Write<'_> {
    /// Replaces the live object.
    pub(super) fn replace(
        &self,
        store: &mut Store,
        live: &Arc<Object>,
        mut object: Value,
        managed_already: bool,
    ) -> Result<Done, SimError> {
        let before = live.value_as(self.kind);
        self.cluster.mark(&mut object);
        self.cluster
            .ask_guard(self.kind, self.subresource, &before, &mut object)?;
        self.check_preconditions(&before, &object, live.version)?;
        self.carry_over(&before, &mut object);
        let deleting = !text(&before, "deletionTimestamp").is_empty();
        defaults::on_update(self.kind, &mut object);
        self.prune_and_fill_in(&mut object);
        let mut causes = defaults::check_metadata(self.kind, &object);
        if deleting {
            causes.extend(new_finalizers(&before, &object));
        }
        causes.extend(self.check(&object));
        if !causes.is_empty() {
            return Err(self.invalid(self.name, &causes));
        }
        if self.kind.is_crds() && self.subresource.is_empty() {
            crd::complete(&mut object, &clock::now());
        }
        if self.kind.has_generation && content_differs(self.kind, &before, &object) {
            let generation = before["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            metadata_mut(&mut object).insert("generation".to_owned(), generation.into());
        }
        let tracked = self.cluster.settings.managed_fields || !before["metadata"]["managedFields"].is_null();
        if tracked && !managed_already {
            managed::track(self.kind, self.subresource, &self.manager, &before, &mut object);
        }
        self.cluster.mark(&mut object);
        self.cluster
            .admit(self.kind, self.subresource, Some(&before), &mut object)?;
        let metadata = metadata_mut(&mut object);
        metadata.insert("resourceVersion".to_owned(), live.version.to_string().into());
        if managed::same(&before, &object) {
            return Ok(Done::with(live.clone()));
        }
        if deleting && can_be_removed(self.kind, &object) {
            // This update has removed the last finalizer, so the object is deleted. The answer contains the new state,
            // the `DELETED` event the previous one.
            let last = Arc::new(Object::new(&self.cluster.part, object, live.version));
            if !self.dry_run {
                self.remove(store, live);
            }
            return Ok(Done::with(last));
        }
        self.commit(store, object).map(Done::with)
    }

    fn check_preconditions(&self, before: &Value, object: &Value, live: u64) -> Result<(), SimError> {
        let version = text(object, "resourceVersion");
        if version.is_empty() || version == "0" {
            if self.kind.update_needs_version {
                let why = "must be specified for an update";
                let cause = Cause::invalid("metadata.resourceVersion", 0, why);
                return Err(SimError::invalid(
                    &self.kind.group,
                    &self.kind.plural,
                    self.name,
                    &[cause],
                ));
            }
        } else {
            let version: u64 = version.parse().map_err(|_| {
                SimError::internal(format!(
                    "strconv.ParseUint: parsing \"{version}\": invalid syntax"
                ))
            })?;
            if version != live {
                return Err(SimError::stale(self.kind, self.name));
            }
        }
        let (uid, wanted) = (text(before, "uid"), text(object, "uid"));
        if !wanted.is_empty() && wanted != uid {
            let why = format!(
                "StorageError: Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}"
            );
            return Err(SimError::conflict(self.kind, self.name, &why));
        }
        Ok(())
    }

    /// Restores the fields that this write can't change: those that the server sets, and those that belong to another
    /// subresource.
    fn carry_over(&self, before: &Value, object: &mut Value) {
        if self.subresource == "status" {
            let managed = object["metadata"].get("managedFields").cloned();
            let mut whole = before.clone();
            copy_status(object, &mut whole);
            if let Some(managed) = managed {
                metadata_mut(&mut whole).insert("managedFields".to_owned(), managed);
            }
            *object = whole;
            return;
        }
        if self.kind.is_namespaces() && self.subresource != "finalize" {
            object["spec"] = before["spec"].clone();
        }
        let metadata = metadata_mut(object);
        let times = [
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ];
        for field in times
            .into_iter()
            .chain(["uid", "generation", "name", "namespace"])
        {
            match before["metadata"].get(field) {
                Some(value) => metadata.insert(field.to_owned(), value.clone()),
                None => metadata.remove(field),
            };
        }
        if self.kind.has_status {
            copy_status(before, object);
        }
    }
}

fn copy_status(from: &Value, to: &mut Value) {
    if let Some(map) = to.as_object_mut() {
        match from.get("status") {
            Some(status) => map.insert("status".to_owned(), status.clone()),
            None => map.remove("status"),
        };
    }
}

fn content_differs(kind: &Kind, before: &Value, after: &Value) -> bool {
    let differs = |field: &String| {
        let outside = matches!(field.as_str(), "metadata" | "apiVersion" | "kind")
            || (kind.has_status && field == "status");
        !outside && before.get(field) != after.get(field)
    };
    let fields = |value: &Value| -> Vec<String> {
        value
            .as_object()
            .map(|map| map.keys().cloned().collect())
            .unwrap_or_default()
    };
    fields(before).iter().chain(&fields(after)).any(differs)
}

fn new_finalizers(before: &Value, after: &Value) -> Vec<Cause> {
    let list = |value: &Value| -> Vec<String> {
        let list = value["metadata"]["finalizers"].as_array().into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let old = list(before);
    let new: Vec<String> = list(after)
        .into_iter()
        .filter(|finalizer| !old.contains(finalizer))
        .map(|finalizer| format!("{finalizer:?}"))
        .collect();
    if new.is_empty() {
        return Vec::new();
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        new.join(", ")
    );
    // A real server checks this twice, so its answer contains the cause twice.
    vec![Cause::forbidden("metadata.finalizers", why); 2]
}
