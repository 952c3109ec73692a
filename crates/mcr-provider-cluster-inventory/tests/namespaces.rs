//! Several inventories, one in each namespace, in one provider. The hub is a simulated API server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use futures::FutureExt;
use mcr_core::Provider;
use mcr_provider_cluster_inventory::{ClusterInventoryProviderBuilder, MEMBER_ID_LABEL};
use mcr_testkit::{
    sim::{SimCluster, SimUser},
    waiting::eventually,
};
use serde_json::Value;
use support::{
    DECISIONS, MANIFEST, PATIENCE, PROFILES, Received, builder, create_namespace, decision, decisions_crd,
    hub, profile, providers, rules, secret,
};

const SERVER: &str = "https://192.0.2.1:6443";
const SPACES: [&str; 3] = ["eu", "us", "secret"];

/// A hub with three namespaces, each with a ClusterProfile of the same name and the same member id.
fn with_spaces() -> SimCluster {
    let hub = hub();
    for space in SPACES {
        create_namespace(&hub, space);
        hub.create(member(space, "a")).unwrap();
    }
    hub
}

fn member(space: &str, name: &str) -> Value {
    let mut profile = profile(space, name, SERVER);
    profile["metadata"]["labels"][MEMBER_ID_LABEL] = "m".into();
    profile
}

/// The user `t` may read in these namespaces only.
fn may_read(hub: &SimCluster, spaces: &[&str]) {
    let mut user = SimUser::new("t");
    for space in spaces {
        for rule in rules(MANIFEST) {
            user = user.rule(rule.in_namespace(*space));
        }
    }
    hub.set_user("t", user);
}

fn of(hub: &SimCluster, spaces: &[&str]) -> ClusterInventoryProviderBuilder {
    let builder = builder(hub).client(hub.client_with_token("t"));
    builder.namespaces(spaces.iter().copied())
}

async fn sorted(received: &mut Received) -> Vec<String> {
    let mut announced = received.until("synced").await;
    announced.sort();
    announced
}

#[tokio::test]
async fn several_namespaces_are_several_inventories_that_are_never_merged() {
    let hub = with_spaces();
    may_read(&hub, &["eu", "us"]);
    // One that is named twice is read once.
    let provider = of(&hub, &["eu", "us", "eu"])
        .access_providers(providers())
        .build()
        .unwrap();
    assert!(
        provider.searched().starts_with(
            "clusterprofiles.multicluster.x-k8s.io in namespace eu and clusterprofiles.multicluster.x-k8s.io in namespace us"
        ),
        "{}",
        provider.searched()
    );
    let mut received = Received::of(&provider);
    assert_eq!(sorted(&mut received).await, ["+eu/a", "+us/a", "synced"]);
    // In one namespace it is the same cluster once more.
    hub.create(member("us", "b")).unwrap();
    let duplicate = received.line().await;
    assert!(
        duplicate.starts_with("~us/b: ClusterProfile a is older"),
        "{duplicate}"
    );
    hub.delete(PROFILES, "us/a").unwrap();
    assert_eq!(received.line().await, "-us/a");
    assert_eq!(received.line().await, "+us/b", "and that of `eu` stays");
    let audit = hub.audit();
    assert_eq!(audit.count(|event| event.is_list("clusterprofiles")), 2);
    for event in audit.events() {
        assert!(event.user != "t" || event.code < 300, "{event:?}");
    }
}

#[tokio::test]
async fn a_namespace_that_cannot_be_read_takes_nothing_from_the_others() {
    let hub = with_spaces();
    may_read(&hub, &["us"]);
    let provider = of(&hub, &["eu", "us"])
        .access_providers(providers())
        .build()
        .unwrap();
    let mut received = Received::of(&provider);
    // It has a member id, so its own inventory is complete.
    assert_eq!(received.line().await, "+us/a");
    hub.delete(PROFILES, "us/a").unwrap();
    assert_eq!(received.line().await, "-us/a");
    let denied = || hub.audit().count(|event| event.user == "t" && event.code == 403) > 1;
    eventually(PATIENCE, "the other one is asked for again", denied).await;
    assert!(received.next().now_or_never().is_none(), "not in sync");
    may_read(&hub, &["eu", "us"]);
    assert_eq!(received.until("synced").await, ["+eu/a", "synced"]);
}

#[tokio::test]
async fn secrets_and_decisions_are_read_in_each_namespace() {
    let kubeconfig = "current-context: x\n\
         contexts: [{name: x, context: {cluster: c, user: u}}]\n\
         clusters: [{name: c, cluster: {server: 'https://192.0.2.1'}}]\n\
         users: [{name: u, user: {token: t}}]\n";
    let hub = with_spaces();
    hub.create(decisions_crd()).unwrap();
    may_read(&hub, &["eu", "us"]);
    for space in SPACES {
        hub.create(secret(space, "a", kubeconfig)).unwrap();
    }
    // A decision of one namespace can name a ClusterProfile of another one.
    hub.create(decision("eu", 0, &["us/a", "secret/a"])).unwrap();
    let provider = of(&hub, &["eu", "us"])
        .consumer_secrets("me")
        .placement("web")
        .build()
        .unwrap();
    let mut received = Received::of(&provider);
    // The watches of profiles and of Secrets have no order.
    let announced = sorted(&mut received).await;
    assert!(
        announced.contains(&"+us/a".to_owned()) && announced.iter().all(|line| !line.contains("eu/a")),
        "{announced:?}"
    );
    hub.create(decision("us", 0, &["eu/a"])).unwrap();
    assert_eq!(received.line().await, "+eu/a");
    hub.delete(DECISIONS, "eu/web-0").unwrap();
    assert_eq!(received.line().await, "-us/a");
}
