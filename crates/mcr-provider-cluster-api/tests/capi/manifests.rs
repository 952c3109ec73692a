//! The CRDs that `cargo xtask assets --capi` writes, and those of the providers that the tests play themselves.

use std::path::Path;

use mcr_testkit::waiting::OrFail;
use serde_json::{Value, json};

/// Cluster API's CRDs of one file.
pub(crate) fn read(folder: &Path, file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join(file)).or_fail();
    let documents = text.split("\n---\n");
    documents
        .map(|document| serde_saphyr::from_str(document).or_fail())
        .collect()
}

/// Conversion webhooks are left out: the API server prunes other versions and converts nothing.
pub(crate) fn without_conversion(mut crd: Value) -> Value {
    if let Some(spec) = crd["spec"].as_object_mut() {
        spec.remove("conversion");
    }
    crd
}

/// Conversion by a webhook of the manager, which is a plain process here.
pub(crate) fn with_conversion(mut crd: Value, port: u16, ca_bundle: &str) -> Value {
    if crd["spec"]["conversion"]["strategy"] == "Webhook" {
        crd["spec"]["conversion"]["webhook"]["clientConfig"] = json!({
            "url": format!("https://127.0.0.1:{port}/convert"), "caBundle": ca_bundle,
        });
    }
    crd
}

/// The kinds that the tests reconcile in place of an infrastructure provider and a control plane provider.
pub(crate) fn byo() -> Vec<Value> {
    [
        ("infrastructure.cluster.x-k8s.io", "ByoCluster"),
        ("infrastructure.cluster.x-k8s.io", "ByoMachine"),
        ("infrastructure.cluster.x-k8s.io", "ByoMachineTemplate"),
        ("controlplane.cluster.x-k8s.io", "ByoControlPlane"),
    ]
    .map(|(group, kind)| crd(group, kind))
    .into()
}

fn crd(group: &str, kind: &str) -> Value {
    let singular = kind.to_lowercase();
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        // Version v1beta1 of these kinds implements version v1beta2 of the contract.
        "metadata": {"name": format!("{singular}s.{group}"), "labels": {"cluster.x-k8s.io/v1beta2": "v1beta1"}},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": format!("{singular}s"), "singular": singular},
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}},
            }],
        },
    })
}
