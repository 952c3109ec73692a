//! Target clusters that refuse objects: schemas, webhooks, namespaces that end.

use std::time::Duration;

use mcr::ClusterSelector;
use mcr_testkit::waiting::eventually;
use serde_json::json;

use crate::{
    gate::Gate,
    world::{LIMIT, WIDGETS, World, is_gone, is_there, sync, widget},
};

#[tokio::test(start_paused = true)]
async fn sync_target_that_its_schema_refuses_is_told_with_the_words_of_the_server() {
    let mut world = World::without_kind();
    for cluster in [&world.other, &world.berlin, &world.lyon] {
        cluster.create(crate::world::crd()).unwrap();
    }
    // The source cluster allows more than the target cluster.
    let mut wide = crate::world::crd();
    let schema = &mut wide["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"]["size"]["maximum"] = 1000.into();
    world.team.create(wide).unwrap();
    world
        .team
        .create(widget("default", "new", json!({"size": 11})))
        .unwrap();
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    world.start(sync());
    is_there(&world.berlin, "default/w", 1).await;
    world.edit("w", json!({"size": 12}));
    for (source, verb) in [("new", "create"), ("w", "update")] {
        let words = format!("could not {verb} cluster://berlin/default/{source}: ");
        let failure = world.fails_with(&words).await;
        assert!(
            failure.error.contains("should be less than or equal to 10"),
            "{failure:?}"
        );
        // The schema may change without an event, so it is tried again.
        assert!(failure.retry_at.is_some(), "{failure:?}");
        let message = world.told(source, "RequestFailed").await;
        assert!(
            message.starts_with(&words) && message.contains("spec.size"),
            "{message}"
        );
    }
    world
        .team
        .create(widget("default", "well", json!({"size": 2})))
        .unwrap();
    is_there(&world.berlin, "default/well", 2).await;
    assert_eq!(world.berlin.get(WIDGETS, "default/w").unwrap()["spec"]["size"], 1);

    // One source is mended, and the schema for the other.
    world.edit("w", json!({"size": 3}));
    is_there(&world.berlin, "default/w", 3).await;
    let mut crd = world
        .berlin
        .get("customresourcedefinitions.apiextensions.k8s.io", WIDGETS)
        .unwrap();
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"]["size"]["maximum"] = 20.into();
    world.berlin.update(crd).unwrap();
    is_there(&world.berlin, "default/new", 11).await;
    world.told("new", "Synced").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_refusal_of_an_admission_webhook_is_told_and_tried_later_and_later() {
    let mut world = World::new();
    let webhook = Gate::default();
    let berlin = webhook.before(&world.berlin, "target");
    world.start_with(
        sync()
            .to_each(ClusterSelector::label("role", "target"))
            .build()
            .unwrap(),
        [berlin],
    );
    for (source, code, reason) in [
        ("a", 400, "BadRequest"),
        ("b", 403, "Forbidden"),
        ("c", 500, "InternalError"),
        ("d", 422, "Invalid"),
    ] {
        webhook.refuse(source, code, reason);
        world
            .team
            .create(widget("default", source, json!({"size": 1})))
            .unwrap();
        let message = world.told(source, "RequestFailed").await;
        for words in [
            &*format!("could not create cluster://berlin/default/{source}: "),
            "admission webhook \"sizes.example.com\" denied the request: the team has no budget",
        ] {
            assert!(message.contains(words), "{message}");
        }
        assert!(!message.contains("Grant"), "{message}");
        let well = format!("well-{source}");
        world
            .team
            .create(widget("default", &well, json!({"size": 1})))
            .unwrap();
        for cluster in [&world.berlin, &world.lyon] {
            is_there(cluster, &format!("default/{well}"), 1).await;
        }
        is_there(&world.lyon, &format!("default/{source}"), 1).await;
        let refused = || Some(webhook.refused()).filter(|times| times.len() >= 12);
        let times = eventually(LIMIT, "twelve refusals", refused).await;
        let pause = |at: usize| times[at] - times[at - 1];
        assert!(
            pause(11) > 2 * pause(9) && pause(11) > Duration::from_secs(1),
            "{times:?}"
        );
        webhook.allow();
        is_there(&world.berlin, &format!("default/{source}"), 1).await;
        world.told(source, "Synced").await;
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_error_with_other_words_each_time_is_told_once_and_tried_later_and_later() {
    let mut world = World::new();
    let webhook = Gate::default();
    let berlin = webhook.before(&world.berlin, "target");
    world.start_with(sync().build().unwrap(), [berlin]);
    webhook.refuse("w", 500, "InternalError");
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    world.told("w", "RequestFailed").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let attempts = webhook.refused().len();
    assert!((5..30).contains(&attempts), "{attempts} attempts");
    let told = || {
        let is_patch = |verb: &str| verb == "patch";
        let audit = world.team.audit();
        audit.count(|event| is_patch(&event.verb) && event.resource.ends_with("/status"))
    };
    assert!(told() <= 2, "the words stay for a minute");
    webhook.allow();
    world.told("w", "Synced").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_namespace_that_ends_is_told_and_made_anew_and_others_are_synced() {
    let mut world = World::new();
    for namespace in ["ends", "stays"] {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        world.team.create(object.clone()).unwrap();
        world.berlin.create(object).unwrap();
    }
    world.berlin.delete("namespaces", "ends").unwrap();
    for namespace in ["ends", "stays"] {
        world
            .team
            .create(widget(namespace, "w", json!({"size": 1})))
            .unwrap();
    }
    world.start(sync());
    is_there(&world.berlin, "stays/w", 1).await;
    let failure = world
        .fails_with("could not create cluster://berlin/ends/w: ")
        .await;
    assert!(
        failure
            .error
            .contains("namespace ends because it is being terminated"),
        "{failure:?}"
    );
    assert!(failure.retry_at.is_some(), "{failure:?}");
    let condition = || {
        let found = world.team.get(WIDGETS, "ends/w")?["status"]["conditions"][0].clone();
        (found["reason"] == "RequestFailed").then_some(found)
    };
    let condition = eventually(LIMIT, "the condition", condition).await;
    assert!(
        condition["message"]
            .as_str()
            .unwrap()
            .contains("being terminated"),
        "{condition}"
    );
    let mut stays = world.team.get(WIDGETS, "stays/w").unwrap();
    stays["spec"]["size"] = 2.into();
    world.team.update(stays).unwrap();
    is_there(&world.berlin, "stays/w", 2).await;

    // As kube-controller-manager does when the namespace is empty.
    let mut ends = world.berlin.get("namespaces", "ends").unwrap();
    ends["spec"]["finalizers"] = json!([]);
    let request =
        http::Request::put("/api/v1/namespaces/ends/finalize").body(serde_json::to_vec(&ends).unwrap());
    world
        .berlin
        .client()
        .request::<serde_json::Value>(request.unwrap())
        .await
        .unwrap();
    is_there(&world.berlin, "ends/w", 1).await;
    assert_eq!(
        world.berlin.get("namespaces", "ends").unwrap()["status"]["phase"],
        "Active"
    );
    world.team.delete(WIDGETS, "ends/w").unwrap();
    is_gone(&world.team, "ends/w").await;
    world.stop().await;
}
