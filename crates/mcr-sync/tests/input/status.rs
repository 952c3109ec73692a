//! Status that comes up: with conditions, and while a place fails.

use kube::core::DynamicObject;
use mcr::{BoxError, ClusterName, ClusterSelector};
use mcr_testkit::{sim::SimCluster, waiting::eventually};
use serde_json::{Map, Value, json};

use crate::world::{LIMIT, WIDGETS, World, allow, is_there, name, spec_of, sync, widget};

type Targets = [(ClusterName, DynamicObject)];

fn set_status(cluster: &SimCluster, status: Value) {
    let mut target = cluster.get(WIDGETS, "default/w").unwrap();
    target["status"] = status;
    cluster.restore(target).unwrap();
}

async fn source(world: &World, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    let found = || {
        world
            .team
            .get(WIDGETS, "default/w")
            .filter(|source| is_it(&source["status"]))
    };
    eventually(LIMIT, what, found).await["status"].take()
}

/// The types and states of the conditions, in their order.
fn states(status: &Value) -> Vec<String> {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions
        .map(|one| {
            format!(
                "{}={}",
                one["type"].as_str().unwrap(),
                one["status"].as_str().unwrap()
            )
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn sync_conditions_of_the_status_function_come_first_and_stay_beside_that_of_the_sync() {
    let mut world = World::new();
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    world.start(sync().status(|_, targets: &Targets| targets[0].1.data["status"].clone()));
    is_there(&world.berlin, "default/w", 1).await;
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let is = async |wanted: &[&str]| {
        source(&world, &format!("{wanted:?}"), |status| states(status) == wanted).await
    };
    let synced = is(&["Synced=True"]).await["conditions"][0].take();
    for (theirs, wanted) in [
        (
            json!([condition("Ready", "True"), condition("Scaled", "False")]),
            &["Ready=True", "Scaled=False", "Synced=True"][..],
        ),
        (
            json!([condition("Ready", "False")]),
            &["Ready=False", "Synced=True"],
        ),
        // The target has a sync of its own. The condition of this type is about this sync.
        (
            json!([condition("Synced", "False"), condition("Ready", "True")]),
            &["Synced=True", "Ready=True"],
        ),
        (json!([]), &["Synced=True"]),
        (
            json!([condition("Ready", "True")]),
            &["Ready=True", "Synced=True"],
        ),
    ] {
        set_status(&world.berlin, json!({"phase": "up", "conditions": theirs}));
        let status = is(wanted).await;
        let own = status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["type"] == "Synced");
        assert_eq!(own, Some(&synced), "it is not touched");
    }
    // They stay while a function fails or the cluster is away.
    world.clusters.remove("berlin");
    is(&["Ready=True", "Synced=False"]).await;
    world.stop().await;
}

/// The phases of all targets.
fn phases(targets: &Targets) -> Value {
    let phase = |(cluster, target): &(ClusterName, DynamicObject)| {
        (cluster.to_string(), target.data["status"]["phase"].clone())
    };
    json!({"phases": targets.iter().map(phase).collect::<Map<_, _>>()})
}

#[tokio::test(start_paused = true)]
async fn sync_status_of_all_targets_comes_up_while_one_place_fails() {
    // What fails: a write to one target cluster, the projection for all, and the mutation for one.
    for fails in ["write", "projection", "mutation"] {
        let mut world = World::new();
        world
            .team
            .create(widget("default", "w", json!({"size": 1})))
            .unwrap();
        let to_fail = |target: &DynamicObject, what: &str| match target.data["spec"]["fails"] == what {
            true => Err(BoxError::from("it fails")),
            false => Ok(()),
        };
        world.start(
            sync()
                .to_each(ClusterSelector::label("role", "target"))
                .try_project(move |source, _| to_fail(source, "projection").map(|()| spec_of(source)))
                .try_mutate(move |target, _, _, to| match *to.name() == name("berlin") {
                    true => to_fail(target, "mutation"),
                    false => Ok(()),
                })
                .status(|_, targets: &Targets| phases(targets)),
        );
        is_there(&world.berlin, "default/w", 1).await;
        is_there(&world.lyon, "default/w", 1).await;
        world.told("w", "Synced").await;
        if fails == "write" {
            allow(&world.berlin, &["get", "list", "watch"]);
        }
        world.edit("w", json!({"size": 2, "fails": fails}));
        let reason = if fails == "write" {
            "RequestFailed"
        } else {
            "FunctionFailed"
        };
        world.told("w", reason).await;
        for (cluster, phase) in [(&world.lyon, "Failed"), (&world.berlin, "Stopped")] {
            set_status(cluster, json!({"phase": phase}));
            let name = cluster.name();
            source(&world, &format!("{fails}: {phase} of {name}"), |status| {
                status["phases"][name] == phase
            })
            .await;
        }
        assert_eq!(world.condition("w").unwrap().0, reason);
        world.stop().await;
    }
}
