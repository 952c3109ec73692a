//! What the tests share.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part")]

use mcr_core::{AccessPolicy, AddressPolicy};
use serde_json::{Value, json};

pub(crate) const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

/// What kubeconfigs may do here, where all clusters are on this machine.
pub(crate) fn locally() -> AccessPolicy {
    AccessPolicy::default().addresses(AddressPolicy::default().allow_loopback(true))
}

pub(crate) fn base64(bytes: impl AsRef<[u8]>) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// A Secret that is a cluster.
pub(crate) fn secret(namespace: &str, name: &str, kubeconfig: impl AsRef<[u8]>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: "true"}},
        "data": {"kubeconfig": base64(kubeconfig)},
    })
}
