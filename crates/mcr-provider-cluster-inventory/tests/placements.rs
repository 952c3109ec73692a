//! Clusters that a scheduler has chosen, with PlacementDecisions (KEP-5313). The hub is a simulated API server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use mcr_core::Provider;
use mcr_provider_cluster_inventory::{ClusterInventoryProvider, PlacementDecisions};
use mcr_testkit::{
    sim::{SimCluster, SimRule, SimUser},
    waiting::eventually,
};
use serde_json::json;
use support::{
    DECISIONS, PATIENCE, PROFILES, Received, builder, change, create_namespace, decision, decisions_crd, hub,
    profile, providers,
};

const SERVER: &str = "https://192.0.2.1:6443";

/// A hub with these ready ClusterProfiles.
fn with(names: &[&str]) -> SimCluster {
    let hub = hub();
    hub.create(decisions_crd()).unwrap();
    for name in names {
        hub.create(profile("default", name, SERVER)).unwrap();
    }
    hub
}

fn provider(hub: &SimCluster) -> ClusterInventoryProvider {
    let builder = builder(hub).access_providers(providers());
    builder.placement("web").build().unwrap()
}

#[tokio::test]
async fn the_decisions_of_a_placement_are_one_set_and_no_others_are_asked_for() {
    let hub = with(&["a", "b", "c", "d"]);
    hub.create(decision("default", 0, &["a"])).unwrap();
    hub.create(decision("default", 1, &["a", "b", "no-such-profile"]))
        .unwrap();
    let mut other = decision("default", 2, &["d"]);
    other["metadata"]["labels"]["multicluster.x-k8s.io/placement-key"] = "other".into();
    hub.create(other).unwrap();
    let mut received = Received::of(&provider(&hub));
    let mut announced = received.until("synced").await;
    announced.sort();
    assert_eq!(announced, ["+a", "+b", "synced"]);
    change(&hub, DECISIONS, "default/web-0", |there| {
        there["decisions"] = json!([{"clusterProfileRef": {"name": "c"}}]);
    });
    assert_eq!(
        received.line().await,
        "+c",
        "and `a` stays, which the other one names"
    );
    // Why a cluster was chosen, and in what order, is nothing to act on.
    change(&hub, DECISIONS, "default/web-1", |there| {
        there["decisions"].as_array_mut().unwrap().reverse();
        there["decisions"][0]["reason"] = "it is cheap".into();
    });
    change(&hub, DECISIONS, "default/web-1", |there| {
        there["decisions"] = json!([{"clusterProfileRef": {"name": "a"}}]);
    });
    assert_eq!(received.line().await, "-b");
    hub.delete(DECISIONS, "default/web-1").unwrap();
    assert_eq!(received.line().await, "-a");
    assert!(
        hub.audit()
            .events()
            .filter(
                |event| event.resource == "placementdecisions" && ["list", "watch"].contains(&&*event.verb)
            )
            .all(|event| event
                .uri
                .contains("labelSelector=multicluster.x-k8s.io%2Fplacement-key%3Dweb"))
    );
}

#[tokio::test]
async fn decisions_can_be_in_a_namespace_of_their_own_and_can_have_a_decision_key_only() {
    let hub = with(&["a", "b"]);
    create_namespace(&hub, "argocd");
    // Without a namespace, the name is that of a ClusterProfile beside the decision.
    let mut named = decision("argocd", 0, &["default/a", "b"]);
    let labels = named["metadata"]["labels"].as_object_mut().unwrap();
    labels.remove("multicluster.x-k8s.io/placement-key");
    hub.create(named).unwrap();
    // The namespace of the inventory is not asked.
    hub.create(decision("default", 1, &["b"])).unwrap();
    let decisions = PlacementDecisions::of_decision("web-7f9c").namespace("argocd");
    let provider = builder(&hub).access_providers(providers()).placement(decisions);
    let mut received = Received::of(&provider.build().unwrap());
    assert_eq!(received.until("synced").await, ["+a", "synced"]);
    change(&hub, DECISIONS, "argocd/web-0", |there| {
        there["decisions"][1]["clusterProfileRef"]["namespace"] = "default".into();
        there["metadata"]["finalizers"] = json!(["example.com/late"]);
    });
    assert_eq!(received.line().await, "+b");
    // A deletionTimestamp is enough.
    hub.delete(DECISIONS, "argocd/web-0").unwrap();
    let mut gone = [received.line().await, received.line().await];
    gone.sort();
    assert_eq!(gone, ["-a", "-b"]);
    assert!(hub.get(DECISIONS, "argocd/web-0").is_some());
}

#[tokio::test]
async fn a_hub_without_placement_decisions_or_the_right_to_read_them_gets_advice() {
    let hub = hub();
    hub.create(profile("default", "a", SERVER)).unwrap();
    let error = Received::of(&provider(&hub)).error().await;
    assert!(
        error.starts_with("the hub has no PlacementDecisions")
            && error.contains("leave out the provider's option `placement`"),
        "{error}"
    );
    hub.create(decisions_crd()).unwrap();
    hub.create(decision("default", 0, &["a"])).unwrap();
    let profiles = SimRule::new(["multicluster.x-k8s.io"], ["clusterprofiles"], ["list", "watch"]);
    hub.set_user("t", SimUser::new("t").rule(profiles));
    let forbidden = builder(&hub)
        .client(hub.client_with_token("t"))
        .access_providers(providers())
        .placement("web")
        .build()
        .unwrap();
    let error = Received::of(&forbidden).error().await;
    assert!(
        error.starts_with("the hub forbids the option `placement` to read PlacementDecisions")
            && error.contains("Grant list and watch on placementdecisions"),
        "{error}"
    );
    assert!(
        forbidden
            .searched()
            .contains("ClusterProfiles and PlacementDecisions")
    );
    assert_eq!(
        Received::of(&provider(&hub)).until("synced").await,
        ["+a", "synced"]
    );
}

#[tokio::test]
async fn a_hub_that_refuses_decisions_later_takes_no_cluster_away() {
    let hub = with(&["a", "b"]);
    hub.create(decision("default", 0, &["a"])).unwrap();
    let may = |resources: &[&str]| {
        let rule = SimRule::new(["multicluster.x-k8s.io"], resources.to_vec(), ["list", "watch"]);
        hub.set_user("t", SimUser::new("t").rule(rule));
    };
    may(&["clusterprofiles", "placementdecisions"]);
    let provider = builder(&hub)
        .client(hub.client_with_token("t"))
        .access_providers(providers())
        .placement("web")
        .build()
        .unwrap();
    let mut received = Received::of(&provider);
    assert_eq!(received.until("synced").await, ["+a", "synced"]);
    may(&["clusterprofiles"]);
    hub.end_watches();
    hub.compact(hub.resource_version());
    hub.delete(DECISIONS, "default/web-0").unwrap();
    change(&hub, PROFILES, "default/a", |there| {
        there["status"]["version"]["kubernetes"] = "v1.37.0".into()
    });
    assert_eq!(received.line().await, "+a", "it is still followed");
    let refused = || {
        hub.audit()
            .count(|event| event.resource == "placementdecisions" && event.code == 403)
            > 1
    };
    eventually(PATIENCE, "the decisions are refused", refused).await;
    may(&["clusterprofiles", "placementdecisions"]);
    assert_eq!(
        received.line().await,
        "-a",
        "now it is known that nobody chooses it"
    );
}

#[tokio::test]
async fn a_hostile_decision_concerns_only_the_clusters_that_it_names() {
    let hub = with(&["a", "b"]);
    hub.create(decision("default", 0, &["a"])).unwrap();
    let mut form = decision("default", 1, &[]);
    form["decisions"] = "sesame".into();
    hub.create(form).unwrap();
    let mut many = decision("default", 2, &[]);
    many["decisions"] = (0..10_000)
        .map(|number| json!({"clusterProfileRef": {"name": format!("../x{number}"), "namespace": ""}}))
        .collect();
    hub.create(many).unwrap();
    let mut received = Received::of(&provider(&hub));
    assert_eq!(received.until("synced").await, ["+a", "synced"]);
    change(&hub, DECISIONS, "default/web-1", |there| {
        there["decisions"] = json!([{"clusterProfileRef": {"name": "b"}}]);
    });
    assert_eq!(received.line().await, "+b");
    change(&hub, DECISIONS, "default/web-1", |there| {
        there["decisions"] = json!([8])
    });
    hub.delete(DECISIONS, "default/web-0").unwrap();
    assert_eq!(received.line().await, "-a", "and `b` stays");
}
