//! Clusters that do not take an object: it is reported in words and tried later and later, and others are not held.

use mcr_sync::TargetNamespace;

use crate::world::{gate::WEBHOOK, widgets::*};

const CREATE: &str = "could not create cluster://berlin/default/w: ";
const GRANT: &str = ". Grant this verb to the credentials of the cluster; it is tried again";

/// Waits until the failure of a source was repeated, with longer and longer pauses.
async fn is_tried_later_and_later(world: &World, source: &str) {
    let is_it = |least| move |it: &FailingRequest| it.object.ends_with(source) && it.attempt >= least;
    let mut pauses = Vec::new();
    for least in [6, 8, 10] {
        let begun = Instant::now();
        let failing = || world.failing().into_iter().find(is_it(least));
        until(format!("attempt {least}"), failing).await;
        pauses.push(begun.elapsed());
    }
    assert!(pauses[2] > 2 * pauses[1] && pauses[2] > secs(1), "{pauses:?}");
}

/// `berlin` does not take a source until that is mended, and may take others.
async fn is_reported(
    source: &str,
    takes_others: bool,
    broken: impl Fn(&World),
    (reason, words): (&str, &[&str]),
    mended: impl Fn(&World),
) {
    let mut world = World::with(&[]);
    world.team_b.delete(CRDS, WIDGETS).unwrap();
    broken(&world);
    make(&world.team_a, source, json!({"size": 1}));
    world.begin(to_each());
    is_there(&world.lyon, source, 1).await;
    let message = world.reported(source, reason, "").await;
    has(&message, words);
    assert_eq!(message.contains("Grant"), words.contains(&GRANT), "{message}");
    // Some words are other ones each time, and stay for a minute.
    let reported = count(&world.team_a, "patch");
    match reason {
        "RequestFailed" | "NameTaken" => is_tried_later_and_later(&world, source).await,
        _ => sleep(secs(30)).await,
    }
    assert!(count(&world.team_a, "patch") - reported <= 1);
    make(&world.team_a, "well", json!({"size": 0}));
    is_there(&world.lyon, "well", 0).await;
    if takes_others {
        is_there(&world.berlin, "well", 0).await;
    }
    world.size(source, 2);
    is_there(&world.lyon, source, 2).await;
    assert_eq!(get(&world.berlin, source), None);
    mended(&world);
    is_there(&world.berlin, source, 2).await;
    world.synced(source).await;
    // A source cluster has not served the kind all the time.
    world.team_b.create(crd()).unwrap();
    make(&world.team_b, "late", json!({"size": 1}));
    is_there(&world.berlin, "late", 1).await;
    world.ends(source).await;
}

#[tokio::test(start_paused = true)]
async fn sync_kind_that_a_target_cluster_does_not_serve_is_reported_and_synced_when_it_does() {
    let broken = |world: &World| world.berlin.delete(CRDS, WIDGETS).unwrap();
    let words = "the state of default/w in cluster berlin is not known, because its kind can't be listed there: \
        the API server does not serve this kind (404). Install its CRD, or check group, version and plural";
    let mended = |world: &World| drop(world.berlin.create(crd()).unwrap());
    is_reported("w", false, broken, ("NotListed", &[words]), mended).await;
}

#[tokio::test(start_paused = true)]
async fn sync_refusal_of_an_admission_webhook_is_reported_and_tried_later_and_later() {
    for (code, reason) in [(403, "Forbidden"), (500, "InternalError")] {
        let reported = [CREATE, WEBHOOK];
        let broken = |world: &World| world.berlin_gate.now().refuses = Some(("w", code, reason));
        let mended = |world: &World| world.berlin_gate.now().refuses = None;
        is_reported("w", true, broken, ("RequestFailed", &reported), mended).await;
    }
}

#[tokio::test(start_paused = true)]
async fn sync_target_that_its_schema_refuses_is_reported_with_the_words_of_the_server() {
    let words = [CREATE, "spec.size", "should be less than or equal to 0"];
    let broken = |world: &World| schema(&world.berlin, sized(0));
    let mended = |world: &World| schema(&world.berlin, sized(10));
    is_reported("w", true, broken, ("RequestFailed", &words), mended).await;
    // It is mended in the source.
    let world = World::of(&["w"], sync()).await;
    schema(&world.team_a, sized(1000));
    world.size("w", 12);
    let words = "could not update cluster://berlin/default/w: ";
    world.reported("w", "RequestFailed", words).await;
    assert_eq!(get(&world.berlin, "w").unwrap()["spec"]["size"], 1);
    world.size("w", 3);
    is_there(&world.berlin, "w", 3).await;
}

/// Ends the deletion of a namespace, as kube-controller-manager does when it is empty.
fn finalize(cluster: &SimCluster, name: &str) {
    let mut namespace = cluster.get("namespaces", name).unwrap();
    namespace["spec"]["finalizers"] = json!([]);
    let request = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"));
    let request = request.body(namespace.to_string().into_bytes()).unwrap();
    let client = cluster.client();
    tokio::spawn(async move { client.request::<Value>(request).await.unwrap() });
}

#[tokio::test(start_paused = true)]
async fn sync_namespace_that_ends_is_reported_and_made_anew_and_others_are_synced() {
    let broken = |world: &World| {
        for cluster in [&world.team_a, &world.berlin] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ends"}});
            cluster.create(namespace).unwrap();
        }
        world.berlin.delete("namespaces", "ends").unwrap();
    };
    let mended = |world: &World| finalize(&world.berlin, "ends");
    let words = [
        "could not create cluster://berlin/ends/w: ",
        "it is being terminated",
    ];
    is_reported("ends/w", true, broken, ("RequestFailed", &words), mended).await;
}

#[tokio::test(start_paused = true)]
async fn sync_name_of_an_object_that_the_server_does_not_show_is_reported_as_taken() {
    let broken = |world: &World| world.berlin_gate.now().refuses = Some(("w", 409, "AlreadyExists"));
    let mended = |world: &World| world.berlin_gate.now().refuses = None;
    let words = "an object that these credentials may not see has the name cluster://berlin/default/w; rename or delete it";
    is_reported("w", true, broken, ("NameTaken", &[words]), mended).await;
}

#[tokio::test(start_paused = true)]
async fn sync_namespace_that_somebody_deletes_again_and_again_is_made_once_a_minute() {
    let mut world = World::with(&["w"]);
    world.begin(sync().namespace(TargetNamespace::Fixed("dbs".to_owned())));
    is_there(&world.berlin, "dbs/w", 1).await;
    for _ in 0..10 {
        if world.berlin.get("namespaces", "dbs").is_some() {
            world.berlin.delete("namespaces", "dbs").unwrap();
            world.berlin.delete(WIDGETS, "dbs/w").ok();
            finalize(&world.berlin, "dbs");
        }
        sleep(secs(5)).await;
    }
    let audit = world.berlin.audit();
    let made = audit.count(|it| (&*it.verb, &*it.resource) == ("create", "namespaces"));
    assert!(made <= 2, "{made} times");
    is_there(&world.berlin, "dbs/w", 1).await;
}

#[tokio::test(start_paused = true)]
async fn sync_target_cluster_without_the_right_to_create_is_reported_and_others_are_served() {
    let broken = |world: &World| allow(&world.berlin, &["get", "list", "watch", "patch", "delete"]);
    let mended = |world: &World| allow(&world.berlin, &["*"]);
    let words = [CREATE, "cannot create resource \"widgets\"", GRANT];
    is_reported("w", false, broken, ("RequestFailed", &words), mended).await;
}

#[tokio::test(start_paused = true)]
async fn sync_source_cluster_without_the_right_to_patch_holds_no_other() {
    // What is allowed, what is reported, and whether targets are made.
    let read = &["get", "list", "watch"][..];
    for (resource, verbs, reported, right, is_made) in [
        ("*", read, "update", "\"widgets\"", false),
        (
            "widgets",
            &["*"],
            "update the status of",
            "\"widgets/status\"",
            true,
        ),
    ] {
        let mut world = World::with(&["w"]);
        make(&world.team_b, "well", json!({"size": 1}));
        allow_each(&world.team_a, &[(resource, verbs)]);
        world.begin(sync());
        is_there(&world.berlin, "well", 1).await;
        is_tried_later_and_later(&world, "default/w").await;
        let reported = format!("could not {reported} cluster://team-a/default/w: ");
        let failure = world.fails(&reported).await;
        has(
            &failure.error,
            &["User \"admin\" cannot patch resource ", right, GRANT],
        );
        world.size("w", 2);
        if is_made {
            is_there(&world.berlin, "w", 2).await;
        }
        // Nothing is asked of the target cluster before the finalizer is written.
        assert_eq!(world.berlin.audit().count(|event| event.name == "w") > 0, is_made);
        // The events are refused too.
        let is_refused = |event: &SimAuditEvent| event.resource.starts_with("events") && event.code == 403;
        assert!(world.team_a.audit().count(is_refused) > 0);
        allow(&world.team_a, &["*"]);
        is_there(&world.berlin, "w", 2).await;
        world.synced("w").await;
    }
}
