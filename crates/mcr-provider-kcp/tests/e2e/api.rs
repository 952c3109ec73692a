//! The API that the operator exports: a database.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(CustomResource, Debug, Clone, Serialize, Deserialize)]
#[kube(
    group = "example.io",
    version = "v1",
    kind = "Database",
    namespaced,
    status = "DatabaseStatus",
    schema = "disabled"
)]
pub(crate) struct DatabaseSpec {
    pub(crate) replicas: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DatabaseStatus {
    /// As many as the service cluster says that there are.
    pub(crate) replicas: Option<i32>,
    /// Why there are none yet.
    pub(crate) message: Option<String>,
}

/// The name of the APIExport and of its bindings.
pub(crate) const EXPORT: &str = "databases";

pub(crate) fn schema() -> Value {
    let status = json!({
        "type": "object",
        "properties": {"replicas": {"type": "integer"}, "message": {"type": "string"}},
    });
    json!({
        "metadata": {"name": "v1.databases.example.io"},
        "spec": {
            "group": "example.io", "scope": "Namespaced",
            "names": {"kind": "Database", "listKind": "DatabaseList", "plural": "databases", "singular": "database"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {
                    "type": "object",
                    "properties": {
                        "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                        "status": status,
                    },
                },
            }],
        },
    })
}

pub(crate) fn export() -> Value {
    json!({
        "metadata": {"name": EXPORT},
        "spec": {"resources": [{
            "name": "databases", "group": "example.io", "schema": "v1.databases.example.io", "storage": {"crd": {}},
        }]},
    })
}
