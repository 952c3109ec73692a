//! Collects facts about a ClusterProfile of the Cluster Inventory API.

use std::time::Duration;

use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::Value;

use super::{
    ask::in_time,
    diagnosis_inventory::MEMBER_ID_LABEL,
    facts::ProfileFacts,
    hub_objects::{SHOWN, Selected, named, versions},
};

pub(super) const GROUP: &str = "multicluster.x-k8s.io";
/// The version that shows all fields, also the deprecated ones. It is read if the hub serves it.
const FULL: &str = "v1alpha1";
/// The version that a provider reads if the hub serves it. It does not show the deprecated fields.
const NEWEST: &str = "v1alpha2";

/// The ClusterProfiles of a name: in one namespace, or else in all namespaces, if the hub allows the list.
pub(super) async fn profiles(
    of: Selected<'_>,
    client: &Client,
    (namespace, name): (Option<&str>, &str),
    limit: Duration,
) -> Vec<ProfileFacts> {
    let Ok(served) = versions(client, GROUP, limit).await else {
        return Vec::new();
    };
    let full = served.iter().find(|version| *version == FULL);
    let Some(version) = full.or(served.first()) else {
        return Vec::new();
    };
    let kind = GroupVersionKind::gvk(GROUP, version, "ClusterProfile");
    let kind = ApiResource::from_gvk_with_plural(&kind, "clusterprofiles");
    let hides = served.iter().any(|version| version == NEWEST);
    let mut facts = Vec::new();
    for (object, selected) in named(of, client, &kind, (namespace, name), limit).await {
        let namespace = object.namespace().unwrap_or_default();
        let profiles = Api::namespaced_with(client.clone(), &namespace, &kind);
        facts.push(ProfileFacts {
            provider: of.provider.to_owned(),
            name: name.to_owned(),
            looks_in: of.looks_in.map(str::to_owned),
            selected,
            older: older(&profiles, &object, of.selector, limit).await,
            ..read(&object, &namespace, hides)
        });
    }
    facts
}

/// The oldest other ClusterProfile of the same cluster, if it is older than this one.
async fn older(
    profiles: &Api<DynamicObject>,
    profile: &DynamicObject,
    selector: Option<&str>,
    limit: Duration,
) -> Option<String> {
    let id = profile
        .labels()
        .get(MEMBER_ID_LABEL)
        .filter(|id| !id.is_empty())?;
    let same = format!("{MEMBER_ID_LABEL}={id}");
    let same = selector.map_or(same.clone(), |selector| format!("{same},{selector}"));
    let listed = in_time(profiles.list(&ListParams::default().labels(&same)), limit).await;
    let age = |profile: &DynamicObject| (profile.creation_timestamp(), profile.name_any());
    let oldest = listed.ok()?.items.iter().map(age).min()?;
    (oldest < age(profile)).then_some(oldest.1)
}

/// Reads a ClusterProfile. `hides`: the provider reads a version without the deprecated fields.
fn read(object: &DynamicObject, namespace: &str, hides: bool) -> ProfileFacts {
    let status = &object.data["status"];
    let names = |field: &str| -> Vec<String> {
        let entries = status[field].as_array().into_iter().flatten();
        entries
            .filter_map(|entry| Some(entry["name"].as_str()?.to_owned()))
            .collect()
    };
    let condition = |name: &str| {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.find(|condition| condition["type"] == name)
    };
    let (mut offers, mut hidden) = (names("accessProviders"), names("credentialProviders"));
    hidden.retain(|name| !offers.contains(name));
    if !hides {
        offers.append(&mut hidden);
    }
    ProfileFacts {
        namespace: namespace.to_owned(),
        deleting: object.metadata.deletion_timestamp.is_some(),
        manager: object.data["spec"]["clusterManager"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        healthy: condition("ControlPlaneHealthy").is_some_and(|condition| condition["status"] == "True"),
        not_joined: condition("Joined")
            .filter(|joined| joined["status"] != "True")
            .map(why),
        offers,
        hidden,
        ..ProfileFacts::default()
    }
}

/// The message of a condition, or else its reason.
fn why(condition: &Value) -> String {
    let text = |field: &str| condition[field].as_str().filter(|text| !text.is_empty());
    let why = text("message").or_else(|| text("reason"));
    why.unwrap_or("it is not True").chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_deprecated_field_counts_where_the_provider_sees_it() {
        let condition = |name: &str, status: &str, message: &str| json!({"type": name, "status": status, "reason": "Why", "message": message});
        let object = json!({
            "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "metadata": {"name": "eu-1"},
            "spec": {"clusterManager": {"name": "ocm"}},
            "status": {
                "conditions": [condition("ControlPlaneHealthy", "True", ""), condition("Joined", "False", "")],
                "accessProviders": [{"name": "a"}], "credentialProviders": [{"name": "a"}, {"name": "old"}],
            },
        });
        let object = serde_json::from_value(object).unwrap();
        let hiding = read(&object, "fleet", true);
        assert!(hiding.healthy && hiding.not_joined.as_deref() == Some("Why") && hiding.manager == "ocm");
        assert_eq!(
            (&*hiding.offers, &*hiding.hidden),
            (&["a".to_owned()][..], &["old".to_owned()][..])
        );
        let showing = read(&object, "fleet", false);
        assert_eq!(showing.offers, ["a", "old"]);
        assert!(showing.hidden.is_empty());
    }
}
