//! The access policies of the fleet and of the provider, over a simulated hub.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::sync::Arc;

use mcr_core::{
    AccessPolicy, CredentialPluginPolicy, Provider,
    layer::{filter, merge, prefix},
};
use mcr_provider_kubeconfig::KubeconfigProvider;
use mcr_provider_multi::MultiProvider;
use mcr_testkit::{discovery::Followed, sim::SimCluster, steps::kubeconfig};
use serde_json::{Value, json};
use support::{loopback_policy, secret};
use tokio_util::sync::CancellationToken;

/// Three Secrets: one asks to run a program, one is at a loopback address, and one names a proxy.
fn hub() -> SimCluster {
    let hub = SimCluster::new();
    let exec = json!({"exec": {
        "command": "/bin/true", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
    }});
    let put = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut text: Value = serde_saphyr::from_str(&kubeconfig("t")).unwrap();
        change(&mut text);
        hub.create(secret("default", name, &text.to_string())).unwrap();
    };
    put("exec", &|text| text["users"][0]["user"] = exec.clone());
    put("loopback", &|text| {
        text["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1".into();
    });
    put("proxy", &|text| {
        text["clusters"][0]["cluster"]["proxy-url"] = "http://192.0.2.1:1".into();
    });
    hub
}

/// Allows all Secrets but the last one.
fn lenient() -> AccessPolicy {
    loopback_policy().credential_plugins(CredentialPluginPolicy::allowlist(["/bin/true"]))
}

/// What is announced under this policy of the fleet: the sign, and the name of the Secret.
async fn announced(provider: &dyn Provider, fleet: AccessPolicy) -> Vec<String> {
    let discovery = provider.discover_with(CancellationToken::new(), &fleet.into());
    let mut lines = Followed(discovery).until("synced").await;
    lines.sort();
    let short = |line: String| {
        let name = line[1..].split(": ").next().unwrap_or_default();
        format!("{}{}", &line[..1], name.rsplit('#').next().unwrap_or_default())
    };
    lines
        .into_iter()
        .filter(|line| line != "synced")
        .map(short)
        .collect()
}

#[tokio::test]
async fn a_policy_in_the_fleet_alone_allows_what_it_names_through_every_layer() {
    type Layer = fn(KubeconfigProvider) -> Box<dyn Provider>;
    let layers: [Layer; 6] = [
        |provider| Box::new(provider),
        |provider| Box::new(Arc::new(provider) as Arc<dyn Provider>),
        |provider| Box::new(prefix("a#", provider)),
        |provider| Box::new(filter(provider, |_| true)),
        |provider| Box::new(merge("all", [Box::new(provider) as Box<dyn Provider>])),
        |provider| Box::new(MultiProvider::builder().child(provider).build().unwrap()),
    ];
    for (number, wrap) in layers.into_iter().enumerate() {
        let provider = KubeconfigProvider::builder()
            .client(hub().client())
            .build()
            .unwrap();
        let announced = announced(&*wrap(provider), lenient()).await;
        // A filter does not pass on what is broken from the start.
        let good: Vec<&String> = announced.iter().filter(|line| !line.starts_with('!')).collect();
        assert_eq!(good, ["+exec", "+loopback"], "layer {number}");
    }
}

/// A fleet judges what it connects by itself: `mcr-access` has the tests.
#[tokio::test]
async fn of_two_policies_the_stricter_one_counts() {
    let strict = KubeconfigProvider::builder()
        .client(hub().client())
        .access_policy(AccessPolicy::default())
        .build()
        .unwrap();
    let all = announced(&strict, lenient()).await;
    assert_eq!(all, ["!exec", "!loopback", "!proxy"]);
    let mut followed = Followed(strict.discover_with(CancellationToken::new(), &lenient().into()));
    assert!(followed.line().await.contains("both policies must allow it"));
}
