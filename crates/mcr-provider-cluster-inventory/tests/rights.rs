//! The provider works with the rights of its manifest.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use mcr_testkit::sim::{SimRule, SimUser};
use serde_json::Value;
use support::{Heard, builder, hub, profile, providers, secret};

const MANIFEST: &str = include_str!("../deploy/rbac.yaml");
const README: &str = include_str!("../README.md");

fn rules(manifest: &str) -> Vec<SimRule> {
    let manifest: Value = serde_saphyr::from_str(manifest).unwrap();
    let texts = |rule: &Value, of: &str| {
        let texts = rule[of].as_array().unwrap().iter();
        texts
            .map(|text| text.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let rules = manifest["rules"].as_array().unwrap().iter();
    rules
        .map(|rule| {
            SimRule::new(
                texts(rule, "apiGroups"),
                texts(rule, "resources"),
                texts(rule, "verbs"),
            )
        })
        .collect()
}

#[test]
fn the_page_has_the_rules_of_the_manifest() {
    let page = README
        .split("```yaml")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    assert_eq!(format!("{:?}", rules(page)), format!("{:?}", rules(MANIFEST)));
}

#[tokio::test]
async fn the_rights_of_the_manifest_are_enough() {
    let kubeconfig = "current-context: x\n\
         contexts: [{name: x, context: {cluster: c, user: u}}]\n\
         clusters: [{name: c, cluster: {server: 'https://192.0.2.1'}}]\n\
         users: [{name: u, user: {token: t}}]\n";
    let hub = hub();
    hub.create(profile("default", "a", "https://192.0.2.1")).unwrap();
    hub.create(secret("default", "a", kubeconfig)).unwrap();
    let user = rules(MANIFEST)
        .into_iter()
        .fold(SimUser::new("all"), SimUser::rule);
    hub.set_user("all", user);
    let profiles = SimUser::new("profiles").rule(rules(MANIFEST).remove(0));
    hub.set_user("profiles", profiles);
    let as_user = |token: &str| builder(&hub).client(hub.client_with_token(token));
    let plugins = as_user("profiles").access_providers(providers()).build().unwrap();
    assert_eq!(Heard::of(&plugins).until("synced").await, ["+a", "synced"]);
    let secrets = as_user("all").consumer_secrets("me").build().unwrap();
    assert_eq!(Heard::of(&secrets).until("synced").await, ["+a", "synced"]);
    for event in hub.audit().events() {
        assert!(event.user == "admin" || event.code < 300, "{event:?}");
    }
}
