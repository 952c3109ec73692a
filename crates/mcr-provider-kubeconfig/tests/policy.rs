//! The access policies of the fleet and of the provider, over a simulated hub.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use mcr_core::{
    AccessPolicy, CredentialPluginPolicy, Fleet, Provider,
    layer::{filter, merge, prefix},
};
use mcr_provider_kubeconfig::KubeconfigProvider;
use mcr_provider_multi::MultiProvider;
use mcr_testkit::{
    control_plane::{Credentials, KubeconfigBuilder},
    sim::SimCluster,
    waiting::{Background, eventually},
};
use serde_json::Value;
use support::{locally, secret};

const PATIENCE: Duration = Duration::from_secs(60);
const PLUGIN: &str = "/bin/true";

/// The Secrets, in the order in which the provider handles them and writes their events. No policy here allows the last one,
/// so its event is there when all others have been written.
const SECRETS: [&str; 3] = ["exec", "loopback", "proxy"];

fn hub() -> SimCluster {
    let hub = SimCluster::new();
    let put = |name: &str, address: &str, credentials: Credentials| {
        let kubeconfig = KubeconfigBuilder::new().context(name, address, "", credentials);
        let mut kubeconfig: Value = serde_saphyr::from_str(&kubeconfig.to_yaml()).unwrap();
        if name == "proxy" {
            kubeconfig["clusters"][0]["cluster"]["proxy-url"] = "http://192.0.2.1:1".into();
        }
        hub.create(secret("default", name, &kubeconfig.to_string()))
            .unwrap();
    };
    let token = || Credentials::Token("t".to_owned());
    let exec = Credentials::Exec {
        command: PLUGIN.to_owned(),
        args: Vec::new(),
        env: Vec::new(),
    };
    // Nothing answers at the addresses, because these tests need no connection.
    put("exec", "https://192.0.2.1", exec);
    put("loopback", "https://127.0.0.1:1", token());
    put("proxy", "https://192.0.2.1", token());
    hub
}

/// Allows all Secrets but the last one.
fn lenient() -> AccessPolicy {
    locally().credential_plugins(CredentialPluginPolicy::allowlist([PLUGIN]))
}

/// The state and the reason of each cluster, by the name of its Secret.
type Clusters = BTreeMap<String, (String, String)>;

/// Runs a fleet until its clusters are as they should be and the last Secret has an event. Returns the clusters, and the Secrets with
/// events.
async fn run(
    hub: &SimCluster,
    provider: impl Provider,
    policy: AccessPolicy,
    done: impl Fn(&Clusters) -> bool,
) -> (Clusters, Vec<String>) {
    let fleet = Fleet::builder()
        .provider(provider)
        .settings(|settings| settings.access_policy = policy)
        .build();
    let running = Background::start({
        let fleet = fleet.clone();
        |stop| async move { fleet.run(stop).await }
    });
    let name = |event: Value| event["regarding"]["name"].as_str().unwrap().to_owned();
    let seen = eventually(PATIENCE, "the Secrets are decided", || {
        let clusters = fleet.snapshot().clusters.into_iter().map(|cluster| {
            let secret = cluster.name.rsplit('#').next().unwrap().to_owned();
            (
                secret,
                (
                    cluster.state.to_owned(),
                    cluster.reason.unwrap_or_default().to_string(),
                ),
            )
        });
        let clusters: Clusters = clusters.collect();
        let events = hub.list("events.events.k8s.io", "default");
        let mut events: Vec<String> = events.into_iter().map(name).collect();
        events.sort();
        let all = done(&clusters) && events.last().is_some_and(|last| last == SECRETS[2]);
        all.then_some((clusters, events))
    })
    .await;
    running.stop().await;
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_in_the_fleet_alone_allows_what_it_names_through_every_layer() {
    type Layer = fn(KubeconfigProvider) -> Box<dyn Provider>;
    let layers: [(&str, Layer); 6] = [
        ("none", |provider| Box::new(provider)),
        (
            "arc",
            |provider| Box::new(Arc::new(provider) as Arc<dyn Provider>),
        ),
        ("prefix", |provider| Box::new(prefix("a#", provider))),
        ("filter", |provider| Box::new(filter(provider, |_| true))),
        ("merge", |provider| {
            Box::new(merge("all", [Box::new(provider) as Box<dyn Provider>]))
        }),
        ("multi", |provider| {
            Box::new(MultiProvider::builder().child(provider).build().unwrap())
        }),
    ];
    for (layer, wrap) in layers {
        let hub = hub();
        let provider = KubeconfigProvider::builder().client(hub.client()).build();
        let both = |clusters: &Clusters| SECRETS[..2].iter().all(|name| clusters.contains_key(*name));
        let (clusters, events) = run(&hub, wrap(provider.unwrap()), lenient(), both).await;
        for name in &SECRETS[..2] {
            assert_ne!(clusters[*name].0, "Broken", "{layer}: {name}: {clusters:?}");
        }
        assert_eq!(
            events,
            SECRETS[2..],
            "{layer}: only a refused Secret gets an event"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_policies_the_stricter_one_counts() {
    let provider = |hub: &SimCluster, policy| {
        let builder = KubeconfigProvider::builder().client(hub.client());
        builder.access_policy(policy).build().unwrap()
    };
    let strict_provider = hub();
    let all = |clusters: &Clusters| clusters.len() == SECRETS.len();
    let broken = run(
        &strict_provider,
        provider(&strict_provider, AccessPolicy::default()),
        lenient(),
        all,
    );
    let (clusters, events) = broken.await;
    for (name, (state, reason)) in &clusters {
        assert_eq!(state, "Broken", "{name}: {reason}");
        assert!(reason.contains("both policies must allow it"), "{reason}");
    }
    assert_eq!(events, SECRETS);

    let strict_fleet = hub();
    let refused = |clusters: &Clusters| {
        let reason = |name: &&str| {
            clusters
                .get(*name)
                .is_some_and(|(_, reason)| reason.contains("untrusted"))
        };
        SECRETS[..2].iter().all(reason)
    };
    let kept_apart = run(
        &strict_fleet,
        provider(&strict_fleet, lenient()),
        AccessPolicy::default(),
        refused,
    );
    let (clusters, events) = kept_apart.await;
    for name in &SECRETS[..2] {
        assert_eq!(clusters[*name].0, "Unreachable", "{clusters:?}");
    }
    assert_eq!(events, SECRETS[2..], "the provider refuses only the last one");
}
