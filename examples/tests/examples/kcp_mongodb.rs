//! `kcp-mongodb`, on a double of kcp and a real kube-apiserver as the service cluster, with the manifests and the rights of its
//! README. With `MCR_KCP_KUBECONFIG` the tests run on a real kcp.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
};

use anyhow::Result;
use k8s_openapi::ByteString;
use mcr_testkit::control_plane::{AuditEvent, AuditMark, ControlPlane};
use serde_json::{Value, json};

use crate::{clusters::on_clusters, kcp};

#[path = "../../examples/kcp-mongodb/main.rs"]
#[allow(dead_code, reason = "the main function and its flags")]
mod controller;
mod demo;
mod kills;
#[path = "../../examples/kcp-mongodb/operator.rs"]
#[allow(dead_code, reason = "the main function and its flags")]
mod operator;
mod trouble;
mod walk;
#[path = "../../examples/kcp-mongodb/demo/world.rs"]
#[allow(dead_code, reason = "the demo uses more of it")]
mod world;

use operator::Mood;
use world::{
    World,
    home::{self, Home},
    server::{BINDING, DATABASE, EVENT, SECRET, Workspace},
    service::Service,
};

const FINALIZER: &str = "sync.mcr.dev/databases";

/// The API server that is the service cluster of all tests, each with a namespace of its own.
async fn service() -> ControlPlane {
    let hub = || on_clusters(|clusters| async { clusters.hub.clone() });
    tokio::task::spawn_blocking(hub).await.unwrap()
}

/// The workspace of the API, two workspaces without a binding, and a namespace with the operator. The controller does not run yet.
async fn new_world(shards: usize) -> Result<World> {
    static WORLDS: AtomicUsize = AtomicUsize::new(0);
    let namespace = format!("mongodb-{}", WORLDS.fetch_add(1, Ordering::Relaxed));
    let service = Service::prepare(&service().await.kubeconfig(), namespace).await?;
    let mut world = World::new(Home::find(shards).await?, service).await?;
    world.publish().await?;
    world.operate(Mood::Quick).await?;
    Ok(world)
}

/// The same with both consumers bound, each with a database, and the controller.
async fn ready_world() -> Result<World> {
    let mut world = new_world(1).await?;
    world.start()?;
    for workspace in [&world.shop, &world.bank] {
        world.bind(workspace).await?;
        world.order(workspace).await?;
    }
    for workspace in [&world.shop, &world.bank] {
        workspace.phase("Ready").await?;
    }
    Ok(world)
}

/// What the controller has done on the service cluster since then.
async fn done(world: &World, since: AuditMark) -> Vec<AuditEvent> {
    let log = service().await.audit_since(since).await.unwrap();
    let user = world.service.user();
    let own = log
        .events()
        .filter(|event| event.user == user && event.is_start());
    own.cloned().collect()
}

/// Its writes since then, without those to its Lease and those that the server refused because somebody was faster.
async fn writes(world: &World, since: AuditMark) -> Vec<String> {
    let is_write = |event: &&AuditEvent| {
        ["create", "update", "patch", "delete"].contains(&&*event.verb)
            && event.code < 300
            && event.resource != "leases"
            && !event.group.ends_with(".k8s.io")
    };
    let done = done(world, since).await;
    let named =
        |event: &AuditEvent| format!("{} {} {} {}", event.verb, event.resource, event.name, event.code);
    done.iter().filter(is_write).map(named).collect()
}

/// Now, in the log of the service cluster.
async fn mark() -> AuditMark {
    service().await.audit().await.unwrap().mark()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_a_the_manifests_make_a_service_with_two_consumers() -> Result<()> {
    let mut world = ready_world().await?;
    for workspace in [&world.shop, &world.bank] {
        let binding = workspace.server.get(BINDING, "mongodb").await?.unwrap();
        let applied = binding["status"]["appliedPermissionClaims"]
            .as_array()
            .unwrap()
            .len();
        assert_eq!(applied, 2, "{binding:#}");
        let orders = workspace.server.get(DATABASE, "default/orders").await?.unwrap();
        assert_eq!(orders["status"]["version"], "6.0.5");
        assert_eq!(orders["status"]["members"], 1);
        assert_eq!(
            workspace.reported("Synced").await?,
            "all targets are as they should be"
        );
        let placed = world.placed(workspace).await?.unwrap();
        assert_eq!(placed["spec"]["type"], "ReplicaSet");
    }
    world.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_the_connection_comes_back_to_its_consumer_and_follows_the_password() -> Result<()> {
    let mut world = new_world(1).await?;
    world.start()?;
    for (workspace, password) in [(&world.shop, "shop's"), (&world.bank, "bank's")] {
        world.bind(workspace).await?;
        world.order(workspace).await?;
        workspace.password(password).await?;
    }
    for (workspace, password) in [(&world.shop, "shop's"), (&world.bank, "bank's")] {
        let secret = workspace.secret("orders-connection", password).await?;
        let orders = workspace.phase("Ready").await?;
        assert_eq!(orders["status"]["connectionSecret"], "orders-connection");
        assert!(!orders.to_string().contains(password), "{orders}");
        let uri: ByteString =
            serde_json::from_value(secret["data"]["connectionString.standard"].clone()).unwrap();
        let uri = String::from_utf8(uri.0).unwrap();
        assert!(uri.contains(&world.name(workspace)), "{uri}");
    }
    world.shop.password("rotated").await?;
    world.shop.secret("orders-connection", "rotated").await?;
    world.bank.secret("orders-connection", "bank's").await?;
    // A Secret that the consumer has not given to the controller is no password.
    world.shop.change(json!({"passwordSecret": "absent"})).await?;
    let message = world.shop.reported("RelatedMissing").await?;
    assert!(message.contains("absent"), "{message}");
    world.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_b_the_controller_starts_without_endpoints_and_the_first_consumer_joins() -> Result<()> {
    let mut world = new_world(1).await?;
    world.start()?;
    world.knows_its_clusters().await?;
    assert_eq!(world.endpoints().await?, 0, "nobody uses the API");
    let fleet = world.fleet()?.clone();
    assert_eq!(fleet.clusters().len(), 1, "only the service cluster");
    world.bind(&world.shop).await?;
    world.order(&world.shop).await?;
    world.shop.phase("Ready").await?;
    assert_eq!(world.endpoints().await?, 1);
    world.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_c_the_same_name_in_two_workspaces_makes_two_databases() -> Result<()> {
    let mut world = ready_world().await?;
    assert_ne!(world.name(&world.shop), world.name(&world.bank));
    let mut names: Vec<Value> = Vec::new();
    for object in world.databases().await? {
        names.push(object["metadata"]["name"].clone());
    }
    let mut wanted = [world.name(&world.shop), world.name(&world.bank)];
    wanted.sort();
    assert_eq!(names, wanted);
    world.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_d_a_change_of_the_order_reaches_the_database() -> Result<()> {
    let mut world = ready_world().await?;
    // What runs is not what was ordered as long as nobody has seen the change.
    world.rest().await?;
    world
        .shop
        .change(json!({"version": "7.0.1", "size": "Large"}))
        .await?;
    let is_updated = |object: &Value| object["spec"]["version"] == "7.0.1" && object["spec"]["members"] == 3;
    world.runs(&world.shop, "updated", is_updated).await?;
    let orders = world.shop.phase("Updating").await?;
    assert_eq!(orders["status"]["version"], "6.0.5");
    world.operate(Mood::Quick).await?;
    let updated = |object: &Value| {
        let status = &object["status"];
        status["phase"] == "Ready" && status["version"] == "7.0.1" && status["members"] == 3
    };
    world.shop.orders("updated", updated).await?;
    let other = world.placed(&world.bank).await?.unwrap();
    assert_eq!(
        (&other["spec"]["version"], &other["spec"]["members"]),
        (&json!("6.0.5"), &json!(1))
    );
    world.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_e_what_the_operator_reports_comes_to_the_right_consumer_only() -> Result<()> {
    let mut world = new_world(1).await?;
    world.operate(Mood::Slow).await?;
    world.start()?;
    for workspace in [&world.shop, &world.bank] {
        world.bind(workspace).await?;
        world.order(workspace).await?;
    }
    world.bank.change(json!({"size": "Large"})).await?;
    let waits = |of: &'static str| {
        move |object: &Value| object["status"]["phase"] == "Creating" && object["status"]["message"] == of
    };
    world
        .shop
        .orders("waits", waits("0 of 1 members are ready"))
        .await?;
    world
        .bank
        .orders("waits", waits("0 of 3 members are ready"))
        .await?;
    world.operate(Mood::Quick).await?;
    for (workspace, members) in [(&world.shop, 1), (&world.bank, 3)] {
        let orders = workspace.phase("Ready").await?;
        assert_eq!(orders["status"]["members"], members);
        assert_eq!(orders["status"]["message"], Value::Null);
        let text = orders.to_string();
        assert!(
            !text.contains("mongodb://"),
            "the address is not for the status: {text}"
        );
    }
    world.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_f_a_changed_or_deleted_database_is_made_as_ordered() -> Result<()> {
    let mut world = ready_world().await?;
    let first = world.placed(&world.shop).await?.unwrap();
    let theirs = json!({"spec": {"members": 7}, "metadata": {"labels": {"theirs": "kept"}}});
    world.interfere(&world.shop, theirs).await?;
    let repaired = |object: &Value| {
        object["metadata"]["generation"].as_i64() > Some(2) && object["spec"]["members"] == 1
    };
    let object = world.runs(&world.shop, "repaired", repaired).await?;
    assert_eq!(object["metadata"]["labels"]["theirs"], "kept");
    world.destroy(&world.shop).await?;
    let another = |object: &Value| object["metadata"]["uid"] != first["metadata"]["uid"];
    world.runs(&world.shop, "made again", another).await?;
    world.shop.phase("Ready").await?;
    world.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_g_a_deleted_order_ends_its_database_before_it_is_released() -> Result<()> {
    let mut world = ready_world().await?;
    let orders = world.shop.server.get(DATABASE, "default/orders").await?.unwrap();
    assert_eq!(orders["metadata"]["finalizers"], json!([FINALIZER]));
    // The database takes a while to end.
    let hold = |list: Value| json!({"metadata": {"finalizers": list}});
    world.interfere(&world.shop, hold(json!(["test/hold"]))).await?;
    world.shop.delete_orders().await?;
    let message = world.shop.reported("TargetDeleting").await?;
    assert!(message.contains("waits for its finalizers"), "{message}");
    let is_ending = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
    world.runs(&world.shop, "ending", is_ending).await?;
    world.interfere(&world.shop, hold(Value::Null)).await?;
    world.shop.gone(DATABASE, "default/orders").await?;
    assert_eq!(world.placed(&world.shop).await?, None);
    assert!(world.placed(&world.bank).await?.is_some());
    world.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_h_an_unbinding_ends_the_databases_of_this_consumer_only() -> Result<()> {
    let mut world = ready_world().await?;
    world.shop.unbind().await?;
    world.ended(&world.shop).await?;
    world.shop.gone(BINDING, "mongodb").await?;
    world.is_in_fleet(&world.shop, false).await?;
    world.bank.change(json!({"version": "7.0.1"})).await?;
    world.bank.runs_version("7.0.1").await?;
    world.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_i_after_the_last_consumer_has_left_another_one_may_come() -> Result<()> {
    let mut world = ready_world().await?;
    for workspace in [&world.shop, &world.bank] {
        workspace.unbind().await?;
        world.ended(workspace).await?;
        workspace.gone(BINDING, "mongodb").await?;
    }
    world.has_endpoints(0).await?;
    world.bind(&world.shop).await?;
    world.order(&world.shop).await?;
    world.shop.phase("Ready").await?;
    world.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_j_a_restarted_controller_goes_on_without_duplicates() -> Result<()> {
    let mut world = ready_world().await?;
    for workspace in [&world.shop, &world.bank] {
        workspace.secret("orders-connection", "change-me").await?;
        workspace.reported("Synced").await?;
    }
    world.stop().await?;
    let before = mark().await;
    world.shop.change(json!({"version": "7.0.1"})).await?;
    world.bank.delete_orders().await?;
    world.start()?;
    world.shop.runs_version("7.0.1").await?;
    world.bank.gone(DATABASE, "default/orders").await?;
    let left = world.databases().await?;
    assert_eq!(left.len(), 1, "{left:#?}");
    assert_eq!(left[0]["metadata"]["name"], world.name(&world.shop));
    let writes = writes(&world, before).await;
    assert_eq!(
        writes.len(),
        3,
        "one change, and the deletion of a database and its password: {writes:#?}"
    );
    world.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_k_a_consumer_sees_in_events_what_has_become_of_its_database() -> Result<()> {
    let mut world = new_world(1).await?;
    world.operate(Mood::Failing).await?;
    world.start()?;
    world.bind(&world.shop).await?;
    world.order(&world.shop).await?;
    let shop = world.shop.clone();
    let failure = "no node has enough memory for the database";
    shop.event("Failed", failure).await?;
    world.operate(Mood::Quick).await?;
    shop.event("Ready", "the database runs").await?;
    // A new process tells what changes, and not what is.
    world.stop().await?;
    world.shop.server.delete(EVENT, &failed(&shop).await?).await?;
    world.start()?;
    world.operate(Mood::Failing).await?;
    shop.event("Failed", failure).await?;
    let events = shop.server.list(EVENT, "default").await?;
    let ready: Vec<&Value> = events.iter().filter(|event| event["reason"] == "Ready").collect();
    assert!(ready.len() == 1 && ready[0]["series"].is_null(), "{ready:#?}");
    world.stop().await
}

/// The event about a failure.
async fn failed(workspace: &Workspace) -> Result<String> {
    let events = workspace.server.list(EVENT, "default").await?;
    let event = events.iter().find(|event| event["reason"] == "Failed").unwrap();
    Ok(format!("default/{}", event["metadata"]["name"].as_str().unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_l_the_rights_of_the_manifests_are_enough_and_each_is_used() -> Result<()> {
    let mut world = ready_world().await?;
    for workspace in [&world.shop, &world.bank] {
        workspace.secret("orders-connection", "change-me").await?;
        workspace.change(json!({"version": "7.0.1"})).await?;
        workspace.password("another").await?;
        workspace.secret("orders-connection", "another").await?;
        workspace.delete_orders().await?;
        workspace.gone(DATABASE, "default/orders").await?;
        workspace.gone(SECRET, "default/orders-connection").await?;
    }
    world.stop().await?;
    // Others use the service cluster as well, so each right is that of this user alone.
    let mut used = BTreeSet::new();
    for event in done(&world, AuditMark::default()).await {
        // The fleet asks for the identity of a cluster, and does without it.
        let anybody = event.resource == "namespaces"
            || ["authentication.k8s.io", "authorization.k8s.io"].contains(&&*event.group);
        if !event.resource.is_empty() && !anybody {
            assert_ne!(event.code, 403, "{event:?}");
            used.insert((event.resource.clone(), event.verb.clone()));
        }
    }
    assert_eq!(used, kcp::granted(&world.service.rules()?));
    let Some(server) = world.home.double() else {
        return Ok(());
    };
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
    assert_eq!(used, kcp::granted(&home::rules()?));
    Ok(())
}
