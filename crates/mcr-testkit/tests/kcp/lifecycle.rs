use serde_json::json;

use crate::world::{
    Workspace, World, config_map, create, delete, get, merge, names, on_shard, post, until, watch, worlds,
};

const CLUSTERS: &str = "/apis/core.kcp.io/v1alpha1/logicalclusters";
const CLUSTER: &str = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TYPES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes";

/// A type with this field set, and the URL of its virtual workspace.
async fn of_type(world: &World, name: &str, fields: serde_json::Value) -> (Workspace, String) {
    let home = world.workspace(name).await;
    let mut spec = fields;
    spec["extend"] = json!({ "with": [{ "name": "universal", "path": "root" }] });
    let stage = if spec["initializer"] == true {
        "initializing"
    } else {
        "terminating"
    };
    let object = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": { "name": "waits" }, "spec": spec,
    });
    create(&home.client, TYPES, &object).await;
    let at = format!("{TYPES}/waits");
    let written = until(&home.client, &at, |answer| {
        answer.json["status"]["virtualWorkspaces"].is_array()
    })
    .await;
    let urls = written.json["status"]["virtualWorkspaces"].as_array().unwrap();
    let of_stage = urls.iter().filter(|url| url["type"] == stage);
    let urls = of_stage
        .map(|url| url["url"].as_str().unwrap().to_owned())
        .collect();
    (home, world.of_root(urls).await)
}

/// Makes a workspace of the type. One that is being initialized cannot be entered, so only its id is known.
async fn workspace(world: &World, name: &str, home: &Workspace) -> (String, String) {
    let root = world.at(&world.url("root"));
    let name = format!("{}-{name}", home.path.strip_prefix("root:").unwrap());
    let object = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": { "name": name },
        "spec": { "type": { "name": "waits", "path": home.path }, "location": on_shard("root")["location"] },
    });
    create(&root, "/apis/tenancy.kcp.io/v1alpha1/workspaces", &object).await;
    let at = format!("/apis/tenancy.kcp.io/v1alpha1/workspaces/{name}");
    let made = until(&root, &at, |answer| answer.json["spec"]["cluster"].is_string()).await;
    (made.json["spec"]["cluster"].as_str().unwrap().to_owned(), at)
}

#[tokio::test]
async fn an_initializer_sees_its_workspaces_until_it_has_removed_itself() {
    for world in worlds(1).await {
        let (home, url) = of_type(&world, "initializing", json!({ "initializer": true })).await;
        let all = world.at(&format!("{url}/clusters/*"));
        let mut events = watch(&all, &format!("{CLUSTERS}?watch=true")).await;
        let (id, at) = workspace(&world, "one", &home).await;
        let of_id =
            |event: &serde_json::Value| event["object"]["metadata"]["annotations"]["kcp.io/cluster"] == *id;
        events.find(of_id).await;
        until(&all, CLUSTERS, |list| !names(list).is_empty()).await;
        assert_eq!(get(&all, "/api/v1/configmaps").await.code, 404);

        let one = world.at(&format!("{url}/clusters/{id}"));
        // kcp has one of its own, for the bindings of the type.
        let own = json!([format!("{}:waits", home.id)]);
        until(&one, CLUSTER, |answer| {
            answer.json["status"]["initializers"] == own
        })
        .await;
        assert_eq!(get(&one, CLUSTERS).await.code, 405);
        assert_eq!(
            merge(&one, CLUSTER, &json!({ "metadata": { "labels": { "a": "b" } } }))
                .await
                .code,
            405
        );
        create(&one, MAPS, &config_map("made")).await;

        let done = json!({ "status": { "initializers": [] } });
        assert_eq!(merge(&one, &format!("{CLUSTER}/status"), &done).await.code, 200);
        events
            .find(|event| of_id(event) && event["type"] == "MODIFIED")
            .await;
        events
            .find(|event| of_id(event) && event["type"] == "DELETED")
            .await;
        until(&one, CLUSTER, |answer| answer.code == 404).await;
        let content = get(&one, MAPS).await;
        assert_eq!(content.code, 403);
        assert!(
            content.text.contains("cannot access this workspace"),
            "{content:?}"
        );
        let root = world.at(&world.url("root"));
        until(&root, &at, |answer| answer.json["status"]["phase"] == "Ready").await;
    }
}

#[tokio::test]
async fn a_terminator_sees_a_workspace_first_as_modified_and_holds_it() {
    for world in worlds(1).await {
        let (home, url) = of_type(&world, "terminating", json!({ "terminator": true })).await;
        let all = world.at(&format!("{url}/clusters/*"));
        let (id, at) = workspace(&world, "one", &home).await;
        let root = world.at(&world.url("root"));
        until(&root, &at, |answer| answer.json["status"]["phase"] == "Ready").await;
        assert_eq!(names(&get(&all, CLUSTERS).await).len(), 0);
        let mut events = watch(&all, &format!("{CLUSTERS}?watch=true")).await;
        delete(&root, &at).await;
        let first = events
            .find(|event| event["object"]["metadata"]["annotations"]["kcp.io/cluster"] == *id)
            .await;
        assert_eq!(first["type"], "MODIFIED");
        assert!(first["object"]["metadata"]["deletionTimestamp"].is_string());

        let one = world.at(&format!("{url}/clusters/{id}"));
        let groups = until(&one, "/apis", |answer| answer.code == 200).await;
        let groups: Vec<&str> = groups.json["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| group["name"].as_str().unwrap())
            .collect();
        assert_eq!(groups, ["core.kcp.io"]);
        assert_eq!(get(&one, MAPS).await.code, 200);
        assert_eq!(get(&root, &at).await.code, 200);
        let done = json!({ "status": { "terminators": [] } });
        assert_eq!(merge(&one, &format!("{CLUSTER}/status"), &done).await.code, 200);
        until(&root, &at, |answer| answer.code == 404).await;
    }
}

#[tokio::test]
async fn the_rules_of_a_type_limit_its_initializer() {
    for world in worlds(1).await {
        let fields = json!({
            "initializer": true,
            "initializerPermissions": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"] }],
        });
        let (home, url) = of_type(&world, "limited", fields).await;
        let (id, _) = workspace(&world, "one", &home).await;
        let one = world.at(&format!("{url}/clusters/{id}"));
        until(&one, CLUSTER, |answer| answer.code == 200).await;
        create(&one, MAPS, &config_map("made")).await;
        let refused = get(&one, "/api/v1/namespaces/default/secrets").await;
        assert_eq!(refused.code, 403);
        assert!(
            refused.text.contains("no rule allows list on core/secrets"),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn an_initializer_needs_the_verb_on_its_type_and_leaves_others_alone() {
    for world in worlds(1).await.into_iter().take(1) {
        let (home, url) = of_type(&world, "rights", json!({ "initializer": true })).await;
        let kcp = world.double().unwrap();
        let rule =
            |verb: &str| mcr_testkit::sim::SimRule::new(["tenancy.kcp.io"], ["workspacetypes"], [verb]);
        let user = |verb: &str| {
            mcr_testkit::kcp::KcpUser::new("someone").rule(&home.id, rule(verb).names(["waits"]))
        };
        kcp.set_user("may", user("initialize"));
        kcp.set_user("may-not", user("get"));
        let at = |token: &str| kcp.client_at(&format!("{url}/clusters/*"), token).unwrap();
        assert_eq!(get(&at("may"), CLUSTERS).await.code, 200);
        assert_eq!(get(&at("may-not"), CLUSTERS).await.code, 403);

        let (id, _) = workspace(&world, "one", &home).await;
        let direct = world.at(&world.url(&id));
        let other = json!({ "status": { "initializers": [format!("{}:waits", home.id), "root:other"] } });
        merge(&direct, &format!("{CLUSTER}/status"), &other).await;
        let one = world.at(&format!("{url}/clusters/{id}"));
        let none = json!({ "status": { "initializers": [] } });
        assert_eq!(merge(&one, &format!("{CLUSTER}/status"), &none).await.code, 403);
        let rest = json!({ "status": { "initializers": ["root:other"] } });
        assert_eq!(merge(&one, &format!("{CLUSTER}/status"), &rest).await.code, 200);
        assert_eq!(post(&one, MAPS, &config_map("late")).await.code, 403);
        let inside = get(&direct, CLUSTER).await;
        assert_eq!(inside.json["status"]["phase"], "Initializing");
    }
}
