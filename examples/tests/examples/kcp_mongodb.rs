//! `kcp-mongodb`, on a double of kcp and a simulated service cluster, with the manifests and the rights of its README. With
//! `MCR_KCP_KUBECONFIG` the tests `mongodb_a` to `mongodb_l` run on a real kcp.

use std::collections::BTreeSet;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::kcp;

#[path = "../../examples/kcp-mongodb/main.rs"]
#[allow(dead_code, reason = "the main function and its flags")]
mod controller;
#[path = "../../examples/kcp-mongodb/operator.rs"]
#[allow(dead_code, reason = "the main function and its flags")]
mod operator;
mod trouble;
mod walk;
mod world;

use operator::Mood;
use world::{BINDING, DATABASE, EVENT, EXAMPLE, MONGODB, ROLE, SECRET, SLICE, Workspace, World, until};

const FINALIZER: &str = "sync.mcr.dev/databases";

async fn endpoints(world: &World) -> Value {
    let slice = world.mongodb.server.get(SLICE, "mongodb").await.unwrap();
    slice["status"]["endpoints"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_a_the_manifests_make_a_service_with_two_consumers() {
    let mut world = World::ready().await;
    for workspace in [&world.shop, &world.bank] {
        let binding = workspace.server.get(BINDING, "mongodb").await.unwrap();
        let applied = binding["status"]["appliedPermissionClaims"]
            .as_array()
            .unwrap()
            .len();
        assert_eq!(applied, 2, "{binding:#}");
        let orders = workspace.server.get(DATABASE, "default/orders").await.unwrap();
        assert_eq!(orders["status"]["version"], "6.0.5");
        assert_eq!(orders["status"]["members"], 1);
        assert_eq!(
            workspace.told("Synced").await,
            "all targets are as they should be"
        );
        let placed = world.placed(workspace).await.unwrap();
        assert_eq!(placed["spec"]["type"], "ReplicaSet");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_the_connection_comes_back_to_its_consumer_and_follows_the_password() {
    let mut world = World::new().await;
    world.start();
    for (workspace, password) in [(&world.shop, "shop's"), (&world.bank, "bank's")] {
        world.bind(workspace).await;
        world.order(workspace).await;
        workspace.password(password).await;
    }
    for (workspace, password) in [(&world.shop, "shop's"), (&world.bank, "bank's")] {
        let secret = workspace.secret("orders-connection", password).await;
        let orders = workspace.phase("Ready").await;
        assert_eq!(orders["status"]["connectionSecret"], "orders-connection");
        assert!(!orders.to_string().contains(password), "{orders}");
        let uri: ByteString =
            serde_json::from_value(secret["data"]["connectionString.standard"].clone()).unwrap();
        let uri = String::from_utf8(uri.0).unwrap();
        assert!(uri.contains(&world.name(workspace)), "{uri}");
    }
    world.shop.password("rotated").await;
    world.shop.secret("orders-connection", "rotated").await;
    world.bank.secret("orders-connection", "bank's").await;
    // A Secret that the consumer has not given to the controller is no password.
    world.shop.change(json!({"passwordSecret": "absent"})).await;
    let message = world.shop.told("RelatedMissing").await;
    assert!(message.contains("absent"), "{message}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_b_the_controller_starts_without_endpoints_and_the_first_consumer_joins() {
    let mut world = World::new().await;
    world.start();
    let (fleet, mongodb) = (world.fleet().clone(), world.mongodb.clone());
    until("the fleet knows its clusters", async || {
        fleet
            .get(mcr::HUB)
            .is_ok_and(|hub| hub.state().is_ready())
            .then_some(())
    })
    .await;
    assert!(endpoints(&world).await.is_null(), "nobody uses {}", mongodb.path);
    assert_eq!(fleet.clusters().len(), 1, "only the service cluster");
    world.bind(&world.shop).await;
    world.order(&world.shop).await;
    world.shop.phase("Ready").await;
    assert_eq!(endpoints(&world).await.as_array().unwrap().len(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_c_the_same_name_in_two_workspaces_makes_two_databases() {
    let mut world = World::ready().await;
    assert_ne!(world.name(&world.shop), world.name(&world.bank));
    let mut names: Vec<Value> = Vec::new();
    for object in world.service.list(MONGODB, "mongodb").await {
        names.push(object["metadata"]["name"].clone());
    }
    let mut wanted = [world.name(&world.shop), world.name(&world.bank)];
    wanted.sort();
    assert_eq!(names, wanted);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_d_a_change_of_the_order_reaches_the_database() {
    let mut world = World::ready().await;
    world
        .shop
        .change(json!({"version": "7.0.1", "size": "Large"}))
        .await;
    let is_updated = |object: &Value| object["spec"]["version"] == "7.0.1" && object["spec"]["members"] == 3;
    world.runs(&world.shop, "updated", is_updated).await;
    let updated = |object: &Value| {
        let status = &object["status"];
        status["phase"] == "Ready" && status["version"] == "7.0.1" && status["members"] == 3
    };
    world.shop.orders("updated", updated).await;
    let other = world.placed(&world.bank).await.unwrap();
    assert_eq!(
        (&other["spec"]["version"], &other["spec"]["members"]),
        (&json!("6.0.5"), &json!(1))
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_e_what_the_operator_says_comes_to_the_right_consumer_only() {
    let mut world = World::new().await;
    world.operate(Mood::Slow).await;
    world.start();
    for workspace in [&world.shop, &world.bank] {
        world.bind(workspace).await;
        world.order(workspace).await;
    }
    world.bank.change(json!({"size": "Large"})).await;
    let waits = |of: &'static str| {
        move |object: &Value| object["status"]["phase"] == "Creating" && object["status"]["message"] == of
    };
    world
        .shop
        .orders("waits", waits("0 of 1 members are ready"))
        .await;
    world
        .bank
        .orders("waits", waits("0 of 3 members are ready"))
        .await;
    world.operate(Mood::Quick).await;
    for (workspace, members) in [(&world.shop, 1), (&world.bank, 3)] {
        let orders = workspace.phase("Ready").await;
        assert_eq!(orders["status"]["members"], members);
        assert_eq!(orders["status"]["message"], Value::Null);
        let text = orders.to_string();
        assert!(
            !text.contains("mongodb://"),
            "the address is not for the status: {text}"
        );
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_f_a_changed_or_deleted_database_is_made_as_ordered() {
    let mut world = World::ready().await;
    let key = format!("mongodb/{}", world.name(&world.shop));
    let first = world.placed(&world.shop).await.unwrap();
    world
        .service
        .patch(
            MONGODB,
            &key,
            json!({"spec": {"members": 7}, "metadata": {"labels": {"theirs": "kept"}}}),
        )
        .await;
    let repaired = |object: &Value| {
        object["metadata"]["generation"].as_i64() > Some(2) && object["spec"]["members"] == 1
    };
    let object = world.runs(&world.shop, "repaired", repaired).await;
    assert_eq!(object["metadata"]["labels"]["theirs"], "kept");
    world.service.delete(MONGODB, &key).await;
    let another = |object: &Value| object["metadata"]["uid"] != first["metadata"]["uid"];
    world.runs(&world.shop, "made again", another).await;
    world.shop.phase("Ready").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_g_a_deleted_order_ends_its_database_before_it_is_released() {
    let mut world = World::ready().await;
    let orders = world.shop.server.get(DATABASE, "default/orders").await.unwrap();
    assert_eq!(orders["metadata"]["finalizers"], json!([FINALIZER]));
    // The database takes a while to end.
    let key = format!("mongodb/{}", world.name(&world.shop));
    let hold = |list: Value| json!({"metadata": {"finalizers": list}});
    world
        .service
        .patch(MONGODB, &key, hold(json!(["test/hold"])))
        .await;
    world.shop.server.delete(DATABASE, "default/orders").await;
    let message = world.shop.told("TargetDeleting").await;
    assert!(message.contains("waits for its finalizers"), "{message}");
    let is_ending = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
    world.runs(&world.shop, "ending", is_ending).await;
    world.service.patch(MONGODB, &key, hold(Value::Null)).await;
    world.shop.gone(DATABASE, "default/orders").await;
    assert_eq!(world.placed(&world.shop).await, None);
    assert!(world.placed(&world.bank).await.is_some());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_h_an_unbinding_ends_the_databases_of_this_consumer_only() {
    let mut world = World::ready().await;
    world.shop.server.delete(BINDING, "mongodb").await;
    world.ended(&world.shop).await;
    world.shop.gone(BINDING, "mongodb").await;
    let (fleet, shop) = (world.fleet().clone(), world.shop.id.clone());
    until("the workspace has left", async || {
        fleet.get(&shop).is_err().then_some(())
    })
    .await;
    world.bank.change(json!({"version": "7.0.1"})).await;
    let updated = |object: &Value| object["status"]["version"] == "7.0.1";
    world.bank.orders("updated", updated).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_i_after_the_last_consumer_has_left_another_one_may_come() {
    let mut world = World::ready().await;
    for workspace in [&world.shop, &world.bank] {
        workspace.server.delete(BINDING, "mongodb").await;
        world.ended(workspace).await;
        workspace.gone(BINDING, "mongodb").await;
    }
    until("no endpoint", async || {
        endpoints(&world).await.is_null().then_some(())
    })
    .await;
    world.bind(&world.shop).await;
    world.order(&world.shop).await;
    world.shop.phase("Ready").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_j_a_restarted_controller_goes_on_without_duplicates() {
    let mut world = World::ready().await;
    world.stop().await;
    let before = world.writes();
    world.shop.change(json!({"version": "7.0.1"})).await;
    world.bank.server.delete(DATABASE, "default/orders").await;
    world.start();
    let updated = |object: &Value| object["status"]["version"] == "7.0.1";
    world.shop.orders("updated", updated).await;
    world.bank.gone(DATABASE, "default/orders").await;
    let left = world.service.list(MONGODB, "mongodb").await;
    assert_eq!(left.len(), 1, "{left:#?}");
    assert_eq!(left[0]["metadata"]["name"], world.name(&world.shop));
    assert_eq!(
        world.writes() - before,
        3,
        "one change, and the deletion of a database and its password"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_k_a_consumer_sees_in_events_what_has_become_of_its_database() {
    let mut world = World::new().await;
    world.operate(Mood::Failing).await;
    world.start();
    world.bind(&world.shop).await;
    world.order(&world.shop).await;
    let shop = world.shop.clone();
    let told = async |reason: &str, note: &str| {
        until(&format!("an event {reason}"), async || {
            let events = shop.server.list(EVENT, "default").await;
            let is_told = |event: &Value| {
                event["reason"] == reason && event["note"] == note && event["regarding"]["name"] == "orders"
            };
            events.iter().any(is_told).then_some(())
        })
        .await;
    };
    told("Failed", "no node has enough memory for the database").await;
    world.operate(Mood::Quick).await;
    told("Ready", "the database runs").await;
    // A new process tells what changes, and not what is.
    world.stop().await;
    world.shop.server.delete(EVENT, &failed(&shop).await).await;
    world.start();
    world.operate(Mood::Failing).await;
    told("Failed", "no node has enough memory for the database").await;
    let events = shop.server.list(EVENT, "default").await;
    let ready: Vec<&Value> = events.iter().filter(|event| event["reason"] == "Ready").collect();
    assert!(ready.len() == 1 && ready[0]["series"].is_null(), "{ready:#?}");
    world.stop().await;
}

/// The event about a failure.
async fn failed(workspace: &Workspace) -> String {
    let events = workspace.server.list(EVENT, "default").await;
    let event = events.iter().find(|event| event["reason"] == "Failed").unwrap();
    format!("default/{}", event["metadata"]["name"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_l_the_rights_of_the_manifests_are_enough_and_each_is_used() {
    let mut world = World::ready().await;
    for workspace in [&world.shop, &world.bank] {
        workspace.secret("orders-connection", "change-me").await;
        workspace.change(json!({"version": "7.0.1"})).await;
        workspace.password("another").await;
        workspace.secret("orders-connection", "another").await;
        workspace.server.delete(DATABASE, "default/orders").await;
        workspace.gone(DATABASE, "default/orders").await;
        workspace.gone(SECRET, "default/orders-connection").await;
    }
    world.stop().await;
    let Some(server) = world.double() else { return };
    let mut used = BTreeSet::new();
    for event in kcp::requests(server) {
        assert_ne!(event.code, 403, "{event:?}");
        let of_content = event.uri.contains("/services/apiexport/");
        let resource = if of_content {
            "apiexports/content"
        } else {
            &event.resource
        };
        used.insert((resource.to_owned(), event.verb.clone()));
    }
    assert_eq!(used, kcp::granted(&EXAMPLE.rules(ROLE)));
    let mut used = BTreeSet::new();
    for event in world.sim.audit().events() {
        // The fleet asks for the identity of a cluster, and does without it.
        let anybody = event.resource == "namespaces"
            || ["authentication.k8s.io", "authorization.k8s.io"].contains(&&*event.group);
        if event.user == "database-service" && event.is_start() && !event.resource.is_empty() && !anybody {
            assert_ne!(event.code, 403, "{event:?}");
            used.insert((event.resource.clone(), event.verb.clone()));
        }
    }
    let mut granted = EXAMPLE.manifest("service-rbac.yaml");
    granted.retain(|object| object["kind"] == "ClusterRole");
    assert_eq!(used, kcp::granted(granted[0]["rules"].as_array().unwrap()));
}
