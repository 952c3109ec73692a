//! No value of an object is reported: of a source, of a target, of a related object, or what a server or a decoder quotes.

use kube::core::Object;
use mcr_sync::{NameTemplate, ObjectSync, Related};
use mcr_testkit::log::Log;
use serde::{Deserialize, Serialize};

use crate::world::widgets::*;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Spec {
    size: u64,
    text: Option<String>,
    mode: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Status {
    port: u64,
}

/// The sync writes a status to its sources, so their type has none of its own.
type Source = Object<Spec, Value>;
type Target = Object<Spec, Status>;

fn own_name(object: &Source) -> &str {
    object.metadata.name.as_deref().unwrap()
}

/// Fails for the object of this name, with a text that quotes it.
fn parse(source: &Source, at: &str, text: &Option<String>) -> Result<(), serde_json::Error> {
    if own_name(source) == at {
        serde_json::from_value::<u64>(json!(text)).map(drop)
    } else {
        Ok(())
    }
}

/// Settings go down beside the target. One of them can't be decoded, and the functions for two others fail.
fn settings() -> Related<Source, Target, Source> {
    Related::down_with("settings", &widgets())
        .named(|source, _| match own_name(source) {
            "no-name" => source.spec.text.clone(),
            name => Some(name.replace("related", "settings")).filter(|settings| settings != name),
        })
        .try_project(|source, object: &Source| {
            parse(source, "related-project", &object.spec.text).map(|()| object.clone())
        })
        .name_by(|source, object| match own_name(source) {
            "related-name" => object.spec.text.clone().unwrap(),
            name => format!("copy-{name}"),
        })
}

fn sync() -> ObjectSync<Source, Target> {
    ObjectSync::with("widgets", &widgets(), &widgets())
        .to(name("berlin"))
        .name_by(NameTemplate::parse("{name}").unwrap())
        .filter(|source| !own_name(source).starts_with("settings-"))
        .adopt(|_| false)
        .try_project(|source: &Source, _| {
            parse(source, "projection", &source.spec.text)?;
            let mut target = Target::new("", &widgets(), source.spec.clone());
            target.status = None;
            Ok::<_, BoxError>(target)
        })
        .try_mutate(|_, source, _, _| parse(source, "mutation", &source.spec.text))
        .try_status(|source, _| parse(source, "status", &source.spec.text).map(|()| json!({"phase": "up"})))
        .related(settings())
        .condition("Synced")
        .publish_events(true)
}

#[tokio::test(start_paused = true)]
async fn sync_reports_no_value_of_any_object() {
    let log = Log::of_this_thread(tracing::Level::TRACE);
    let mut world = World::with(&["source", "target", "related-type", "related-name"]);
    make(&world.team_a, "related-project", json!({"size": 1}));
    // The source cluster checks nothing, and the target cluster a field.
    schema(&world.team_a, open(json!({})));
    let mode = json!({"type": "string", "enum": ["a", "b"]});
    schema(&world.berlin, open(json!({"mode": mode})));
    let text = |at: &str| json!({"size": 1, "text": format!("canary-{at}")});
    for (source, spec) in [
        ("new-source", json!({"size": "canary-new"})),
        ("refused", json!({"size": 1, "mode": "canary-\"refused\": x"})),
        ("projection", text("projection")),
        ("mutation", text("mutation")),
        ("status", text("status")),
        ("adoption", json!({"size": 1})),
        ("no-name", json!({"size": 1, "text": "canary of a reference"})),
        ("settings-type", json!({"size": 1, "text": {"a": "canary-type"}})),
        ("settings-project", text("project_x")),
        ("settings-name", text("name_x")),
    ] {
        make(&world.team_a, source, spec);
    }
    let taken = json!({"size": 2, "text": ["canary-adoption"]});
    make(&world.berlin, "adoption", taken);
    world.start(sync());
    is_there(&world.berlin, "source", 1).await;
    is_there(&world.berlin, "target", 1).await;
    set(&world.team_a, "source", &["spec", "size"], "canary-source");
    let mut target = get(&world.berlin, "target").unwrap();
    target["status"] = json!({"port": "canary-target"});
    world.berlin.restore(target).unwrap();

    let mut reported = Vec::new();
    for (source, words) in [
        ("source", "the decoding of the source failed"),
        ("new-source", "the decoding of the source failed"),
        ("target", "the decoding of a target"),
        ("refused", "spec.mode"),
        ("projection", "the projection of the source failed"),
        ("mutation", "the mutation of the source failed"),
        ("status", "the status of the source failed"),
        ("adoption", "the rule for adoption of the source failed"),
        ("no-name", "does not exist"),
        ("related-type", "settings-type is not valid for its type"),
        ("related-project", "is not copied"),
        ("related-name", "is not copied"),
    ] {
        until(format!("{words:?} for {source}"), || {
            let condition = world.condition(source).map(|(_, message)| message);
            let mut reported = condition.into_iter().chain(world.events(source));
            reported.any(|text| text.contains(words))
        })
        .await;
        reported.extend(world.events(source));
        reported.push(get(&world.team_a, source).unwrap()["status"].to_string());
    }
    reported.extend(world.failing().into_iter().map(|failing| failing.error));
    // At level debug, kube logs each refusal as it comes.
    let of_kube = "kube_client::client: Unsuccessful";
    reported.extend(log.text().lines().map(str::to_owned));
    reported.retain(|text| text.contains("canary") && !text.contains(of_kube));
    assert_eq!(reported, [""; 0]);

    // A source that can't be decoded keeps its target, and is released when it is deleted.
    assert!(get(&world.berlin, "source").is_some());
    world.ends("source").await;
    assert!(get(&world.berlin, "source").is_none());
}
