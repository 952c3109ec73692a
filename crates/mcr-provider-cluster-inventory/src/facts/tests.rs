use super::*;
use crate::access_providers::{AccessProviderConfig, AccessProviders};
use mcr_core::hub::Closure;
use serde_json::{Value, json};

fn lens() -> Lens {
    let providers = [
        AccessProviderConfig::new("p", "/p"),
        AccessProviderConfig::new("q", "/q"),
    ];
    Lens {
        version: "v1alpha2",
        selection: Arc::default(),
        access: Access::Plugins(Arc::new(AccessProviders::new(providers).unwrap())),
    }
}

fn condition(status: &str, message: &str) -> Value {
    json!({
        "type": "ControlPlaneHealthy", "status": status, "reason": "Why", "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

fn new() -> Value {
    json!({
        "metadata": {
            "name": "a", "namespace": "fleet", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"x-k8s.io/cluster-manager": "ocm", MEMBER_ID_LABEL: "m"},
        },
        "spec": {"displayName": "Alpha", "clusterManager": {"name": "ocm"}},
        "status": {
            "conditions": [condition("True", "")], "version": {"kubernetes": "v1.36.1"},
            "properties": [
                {"name": "region", "value": "eu", "lastObservedTime": "2026-01-01T00:00:00Z"},
                {"name": "namespace", "value": "elsewhere"},
            ],
            "accessProviders": [{"name": "p", "cluster": {"server": "https://a.example"}}],
        },
    })
}

fn read(profile: Value) -> Facts {
    lens().of(&serde_json::from_value(profile).unwrap(), &[]).unwrap()
}

#[test]
fn properties_and_version_become_properties_and_those_of_the_provider_win() {
    let facts = read(new());
    let properties = facts.description.properties.iter();
    let properties: Vec<String> = properties
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        properties,
        [
            "manager=ocm",
            "mcr.dev/display-name=Alpha",
            "namespace=fleet",
            "profile=a",
            "region=eu",
            "version=v1.36.1"
        ]
    );
    // A cluster manager may copy properties from the member, which speaks for none of the others, present or not.
    let mut copied = new();
    for own in [
        "manager",
        "mcr.dev/display-name",
        "namespace",
        "profile",
        "version",
    ] {
        let properties = copied["status"]["properties"].as_array_mut().unwrap();
        properties.push(json!({"name": own, "value": "of the member"}));
    }
    assert_eq!(read(copied.clone()).description, facts.description);
    copied["spec"]["displayName"] = "".into();
    copied["status"]["version"] = json!({});
    let properties = read(copied).description.properties;
    assert!(
        properties.iter().all(|(_, value)| **value != *"of the member"),
        "{properties:?}"
    );
    let mut labels = facts.description.labels.iter();
    assert!(labels.any(|(name, value)| **name == *MEMBER_ID_LABEL && **value == *"m"));
    assert_eq!(facts.member_id.as_deref(), Some("m"));
    assert_eq!(facts.state, State::Ready);
}

#[test]
fn a_heartbeat_leaves_the_facts_as_they_are() {
    let mut beaten = new();
    beaten["metadata"]["resourceVersion"] = "9".into();
    beaten["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Update"}]);
    beaten["metadata"]["annotations"] = json!({"seen": "now"});
    beaten["status"]["properties"][0]["lastObservedTime"] = "2026-02-02T00:00:00Z".into();
    beaten["status"]["conditions"] = json!([condition("True", "seen just now")]);
    beaten["status"]["conditions"][0]["lastTransitionTime"] = "2026-02-02T00:00:00Z".into();
    assert_eq!(read(beaten), read(new()));
}

#[test]
fn ready_goes_by_the_condition_and_by_a_predicate() {
    let state = |conditions: Value, ready: Ready| {
        let mut profile = new();
        profile["status"]["conditions"] = conditions;
        let mut lens = lens();
        lens.selection = Arc::new(Selection {
            ready,
            ..Selection::default()
        });
        lens.of(&serde_json::from_value(profile).unwrap(), &[])
            .unwrap()
            .state
    };
    let by = |type_: &str| Ready::Condition(type_.into());
    let healthy = || by("ControlPlaneHealthy");
    assert_eq!(state(json!([condition("True", "")]), healthy()), State::Ready);
    assert_eq!(
        state(json!([condition("False", "etcd is down")]), healthy()),
        State::Unready("the condition ControlPlaneHealthy is False (Why): etcd is down".into())
    );
    assert_eq!(
        state(json!([condition("Unknown", "")]), healthy()),
        State::Unknown("the condition ControlPlaneHealthy is Unknown (Why)".into())
    );
    let none = State::Unknown("the ClusterProfile has no condition Joined yet".into());
    assert_eq!(state(json!([condition("True", "")]), by("Joined")), none);
    let mut joined = condition("True", "");
    joined["type"] = "Joined".into();
    assert_eq!(
        state(json!([condition("False", ""), joined]), by("Joined")),
        State::Ready
    );
    let yes = Ready::Predicate(Closure::new(|profile: &ClusterProfile| {
        profile.property("region") == Some("eu")
    }));
    assert_eq!(state(json!([]), yes), State::Ready);
    let no = Ready::Predicate(Closure::new(|_: &ClusterProfile| false));
    assert!(
        matches!(state(json!([condition("True", "")]), no), State::Unready(why) if why.contains("ready_when"))
    );
    assert_eq!(
        state(
            json!([condition("False", "one\nlevel=ERROR two\u{1b}[2J")]),
            healthy()
        ),
        State::Unready(
            "the condition ControlPlaneHealthy is False (Why): one\\nlevel=ERROR two\\u{1b}[2J".into()
        ),
        "it is one line of a log"
    );
    let State::Unready(long) = state(json!([condition("False", &"x".repeat(30_000))]), healthy()) else {
        panic!()
    };
    assert_eq!(long.chars().count(), 300);
    // A profile without a status.
    let mut profile = new();
    profile.as_object_mut().unwrap().remove("status");
    assert!(matches!(read(profile).state, State::Unknown(_)));
}

#[test]
fn access_providers_win_over_credential_providers_of_the_same_name() {
    let old = |access: Value, credential: Value| {
        let mut profile = new();
        profile["status"]["accessProviders"] = access;
        profile["status"]["credentialProviders"] = credential;
        let old = serde_json::from_value(profile).unwrap();
        lens().of_old(old).unwrap().offer
    };
    let entry = |name: &str, server: &str| json!([{"name": name, "cluster": {"server": server}}]);
    let server = |offer: Offer| match offer {
        Offer::Kubeconfig(offered) => {
            let text: Value = serde_json::from_slice(&offered.text().unwrap()).unwrap();
            text["clusters"][0]["cluster"]["server"]
                .as_str()
                .unwrap()
                .to_owned()
        }
        other => format!("{other:?}"),
    };
    assert_eq!(
        server(old(entry("p", "https://new"), entry("p", "https://old"))),
        "https://new"
    );
    assert_eq!(server(old(json!([]), entry("p", "https://old"))), "https://old");
    // The order of the configuration decides between names, in whichever list they are.
    assert_eq!(
        server(old(entry("q", "https://new"), entry("p", "https://old"))),
        "https://old"
    );
    // A path is a file of this machine.
    let mut path = entry("p", "https://new");
    path[0]["cluster"]["certificate-authority"] = "/etc/passwd".into();
    assert!(matches!(old(path.clone(), json!([])), Offer::Bad(why) if why.contains("names a file")));
    path[0]["cluster"]["certificate-authority-data"] = "Q0E=".into();
    assert_eq!(server(old(path, json!([]))), "https://new");
}

#[test]
fn what_is_not_selected_has_no_facts() {
    let with = |change: fn(&mut Selection)| {
        let mut selection = Selection::default();
        change(&mut selection);
        let mut lens = lens();
        lens.selection = Arc::new(selection);
        lens.of(&serde_json::from_value(new()).unwrap(), &[]).is_some()
    };
    assert!(with(|_| {}));
    assert!(with(
        |selection| selection.managers = vec!["other".into(), "ocm".into()]
    ));
    assert!(!with(|selection| selection.managers = vec!["other".into()]));
    assert!(!with(|selection| selection.select =
        Some(Closure::new(|profile: &ClusterProfile| profile
            .property("region")
            .is_none()))));
    let mut deleted = new();
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(lens().of(&serde_json::from_value(deleted).unwrap(), &[]), None);
}

#[test]
fn facts_of_a_thousand_profiles_are_small() {
    // Two words for each pair, the rest of fixed size: the kubeconfig is the largest part.
    assert!(size_of::<Facts>() <= 200, "{}", size_of::<Facts>());
    let Offer::Kubeconfig(offered) = read(new()).offer else {
        panic!()
    };
    let length = offered.text().unwrap().len();
    assert!(length < 700, "{length}");
}
