//! Objects of the kinds that only suite `kinds` has.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::similar::{Sequence, WORDS, certificate, configuration, metadata};

/// A Secret: one in four is a certificate with its key.
pub fn secret(number: usize) -> Value {
    let mut words = Sequence::new(4_000_000 + number as u64);
    let metadata = metadata(&mut words, format!("secret-{number:05}"), "default");
    let encoded = |text: String| STANDARD.encode(text);
    let (kind, data) = if number % 4 == 3 {
        let data = json!({
            "tls.crt": encoded(certificate(&mut words, 900)),
            "tls.key": encoded(certificate(&mut words, 240)),
        });
        ("kubernetes.io/tls", data)
    } else {
        let data = json!({
            "username": encoded(format!("{}-{}", words.of(&WORDS), words.below(1000))),
            "password": encoded(format!("{:016x}{:016x}", words.next(), words.next())),
            "connection": encoded(configuration(&mut words, 200)),
        });
        ("Opaque", data)
    };
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind, "data": data })
}

/// A Service without an address of the cluster, so that any number of them fits into the range of addresses.
pub fn service(number: usize) -> Value {
    let mut words = Sequence::new(5_000_000 + number as u64);
    let metadata = metadata(&mut words, format!("service-{number:05}"), "default");
    let labels = metadata["labels"].clone();
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": {
            "type": "ClusterIP", "clusterIP": "None", "selector": labels, "sessionAffinity": "None",
            "ports": [
                { "name": "http", "port": 80, "protocol": "TCP", "targetPort": 1024 + words.below(60_000) },
                { "name": "metrics", "port": 9090, "protocol": "TCP", "targetPort": "metrics" },
            ],
        },
    })
}

/// A ServiceAccount with the role of a cloud in an annotation.
pub fn service_account(number: usize) -> Value {
    let mut words = Sequence::new(6_000_000 + number as u64);
    let mut metadata = metadata(&mut words, format!("account-{number:05}"), "default");
    let role = format!(
        "arn:aws:iam::{:012}:role/{}",
        words.below(1_000_000_000),
        words.of(&WORDS)
    );
    metadata["annotations"] = json!({ "eks.amazonaws.com/role-arn": role });
    let secret = format!("{}-registry", words.of(&WORDS));
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, "imagePullSecrets": [{ "name": secret }] })
}

/// A Role with two rules.
pub fn role(number: usize) -> Value {
    let mut words = Sequence::new(7_000_000 + number as u64);
    let metadata = metadata(&mut words, format!("role-{number:05}"), "default");
    let names = [words.of(&WORDS), words.of(&WORDS)];
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
        "rules": [
            { "apiGroups": [""], "resources": ["configmaps", "secrets"], "resourceNames": names, "verbs": ["get", "list", "watch", "update"] },
            { "apiGroups": ["apps"], "resources": ["deployments", "statefulsets"], "verbs": ["get", "list", "watch", "patch"] },
        ],
    })
}

/// A RoleBinding of a Role to a ServiceAccount and a group.
pub fn role_binding(number: usize) -> Value {
    let mut words = Sequence::new(8_000_000 + number as u64);
    let metadata = metadata(&mut words, format!("binding-{number:05}"), "default");
    let group = format!("{}-{}", words.of(&WORDS), words.of(&WORDS));
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": format!("role-{number:05}") },
        "subjects": [
            { "kind": "ServiceAccount", "name": format!("account-{number:05}"), "namespace": "default" },
            { "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group },
        ],
    })
}

/// An Event of a Pod.
pub fn event(number: usize) -> Value {
    let mut words = Sequence::new(9_000_000 + number as u64);
    let pod = format!(
        "{}-{}-{:05x}",
        words.of(&WORDS),
        words.of(&WORDS),
        words.below(0xf_ffff)
    );
    let node = format!("node-{:03}", words.below(200));
    let time = format!("2026-05-1{}T0{}:17:42Z", words.below(9), words.below(9));
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": format!("{pod}.{:016x}", words.next()), "namespace": "default" },
        "involvedObject": { "apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": "default", "resourceVersion": words.below(1_000_000).to_string(),
                            "fieldPath": format!("spec.containers{{{}}}", words.of(&WORDS)) },
        "reason": "BackOff", "type": "Warning", "count": 1 + words.below(90), "firstTimestamp": time, "lastTimestamp": time,
        "message": format!("Back-off restarting failed container {} in pod {pod}", words.of(&WORDS)),
        "source": { "component": "kubelet", "host": node }, "reportingComponent": "kubelet", "reportingInstance": node,
    })
}

/// A Namespace with the labels of a team.
pub fn namespace(number: usize) -> Value {
    let mut words = Sequence::new(10_000_000 + number as u64);
    let team = words.of(&WORDS);
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": format!("{team}-{number:05}"),
            "labels": { "team": team, "pod-security.kubernetes.io/enforce": "baseline", "cost-center": words.below(10_000).to_string() },
        },
    })
}
