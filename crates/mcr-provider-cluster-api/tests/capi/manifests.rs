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

/// Serves and stores one version and no other.
pub(crate) fn only_version(crd: Value, version: &str) -> Value {
    let mut crd = without_conversion(crd);
    if let Some(versions) = crd["spec"]["versions"].as_array_mut() {
        versions.retain(|served| served["name"] == version);
        versions.iter_mut().for_each(|served| {
            served["storage"] = true.into();
            served["served"] = true.into();
        });
    }
    crd
}

/// The kinds that the tests reconcile in place of an infrastructure provider and a control plane provider.
pub(crate) fn byo() -> Vec<Value> {
    let infrastructure = [
        "ByoCluster",
        "RackCluster",
        "ByoClusterTemplate",
        "ByoMachine",
        "ByoMachineTemplate",
    ];
    let control_plane = ["ByoControlPlane", "ByoControlPlaneTemplate"];
    let infrastructure = infrastructure.map(|kind| ("infrastructure.cluster.x-k8s.io", kind));
    let control_plane = control_plane.map(|kind| ("controlplane.cluster.x-k8s.io", kind));
    let all = infrastructure.into_iter().chain(control_plane);
    all.map(|(group, kind)| crd(group, kind)).collect()
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
