//! `progressive-rollout`. The tests take the part of the Deployment controllers.

use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, CustomResourceExt,
    api::{Patch, PatchParams},
};
use mcr::Manager;
use mcr_testkit::sim::SimCluster;
use serde_json::{Value, json};

use crate::{
    progressive_rollout::{api::Rollout, controller},
    world::{Place, Running, World},
};

const ROLLOUTS: &str = "rollouts.fleet.example.com";
const DEPLOYMENTS: &str = "deployments.apps";

fn crd() -> Value {
    let mut crd = serde_json::to_value(Rollout::crd()).unwrap();
    crd["apiVersion"] = "apiextensions.k8s.io/v1".into();
    crd["kind"] = "CustomResourceDefinition".into();
    crd
}

/// The spec of a Deployment.
fn deployment(image: &str) -> Value {
    json!({
        "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": image}]},
        },
    })
}

fn rollout() -> Value {
    json!({
        "apiVersion": "fleet.example.com/v1", "kind": "Rollout",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "template": {"spec": deployment("web:1")},
            "waves": [
                {"name": "canary", "selector": {"matchLabels": {"tier": "canary"}}},
                {"name": "rest", "selector": {"matchLabels": {"tier": "prod"}}},
            ],
        },
    })
}

/// The canary is eu, us is the rest.
async fn world() -> World {
    let world = World::start().await;
    world.label(&world.eu, "canary");
    world.hub.put(crd());
    world
}

fn run(world: &World) -> Running {
    world.run(Manager::builder().controller(controller()))
}

/// A world in which the first version is complete.
async fn complete() -> (World, Running) {
    let world = world().await;
    world.hub.put(rollout());
    let running = run(&world);
    for place in [&world.eu, &world.us] {
        has(place, "web:1").await;
        becomes_healthy(place).await;
    }
    is(&world, "Complete").await;
    (world, running)
}

/// Changes the spec, as a user does.
fn edit(world: &World, change: impl FnOnce(&mut Value)) {
    let mut rollout = world.hub.get(ROLLOUTS, "default/web").unwrap();
    change(&mut rollout["spec"]);
    rollout["metadata"]["resourceVersion"] = Value::Null;
    world.hub.cluster.update(rollout).unwrap();
}

fn set_image(world: &World, image: &str) {
    edit(world, |spec| spec["template"]["spec"] = deployment(image));
}

fn image(cluster: &SimCluster) -> Option<String> {
    let found = cluster.get(DEPLOYMENTS, "default/web")?;
    let image = &found["spec"]["template"]["spec"]["containers"][0]["image"];
    Some(image.as_str()?.to_owned())
}

/// Waits until a cluster has a version.
async fn has(place: &Place, wanted: &str) {
    let what = format!("{wanted} in {}", place.cluster.name());
    place
        .has(&what, |cluster| (image(cluster)? == wanted).then_some(()))
        .await;
}

async fn set_status(place: &Place, mut status: Value) {
    let found = place.get(DEPLOYMENTS, "default/web").unwrap();
    status["observedGeneration"] = found["metadata"]["generation"].clone();
    let deployments = Api::<Deployment>::namespaced(place.cluster.client(), "default");
    let patch = Patch::Merge(json!({"status": status}));
    deployments
        .patch_status("web", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// All replicas but `missing` are updated and available.
async fn becomes(place: &Place, missing: i32) {
    let replicas = 2 - missing;
    let conditions = json!([{"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated"}]);
    let status = json!({"replicas": 2, "updatedReplicas": replicas, "availableReplicas": replicas, "conditions": conditions});
    set_status(place, status).await;
}

async fn becomes_healthy(place: &Place) {
    becomes(place, 0).await;
}

async fn fails(place: &Place) {
    let condition = json!({
        "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "no image",
    });
    set_status(
        place,
        json!({"replicas": 2, "updatedReplicas": 1, "conditions": [condition]}),
    )
    .await;
}

/// Waits for a status of the Rollout, which is about its newest spec.
async fn has_status(world: &World, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let status = |hub: &SimCluster| {
        let found = hub.get(ROLLOUTS, "default/web")?;
        let newest = found["status"]["observedGeneration"] == found["metadata"]["generation"];
        (newest && wanted(&found["status"])).then(|| found["status"].clone())
    };
    world.hub.has(what, status).await
}

async fn is(world: &World, phase: &str) -> Value {
    has_status(world, phase, |status| status["phase"] == phase).await
}

/// Waits until the status names a cluster in this state, with this in the message.
async fn names(world: &World, cluster: &str, state: &str, message: &str) -> Value {
    let what = format!("{cluster} is {state}: {message}");
    has_status(world, &what, |status| {
        let mut named = status["clusters"].as_array().unwrap().iter();
        named.any(|entry| {
            let text = entry["message"].as_str().unwrap();
            entry["name"] == cluster && entry["state"] == state && text.contains(message)
        })
    })
    .await
}

fn count(place: &Place, verb: &str) -> usize {
    let audit = place.cluster.audit();
    audit.count(|event| event.verb == verb && event.resource == "deployments" && event.subresource.is_empty())
}

/// With `MCR_UPDATE_SNAPSHOTS=1` writes the manifest instead of comparing it.
#[test]
fn the_manifest_of_the_crd_of_rollouts_is_that_of_the_type() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/progressive-rollout/rollout-crd.yaml");
    let yaml = serde_saphyr::to_string(&crd()).unwrap();
    if std::env::var_os("MCR_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &yaml).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, yaml, "update it with MCR_UPDATE_SNAPSHOTS=1");
}

#[tokio::test]
async fn rollout_gives_a_version_to_one_wave_after_the_other_and_soaks() {
    let world = world().await;
    let mut rollout = rollout();
    rollout["spec"]["waves"][0]["soakSeconds"] = 1.into();
    world.hub.put(rollout);
    let running = run(&world);
    has(&world.eu, "web:1").await;
    // The gate holds while the canary is on its way, and while it soaks.
    becomes(&world.eu, 1).await;
    let status = names(&world, "eu", "Updating", "1 of 2 replicas").await;
    assert_eq!(status["waves"][1]["state"], "Pending");
    assert_eq!(image(&world.us.cluster), None);
    becomes_healthy(&world.eu).await;
    let status = has_status(&world, "it soaks", |status| {
        status["waves"][0]["state"] == "Soaking"
    })
    .await;
    assert_eq!(
        (&status["phase"], &status["waves"][1]["updated"]),
        (&json!("Progressing"), &json!(0))
    );
    has(&world.us, "web:1").await;
    becomes_healthy(&world.us).await;
    let status = is(&world, "Complete").await;
    let ready = &status["conditions"][0];
    assert_eq!(
        (&ready["type"], &ready["status"]),
        (&json!("Ready"), &json!("True"))
    );
    assert_eq!(running.errors(), 0);
    assert_eq!((count(&world.eu, "patch"), count(&world.us, "patch")), (1, 1));
    running.stop().await;
}

#[tokio::test]
async fn rollout_stops_at_a_failure_and_goes_on_with_another_version() {
    let (world, running) = complete().await;
    set_image(&world, "web:2");
    has(&world.eu, "web:2").await;
    fails(&world.eu).await;
    names(&world, "eu", "Failed", "no image").await;
    let status = is(&world, "Failed").await;
    assert_eq!(status["conditions"][1]["message"], "eu: no image");
    set_image(&world, "web:3");
    has(&world.eu, "web:3").await;
    assert_eq!(image(&world.us.cluster).unwrap(), "web:1");
    becomes_healthy(&world.eu).await;
    has(&world.us, "web:3").await;
    becomes_healthy(&world.us).await;
    is(&world, "Complete").await;
    running.stop().await;
}

#[tokio::test]
async fn rollout_leaves_the_deployments_of_others_alone_until_they_are_handed_over() {
    let world = world().await;
    let metadata = json!({"name": "web", "namespace": "default"});
    let foreign = |metadata: Value| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": deployment("mine")});
    world.eu.put(foreign(metadata.clone()));
    world.hub.put(rollout());
    let running = run(&world);
    names(
        &world,
        "eu",
        "Failed",
        "app.kubernetes.io/managed-by=progressive-rollout",
    )
    .await;
    assert_eq!(image(&world.eu.cluster).unwrap(), "mine");
    let mut metadata = metadata;
    metadata["labels"] = json!({"app.kubernetes.io/managed-by": "progressive-rollout"});
    world.eu.put(foreign(metadata));
    set_image(&world, "web:2");
    has(&world.eu, "web:2").await;
    running.stop().await;
}

#[tokio::test]
async fn rollout_that_is_deleted_takes_its_deployments_and_no_others() {
    let (world, running) = complete().await;
    let late = Place::start("late").await;
    let metadata = json!({"name": "web", "namespace": "default"});
    late.put(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": deployment("mine")}));
    world.label(&late, "none");
    let listed = |late: &SimCluster| {
        (late.audit().count(|event| event.is_watch_start("deployments")) > 0).then_some(())
    };
    late.has("a list of Deployments", listed).await;
    // A cluster that no wave selects any more keeps its Deployment until then.
    world.unlabel(&world.us);
    has_status(&world, "no cluster", |status| status["waves"][1]["clusters"] == 0).await;
    world.hub.cluster.delete(ROLLOUTS, "default/web").unwrap();
    world.hub.loses(ROLLOUTS, "default/web").await;
    for place in [&world.eu, &world.us] {
        assert_eq!((image(&place.cluster), count(place, "delete")), (None, 1));
    }
    assert_eq!(
        (image(&late.cluster).as_deref(), count(&late, "delete")),
        (Some("mine"), 0)
    );
    running.stop().await;
}

/// Without its clusters a wave looks empty, and the next one would begin.
#[tokio::test]
async fn rollout_waits_until_the_clusters_are_known() {
    let world = World::start_undiscovered().await;
    world.label(&world.eu, "canary");
    world.hub.put(crd());
    world.hub.put(rollout());
    world.eu.slow("deployments").await;
    let running = run(&world);
    running.succeeds(1).await;
    let rollout = world.hub.get(ROLLOUTS, "default/web").unwrap();
    assert_eq!(
        (&rollout["status"], &rollout["metadata"]["finalizers"]),
        (&Value::Null, &Value::Null)
    );
    world.discover();
    has(&world.eu, "web:1").await;
    becomes(&world.eu, 1).await;
    names(&world, "eu", "Updating", "1 of 2 replicas").await;
    assert_eq!(image(&world.us.cluster), None);
    running.stop().await;
}
