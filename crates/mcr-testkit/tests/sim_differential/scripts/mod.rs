//! The scripts, by subject.

mod answers;
mod applying;
mod customs;
mod patching;
mod reads;
mod watches;
mod writes;

use http::Method;
use serde_json::{Value, json};

use crate::script::{Script, Step, compact, delete, delete_with, get, patch, post, put, raw, watch};

const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/{ns}/widgets";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const META: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METAS: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

pub(crate) fn crd() -> Value {
    let parts = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object", "required": ["name"],
            "properties": { "name": { "type": "string" }, "count": { "type": "integer" } },
        },
    });
    let spec = json!({
        "type": "object", "required": ["size"],
        "properties": {
            "size": { "type": "integer", "minimum": 1 },
            "color": { "type": "string", "enum": ["red", "blue"], "default": "red" },
            "parts": parts,
            "tags": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
            "words": { "type": "array", "items": { "type": "string" } },
            "more": { "type": "object", "additionalProperties": { "type": "string" } },
            "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        },
    });
    let status = json!({ "type": "object", "properties": { "ready": { "type": "boolean" } } });
    let schema = json!({ "type": "object", "properties": { "spec": spec, "status": status } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"] },
            "versions": [
                {
                    "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                    "additionalPrinterColumns": [
                        { "name": "Size", "type": "integer", "jsonPath": ".spec.size" },
                        { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
                    ],
                    "schema": { "openAPIV3Schema": schema },
                },
                {
                    "name": "v1beta1", "served": true, "storage": false, "subresources": { "status": {} },
                    "schema": { "openAPIV3Schema": schema },
                },
            ],
        },
    })
}

fn map(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "labels": { "app": name, "all": "yes" } }, "data": { "key": "value" },
    })
}

fn widget(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": name }, "spec": spec })
}

fn at(base: &str, rest: &str) -> String {
    format!("{base}{rest}")
}

fn script(name: &str, steps: Vec<Step>) -> Script {
    Script {
        name: name.to_owned(),
        steps,
    }
}

pub(crate) fn all() -> Vec<Script> {
    vec![
        writes::create(),
        writes::update(),
        writes::remove(),
        writes::finalizers(),
        reads::pages(),
        reads::selectors(),
        reads::list_options(),
        watches::watch_state(),
        watches::watch_history(),
        watches::watch_selected(),
        watches::watch_live(),
        watches::watch_streaming(),
        watches::watch_forms(),
        patching::patches(),
        patching::strategic(),
        customs::custom(),
        customs::custom_refused(),
        customs::status(),
        customs::versions(),
        applying::applies(),
        applying::apply_custom(),
        applying::apply_refused(),
        answers::forms(),
        answers::discovery(),
        answers::refused_paths(),
        answers::users(),
        writes::namespaces(),
        writes::built_ins(),
        writes::dry_run(),
        answers::reviews(),
        customs::definitions(),
    ]
}

/// Cuts history for all others, so it has servers of its own.
pub(crate) fn compaction() -> Vec<Script> {
    vec![script(
        "compaction",
        vec![
            post(MAPS, map("a")).save("rv", "/metadata/resourceVersion"),
            post(MAPS, map("b")),
            post(MAPS, map("c")),
            get(&at(MAPS, "?limit=1")).save("token", "/metadata/continue"),
            post(MAPS, map("d")),
            delete(&at(MAPS, "/b")),
            compact(),
            get(&at(MAPS, "?limit=1&continue={token}")).save("next", "/metadata/continue"),
            get(&at(MAPS, "?limit=5&continue={next}")),
            get(&at(MAPS, "?resourceVersion={rv}&resourceVersionMatch=Exact")),
            get(MAPS),
        ],
    )]
}
