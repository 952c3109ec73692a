//! What the providers of workspaces that wait do on any kcp: on the double, and on a real kcp when `MCR_KCP_KUBECONFIG` names a
//! kubeconfig of its admin.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mcr_core::{Access, Cluster, Fleet, Trust, WatchRequest};
use mcr_kcp_double::KcpUser;
use mcr_provider_kcp::{
    Initializer, InitializingWorkspaces, LifecycleBuilder, LifecycleError, LogicalCluster, Removal,
    TerminatingWorkspaces, Terminator,
};
use mcr_testkit::sim::SimRule;
use serde_json::{Value, json};

use crate::{
    initializing::finished,
    kcps::{self, Workspace, World, add_type, create, of_type, served_worlds, until, waiting, waiting_of},
    world::{OrFail, PATIENCE, Running, eventually, reaches},
};

const CLUSTER: &str = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn of<P>(
    builder: LifecycleBuilder<P>,
    kcp: &World,
    home: &Workspace,
    token: Option<&str>,
) -> LifecycleBuilder<P> {
    let kubeconfig = kcp.kubeconfig(&home.path, token);
    builder
        .access(Access::kubeconfig(kubeconfig, Trust::Trusted))
        .workspace_type("waits")
}

fn initializing(kcp: &World, home: &Workspace) -> InitializingWorkspaces {
    of(InitializingWorkspaces::builder(), kcp, home, None)
        .build()
        .or_fail()
}

fn terminating(kcp: &World, home: &Workspace) -> TerminatingWorkspaces {
    of(TerminatingWorkspaces::builder(), kcp, home, None)
        .build()
        .or_fail()
}

fn maps(cluster: &Cluster) -> Api<ConfigMap> {
    Api::namespaced(cluster.client(), "default")
}

fn applied(name: &str) -> Patch<Value> {
    Patch::Apply(kcps::config_map(name))
}

/// The Workspace object at this path of `root` is as expected.
async fn workspace_is(kcp: &World, at: &str, expected: impl Fn(&kcps::Answer) -> bool) {
    until(&kcp.at(&kcp.url("root")), at, expected).await;
}

async fn delete(kcp: &World, at: &str) {
    let answer = kcps::delete(&kcp.at(&kcp.url("root")), at).await;
    assert_eq!(answer.code / 100, 2, "{answer:?}");
}

/// Waits until kcp's own initializers are gone, and returns the others.
async fn left_to(cluster: &Cluster, wanted: usize) -> Vec<String> {
    let api: Api<LogicalCluster> = Api::all(cluster.client());
    loop {
        let found = api.get("cluster").await.or_fail();
        let names = found.status.unwrap_or_default().initializers;
        if names.len() == wanted {
            return names;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Removes the initializer or terminator as a controller does, which tries again after a failure.
async fn released(running: &Running, name: &str, remove: impl AsyncFn() -> Result<Removal, LifecycleError>) {
    let tries = async {
        while !matches!(remove().await, Ok(Removal::Removed | Removal::Left)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, tries).await.or_fail();
    running.left(name).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_an_initializer_prepares_a_workspace_which_then_leaves() {
    for kcp in served_worlds(1).await {
        let (home, _) = of_type(&kcp, "prepares", json!({ "initializer": true })).await;
        let provider = initializing(&kcp, &home);
        let running = Running::start(provider.clone());
        running.discovered().await;
        let initializer = provider.initializer().unwrap();
        assert_eq!(initializer.name(), format!("{}:waits", home.id));
        assert!(running.fleet.clusters().is_empty());

        let (id, at) = waiting(&kcp, "one", &home).await;
        let one = running.ready(&id).await;
        let path = format!("root:{}", at.rsplit('/').next().unwrap());
        assert_eq!(one.property("kcp.io/path").as_deref(), Some(&*path));
        let watched = WatchRequest::of::<LogicalCluster>();
        let _watch = one.watch(watched.clone(), None).or_fail();
        let cluster = eventually(PATIENCE, "the LogicalCluster is seen", || {
            let store = one.store_of::<LogicalCluster>(&watched).ok()?;
            store.get(store.keys().ok()?.first()?).ok()?
        })
        .await;
        let labels = cluster.metadata.labels.clone().unwrap_or_default();
        let (key, value) = initializer.label();
        assert_eq!(labels.get(&key), Some(&value));
        assert!(initializer.is_on(&cluster));

        let params = PatchParams::apply("test");
        maps(&one)
            .patch("made", &params, &applied("made"))
            .await
            .or_fail();
        released(&running, &id, async || initializer.remove(&one.client()).await).await;
        let again = initializer.remove(&one.client()).await;
        assert_eq!(again.or_fail(), Removal::Left);
        workspace_is(&kcp, &at, |answer| answer.json["status"]["phase"] == "Ready").await;
        let inside = kcp.at(&kcp.url(&id));
        until(&inside, &format!("{MAPS}/made"), |answer| answer.code == 200).await;
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_two_initializers_of_a_workspace_go_at_the_same_time() {
    for kcp in served_worlds(1).await {
        let (home, _) = of_type(&kcp, "two", json!({ "initializer": true })).await;
        let base = json!({ "name": "waits", "path": home.path });
        add_type(&kcp, &home, "waits-too", base, json!({ "initializer": true })).await;
        let second = of(InitializingWorkspaces::builder(), &kcp, &home, None)
            .workspace_type("waits-too")
            .provider_name("second")
            .name_prefix("second-");
        let fleet = Fleet::builder()
            .provider(initializing(&kcp, &home))
            .provider(second.build().or_fail());
        let running = Running::of(fleet.build());
        let (id, at) = waiting_of(&kcp, "both", &home, "waits-too").await;
        let one = running.ready(&id).await;
        let two = running.ready(&format!("second-{id}")).await;
        assert_eq!(
            left_to(&one, 2).await,
            ["waits", "waits-too"].map(|name| format!("{}:{name}", home.id))
        );
        let [first, second] = ["waits", "waits-too"].map(|name| Initializer::new(&home.id, name).or_fail());
        let (client, too) = (one.client(), two.client());
        let (removed, removed_too) = tokio::join!(first.remove(&client), second.remove(&too));
        finished(removed);
        finished(removed_too);
        running.left(&id).await;
        running.left(&format!("second-{id}")).await;
        workspace_is(&kcp, &at, |answer| answer.json["status"]["phase"] == "Ready").await;
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_service_account_with_the_least_rights_initializes_a_workspace() {
    for kcp in served_worlds(1).await {
        let rules =
            json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch", "create"] }]);
        let fields = json!({ "initializer": true, "initializerPermissions": rules });
        let (home, _) = of_type(&kcp, "rights", fields).await;
        let types =
            |verbs: &[&str]| SimRule::new(["tenancy.kcp.io"], ["workspacetypes"], verbs.iter().copied());
        let user = KcpUser::new("provider")
            .rule(&home.id, types(&["get", "list", "watch"]))
            .rule(&home.id, types(&["initialize"]).names(["waits"]));
        let of_types = json!({ "apiGroups": ["tenancy.kcp.io"], "resources": ["workspacetypes"] });
        let (mut reads, mut own) = (of_types.clone(), of_types);
        reads["verbs"] = json!(["get", "list", "watch"]);
        own["verbs"] = json!(["initialize"]);
        own["resourceNames"] = json!(["waits"]);
        let token = kcp.token_of(&home, user, json!([reads, own])).await;
        let provider = of(InitializingWorkspaces::builder(), &kcp, &home, Some(&token))
            .build()
            .or_fail();
        let running = Running::start(provider);
        let (id, at) = waiting(&kcp, "one", &home).await;
        let one = running.ready(&id).await;
        let params = PatchParams::apply("test");
        maps(&one)
            .patch("made", &params, &applied("made"))
            .await
            .or_fail();
        let secrets: Api<Secret> = Api::namespaced(one.client(), "default");
        assert!(
            secrets
                .get("none")
                .await
                .is_err_and(|error| error.to_string().contains("403"))
        );
        let initializer = Initializer::new(&home.id, "waits").or_fail();
        finished(initializer.remove(&one.client()).await);
        running.left(&id).await;
        workspace_is(&kcp, &at, |answer| answer.json["status"]["phase"] == "Ready").await;
        running.stop().await;
    }
}

/// A workspace of the type that is ready, with a ConfigMap that a finalizer holds.
async fn held(kcp: &World, name: &str, home: &Workspace, of_type: &str) -> (String, String) {
    let (id, at) = waiting_of(kcp, name, home, of_type).await;
    workspace_is(kcp, &at, |answer| answer.json["status"]["phase"] == "Ready").await;
    let mut map = kcps::config_map("held");
    map["metadata"]["finalizers"] = json!(["example.io/hold"]);
    create(&kcp.at(&kcp.url(&id)), MAPS, &map).await;
    (id, at)
}

async fn release(cluster: &Cluster) {
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let tries = async {
        while maps(cluster)
            .patch("held", &PatchParams::default(), &patch)
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, tries).await.or_fail();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_deletion_waits_for_two_terminators() {
    for kcp in served_worlds(1).await {
        let (home, _) = of_type(&kcp, "ends", json!({ "terminator": true })).await;
        let base = json!({ "name": "waits", "path": home.path });
        add_type(&kcp, &home, "waits-too", base, json!({ "terminator": true })).await;
        let second = of(TerminatingWorkspaces::builder(), &kcp, &home, None)
            .workspace_type("waits-too")
            .provider_name("second")
            .name_prefix("second-");
        let provider = terminating(&kcp, &home);
        let fleet = Fleet::builder()
            .provider(provider.clone())
            .provider(second.build().or_fail());
        let running = Running::of(fleet.build());
        running.discovered().await;
        let [first, second] = ["waits", "waits-too"].map(|name| Terminator::new(&home.id, name).or_fail());
        assert_eq!(provider.terminator().as_ref(), Some(&first));
        for at_once in [false, true] {
            let (id, at) = held(&kcp, &format!("both-{at_once}"), &home, "waits-too").await;
            assert!(running.fleet.get(&id).is_err());
            delete(&kcp, &at).await;
            let one = running.ready(&id).await;
            let two = running.ready(&format!("second-{id}")).await;
            let map = maps(&one).get("held").await.or_fail();
            assert!(map.data.is_some());
            let (client, too) = (one.client(), two.client());
            if at_once {
                let (removed, removed_too) = tokio::join!(first.remove(&client), second.remove(&too));
                finished(removed);
                finished(removed_too);
                let inside = kcp.at(&kcp.url(&id));
                let patch = json!({ "metadata": { "finalizers": null } });
                // Without a terminator only kcp's own deletion holds the workspace.
                kcps::merge(&inside, &format!("{MAPS}/held"), &patch).await;
            } else {
                release(&two).await;
                finished(first.remove(&client).await);
                running.left(&id).await;
                reaches(&two, |state| state.is_ready()).await;
                workspace_is(&kcp, &at, |answer| {
                    answer.json["status"]["phase"] == "Terminating"
                })
                .await;
                finished(second.remove(&too).await);
            }
            running.left(&id).await;
            running.left(&format!("second-{id}")).await;
            workspace_is(&kcp, &at, |answer| answer.code == 404).await;
        }
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_workspace_that_moves_while_it_waits_stays_the_same_cluster() {
    for kcp in served_worlds(2).await {
        if !kcp.has_two_shards().await {
            continue;
        }
        let fields = json!({ "initializer": true, "terminator": true });
        let (home, _) = of_type(&kcp, "shifts", fields).await;
        let second = of(TerminatingWorkspaces::builder(), &kcp, &home, None).name_prefix("end-");
        let fleet = Fleet::builder()
            .provider(initializing(&kcp, &home))
            .provider(second.build().or_fail());
        let running = Running::of(fleet.build());
        let initializer = Initializer::new(&home.id, "waits").or_fail();
        let terminator = Terminator::new(&home.id, "waits").or_fail();
        for deleted in [false, true] {
            let (id, at) = waiting(&kcp, &format!("deleted-{deleted}"), &home).await;
            let mut one = running.ready(&id).await;
            left_to(&one, 1).await;
            let workspace = Workspace {
                path: format!("root:{}", at.rsplit('/').next().unwrap()),
                client: kcp.at(&kcp.url(&id)),
                id: id.clone(),
            };
            if deleted {
                released(&running, &id, async || initializer.remove(&one.client()).await).await;
                workspace_is(&kcp, &at, |answer| answer.json["status"]["phase"] == "Ready").await;
                let mut map = kcps::config_map("held");
                map["metadata"]["finalizers"] = json!(["example.io/hold"]);
                create(&workspace.client, MAPS, &map).await;
                delete(&kcp, &at).await;
                one = running.ready(&format!("end-{id}")).await;
            }
            // Nothing moves without the feature gate of kcp.
            if kcp.move_to(&workspace, "shard-1").await {
                until(&workspace.client, CLUSTER, |answer| {
                    answer.json["metadata"]["annotations"]["core.kcp.io/shard"] == "shard-1"
                })
                .await;
            } else {
                assert!(kcp.is_real());
            }
            if deleted {
                release(&one).await;
                let name = format!("end-{id}");
                released(&running, &name, async || terminator.remove(&one.client()).await).await;
                workspace_is(&kcp, &at, |answer| answer.code == 404).await;
            } else {
                released(&running, &id, async || initializer.remove(&one.client()).await).await;
                workspace_is(&kcp, &at, |answer| answer.json["status"]["phase"] == "Ready").await;
            }
        }
        running.stop().await;
    }
}
