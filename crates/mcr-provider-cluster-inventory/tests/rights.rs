//! The provider works with the rights of its manifest.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use mcr_testkit::sim::SimUser;
use support::{
    DECISIONS, MANIFEST, Received, builder, create_namespace, decision, decisions_crd, hub, profile,
    providers, rules, secret,
};

const README: &str = include_str!("../README.md");

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
    hub.create(decisions_crd()).unwrap();
    hub.create(decision("default", 0, &["a"])).unwrap();
    // Each option needs its own rule, and no other.
    let user = |name: &str, which: &[usize]| {
        let mine = which.iter().map(|which| rules(MANIFEST).remove(*which));
        hub.set_user(name, mine.fold(SimUser::new(name), SimUser::rule));
        builder(&hub).client(hub.client_with_token(name))
    };
    let plugins = user("plugins", &[0]).access_providers(providers());
    let placement = user("placement", &[0, 1])
        .access_providers(providers())
        .placement("web");
    let secrets = user("secrets", &[0, 2]).consumer_secrets("me");
    let all = user("all", &[0, 1, 2]).consumer_secrets("me").placement("web");
    for provider in [plugins, placement, secrets, all] {
        let provider = provider.build().unwrap();
        assert_eq!(
            Received::of(&provider).until("synced").await,
            ["+a", "synced"],
            "{provider:?}"
        );
    }
    for event in hub.audit().events() {
        assert!(event.user == "admin" || event.code < 300, "{event:?}");
    }
}

#[tokio::test]
async fn the_rights_of_the_manifest_in_some_namespaces_are_enough_for_these() {
    let hub = hub();
    hub.create(decisions_crd()).unwrap();
    let mut user = SimUser::new("some");
    for space in ["eu", "us"] {
        create_namespace(&hub, space);
        hub.create(profile(space, "a", "https://192.0.2.1")).unwrap();
        for rule in rules(MANIFEST) {
            user = user.rule(rule.in_namespace(space));
        }
    }
    hub.create(decision("us", 0, &["a", "eu/a"])).unwrap();
    hub.set_user("some", user);
    let some = builder(&hub).client(hub.client_with_token("some"));
    let some = some
        .access_providers(providers())
        .namespaces(["eu", "us"])
        .placement("web");
    let mut received = Received::of(&some.build().unwrap());
    let mut announced = received.until("synced").await;
    announced.sort();
    assert_eq!(announced, ["+eu/a", "+us/a", "synced"]);
    hub.delete(DECISIONS, "us/web-0").unwrap();
    let mut gone = [received.line().await, received.line().await];
    gone.sort();
    assert_eq!(gone, ["-eu/a", "-us/a"]);
    for event in hub.audit().events() {
        assert!(event.user == "admin" || event.code < 300, "{event:?}");
    }
}
