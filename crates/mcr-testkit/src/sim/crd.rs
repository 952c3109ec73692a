use std::sync::Arc;

use serde_json::{Value, json};

use super::cause::Cause;
use super::error::SimError;
use super::kinds::{Custom, Kind, resource_id};
use super::object::text;
use super::schema::Schema;

/// Adds what an API server and its controllers add to a CRD. The CRD is established at once, where a real server needs
/// several writes and up to a second.
pub fn complete(crd: &mut Value, now: &str) {
    let name = crd["spec"]["names"]["kind"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let names = &mut crd["spec"]["names"];
    for (field, value) in [
        ("singular", name.to_lowercase()),
        ("listKind", format!("{name}List")),
    ] {
        if names[field].as_str().unwrap_or_default().is_empty() {
            names[field] = value.into();
        }
    }
    let accepted = names.clone();
    if crd["spec"]["conversion"].is_null() {
        crd["spec"]["conversion"] = json!({ "strategy": "None" });
    }
    let stored: Vec<Value> = versions(crd)
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message,
        })
    };
    if crd["status"]["conditions"].is_null() {
        crd["status"] = json!({
            "conditions": [
                condition("NamesAccepted", "NoConflicts", "no conflicts found"),
                condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            ],
            "acceptedNames": accepted,
            "storedVersions": stored,
        });
    } else {
        crd["status"]["acceptedNames"] = accepted;
    }
}

fn versions(crd: &Value) -> impl Iterator<Item = &Value> {
    crd["spec"]["versions"].as_array().into_iter().flatten()
}

/// The kinds that a CRD defines.
pub fn kinds(crd: &Value) -> Result<Vec<Arc<Kind>>, SimError> {
    let spec = &crd["spec"];
    let names = &spec["names"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (word(&spec["group"]), word(&names["plural"]));
    let name = text(crd, "name");
    let mut causes = Vec::new();
    if name != format!("{plural}.{group}") {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", format!("{name:?}"), why));
    }
    for (field, value) in [("spec.group", &group), ("spec.names.plural", &plural)] {
        if value.is_empty() {
            causes.push(Cause::required(field, ""));
        }
    }
    if versions(crd).filter(|version| version["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", "[]", why));
    }
    if !causes.is_empty() {
        return Err(SimError::invalid(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            name,
            &causes,
        ));
    }
    let words = |value: &Value| -> Vec<_> {
        let words = value.as_array().into_iter().flatten();
        words
            .filter_map(Value::as_str)
            .map(|word| word.to_owned().into())
            .collect()
    };
    let served = versions(crd).filter(|version| version["served"] == true);
    let kinds = served.map(|version| {
        let subresources = version["subresources"].as_object().cloned().unwrap_or_default();
        Arc::new(Kind {
            group: group.clone().into(),
            version: word(&version["name"]).into(),
            plural: plural.clone().into(),
            singular: word(&names["singular"]).into(),
            kind: word(&names["kind"]).into(),
            list_kind: word(&names["listKind"]).into(),
            short_names: words(&names["shortNames"]),
            categories: words(&names["categories"]),
            namespaced: spec["scope"] == "Namespaced",
            has_status: subresources.contains_key("status"),
            has_generation: true,
            create_on_update: false,
            update_needs_version: true,
            delete_answers_object: false,
            create_only: false,
            has_collection_delete: true,
            resource: resource_id(&group, &plural),
            table: resource_id(&group, &plural),
            custom: Some(custom(version)),
        })
    });
    Ok(kinds.collect())
}

fn custom(version: &Value) -> Custom {
    let column = |column: &Value| {
        let word = |field: &str| column[field].as_str().unwrap_or_default().to_owned();
        let priority = column["priority"].as_i64().unwrap_or(0);
        (word("name"), word("type"), word("jsonPath"), priority)
    };
    let columns = version["additionalPrinterColumns"].as_array();
    let selectable = version["selectableFields"].as_array().into_iter().flatten();
    Custom {
        schema: Some(version["schema"]["openAPIV3Schema"].clone())
            .filter(Value::is_object)
            .map(Schema::new),
        columns: match columns {
            Some(columns) => columns.iter().map(column).collect(),
            None => vec![(
                "Age".to_owned(),
                "date".to_owned(),
                ".metadata.creationTimestamp".to_owned(),
                0,
            )],
        },
        selectable: selectable
            .filter_map(|field| field["jsonPath"].as_str())
            .map(|path| path.trim_start_matches('.').to_owned())
            .collect(),
        storage: version["storage"] == true,
    }
}
