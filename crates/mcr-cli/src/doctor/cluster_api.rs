//! Collects facts about a Cluster of Cluster API and its kubeconfig Secret.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    core::PartialObjectMeta,
};
use serde_json::Value;

use super::{
    ask::in_time,
    diagnosis_cluster_api::CLUSTER_LABEL,
    facts::{ClusterApiFacts, KubeconfigSecret, ManagedCluster},
    hub_objects::{SHOWN, Selected, named, versions},
};

pub(super) const GROUP: &str = "cluster.x-k8s.io";
/// The version of Clusters that is read if the hub serves it.
const NEWEST: &str = "v1beta2";
/// The conditions on the way to a control plane, in their order.
const STEPS: [&str; 4] = [
    "InfrastructureReady",
    "ControlPlaneInitialized",
    "ControlPlaneAvailable",
    "ControlPlaneReady",
];

/// The Clusters of a name: in one namespace, or else in all namespaces, if the hub allows the list. A Secret without its
/// Cluster counts too.
pub(super) async fn clusters(
    of: Selected<'_>,
    client: &Client,
    (namespace, name): (Option<&str>, &str),
    limit: Duration,
) -> Vec<ClusterApiFacts> {
    let Ok(served) = versions(client, GROUP, limit).await else {
        return Vec::new();
    };
    let version = match served.iter().find(|version| *version == NEWEST) {
        Some(newest) => newest,
        None => match served.first() {
            Some(first) => first,
            None => return Vec::new(),
        },
    };
    let kind =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, version, "Cluster"), "clusters");
    let found = named(of, client, &kind, (namespace, name), limit).await;
    let mut facts = Vec::new();
    for (object, selected) in found {
        let namespace = object.namespace().unwrap_or_default();
        facts.push(ClusterApiFacts {
            provider: of.provider.to_owned(),
            name: name.to_owned(),
            looks_in: of.looks_in.map(str::to_owned),
            cluster: Some(managed(&object, selected)),
            secret: secret(client, &namespace, name, limit).await,
            namespace,
        });
    }
    if let (true, Some(namespace)) = (facts.is_empty(), namespace) {
        let secret = secret(client, namespace, name, limit).await;
        if let Ok(Some(_)) = &secret {
            facts.push(ClusterApiFacts {
                provider: of.provider.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                looks_in: of.looks_in.map(str::to_owned),
                cluster: None,
                secret,
            });
        }
    }
    facts
}

/// The kubeconfig Secret of a Cluster. Requests only its metadata.
async fn secret(
    client: &Client,
    namespace: &str,
    cluster: &str,
    limit: Duration,
) -> Result<Option<KubeconfigSecret>, String> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let name = format!("{cluster}-kubeconfig");
    let found: Option<PartialObjectMeta<Secret>> = in_time(secrets.get_metadata_opt(&name), limit).await?;
    Ok(found.map(|found| KubeconfigSecret {
        name,
        label: found.labels().get(CLUSTER_LABEL).cloned(),
    }))
}

/// Reads a Cluster of any version.
fn managed(object: &DynamicObject, selected: bool) -> ManagedCluster {
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    let conditions: Vec<&Value> = status["conditions"].as_array().into_iter().flatten().collect();
    let condition = |name: &str| conditions.iter().find(|condition| condition["type"] == name);
    let is_true = |name: &str| condition(name).is_some_and(|condition| condition["status"] == "True");
    let waits_for = STEPS.iter().find_map(|name| {
        let condition = condition(name).filter(|condition| condition["status"] != "True")?;
        let text = |field: &str| condition[field].as_str().filter(|text| !text.is_empty());
        let why = text("message").or_else(|| text("reason")).unwrap_or("not yet");
        Some(format!("{name}: {}", why.chars().take(SHOWN).collect::<String>()))
    });
    ManagedCluster {
        selected,
        deleting: object.metadata.deletion_timestamp.is_some(),
        paused: spec["paused"] == true || object.annotations().contains_key("cluster.x-k8s.io/paused"),
        initialized: status["initialization"]["controlPlaneInitialized"] == true
            || is_true("ControlPlaneInitialized"),
        phase: status["phase"].as_str().map(str::to_owned),
        waits_for,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(object: Value) -> ManagedCluster {
        managed(&serde_json::from_value(object).unwrap(), true)
    }

    #[test]
    fn both_versions_of_a_cluster_are_read() {
        let waits = read(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "eu-1"},
            "status": {"phase": "Provisioning", "conditions": [
                {"type": "ControlPlaneInitialized", "status": "False", "reason": "NotInitialized", "message": ""},
                {"type": "InfrastructureReady", "status": "False", "reason": "X", "message": "no quota"},
            ]},
        }));
        assert_eq!(waits.waits_for.as_deref(), Some("InfrastructureReady: no quota"));
        assert_eq!(waits.phase.as_deref(), Some("Provisioning"));
        assert!(!waits.initialized && !waits.paused && !waits.deleting);

        let new = json!({"initialization": {"controlPlaneInitialized": true}});
        let old = json!({"conditions": [{"type": "ControlPlaneInitialized", "status": "True"}]});
        for (status, paused) in [(new, json!({"paused": true})), (old, json!({}))] {
            let annotations = json!({"cluster.x-k8s.io/paused": ""});
            let annotations = Some(annotations).filter(|_| paused == json!({}));
            let found = read(json!({
                "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "spec": paused, "status": status,
                "metadata": {"name": "eu-1", "annotations": annotations, "deletionTimestamp": "2026-01-01T00:00:00Z"},
            }));
            assert!(found.initialized && found.paused && found.deleting, "{found:?}");
            assert_eq!(found.waits_for, None);
        }
        let long = "x".repeat(1000);
        let conditions = json!([{"type": "ControlPlaneReady", "status": "False", "message": long}]);
        let found = read(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "metadata": {}, "status": {"conditions": conditions},
        }));
        assert_eq!(
            found.waits_for.unwrap().len(),
            "ControlPlaneReady: ".len() + SHOWN
        );
    }
}
