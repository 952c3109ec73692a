use std::sync::Arc;

use serde_json::{Value, json};

use super::directory::Directory;
use super::kinds::{BINDINGS, EXPORTS, LOGICAL_CLUSTERS, SCHEMAS, TYPES, WORKSPACES};
use super::names;
use mcr_testkit::sim::SimError;
use mcr_testkit::sim::cause::Cause;
use mcr_testkit::sim::kinds::Kind;
use mcr_testkit::sim::object::{metadata_mut, text};
use mcr_testkit::sim::state::Admission;

/// The label on an APIBinding with the hash of its export.
pub(super) const EXPORT_LABEL: &str = "internal.apis.kcp.io/export";
pub(super) const PATH_ANNOTATION: &str = "kcp.io/path";

/// What kcp changes or refuses in its own kinds before they are stored.
#[derive(Debug)]
pub(super) struct KcpAdmission {
    pub(super) directory: Arc<Directory>,
}

impl Admission for KcpAdmission {
    fn admit(
        &self,
        cluster: &str,
        kind: &Kind,
        subresource: &str,
        before: Option<&Value>,
        object: &mut Value,
    ) -> Result<(), SimError> {
        if !subresource.is_empty() {
            return Ok(());
        }
        match &*kind.table {
            SCHEMAS => check_schema(kind, before, object),
            EXPORTS => {
                self.note_path(cluster, object);
                let name = text(object, "name").to_owned();
                if object["spec"]["identity"]["secretRef"].is_null() {
                    object["spec"]["identity"]["secretRef"] =
                        json!({ "name": name, "namespace": "kcp-system" });
                }
                Ok(())
            }
            BINDINGS => {
                immutable(kind, before, object, "reference")?;
                self.note_path(cluster, object);
                self.note_export(cluster, object);
                Ok(())
            }
            TYPES => {
                self.note_path(cluster, object);
                Ok(())
            }
            WORKSPACES => immutable(kind, before, object, "cluster"),
            LOGICAL_CLUSTERS if text(object, "name") != "cluster" => {
                Err(forbidden(kind, object, "the only name is \"cluster\""))
            }
            _ => Ok(()),
        }
    }
}

impl KcpAdmission {
    fn note_path(&self, cluster: &str, object: &mut Value) {
        let Some(entry) = self.directory.by_id(cluster) else {
            return;
        };
        let metadata = metadata_mut(object);
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        annotations[PATH_ANNOTATION] = (*entry.path).into();
    }

    fn note_export(&self, cluster: &str, object: &mut Value) {
        let export = &object["spec"]["reference"]["export"];
        let path = export["path"].as_str().filter(|path| !path.is_empty());
        let Some(entry) = self.directory.find(path.unwrap_or(cluster)) else {
            return;
        };
        let hash = names::export_hash(&entry.id, export["name"].as_str().unwrap_or_default());
        let metadata = metadata_mut(object);
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        labels[EXPORT_LABEL] = hash.into();
    }
}

fn forbidden(kind: &Kind, object: &Value, why: &str) -> SimError {
    let name = text(object, "name");
    let message = format!("{} is forbidden: {why}", kind.quoted(name));
    SimError::new(403, "Forbidden", message).with(kind.details(name))
}

fn immutable(kind: &Kind, before: Option<&Value>, object: &Value, field: &str) -> Result<(), SimError> {
    let changed = |before: &Value| {
        let before = &before["spec"][field];
        !before.is_null() && *before != object["spec"][field]
    };
    if !before.is_some_and(changed) {
        return Ok(());
    }
    let given = object["spec"][field].to_string();
    let cause = Cause::invalid(&format!("spec.{field}"), given, "field is immutable");
    Err(SimError::invalid(
        &kind.group,
        &kind.kind,
        text(object, "name"),
        &[cause],
    ))
}

fn check_schema(kind: &Kind, before: Option<&Value>, object: &Value) -> Result<(), SimError> {
    if let Some(before) = before {
        if before["spec"] == object["spec"] {
            return Ok(());
        }
        let cause = Cause::invalid("spec", "object", "field is immutable");
        return Err(SimError::invalid(
            &kind.group,
            &kind.kind,
            text(object, "name"),
            &[cause],
        ));
    }
    let spec = &object["spec"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let group = match &*word(&spec["group"]) {
        "" => "core".to_owned(),
        group => group.to_owned(),
    };
    let end = format!(".{}.{group}", word(&spec["names"]["plural"]));
    let prefix = text(object, "name").strip_suffix(&*end);
    if prefix.is_none_or(|prefix| prefix.is_empty() || prefix.contains('.')) {
        let why = format!("metadata.name: Invalid value: must be a word without dots, and then {end:?}");
        return Err(forbidden(kind, object, &why));
    }
    for (index, version) in spec["versions"].as_array().into_iter().flatten().enumerate() {
        if word(&version["schema"]["type"]).is_empty() {
            let why = format!(
                "spec.versions[{index}].schema.openAPIV3Schema.type: Required value: must not be empty at the root"
            );
            return Err(forbidden(kind, object, &why));
        }
    }
    Ok(())
}
