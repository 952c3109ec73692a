//! Names that Kubernetes does not allow, and the longest that it allows.

use mcr_sync::{BuildError, NameTemplate, TargetNamespace, hashed};

use crate::world::widgets::*;

#[tokio::test(start_paused = true)]
async fn sync_name_that_is_too_long_or_not_valid_is_reported_once_and_others_are_synced() {
    let long = "x".repeat(253);
    let mut world = World::with(&["well", &long]);
    // Its name makes names that no object may have.
    let scoped = cluster("shop/team");
    make(&scoped, "w", json!({"size": 1}));
    world.begin(sync().name_by(NameTemplate::parse("{cluster}-{name}").unwrap()));
    world.clusters.add(spec(&scoped, "source"));
    is_there(&world.berlin, "team-a-well", 1).await;
    let too_long = "the template makes a name of 260 characters, and 253 are allowed; use {hash} in it";
    world.waits(too_long).await;
    let bad = "the template makes the name \"shop/team-w\", which Kubernetes does not allow";
    world.waits(bad).await;
    world.reported(&long, "InvalidName", too_long).await;
    for source in [get(&world.team_a, &long), get(&scoped, "w")] {
        let finalizers = &source.unwrap()["metadata"]["finalizers"];
        assert!(finalizers.is_null(), "there is nothing to clean up: {finalizers}");
    }
    assert_eq!(count(&world.berlin, "create"), 1);
    // What was never synced holds nobody.
    world.ends(&long).await;
}

#[tokio::test(start_paused = true)]
async fn sync_source_with_the_longest_name_is_copied_under_a_short_one() {
    let long = "x".repeat(253);
    let mut world = World::with(&[&long]);
    let sync = Widgets::with("widgets", &widgets(), &widgets());
    world.begin(sync.to(name("berlin")).project(|source, _| spec_of(source)));
    let short = hashed(source_name(Some("default"), &long));
    assert!(short.len() <= 63);
    let target = is_there(&world.berlin, &short, 1).await;
    let annotations = &target["metadata"]["annotations"];
    assert_eq!(annotations["sync.mcr.dev/source-name"], *long);
    // A change of the target finds its source.
    delete(&world.berlin, &short);
    is_there(&world.berlin, &short, 1).await;
    world.ends(&long).await;
    assert!(get(&world.berlin, &short).is_none());
}

#[test]
fn sync_namespace_that_kubernetes_does_not_allow_is_refused_when_the_sync_is_built() {
    let built = |name: &str| sync().namespace(TargetNamespace::Fixed(name.to_owned())).build();
    for bad in ["", "A", "-a", "a.b", &"a".repeat(64)] {
        let is_refused = matches!(built(bad), Err(BuildError::Namespace(name)) if name == bad);
        assert!(is_refused, "{bad}");
    }
    assert!(built(&"a".repeat(63)).is_ok());
}
