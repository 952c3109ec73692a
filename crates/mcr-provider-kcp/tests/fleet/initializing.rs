//! Workspaces that wait for an initializer.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::ListParams};
use mcr_core::{ClusterState, WatchRequest};
use mcr_kcp_double::{KcpMove, KcpUser};
use mcr_provider_kcp::{Initializer, InitializingWorkspaces, LifecycleError, Removal};
use mcr_testkit::{log::Log, sim::SimRule};
use serde_json::json;
use tracing::Level;

use crate::{claims::is_blocked, events::events, stages::*, world::*};

fn initializer(provider: &InitializingWorkspaces) -> Initializer {
    provider.initializer().expect("the type has been read")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_workspace_is_a_cluster_until_its_initializer_is_removed() {
    let stages = Stages::with_shards(2, json!({"initializer": true})).await;
    let provider = stages.initializing().build().or_fail();
    let running = Running::start_with(provider.clone(), |settings| {
        settings.uncertain_deletion_delay = PATIENCE;
    });
    running.discovered().await;
    let (a, b) = (stages.workspace("a", "root"), stages.workspace("b", "shard-1"));
    let (in_a, in_b) = (running.ready(a.id()).await, running.ready(b.id()).await);
    assert_eq!(in_a.properties()["kcp.io/path"], "root:a");
    let seen = [&in_a, &in_b].map(|cluster| Arc::new(Witness::of(cluster, clusters())));
    for seen in &seen {
        sees_its_cluster(seen).await;
    }
    use_content(in_b.client()).await;

    let initializer = initializer(&provider);
    assert_eq!(initializer.name(), stages.name_of("managed"));
    finished(initializer.remove(&in_b.client()).await);
    assert!(!in_b.deletions_are_certain());
    running.left(b.id()).await;
    // The workspace has left with all its objects, so none of them counts as deleted.
    let lines = seen[1].lines();
    assert!(lines.iter().all(|line| !line.starts_with('-')), "{lines:?}");
    let cluster = b.get(LOGICAL_CLUSTERS, "cluster").expect("it exists");
    assert_eq!(
        (&cluster["status"]["phase"], &cluster["status"]["initializers"]),
        (&json!("Ready"), &json!([]))
    );
    // The other workspace still waits.
    assert!(running.fleet.get(a.id()).is_ok_and(|now| now.is_same(&in_a)));
    reaches(&in_a, ClusterState::is_ready).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_workspace_that_is_deleted_while_it_waits_leaves() {
    // The terminator keeps the LogicalCluster, with its initializer.
    let stages = Stages::with_shards(1, json!({"initializer": true, "terminator": true})).await;
    let mut received = Received::of(&stages.initializing().build().or_fail());
    let mut terminating = Received::of(&stages.terminating().build().or_fail());
    received.receives(&[synced()]).await;
    terminating.receives(&[synced()]).await;
    let a = stages.workspace("a", "root");
    received.receives(&[comes(&a)]).await;
    stages.delete(&a);
    received.receives(&[leaves(&a)]).await;
    terminating.receives(&[comes(&a)]).await;
    let cluster = a
        .get(LOGICAL_CLUSTERS, "cluster")
        .expect("it waits for its terminator");
    assert_eq!(
        cluster["status"]["initializers"],
        json!([stages.name_of("managed")])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_several_controllers_remove_their_own_initializers_at_the_same_time() {
    let stages = Stages::with_shards(1, json!({"initializer": true})).await;
    let types: Vec<String> = (0..6).map(|number| format!("type-{number}")).collect();
    for of_type in &types {
        stages.of_type(of_type, json!({"initializer": true}));
    }
    let mut first = Received::of(&stages.initializing().workspace_type("type-0").build().or_fail());
    first.receives(&[synced()]).await;
    let a = stages.workspace("a", "root");
    let mut names: Vec<String> = types.iter().map(|of_type| stages.name_of(of_type)).collect();
    names.push(stages.name_of("managed"));
    stages.set(&a, "initializers", &names).await;
    first.receives(&[comes(&a)]).await;
    let token = stages.server.kcp().admin_token();
    let removals = types.iter().map(|of_type| {
        let client = stages.client_at("initializingworkspaces", of_type, a.id(), token);
        let initializer = Initializer::new(stages.home.id(), of_type).or_fail();
        tokio::spawn(async move { initializer.remove(&client).await })
    });
    for removal in futures::future::join_all(removals).await {
        assert_eq!(removal.or_fail().or_fail(), Removal::Removed);
    }
    first.receives(&[leaves(&a)]).await;
    let own = Initializer::new(stages.home.id(), "type-0").or_fail();
    let by_its_id = stages.server.kcp().client(a.id());
    assert_eq!(own.remove(&by_its_id).await.or_fail(), Removal::Absent);
    let cluster = a.get(LOGICAL_CLUSTERS, "cluster").expect("it exists");
    assert_eq!(
        (&cluster["status"]["initializers"], &cluster["status"]["phase"]),
        (&json!([stages.name_of("managed")]), &json!("Initializing"))
    );
}

/// A recorder that was taken before the move goes on, and counts the same event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_recorder_in_a_new_workspace_goes_on_after_it_has_moved() {
    for order in [KcpMove::NewFirst, KcpMove::OldFirst] {
        let stages = Stages::with_shards(2, json!({"initializer": true})).await;
        let running = Running::start(stages.initializing().build().or_fail());
        let a = stages.workspace("a", "root");
        let in_a = running.ready(a.id()).await;
        let recorder = in_a.recorder();
        publish(&recorder, "Prepared").await.or_fail();
        stages
            .server
            .kcp()
            .move_workspace(a.id(), "shard-1", order)
            .or_fail();
        publish_until(&recorder, "Prepared", Result::is_ok).await;
        assert!(
            running.fleet.get(a.id()).is_ok_and(|now| now.is_same(&in_a)),
            "{order:?}"
        );
        publish(&recorder, "Finished").await.or_fail();
        let event = |reason: &str, times| (reason.to_owned(), String::new(), times);
        assert_eq!(
            events(&a),
            [event("Finished", 1), event("Prepared", 2)],
            "{order:?}"
        );
        running.stop().await;
    }
}

/// The provider may see the removal before its answer arrives.
pub(crate) fn finished(removal: Result<Removal, LifecycleError>) {
    let removal = removal.or_fail();
    assert!(matches!(removal, Removal::Removed | Removal::Left), "{removal:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_other_kinds_are_refused_with_the_way_that_works() {
    let stages = Stages::with_shards(1, json!({"initializer": true})).await;
    let running = Running::start(stages.initializing().build().or_fail());
    let in_a = running.ready(stages.workspace("a", "root").id()).await;
    let request = WatchRequest::of::<ConfigMap>();
    let _watch = in_a.watch(request.clone(), None).or_fail();
    let advice = "watch those, and read configmaps of a workspace with the client of its cluster";
    is_blocked(&in_a, "configmaps", advice).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_type_that_can_not_work_is_an_error_that_reports_what_to_do() {
    let stages = Stages::with_shards(1, json!({"terminator": true})).await;
    for (provider, expected) in [
        (
            stages.initializing().workspace_type("nope").build().or_fail(),
            "WorkspaceType nope does not exist; correct its name, or the workspace in the address",
        ),
        (
            stages.initializing().build().or_fail(),
            "WorkspaceType managed: it has no initializer, so new workspaces wait for none; set spec.initializer of the type \
             to true",
        ),
    ] {
        let mut received = Received::of(&provider);
        let error = received.next().await;
        assert!(error.starts_with('!') && error.contains(expected), "{error}");
    }
    let mut received = Received::of(&stages.terminating().build().or_fail());
    received.receives(&[synced()]).await;
}

/// Nobody else can finish the workspaces that still wait.
#[tokio::test]
async fn kcp_a_type_that_is_deleted_keeps_the_workspaces_that_wait() {
    let log = Log::of_this_thread(Level::WARN);
    let stages = Stages::with_shards(1, json!({"initializer": true})).await;
    let provider = stages.initializing().build().or_fail();
    let running = Running::start(provider.clone());
    let a = stages.workspace("a", "root");
    let in_a = running.ready(a.id()).await;
    stages
        .home
        .delete("workspacetypes.tenancy.kcp.io", "managed")
        .or_fail();
    eventually(PATIENCE, "the provider says so", || {
        let lines = log.lines_with("WorkspaceType managed does not exist");
        lines.iter().any(|line| line.contains("create it again"))
    })
    .await;
    // kcp refuses the content, and nothing else.
    let content = Api::<ConfigMap>::namespaced(in_a.client(), "default");
    let error = content
        .list(&ListParams::default())
        .await
        .expect_err("it has no type");
    assert!(error.to_string().contains("503"), "{error}");
    finished(initializer(&provider).remove(&in_a.client()).await);
    running.left(a.id()).await;

    stages.of_type("managed", json!({"initializer": true}));
    let b = stages.workspace("b", "root");
    let in_b = running.ready(b.id()).await;
    use_content(in_b.client()).await;
    running.stop().await;
}

/// A type that is changed later must not strand the workspaces that still wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_type_that_loses_its_initializer_keeps_the_workspaces_that_wait() {
    let stages = Stages::with_shards(1, json!({"initializer": true})).await;
    let provider = stages.initializing().build().or_fail();
    let running = Running::start(provider.clone());
    let a = stages.workspace("a", "root");
    let in_a = running.ready(a.id()).await;
    let mut of_type = stages
        .home
        .get("workspacetypes.tenancy.kcp.io", "managed")
        .expect("it exists");
    of_type["spec"]["initializer"] = false.into();
    stages.home.update(of_type).or_fail();
    use_content(in_a.client()).await;
    finished(initializer(&provider).remove(&in_a.client()).await);
    running.left(a.id()).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_missing_right_is_named_and_the_least_rights_are_enough() {
    let stages = Stages::with_shards(1, json!({"initializer": true})).await;
    let kcp = stages.server.kcp();
    let types = |verbs: &[&str]| SimRule::new(["tenancy.kcp.io"], ["workspacetypes"], verbs.to_vec());
    let reads = types(&["get", "list", "watch"]);
    let reader = KcpUser::new("someone").rule(stages.home.id(), reads);
    kcp.set_user("reader", reader.clone());
    kcp.set_user(
        "least",
        reader.rule(stages.home.id(), types(&["initialize"]).names(["managed"])),
    );
    let a = stages.workspace("a", "root");
    let with = |token: &str| {
        let kubeconfig = stages.server.kubeconfig_with_token("root:types", token);
        let access = mcr_core::Access::kubeconfig(kubeconfig, mcr_core::Trust::Trusted);
        stages.initializing().access(access).build().or_fail()
    };
    let advice = format!(
        "the verb initialize on workspacetypes.tenancy.kcp.io with the name managed in workspace {} to the credentials in use",
        stages.home.id()
    );
    let mut received = Received::of(&with("reader"));
    let error = received.next().await;
    assert!(error.starts_with('!') && error.contains(&advice), "{error}");
    let own = Initializer::new(stages.home.id(), "managed").or_fail();
    let refused = stages.client_at("initializingworkspaces", "managed", a.id(), "reader");
    let error = own.remove(&refused).await.expect_err("the right is missing");
    assert!(matches!(&error, LifecycleError::Forbidden { .. }), "{error:?}");
    assert!(error.to_string().contains(&advice), "{error}");

    let provider = with("least");
    let running = Running::start(provider.clone());
    let in_a = running.ready(a.id()).await;
    use_content(in_a.client()).await;
    finished(initializer(&provider).remove(&in_a.client()).await);
    running.left(a.id()).await;
    running.stop().await;
}
