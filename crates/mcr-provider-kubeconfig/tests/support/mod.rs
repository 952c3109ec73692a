//! What the tests share.

#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

use std::sync::LazyLock;

pub(crate) use mcr_testkit::discovery::loopback_policy;
use mcr_testkit::steps::Templates;
use serde_json::{Value, json};

pub(crate) const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

/// The Role that the README shows.
pub(crate) fn role() -> &'static str {
    let readme = include_str!("../../README.md");
    let (_, role) = readme.split_once("```yaml\n").unwrap_or_default();
    role.split("```").next().unwrap_or_default()
}

static TEMPLATES: LazyLock<Templates> = LazyLock::new(|| Templates::of(include_str!("../steps.yaml")));

/// A Secret that is a cluster.
pub(crate) fn secret(namespace: &str, name: &str, kubeconfig: &str) -> Value {
    TEMPLATES.object(
        &format!("secret {namespace}/{name}"),
        &json!({"stringData": {"kubeconfig": kubeconfig}}),
    )
}
