//! The part of the OpenAPI documents that tells kubectl whether the server validates fields. Without it, kubectl
//! searches for schemas to validate the fields itself, and refuses to create or apply.

use serde_json::{Map, Value, json};

use super::kinds::Kinds;

/// `/openapi/v3`.
pub(super) fn index(kinds: &Kinds) -> Value {
    let groups = kinds.groups().into_iter();
    let groups = groups.flat_map(|(group, versions)| {
        versions
            .into_iter()
            .map(move |version| format!("apis/{group}/{version}"))
    });
    let paths: Map<String, Value> = std::iter::once("api/v1".to_owned())
        .chain(groups)
        .map(|path| {
            let document = json!({ "serverRelativeURL": format!("/openapi/v3/{path}") });
            (path, document)
        })
        .collect();
    json!({ "paths": paths })
}

/// `/openapi/v3/api/v1` and `/openapi/v3/apis/<group>/<version>`.
pub(super) fn document(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let root = match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    let paths: Map<String, Value> = kinds
        .in_version(group, version)
        .map(|kind| {
            let namespace = if kind.namespaced {
                "/namespaces/{namespace}"
            } else {
                ""
            };
            let patch = json!({
                "x-kubernetes-group-version-kind": { "group": group, "version": version, "kind": kind.kind },
                "parameters": [{ "name": "fieldValidation", "in": "query", "schema": { "type": "string" } }],
                "responses": {},
            });
            let path = format!("{root}{namespace}/{}/{{name}}", kind.plural);
            (path, json!({ "patch": patch }))
        })
        .collect();
    if paths.is_empty() {
        return None;
    }
    let info = json!({ "title": "Kubernetes (simulated)", "version": "v1.36.1-sim" });
    Some(json!({ "openapi": "3.0.0", "info": info, "paths": paths }))
}
