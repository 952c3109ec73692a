//! The provider works with the rights of its manifest.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use mcr_garden_double::Garden;
use mcr_testkit::sim::{SimRule, SimUser};
use support::{Received, World, hour, kubeconfig, seed::SeedWorld};

const MANIFEST: &str = include_str!("../deploy/rbac.yaml");
const SEED_MANIFEST: &str = include_str!("../deploy/rbac-seed.yaml");
const README: &str = include_str!("../README.md");

/// The rules of each role.
fn roles(manifest: &str) -> Vec<Vec<SimRule>> {
    let roles = manifest.split("\n---\n");
    roles.map(|role| SimRule::of_role(role).unwrap()).collect()
}

#[test]
fn the_page_has_the_rules_of_the_manifests() {
    for (number, manifest) in [MANIFEST, SEED_MANIFEST].into_iter().enumerate() {
        let page = README.split("```yaml").nth(number + 1).unwrap();
        let page = page.split("```").next().unwrap();
        assert_eq!(format!("{:?}", roles(page)), format!("{:?}", roles(manifest)));
    }
}

#[tokio::test]
async fn in_a_seed_the_rights_of_the_manifest_are_enough() {
    let seed = SeedWorld::new();
    seed.add("one");
    let [rules] = <[_; 1]>::try_from(roles(SEED_MANIFEST)).unwrap();
    let user = rules.into_iter().fold(SimUser::new("reader"), SimUser::rule);
    seed.0.set_user("reader", user);
    let client = seed.0.client_with_token("reader");
    let provider = seed.builder().client(client).build().unwrap();
    assert_eq!(
        Received::of(&provider).until("synced").await,
        ["+dev/one", "synced"]
    );
    for event in seed.0.audit().events() {
        assert!(event.user != "reader" || event.code < 300, "{event:?}");
    }
}

#[tokio::test]
async fn the_rights_of_the_manifest_are_enough_and_less_is_not() {
    let world = World::new();
    world.answers("one", hour(&kubeconfig("one")));
    world.server.create(Garden::shoot("garden-dev", "one")).unwrap();
    let reported = async |name: &str, rules: Vec<SimRule>| {
        world
            .server
            .set_user(name, rules.into_iter().fold(SimUser::new(name), SimUser::rule));
        let client = world.garden.client(world.server.client_with_token(name));
        let provider = world.builder().client(client).build().unwrap();
        Received::of(&provider).until("synced").await
    };
    let [shoots, projects] = <[_; 2]>::try_from(roles(MANIFEST)).unwrap();
    let own: Vec<SimRule> = shoots
        .iter()
        .map(|rule| rule.clone().in_namespace("garden-dev"))
        .collect();
    let both = own.iter().chain(&projects).cloned().collect();
    assert_eq!(reported("both", both).await, ["+dev/one", "synced"]);
    for event in world.server.audit().events() {
        assert!(event.user != "both" || event.code < 300, "{event:?}");
    }
    // Without the second role the namespace stands for the Project.
    assert_eq!(reported("own", own.clone()).await, ["+garden-dev/one", "synced"]);
    let without_subresource = reported("watch", own[..1].to_vec()).await;
    assert!(
        without_subresource[0]
            .contains("grant the verb create on shoots/adminkubeconfig in namespace garden-dev"),
        "{without_subresource:?}"
    );
}
