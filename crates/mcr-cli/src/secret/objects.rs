//! The Kubernetes objects, as the command applies and shows them.

use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};

use super::{
    args::RoleType,
    plan::{Bound, KEY, Plan, base64},
};

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const GROUP: &str = "rbac.authorization.k8s.io";
/// The label of the Secrets. Go's multicluster-runtime uses the same.
pub(super) const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

/// An annotation of bindings: the address in the kubeconfig of the Secret.
const SERVER: &str = "mcr.dev/kubeconfig-server";
/// An annotation of bindings: the Secret for which the binding was made. A binding for another Secret can have the
/// same name.
pub(super) const SECRET: &str = "mcr.dev/kubeconfig-secret";
/// The label of roles and bindings.
pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

pub(super) fn account(plan: &Plan) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": plan.account, "namespace": plan.remote_namespace},
    })
}

/// The role and its binding. Empty if the user manages the rights elsewhere.
pub(super) fn rbac(plan: &Plan) -> Vec<Value> {
    let Some(rules) = &plan.rules else {
        return Vec::new();
    };
    let (role, binding) = match plan.role_type {
        RoleType::Clusterrole => ("ClusterRole", "ClusterRoleBinding"),
        RoleType::Role => ("Role", "RoleBinding"),
    };
    let metadata = |name: &str| {
        let mut metadata = json!({"name": name});
        if plan.role_type == RoleType::Role {
            metadata["namespace"] = plan.remote_namespace.as_str().into();
        }
        metadata["labels"] = json!({MANAGED_BY: "mcr"});
        metadata
    };
    let mut of_binding = metadata(&plan.binding());
    of_binding["annotations"] = json!({SECRET: plan.secret(), SERVER: plan.server});
    vec![
        json!({"apiVersion": RBAC, "kind": role, "metadata": metadata(&plan.role), "rules": rules}),
        json!({
            "apiVersion": RBAC,
            "kind": binding,
            "metadata": of_binding,
            "roleRef": {"apiGroup": GROUP, "kind": role, "name": plan.role},
            "subjects": [{"kind": "ServiceAccount", "name": plan.account, "namespace": plan.remote_namespace}],
        }),
    ]
}

/// The bindings that may have been made for the Secret, as name and kind only: one for all namespaces, and one for
/// this namespace.
pub(super) fn bindings(plan: &Plan, namespace: &str) -> [Value; 2] {
    [("ClusterRoleBinding", None), ("RoleBinding", Some(namespace))].map(|(kind, namespace)| {
        json!({"apiVersion": RBAC, "kind": kind, "metadata": {"name": plan.binding(), "namespace": namespace}})
    })
}

/// What this command has made for the Secret, according to the annotations of a binding.
pub(super) fn bound(plan: &Plan, binding: &DynamicObject) -> Option<Bound> {
    binding.labels().get(MANAGED_BY).filter(|by| *by == "mcr")?;
    let secret = binding.annotations().get(SECRET);
    secret.filter(|secret| **secret == plan.secret())?;
    let subject = &binding.data["subjects"][0];
    let text = |field: &str| subject[field].as_str().map(str::to_owned);
    text("kind").filter(|kind| kind == "ServiceAccount")?;
    let server = binding.annotations().get(SERVER);
    Some(Bound {
        account: (text("namespace")?, text("name")?),
        server: server.filter(|server| server.starts_with("https://")).cloned(),
    })
}

fn metadata(plan: &Plan) -> Value {
    let mut labels = serde_json::Map::new();
    for (key, value) in &plan.labels {
        labels.insert(key.clone(), value.as_str().into());
    }
    labels.insert(LABEL.to_owned(), "true".into());
    json!({"name": plan.name, "namespace": plan.namespace, "labels": labels})
}

/// The Secret, in the form that is applied.
pub(super) fn secret(plan: &Plan, kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": metadata(plan),
        "data": {KEY: base64(kubeconfig.as_bytes())},
    })
}

/// The Secret, in a form that people can read.
pub(super) fn readable_secret(plan: &Plan, kubeconfig: &str) -> Value {
    let metadata = if plan.is_rotation() {
        json!({"name": plan.name, "namespace": plan.namespace})
    } else {
        metadata(plan)
    };
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": metadata,
        "stringData": {KEY: kubeconfig},
    })
}

/// The patch that changes only the kubeconfig of a Secret. It contains the resource version that was read, so it fails
/// if the Secret has changed since.
pub(super) fn fresh_token(plan: &Plan, kubeconfig: &str) -> Value {
    json!({
        "metadata": {"resourceVersion": plan.resource_version()},
        "data": {KEY: base64(kubeconfig.as_bytes())},
    })
}
