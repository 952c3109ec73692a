//! Functions of the user that panic.

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_sync::Related;

use crate::world::widgets::*;

/// What no error may quote.
const CANARY: &str = "canary-of-a-secret";

/// Panics if the object asks for it.
fn call(function: &str, object: &DynamicObject) -> bool {
    assert!(object.data["spec"]["panics"] != function, "{CANARY}");
    true
}

#[tokio::test(start_paused = true)]
async fn sync_function_that_panics_is_reported_for_its_source_until_that_changes() {
    // The rule for adoption is asked about the object in the target cluster.
    let mut world = World::with(&["adoption", "well"]);
    let taken = json!({"size": 2, "panics": "adoption"});
    make(&world.berlin, "adoption", taken);
    world.team_a.create(map("settings", json!({}))).unwrap();
    let functions = ["filter", "placement", "projection", "status"];
    for function in functions {
        make(&world.team_a, function, json!({"size": 1, "panics": function}));
    }
    make(&world.team_a, "related", json!({"size": 1, "panics": "related"}));
    let settings = Related::<_, _, ConfigMap>::down("settings").named(|_, _| ["settings"]);
    let settings = settings.name_by(|source: &DynamicObject, _| {
        call("related", source);
        format!("settings-of-{}", source.metadata.name.as_deref().unwrap())
    });
    let sync = sync()
        .filter(|source| call("filter", source))
        .place(targets(), |source, _, _| {
            call("placement", source);
            vec![name("berlin")]
        })
        .project(|source, _| {
            call("projection", source);
            spec_of(source)
        })
        .adopt(|found| call("adoption", found))
        .status(|source, _| json!({"phase": call("status", source)}))
        .related(settings);
    world.begin(sync);
    is_there(&world.berlin, "well", 1).await;
    world.synced("well").await;
    let copy = world.berlin.get("configmaps", "default/settings-of-well");
    assert!(copy.is_some());
    for function in functions.into_iter().chain(["rule for adoption"]) {
        let again = "it is tried again when the source changes: it panicked";
        let words = format!("the {function} of the source failed; {again}");
        let failure = world.waits(&words).await;
        assert!(!failure.error.contains(CANARY), "{failure:?}");
        let source = failure.object.trim_start_matches("default/");
        if function == "filter" {
            // Nobody knows whether it is selected, so nothing is written to it.
            assert_eq!(world.condition(source), None);
        } else {
            let message = world.reported(source, "FunctionFailed", &words).await;
            assert!(!message.contains(CANARY), "{message}");
        }
    }
    let message = world.reported("related", "FunctionFailed", "it panicked").await;
    assert!(!message.contains(CANARY), "{message}");
    is_there(&world.berlin, "related", 1).await;
    assert_eq!(world.failing().len(), 5);

    set(&world.berlin, "adoption", &["spec", "panics"], Value::Null);
    for source in functions.into_iter().chain(["adoption", "related"]) {
        set(&world.team_a, source, &["spec"], json!({"size": 3}));
        is_there(&world.berlin, source, 3).await;
        world.synced(source).await;
    }
    assert_eq!(world.failing(), []);
}
