//! No value of an object is told: not of a source, of a target, of a related object, nor what a server or a decoder quotes of it.

use kube::core::Object;
use mcr::{BoxError, ClusterName};
use mcr_sync::{NameTemplate, ObjectSync, Related};
use mcr_testkit::{log::Log, sim::SimCluster, waiting::eventually};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::world::{LIMIT, WIDGETS, World, cluster, crd, is_there, name, widget, widgets};

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
type Settings = Related<Source, Target, Source>;

fn own_name(object: &Source) -> &str {
    object.metadata.name.as_deref().unwrap()
}

/// Settings go down beside the target. One of them can't be decoded, and the functions for two others fail.
fn settings() -> Settings {
    Settings::down_with("settings", &widgets())
        .named(|source, _| match own_name(source) {
            "no-name" => source.spec.text.clone(),
            name => name
                .strip_prefix("related-")
                .map(|name| format!("settings-{name}")),
        })
        .try_project(|source, object| {
            if own_name(source) == "related-project" {
                serde_json::from_value::<u64>(json!(object.spec.text))?;
            }
            Ok::<_, BoxError>(object.clone())
        })
        .name_by(|source, object| match own_name(source) {
            "related-name" => object.spec.text.clone().unwrap(),
            name => format!("copy-{name}"),
        })
}

/// What the sync has told: events and conditions of the sources.
fn told(team: &SimCluster) -> Vec<String> {
    let events = team.list("events.events.k8s.io", "default").into_iter();
    let notes = events.map(|event| format!("{} {}", event["regarding"]["name"], event["note"]));
    let sources = team.list(WIDGETS, "default").into_iter();
    let conditions = sources.map(|source| format!("{} {}", source["metadata"]["name"], source["status"]));
    notes.chain(conditions).collect()
}

#[tokio::test(start_paused = true)]
async fn sync_tells_no_value_of_any_object() {
    let log = Log::of_this_thread(tracing::Level::TRACE);
    let mut world = World::new();
    // The source cluster checks nothing, and the target cluster a field.
    (world.team, world.berlin) = (cluster("team"), cluster("berlin"));
    for (cluster, fields) in [
        (&world.team, json!({})),
        (
            &world.berlin,
            json!({"mode": {"type": "string", "enum": ["a", "b"]}}),
        ),
    ] {
        let mut kind = crd();
        kind["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = fields;
        cluster.create(kind).unwrap();
    }
    let create = |cluster: &SimCluster, name: &str, spec: Value| {
        cluster.create(widget("default", name, spec)).unwrap();
    };
    let text = |at: &str| json!({"size": 1, "text": format!("canary-{at}")});
    for (source, spec) in [
        ("source", json!({"size": 1})),
        ("new-source", json!({"size": "canary-new"})),
        ("target", json!({"size": 1})),
        ("refused", json!({"size": 1, "mode": "canary-\"refused\": x"})),
        ("projection", text("projection")),
        ("mutation", text("mutation")),
        ("status", text("status")),
        ("adoption", json!({"size": 1})),
        ("no-name", json!({"size": 1, "text": "canary of a reference"})),
    ] {
        create(&world.team, source, spec);
    }
    create(
        &world.berlin,
        "adoption",
        json!({"size": 2, "text": ["canary-adoption"]}),
    );
    for related in ["type", "project", "name"] {
        create(&world.team, &format!("related-{related}"), json!({"size": 1}));
        let spec = match related {
            "type" => json!({"size": 1, "text": {"a": "canary-type"}}),
            related => text(&format!("{related}_x")),
        };
        create(&world.team, &format!("settings-{related}"), spec);
    }
    let parse = |source: &Source, at: &str| match own_name(source) == at {
        true => serde_json::from_value::<u64>(json!(source.spec.text)).map(drop),
        false => Ok(()),
    };
    let sync = ObjectSync::<Source, Target>::with("widgets", &widgets(), &widgets())
        .from(mcr::ClusterSelector::name("team"))
        .to(name("berlin"))
        .name_by(NameTemplate::parse("{name}").unwrap())
        .filter(|source| !own_name(source).starts_with("settings-"))
        .adopt(|_| false)
        .try_project(move |source, _| {
            parse(source, "projection")?;
            let mut target = Target::new("", &widgets(), source.spec.clone());
            target.status = None;
            Ok::<_, BoxError>(target)
        })
        .try_mutate(move |_, source, _, _| parse(source, "mutation"))
        .try_status(move |source, _: &[(ClusterName, Target)]| {
            parse(source, "status")?;
            Ok::<_, BoxError>(json!({"phase": "up"}))
        })
        .related(settings())
        .condition("Synced")
        .publish_events(true);
    world.start_with(sync.build().unwrap(), []);
    for source in ["source", "target"] {
        is_there(&world.berlin, &format!("default/{source}"), 1).await;
    }
    world.edit("source", json!({"size": "canary-source"}));
    let mut target = world.berlin.get(WIDGETS, "default/target").unwrap();
    target["status"] = json!({"port": "canary-target"});
    world.berlin.restore(target).unwrap();

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
        let told = || {
            let mut told = told(&world.team).into_iter();
            told.find(|told| told.starts_with(&format!("{source:?}")) && told.contains(words))
        };
        eventually(LIMIT, format!("{words:?} for {source}"), told).await;
    }
    let failing = world.failing().into_iter().map(|failing| failing.error);
    let log = log.text();
    // At level debug, kube logs each refusal as it comes.
    let lines = log
        .lines()
        .filter(|line| !line.contains("kube_client::client: Unsuccessful"))
        .map(str::to_owned);
    let canaries: Vec<String> = told(&world.team)
        .into_iter()
        .chain(failing)
        .chain(lines)
        .collect();
    let canaries: Vec<_> = canaries.iter().filter(|text| text.contains("canary")).collect();
    assert!(canaries.is_empty(), "{canaries:#?}");
    world.stop().await;
}
