//! Functions of the user that panic, and sources that can't be decoded.

use kube::core::{DynamicObject, Object};
use mcr::{ClusterName, ClusterSelector};
use mcr_sync::{ObjectSync, Related};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::world::{WIDGETS, World, is_gone, is_there, name, spec_of, sync, widget, widgets};

/// What no error may quote.
const CANARY: &str = "canary-of-a-secret";

fn panic_in(function: &str, object: &DynamicObject) {
    assert!(object.data["spec"]["panics"] != function, "{CANARY}");
}

#[tokio::test(start_paused = true)]
async fn sync_function_that_panics_is_told_for_its_source_until_that_changes() {
    let mut world = World::new();
    let functions = ["filter", "placement", "projection", "status"];
    for function in functions {
        let source = widget("default", function, json!({"size": 1, "panics": function}));
        world.team.create(source).unwrap();
    }
    // The rule for adoption is asked about this one.
    world
        .team
        .create(widget("default", "adoption", json!({"size": 1})))
        .unwrap();
    world
        .berlin
        .create(widget(
            "default",
            "adoption",
            json!({"size": 2, "panics": "adoption"}),
        ))
        .unwrap();
    world
        .team
        .create(widget("default", "well", json!({"size": 1})))
        .unwrap();
    world.start(
        sync()
            .filter(|source| {
                panic_in("filter", source);
                true
            })
            .place(ClusterSelector::name("berlin"), |source: &DynamicObject, _, _| {
                panic_in("placement", source);
                vec![name("berlin")]
            })
            .project(|source, _| {
                panic_in("projection", source);
                spec_of(source)
            })
            .adopt(|found| {
                panic_in("adoption", found);
                true
            })
            .status(|source, _: &[(ClusterName, DynamicObject)]| {
                panic_in("status", source);
                json!({"phase": "up"})
            }),
    );
    is_there(&world.berlin, "default/well", 1).await;
    world.told("well", "Synced").await;
    for function in functions.into_iter().chain(["rule for adoption"]) {
        let words = format!(
            "the {function} of the source failed; it is tried again when the source changes: it panicked"
        );
        let failure = world.fails_with(&words).await;
        assert_eq!(failure.retry_at, None, "{failure:?}");
        assert!(!failure.error.contains(CANARY), "{failure:?}");
        let source = failure.object.trim_start_matches("default/").to_owned();
        if function == "filter" {
            // Nobody knows whether it is selected, so nothing is written to it.
            assert_eq!(world.condition(&source), None);
        } else {
            let message = world.told(&source, "FunctionFailed").await;
            assert!(message.contains(&words) && !message.contains(CANARY), "{message}");
        }
    }
    assert_eq!(world.failing().len(), 5);

    let mut foreign = world.berlin.get(WIDGETS, "default/adoption").unwrap();
    foreign["spec"]["panics"] = Value::Null;
    world.berlin.update(foreign).unwrap();
    for source in functions.into_iter().chain(["adoption"]) {
        world.edit(source, json!({"size": 3}));
        is_there(&world.berlin, &format!("default/{source}"), 3).await;
        world.told(source, "Synced").await;
    }
    assert_eq!(world.failing(), []);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_function_for_related_objects_that_panics_is_told_and_the_target_is_made() {
    let mut world = World::new();
    for source in ["bad", "well"] {
        world
            .team
            .create(widget("default", source, json!({"size": 1})))
            .unwrap();
        world
            .team
            .create(widget(
                "default",
                &format!("{source}-settings"),
                json!({"size": 4}),
            ))
            .unwrap();
    }
    let settings = Related::<DynamicObject, DynamicObject, DynamicObject>::down_with("settings", &widgets())
        .named(|source: &DynamicObject, _| {
            source
                .metadata
                .name
                .as_ref()
                .map(|name| format!("{name}-settings"))
        })
        .name_by(|source, object| {
            assert!(source.metadata.name.as_deref() != Some("bad"), "{CANARY}");
            format!("copy-of-{}", object.metadata.name.as_deref().unwrap())
        });
    world.start(
        sync()
            .filter(|source| !source.metadata.name.as_ref().unwrap().ends_with("-settings"))
            .related(settings),
    );
    is_there(&world.berlin, "default/copy-of-well-settings", 4).await;
    is_there(&world.berlin, "default/bad", 1).await;
    let message = world.told("bad", "FunctionFailed").await;
    assert!(
        message.contains("it panicked") && !message.contains(CANARY),
        "{message}"
    );
    world.stop().await;
}

/// A Widget as a type. A source with another spec is not valid for it.
type Sized = Object<SizedSpec, Value>;

#[derive(Debug, Clone, Deserialize)]
struct SizedSpec {
    size: u64,
}

#[tokio::test(start_paused = true)]
async fn sync_source_that_can_not_be_decoded_is_told_and_released_when_it_is_deleted() {
    let mut world = World::new();
    for source in ["bad", "well"] {
        world
            .team
            .create(widget("default", source, json!({"size": 1})))
            .unwrap();
    }
    let sync = ObjectSync::<Sized, DynamicObject>::with("widgets", &widgets(), &widgets())
        .from(ClusterSelector::label("role", "source"))
        .to(name("berlin"))
        .name_by(mcr_sync::NameTemplate::parse("{name}").unwrap())
        .project(|source: &Sized, _| {
            let mut target = DynamicObject::new("", &widgets());
            target.data = json!({"spec": {"size": source.spec.size}});
            target
        })
        .condition("Synced")
        .publish_events(true);
    world.start_with(sync.build().unwrap(), []);
    is_there(&world.berlin, "default/bad", 1).await;
    world.edit("bad", json!({"weight": 1}));
    let message = world.told("bad", "FunctionFailed").await;
    assert!(message.contains("the decoding of the source failed"), "{message}");
    assert!(
        world.berlin.get(WIDGETS, "default/bad").is_some(),
        "the target stays"
    );
    world.edit("well", json!({"size": 2}));
    is_there(&world.berlin, "default/well", 2).await;
    world.team.delete(WIDGETS, "default/bad").unwrap();
    is_gone(&world.team, "default/bad").await;
    assert!(world.berlin.get(WIDGETS, "default/bad").is_none());
    world.stop().await;
}
