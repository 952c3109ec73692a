use std::sync::Arc;

use serde_json::{Value, json};

use super::directory::Directory;
use super::kinds::{BINDINGS, EXPORTS, TYPES};
use super::names;
use mcr_testkit::sim::SimError;
use mcr_testkit::sim::kinds::Kind;
use mcr_testkit::sim::object::{metadata_mut, text};
use mcr_testkit::sim::state::Admission;

/// The label of an APIBinding with the hash of its export.
pub(super) const EXPORT_LABEL: &str = "internal.apis.kcp.io/export";
pub(super) const PATH_ANNOTATION: &str = "kcp.io/path";

/// Changes objects of kcp's own kinds before they are stored, as kcp does.
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
        _: Option<&Value>,
        object: &mut Value,
    ) -> Result<(), SimError> {
        if !subresource.is_empty() {
            return Ok(());
        }
        match &*kind.table {
            EXPORTS => {
                self.note_path(cluster, object);
                let name = text(object, "name").to_owned();
                if object["spec"]["identity"]["secretRef"].is_null() {
                    object["spec"]["identity"]["secretRef"] =
                        json!({ "name": name, "namespace": "kcp-system" });
                }
            }
            BINDINGS => {
                self.note_path(cluster, object);
                self.note_export(cluster, object);
            }
            TYPES => self.note_path(cluster, object),
            _ => {}
        }
        Ok(())
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
