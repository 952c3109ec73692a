//! Workspaces that wait for an initializer.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::ListParams};
use mcr_kcp_double::KcpUser;
use mcr_provider_kcp::{Initializer, InitializingWorkspaces, LifecycleError, Removal};
use mcr_testkit::{log::Log, sim::SimRule};
use serde_json::json;
use tracing::Level;

use crate::{stages::*, world::*};

fn initializer(provider: &InitializingWorkspaces) -> Initializer {
    provider.initializer().expect("the type has been read")
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

/// The provider may see the removal before its answer arrives.
pub(crate) fn finished(removal: Result<Removal, LifecycleError>) {
    let removal = removal.or_fail();
    assert!(matches!(removal, Removal::Removed | Removal::Left), "{removal:?}");
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
    eventually(PATIENCE, "the provider reports it", || {
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
async fn kcp_a_missing_right_is_named() {
    let stages = Stages::with_shards(1, json!({"initializer": true})).await;
    let kcp = stages.server.kcp();
    let reads = SimRule::new(["tenancy.kcp.io"], ["workspacetypes"], ["get", "list", "watch"]);
    let reader = KcpUser::new("someone").rule(stages.home.id(), reads);
    kcp.set_user("reader", reader);
    let a = stages.workspace("a", "root");
    let kubeconfig = stages.server.kubeconfig_with_token("root:types", "reader");
    let access = mcr_core::Access::kubeconfig(kubeconfig, mcr_core::Trust::Trusted);
    let provider = stages.initializing().access(access).build().or_fail();
    let advice = format!(
        "the verb initialize on workspacetypes.tenancy.kcp.io with the name managed in workspace {} to the credentials in use",
        stages.home.id()
    );
    let mut received = Received::of(&provider);
    let error = received.next().await;
    assert!(error.starts_with('!') && error.contains(&advice), "{error}");
    let own = Initializer::new(stages.home.id(), "managed").or_fail();
    let refused = stages.client_at("initializingworkspaces", "managed", a.id(), "reader");
    let error = own.remove(&refused).await.expect_err("the right is missing");
    assert!(matches!(&error, LifecycleError::Forbidden { .. }), "{error:?}");
    assert!(error.to_string().contains(&advice), "{error}");
}
