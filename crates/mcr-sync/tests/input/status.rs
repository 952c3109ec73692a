//! Status that comes up: with conditions, and while a place fails.

use mcr::ClusterName;
use serde_json::Map;

use crate::world::widgets::*;

type Targets = [(ClusterName, DynamicObject)];

fn set_status(cluster: &SimCluster, status: Value) {
    let mut target = get(cluster, "w").unwrap();
    target["status"] = status;
    cluster.restore(target).unwrap();
}

/// Waits until the status of the source is so. Returns it.
async fn status(world: &World, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    let status = || get(&world.team_a, "w").map(|mut source| source["status"].take());
    until(what, || status().filter(&is_it)).await
}

/// The types and states of the conditions, in their order.
fn states(status: &Value) -> String {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let text = |one: &Value| ["type", "status"].map(|field| one[field].as_str().unwrap().to_owned());
    conditions
        .map(|one| text(one).join("="))
        .collect::<Vec<_>>()
        .join(" ")
}

#[tokio::test(start_paused = true)]
async fn sync_conditions_of_the_status_function_come_first_and_stay_beside_that_of_the_sync() {
    let function = |_: &_, targets: &Targets| targets[0].1.data["status"].clone();
    let world = World::of(&["w"], sync().status(function)).await;
    let condition = |text: &str| {
        let (kind, status) = text.split_once('=').unwrap();
        let since = "2026-01-01T00:00:00Z";
        json!({"type": kind, "status": status, "reason": "R", "message": "m", "lastTransitionTime": since})
    };
    let is = async |wanted: &str| status(&world, wanted, |status| states(status) == wanted).await;
    let synced = is("Synced=True").await["conditions"][0].take();
    for (theirs, wanted) in [
        ("Ready=True Scaled=False", "Ready=True Scaled=False Synced=True"),
        ("Ready=False", "Ready=False Synced=True"),
        // The target has a sync of its own. The condition of this type is about this sync.
        ("Synced=False Ready=True", "Synced=True Ready=True"),
        ("", "Synced=True"),
        ("Ready=True", "Ready=True Synced=True"),
    ] {
        let theirs: Vec<Value> = theirs.split_whitespace().map(condition).collect();
        set_status(&world.berlin, json!({"phase": "up", "conditions": theirs}));
        let status = is(wanted).await;
        let conditions = status["conditions"].as_array().unwrap();
        assert!(conditions.contains(&synced), "it is not touched: {status}");
    }
    // They stay while a function fails or the cluster is away.
    world.clusters.remove("berlin");
    is("Ready=True Synced=False").await;
}

/// The phases of all targets.
fn phases(targets: &Targets) -> Value {
    let phase = |(at, target): &(ClusterName, DynamicObject)| {
        (at.to_string(), target.data["status"]["phase"].clone())
    };
    json!({"phases": targets.iter().map(phase).collect::<Map<_, _>>()})
}

#[tokio::test(start_paused = true)]
async fn sync_status_of_all_targets_comes_up_while_one_place_fails() {
    // What fails: a write to one target cluster, the projection for all, and the mutation for one.
    for fails in ["write", "projection", "mutation"] {
        let reason = if fails == "write" {
            "RequestFailed"
        } else {
            "FunctionFailed"
        };
        let to_fail = |target: &DynamicObject, what: &str| {
            if target.data["spec"]["fails"] == what {
                Err(BoxError::from("it fails"))
            } else {
                Ok(())
            }
        };
        let sync = to_each()
            .try_project(move |source, _| to_fail(source, "projection").map(|()| spec_of(source)))
            .try_mutate(move |target, _, _, to| {
                if *to.name() == name("berlin") {
                    to_fail(target, "mutation")
                } else {
                    Ok(())
                }
            })
            .status(|_, targets: &Targets| phases(targets));
        let world = World::of(&["w"], sync).await;
        if fails == "write" {
            allow(&world.berlin, &["get", "list", "watch"]);
        }
        set(&world.team_a, "w", &["spec"], json!({"size": 2, "fails": fails}));
        world.reported("w", reason, "").await;
        for (cluster, phase) in [(&world.lyon, "Failed"), (&world.berlin, "Stopped")] {
            set_status(cluster, json!({"phase": phase}));
            let what = format!("{fails}: {phase} of {}", cluster.name());
            status(&world, &what, |status| status["phases"][cluster.name()] == phase).await;
        }
        assert_eq!(world.condition("w").unwrap().0, reason);
    }
}

#[tokio::test(start_paused = true)]
async fn sync_kind_without_a_status_subresource_is_an_error_before_anything_is_written() {
    let mut world = World::with(&["w"]);
    make(&world.team_b, "v", json!({"size": 1}));
    let mut kind = crd();
    kind["spec"]["versions"][0]["subresources"] = json!({});
    world.team_a.update(kind).unwrap();
    world.begin(sync().status(|_, targets: &Targets| phases(targets)));
    let failing = world.fails("has no status subresource").await;
    assert!(failing.retry_at.is_some(), "the kind may change");
    is_there(&world.berlin, "v", 1).await;
    assert_eq!(get(&world.berlin, "w"), None);
    let source = get(&world.team_a, "w").unwrap();
    assert_eq!(source["metadata"]["finalizers"], json!(null));
    // The kind gets the subresource.
    world.team_a.update(crd()).unwrap();
    is_there(&world.berlin, "w", 1).await;
}
