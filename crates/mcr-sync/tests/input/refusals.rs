//! Target clusters that refuse objects: schemas, webhooks, namespaces that end.

use crate::world::widgets::*;

fn most(cluster: &SimCluster, most: u64) {
    schema(cluster, |spec| {
        spec["properties"]["size"]["maximum"] = most.into()
    });
}

#[tokio::test(start_paused = true)]
async fn sync_target_that_its_schema_refuses_is_told_with_the_words_of_the_server() {
    let mut world = World::with(&["w"]);
    // The source cluster allows more than the target cluster.
    most(&world.team_a, 1000);
    make(&world.team_a, "new", json!({"size": 11}));
    world.begin(sync());
    is_there(&world.berlin, "w", 1).await;
    world.size("w", 12);
    for (source, verb) in [("new", "create"), ("w", "update")] {
        let words = format!("could not {verb} cluster://berlin/default/{source}: ");
        let failure = world.fails(&words).await;
        has(&failure.error, &["should be less than or equal to 10"]);
        // The schema may change without an event, so it is tried again.
        assert!(failure.retry_at.is_some(), "{failure:?}");
        let message = world.told(source, "RequestFailed", "spec.size").await;
        assert!(message.starts_with(&words), "{message}");
    }
    make(&world.team_a, "well", json!({"size": 2}));
    is_there(&world.berlin, "well", 2).await;
    assert_eq!(get(&world.berlin, "w").unwrap()["spec"]["size"], 1);
    // One source is mended, and the schema for the other.
    world.size("w", 3);
    is_there(&world.berlin, "w", 3).await;
    most(&world.berlin, 20);
    is_there(&world.berlin, "new", 11).await;
    world.synced("new").await;
}

#[tokio::test(start_paused = true)]
async fn sync_refusal_of_an_admission_webhook_is_told_and_tried_later_and_later() {
    let world = World::of(&["first"], to_each()).await;
    let webhook = || world.berlin_gate.now();
    let kinds = [
        (400, "BadRequest"),
        (403, "Forbidden"),
        (500, "InternalError"),
        (422, "Invalid"),
    ];
    for (code, reason) in kinds {
        let source = format!("w{code}");
        webhook().refuses = Some((source.clone(), code, reason));
        webhook().refused.clear();
        let told = requests(&world.team_a, "patch")[1];
        make(&world.team_a, &source, json!({"size": 1}));
        let words = format!("could not create cluster://berlin/default/{source}: ");
        let message = world.told(&source, "RequestFailed", &words).await;
        has(
            &message,
            &["admission webhook \"sizes.example.com\" denied the request: no budget"],
        );
        assert!(!message.contains("Grant"), "{message}");
        // The words are other ones each time, and stay for a minute.
        sleep(secs(30)).await;
        let (attempts, told) = (
            webhook().refused.len(),
            requests(&world.team_a, "patch")[1] - told,
        );
        assert!(
            (5..30).contains(&attempts) && told <= 2,
            "{attempts} attempts, told {told} times"
        );
        let well = format!("well-{source}");
        make(&world.team_a, &well, json!({"size": 1}));
        for (cluster, source) in [
            (&world.berlin, &well),
            (&world.lyon, &well),
            (&world.lyon, &source),
        ] {
            is_there(cluster, source, 1).await;
        }
        until("twelve refusals", || webhook().refused.len() >= 12).await;
        let times = webhook().refused.clone();
        let pause = |at: usize| times[at] - times[at - 1];
        assert!(pause(11) > 2 * pause(9) && pause(11) > secs(1), "{times:?}");
        webhook().refuses = None;
        is_there(&world.berlin, &source, 1).await;
        world.synced(&source).await;
    }
}

#[tokio::test(start_paused = true)]
async fn sync_namespace_that_ends_is_told_and_made_anew_and_others_are_synced() {
    let mut world = World::with(&[]);
    for (namespace, source) in [("ends", "ends/w"), ("stays", "stays/w")] {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        world.berlin.create(object.clone()).unwrap();
        world.team_a.create(object).unwrap();
        make(&world.team_a, source, json!({"size": 1}));
    }
    world.berlin.delete("namespaces", "ends").unwrap();
    world.begin(sync());
    is_there(&world.berlin, "stays/w", 1).await;
    let failure = world.fails("could not create cluster://berlin/ends/w: ").await;
    has(&failure.error, &["namespace ends because it is being terminated"]);
    assert!(failure.retry_at.is_some(), "{failure:?}");
    world.told("ends/w", "RequestFailed", "being terminated").await;
    world.size("stays/w", 2);
    is_there(&world.berlin, "stays/w", 2).await;

    // As kube-controller-manager does when the namespace is empty.
    let mut ends = world.berlin.get("namespaces", "ends").unwrap();
    ends["spec"]["finalizers"] = json!([]);
    let request = http::Request::put("/api/v1/namespaces/ends/finalize").body(ends.to_string().into_bytes());
    world
        .berlin
        .client()
        .request::<Value>(request.unwrap())
        .await
        .unwrap();
    is_there(&world.berlin, "ends/w", 1).await;
    assert_eq!(
        world.berlin.get("namespaces", "ends").unwrap()["status"]["phase"],
        "Active"
    );
    delete(&world.team_a, "ends/w");
    is_gone(&world.team_a, "ends/w").await;
}
