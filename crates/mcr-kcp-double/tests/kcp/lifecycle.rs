use serde_json::{Value, json};

use crate::world::{
    Answer, Watch, Workspace, World, add_type, call, config_map, create, delete, get, merge, names, of_type,
    post, until, waiting, waiting_of, watch, worlds,
};

const CLUSTERS: &str = "/apis/core.kcp.io/v1alpha1/logicalclusters";
const CLUSTER: &str = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// What an event has of one of the lists in the status of a workspace.
async fn next_of(events: &mut Watch, id: &str, list: &str) -> (String, bool, Value, Value) {
    let event = events
        .find(|event| event["object"]["metadata"]["annotations"]["kcp.io/cluster"] == *id)
        .await;
    let object = &event["object"];
    let kind = event["type"].as_str().unwrap().to_owned();
    let deleting = object["metadata"]["deletionTimestamp"].is_string();
    let phase = object["metadata"]["labels"]["tenancy.kcp.io/phase"].clone();
    (kind, deleting, phase, object["status"][list].clone())
}

/// Removes one of a list in the status.
async fn remove(one: &kube::Client, list: &str, index: usize) -> Answer {
    let status = format!("{CLUSTER}/status");
    let patch = json!([{ "op": "remove", "path": format!("/status/{list}/{index}") }]);
    call(one, "PATCH", &status, "application/json-patch+json", "", &patch).await
}

/// Removes the second of a list in three ways, of which `kept` is the first.
async fn remove_second(one: &kube::Client, list: &str, kept: &str) -> [Answer; 3] {
    let status = format!("{CLUSTER}/status");
    let wanted = json!({ "status": { list: [kept] } });
    let whole = json!({
        "apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": { "name": "cluster" },
        "status": { list: [kept] },
    });
    let applied = format!("{status}?fieldManager=test&force=true");
    [
        merge(one, &status, &wanted).await,
        remove(one, list, 1).await,
        call(one, "PATCH", &applied, "application/apply-patch+yaml", "", &whole).await,
    ]
}

/// Two types with both fields, of which `waits-too` extends `waits`, and a workspace of it.
async fn of_two(world: &World, name: &str, field: &str) -> (Workspace, [String; 2], String, String) {
    let (home, first) = of_type(world, name, json!({ field: true })).await;
    let base = json!({ "name": "waits", "path": home.path });
    let second = add_type(world, &home, "waits-too", base, json!({ field: true })).await;
    let (id, at) = waiting_of(world, "both", &home, "waits-too").await;
    (home, [first, second], id, at)
}

#[tokio::test]
async fn a_type_inherits_the_initializers_of_its_base_and_nobody_removes_those_of_others() {
    for world in worlds(1).await {
        let (home, urls, id, at) = of_two(&world, "inherits", "initializer").await;
        let both = ["waits", "waits-too"].map(|name| format!("{}:{name}", home.id));
        let [one, two] = urls.clone().map(|url| world.at(&format!("{url}/clusters/{id}")));
        // kcp has some of its own, for the type `universal` and for bindings.
        until(&one, CLUSTER, |answer| {
            let labels = answer.json["metadata"]["labels"].as_object();
            let ours = labels.into_iter().flat_map(|labels| labels.keys());
            let ours = ours.filter(|key| key.starts_with("initializer.internal.kcp.io/"));
            answer.json["status"]["initializers"] == json!(both) && ours.count() == 2
        })
        .await;

        for answer in remove_second(&one, "initializers", &both[0]).await {
            assert_eq!(answer.code, 422, "{answer:?}");
            let why = format!("only removing the \"{}\" initializer is supported", both[0]);
            assert!(answer.text.replace("\\\"", "\"").contains(&why), "{answer:?}");
            assert_eq!(answer.json["details"]["group"], "tenancy.kcp.io");
        }
        let stale =
            json!({ "metadata": { "resourceVersion": "1" }, "status": { "initializers": [both[1]] } });
        assert_eq!(merge(&one, &format!("{CLUSTER}/status"), &stale).await.code, 409);
        // The lists are compared before the versions.
        let stale = json!({ "metadata": { "resourceVersion": "1" }, "status": { "initializers": [] } });
        assert_eq!(merge(&one, &format!("{CLUSTER}/status"), &stale).await.code, 422);

        let events = [&urls[0], &urls[1]].map(|url| world.at(&format!("{url}/clusters/*")));
        let mut first = watch(&events[0], &format!("{CLUSTERS}?watch=true")).await;
        let mut second = watch(&events[1], &format!("{CLUSTERS}?watch=true")).await;
        let initializing = Value::from("Initializing");
        for events in [&mut first, &mut second] {
            let (kind, _, _, names) = next_of(events, &id, "initializers").await;
            assert_eq!((&*kind, names), ("ADDED", json!(both)));
        }
        let own = remove(&one, "initializers", 0).await;
        assert_eq!(own.code, 200, "{own:?}");
        let rest = json!([both[1]]);
        for kind in ["MODIFIED", "DELETED"] {
            let reported = next_of(&mut first, &id, "initializers").await;
            assert_eq!(
                reported,
                (kind.to_owned(), false, initializing.clone(), rest.clone())
            );
        }
        let (kind, _, _, names) = next_of(&mut second, &id, "initializers").await;
        assert_eq!((&*kind, names), ("MODIFIED", rest));
        let done = remove(&two, "initializers", 0).await;
        assert_eq!(done.code, 200, "{done:?}");
        let root = world.at(&world.url("root"));
        until(&root, &at, |answer| answer.json["status"]["phase"] == "Ready").await;
    }
}

#[tokio::test]
async fn a_deletion_waits_for_all_terminators_but_the_content_does_not() {
    for world in worlds(1).await {
        let (home, urls, id, at) = of_two(&world, "terminators", "terminator").await;
        let root = world.at(&world.url("root"));
        let ready = until(&root, &at, |answer| answer.json["status"]["phase"] == "Ready").await;
        let both = ["waits", "waits-too"].map(|name| format!("{}:{name}", home.id));
        assert_eq!(ready.json["status"]["terminators"], json!(both));
        let inside = world.at(&world.url(&id));
        let mut held = config_map("held");
        held["metadata"]["finalizers"] = json!(["example.io/hold"]);
        create(&inside, MAPS, &held).await;

        let [one, two] = urls.clone().map(|url| world.at(&format!("{url}/clusters/{id}")));
        assert_eq!(get(&one, CLUSTER).await.code, 404);
        assert_eq!(get(&one, MAPS).await.code, 403);
        let all = world.at(&format!("{}/clusters/*", urls[0]));
        let mut events = watch(&all, &format!("{CLUSTERS}?watch=true")).await;
        delete(&root, &at).await;
        let (kind, deleting, phase, names) = next_of(&mut events, &id, "terminators").await;
        assert_eq!(
            (&*kind, deleting, phase, names),
            ("MODIFIED", true, "Ready".into(), json!(both))
        );
        until(&one, CLUSTER, |answer| {
            answer.json["metadata"]["labels"]["tenancy.kcp.io/phase"] == "Terminating"
        })
        .await;
        until(&two, MAPS, |answer| {
            let items = answer.json["items"].as_array().unwrap();
            items.len() == 1 && items[0]["metadata"]["deletionTimestamp"].is_string()
        })
        .await;
        let late = post(&two, MAPS, &config_map("late")).await;
        let why = late.json["message"].as_str().unwrap();
        assert_eq!(late.code, 403, "{late:?}");
        assert!(why.ends_with("because it is being terminated"), "{why}");

        for answer in remove_second(&one, "terminators", &both[0]).await {
            assert_eq!(answer.code, 422, "{answer:?}");
            assert_eq!(answer.json["details"]["group"], "core.kcp.io");
        }
        let own = remove(&one, "terminators", 0).await;
        assert_eq!(own.code, 200, "{own:?}");
        let mut reported;
        loop {
            reported = next_of(&mut events, &id, "terminators").await;
            if reported.3 != json!(both) {
                break;
            }
        }
        assert_eq!((&*reported.0, &reported.3), ("MODIFIED", &json!([both[1]])));
        let left = |reported: &(String, bool, Value, Value)| {
            reported.0 == "DELETED" && reported.3 == json!([both[1]])
        };
        while !left(&reported) {
            reported = next_of(&mut events, &id, "terminators").await;
        }
        until(&one, CLUSTER, |answer| answer.code == 404).await;
        let release = json!({ "metadata": { "finalizers": null } });
        merge(&two, &format!("{MAPS}/held"), &release).await;
        until(&two, CLUSTER, |answer| {
            answer.json["metadata"]["finalizers"] == json!(["kcp.io/has-terminators"])
        })
        .await;
        let late = post(&two, MAPS, &config_map("late")).await;
        let why = "namespaces \"default\" not found";
        assert_eq!((late.code, &late.json["message"]), (404, &why.into()));
        assert_eq!(get(&root, &at).await.json["status"]["phase"], "Terminating");
        let done = remove(&two, "terminators", 0).await;
        assert_eq!(done.code, 200, "{done:?}");
        until(&root, &at, |answer| answer.code == 404).await;
    }
}

#[tokio::test]
async fn a_type_that_is_deleted_leaves_its_workspaces_and_closes_their_content() {
    for world in worlds(1).await {
        let (home, url) = of_type(&world, "orphans", json!({ "initializer": true })).await;
        let (id, _) = waiting(&world, "one", &home).await;
        let one = world.at(&format!("{url}/clusters/{id}"));
        let own = json!([format!("{}:waits", home.id)]);
        until(&one, CLUSTER, |answer| {
            answer.json["status"]["initializers"] == own
        })
        .await;
        let at = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes/waits";
        assert_eq!(delete(&home.client, at).await.code, 200);
        let content = until(&one, MAPS, |answer| answer.code == 503).await;
        assert!(content.text.contains("WorkspaceType not found"), "{content:?}");
        let all = world.at(&format!("{url}/clusters/*"));
        assert_eq!(names(&get(&all, CLUSTERS).await), ["cluster"]);
        let done = remove(&one, "initializers", 0).await;
        assert_eq!(done.code, 200, "{done:?}");
        until(&one, CLUSTER, |answer| answer.code == 404).await;
    }
}
