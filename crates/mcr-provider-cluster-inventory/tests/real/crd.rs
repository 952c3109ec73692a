//! The types, and the published CRD on a real API server.

use std::{collections::BTreeSet, fmt::Debug};

use kube::{
    Api, Resource,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use mcr_provider_cluster_inventory::{ARGS_EXTENSION, ENV_EXTENSION, EXEC_EXTENSION, v1alpha1, v1alpha2};
use mcr_testkit::{control_plane::ControlPlane, waiting::OrFail};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    FLEET, folder, hub, status,
    support::{base64, condition},
    yaml,
};

const SCHEMA: &str = include_str!("../data/schema.txt");

/// The fields of a schema with their types, as lines of `schema.txt`.
fn fields(schema: &Value, version: &str, at: &str, found: &mut BTreeSet<String>) {
    if !at.is_empty() {
        let type_ = schema["type"].as_str().unwrap();
        let format = schema["format"].as_str().map(|format| format!(":{format}"));
        found.insert(format!("{version} {at} {type_}{}", format.unwrap_or_default()));
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if at.is_empty() && !["spec", "status"].contains(&&**name) {
            continue;
        }
        let dot = if at.is_empty() { "" } else { "." };
        fields(field, version, &format!("{at}{dot}{name}"), found);
    }
    if schema["items"].is_object() {
        fields(&schema["items"], version, &format!("{at}[]"), found);
    }
}

#[test]
fn the_list_of_fields_is_that_of_the_crd() {
    let Some(folder) = folder("fields") else { return };
    let crd = yaml(&folder.join("clusterprofiles.yaml"));
    for version in crd["spec"]["versions"].as_array().unwrap() {
        let name = version["name"].as_str().unwrap();
        let mut there = BTreeSet::new();
        fields(&version["schema"]["openAPIV3Schema"], name, "", &mut there);
        let of_version = |line: &&str| line.split(' ').next() == Some(name);
        let here = SCHEMA.lines().filter(of_version).map(str::to_owned).collect();
        assert_eq!(there, here);
    }
}

fn full(version: &str) -> Value {
    let access = json!([{"name": "p", "cluster": {
        "server": "https://127.0.0.1:1", "tls-server-name": "a", "insecure-skip-tls-verify": true,
        "certificate-authority-data": base64("ca"), "proxy-url": "http://proxy:1", "disable-compression": true,
        "extensions": [
            {"name": EXEC_EXTENSION, "extension": {"name": "a", "deep": {"list": [1, null, "x"]}}},
            {"name": ENV_EXTENSION, "extension": {"A": "1"}},
        ],
    }}]);
    let mut full = json!({
        "apiVersion": format!("multicluster.x-k8s.io/{version}"), "kind": "ClusterProfile",
        "metadata": {"name": version, "namespace": FLEET},
        "spec": {"displayName": "A", "clusterManager": {"name": "manager"}},
        "status": {
            "conditions": [condition("ControlPlaneHealthy", "True", "")], "version": {"kubernetes": "v1.36.1"},
            "properties": [
                {"name": "a", "value": "1", "lastObservedTime": "2026-01-01T00:00:00Z"}, {"name": "b", "value": "2"},
            ],
            "accessProviders": access,
        },
    });
    if version == "v1alpha1" {
        full["status"]["credentialProviders"] = access;
        full["status"]["credentialProviders"][0]["cluster"]["certificate-authority"] = "/ca".into();
    }
    full
}

fn version_of(crd: &Value, version: &str) -> bool {
    let versions = crd["spec"]["versions"].as_array().unwrap();
    versions.iter().any(|there| there["name"] == version)
}

/// Writes an object of a type of this crate, and reads it again.
async fn round_trip<K>(hub: &ControlPlane, version: &str)
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(hub.client(), FLEET);
    let written: K = serde_json::from_value(full(version)).unwrap();
    api.create(&PostParams::default(), &written).await.or_fail();
    let object = serde_json::to_value(&written).unwrap();
    let patch = Patch::Merge(json!({"status": object["status"]}));
    api.patch_status(version, &PatchParams::default(), &patch)
        .await
        .or_fail();
    let read = serde_json::to_value(api.get(version).await.or_fail()).unwrap();
    let full = full(version);
    assert_eq!((&read["spec"], &read["status"]), (&full["spec"], &full["status"]));
    // An object with nothing but what is required.
    let name = format!("{version}-least");
    let least: K = serde_json::from_value(json!({
        "apiVersion": format!("multicluster.x-k8s.io/{version}"), "kind": "ClusterProfile",
        "metadata": {"name": name}, "spec": {"clusterManager": {"name": "manager"}}, "status": {},
    }))
    .unwrap();
    api.create(&PostParams::default(), &least).await.or_fail();
    let empty = json!({"status": serde_json::to_value(&least).unwrap()["status"]});
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(empty))
        .await
        .or_fail();
    api.get(&name).await.or_fail();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_crd_takes_what_the_types_write_and_the_types_read_what_it_keeps() {
    let Some(folder) = folder("types") else { return };
    let crd = yaml(&folder.join("clusterprofiles.yaml"));
    let hub = hub(crd.clone()).await;
    round_trip::<v1alpha1::ClusterProfile>(&hub, "v1alpha1").await;
    if version_of(&crd, "v1alpha2") {
        round_trip::<v1alpha2::ClusterProfile>(&hub, "v1alpha2").await;
    }

    let api = crate::profiles(&hub.client());
    // A Go program writes a time that it does not know as null.
    let unknown = json!({"properties": [{"name": "a", "value": "1", "lastObservedTime": null}]});
    let kept = status(&api, "v1alpha1", unknown).await;
    assert!(
        kept["status"]["properties"][0].get("lastObservedTime").is_none(),
        "{kept}"
    );
    // The API server drops other nulls too, so the types need not take them.
    let mut nulls = serde_json::to_value(api.get("v1alpha1").await.or_fail()).unwrap();
    nulls["status"] = json!({
        "conditions": null, "version": null, "properties": null, "credentialProviders": null,
        "accessProviders": [{"name": "p", "cluster": null}, {"name": "q", "cluster": {
            "server": "https://a", "tls-server-name": null, "insecure-skip-tls-verify": null, "certificate-authority": null,
            "certificate-authority-data": null, "proxy-url": null, "disable-compression": null, "extensions": null,
        }}],
    });
    let nulls = serde_json::from_value(nulls).unwrap();
    let kept = api
        .replace_status("v1alpha1", &PostParams::default(), &nulls)
        .await
        .or_fail();
    assert_eq!(
        kept.data["status"],
        json!({"accessProviders": [{"name": "p"}, {"name": "q", "cluster": {"server": "https://a"}}]})
    );
    let refused = async |api: &Api<DynamicObject>, subresource: bool, change: Value| {
        let patch = Patch::Merge(change);
        let params = PatchParams::default();
        let answer = match subresource {
            true => api.patch_status("v1alpha1", &params, &patch).await,
            false => api.patch("v1alpha1", &params, &patch).await,
        };
        answer.unwrap_err().to_string()
    };
    let why = refused(
        &api,
        false,
        json!({"spec": {"clusterManager": {"name": "other"}}}),
    )
    .await;
    assert!(why.contains("immutable"), "{why}");
    let extended = |extension: Value| {
        json!({"status": {"accessProviders": [{"name": "p", "cluster": {
            "server": "https://a", "extensions": [{"name": ARGS_EXTENSION, "extension": extension}],
        }}]}})
    };
    let why = refused(&api, true, extended(json!(["--tenant", "a"]))).await;
    assert!(why.contains("extension") && why.contains("object"), "{why}");
    let why = refused(&api, true, extended(Value::Null)).await;
    assert!(why.contains("extension"), "{why}");
}
