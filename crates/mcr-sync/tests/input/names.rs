//! Names that Kubernetes does not allow, and the longest that it allows.

use mcr_sync::{BuildError, NameTemplate, SourceName, TargetNamespace, hashed};
use serde_json::json;

use crate::world::{WIDGETS, World, cluster, crd, is_gone, is_there, spec, sync, widget};

#[tokio::test(start_paused = true)]
async fn sync_name_that_is_too_long_or_not_valid_is_told_once_and_others_are_synced() {
    let mut world = World::new();
    let long = "x".repeat(253);
    for source in ["well", &long] {
        world
            .team
            .create(widget("default", source, json!({"size": 1})))
            .unwrap();
    }
    // Its name makes names that no object may have.
    let scoped = cluster("shop/team");
    scoped.create(crd()).unwrap();
    scoped.create(widget("default", "w", json!({"size": 1}))).unwrap();
    let template = NameTemplate::parse("{cluster}-{name}").unwrap();
    world.start_with(
        sync().name_by(template).build().unwrap(),
        [spec(&scoped, "source")],
    );
    is_there(&world.berlin, "default/team-well", 1).await;
    for words in [
        "the template makes a name of 258 characters, and 253 are allowed; use {hash} in it",
        "the template makes the name \"shop/team-w\", which Kubernetes does not allow",
    ] {
        let failure = world.fails_with(words).await;
        assert_eq!(failure.retry_at, None, "{failure:?}");
    }
    let message = world.told(&long, "InvalidName").await;
    assert!(message.contains("258 characters"), "{message}");
    for source in [
        world.team.get(WIDGETS, &format!("default/{long}")),
        scoped.get(WIDGETS, "default/w"),
    ] {
        let metadata = &source.unwrap()["metadata"];
        assert!(
            metadata["finalizers"].is_null(),
            "there is nothing to clean up: {metadata}"
        );
    }
    assert_eq!(world.berlin.audit().count(|event| event.verb == "create"), 1);
    // What was never synced holds nobody.
    world.team.delete(WIDGETS, &format!("default/{long}")).unwrap();
    is_gone(&world.team, &format!("default/{long}")).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_source_with_the_longest_name_is_copied_under_a_short_one() {
    let mut world = World::new();
    let long = "x".repeat(253);
    world
        .team
        .create(widget("default", &long, json!({"size": 1})))
        .unwrap();
    let sync = crate::world::Widgets::with("widgets", &crate::world::widgets(), &crate::world::widgets())
        .from(mcr::ClusterSelector::label("role", "source"))
        .to(crate::world::name("berlin"))
        .project(|source, _| crate::world::spec_of(source));
    world.start(sync);
    let source = SourceName {
        cluster: "team",
        namespace: Some("default"),
        name: &long,
    };
    let key = format!("default/{}", hashed(source));
    let target = is_there(&world.berlin, &key, 1).await;
    assert_eq!(
        target["metadata"]["annotations"]["sync.mcr.dev/source-name"],
        *long
    );
    assert!(target["metadata"]["name"].as_str().unwrap().len() <= 63);
    // A change of the target finds its source.
    world.berlin.delete(WIDGETS, &key).unwrap();
    is_there(&world.berlin, &key, 1).await;
    world.team.delete(WIDGETS, &format!("default/{long}")).unwrap();
    is_gone(&world.team, &format!("default/{long}")).await;
    assert!(world.berlin.get(WIDGETS, &key).is_none());
    world.stop().await;
}

#[test]
fn sync_namespace_that_kubernetes_does_not_allow_is_refused_when_the_sync_is_built() {
    for bad in ["", "A", "-a", "a.b", &"a".repeat(64)] {
        let built = sync().namespace(TargetNamespace::Fixed(bad.to_owned())).build();
        assert!(
            matches!(built, Err(BuildError::Namespace(name)) if name == bad),
            "{bad}"
        );
    }
    assert!(
        sync()
            .namespace(TargetNamespace::Fixed("a".repeat(63)))
            .build()
            .is_ok()
    );
}
