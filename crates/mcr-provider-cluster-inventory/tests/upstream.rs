//! The assertions of multicluster-runtime's tests of its provider of cluster inventories: P-34 to P-58 of `docs/comparison.md`. Hub
//! and member are simulated; the plugin is a program that runs.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use mcr::{Action, Cluster, Controller, Manager, Request};
use mcr_provider_cluster_inventory::{
    AccessProviderConfig, AccessProviders, ClusterInventoryError, ClusterInventoryProvider,
    ClusterInventoryProviderBuilder,
};
use mcr_testkit::{
    sim::{SimCluster, SimRule, SimServer, SimUser},
    waiting::{self, Background},
};
use serde_json::{Value, json};
use support::{
    Folder, PATIENCE, base64, change, client, create_namespace, hub, locally, profile, providers, secret,
    timed,
};

/// Puts food into the empty stomachs of animals, through the client of their cluster.
async fn keeper(request: Request<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
    let hungry = request.live().is_some_and(|map| {
        let labels = map.metadata.labels.as_ref();
        let animal = labels.is_some_and(|labels| labels.get("type").is_some_and(|type_| type_ == "animal"));
        let stomach = map.data.as_ref().and_then(|data| data.get("stomach"));
        animal && stomach.is_none_or(|stomach| stomach != "food")
    });
    if hungry {
        let maps = request
            .cluster
            .namespaced::<ConfigMap>(request.namespace().unwrap_or_default());
        let food = Patch::Merge(json!({"data": {"stomach": "food"}}));
        maps.patch(request.name(), &PatchParams::default(), &food).await?;
    }
    Ok(Action::await_change())
}

/// A hub, a member with a jungle, and a manager.
struct World {
    hub: SimCluster,
    member: SimServer,
    folder: Folder,
    fleet: mcr::Fleet,
    running: Background<()>,
}

impl World {
    /// `options` gets the folder with the plugin, the access provider `p`. `in_hub` gets the hub, the member and its ClusterProfile.
    async fn new(
        options: impl FnOnce(ClusterInventoryProviderBuilder, AccessProviders) -> ClusterInventoryProviderBuilder,
        in_hub: impl FnOnce(&SimCluster, &SimServer, Value),
    ) -> Self {
        let member = SimCluster::builder()
            .name("member")
            .build()
            .serve()
            .await
            .unwrap();
        create_namespace(member.cluster(), "jungle");
        lives(&member, "monkey", "animal");
        lives(&member, "tarzan", "human");
        let folder = Folder::new();
        let plugin = folder.plugin(&format!(
            "printf '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
             \"status\":{{\"token\":\"{}\"}}}}'",
            member.cluster().admin_token()
        ));
        let plugins =
            AccessProviders::new([AccessProviderConfig::new("p", plugin.to_str().unwrap())]).unwrap();
        let policy = locally(&[&plugin]);
        let hub = hub();
        let mut described = profile("default", "member", &member.url());
        described["status"]["accessProviders"][0]["cluster"]["certificate-authority-data"] =
            base64(member.ca_pem()).into();
        in_hub(&hub, &member, described);
        let builder = timed(ClusterInventoryProvider::builder())
            .client(client(&hub))
            .all_namespaces();
        let provider = options(builder, plugins).build().unwrap();
        let manager = Manager::builder()
            .provider(provider)
            .settings(|settings| settings.access_policy = policy)
            .controller(Controller::<ConfigMap>::new("keeper").build(keeper, Arc::new(())))
            .build()
            .unwrap();
        let fleet = manager.fleet().clone();
        fleet.index::<ConfigMap>("type", |map| {
            let labels = map.metadata.labels.iter().flatten();
            labels
                .filter(|(key, _)| *key == "type")
                .map(|(_, type_)| type_.clone())
                .collect()
        });
        let running = Background::start(|stop| async move { manager.run_until(stop).await.unwrap() });
        Self {
            hub,
            member,
            folder,
            fleet,
            running,
        }
    }

    async fn is_fed(&self, name: &str) {
        let fed = || {
            let map = self
                .member
                .cluster()
                .get("configmaps", &format!("jungle/{name}"))?;
            (map["data"]["stomach"] == "food").then_some(())
        };
        waiting::eventually(PATIENCE, format!("{name} is fed"), fed).await;
    }

    fn cluster(&self) -> Option<Cluster> {
        self.fleet.get("default/member").ok()
    }

    /// The cases that upstream has for each strategy: existing, new and updated objects, and an index with and without a namespace.
    async fn five_cases(&self) {
        self.is_fed("monkey").await;
        lives(&self.member, "tiger", "animal");
        self.is_fed("tiger").await;
        change(self.member.cluster(), "configmaps", "jungle/tiger", |there| {
            there["data"] = json!({"stomach": "empty"});
        });
        self.is_fed("tiger").await;
        let humans = || {
            let found = self
                .cluster()?
                .store::<ConfigMap>()
                .ok()?
                .by_index("type", "human")
                .ok()?;
            let mut names = found.iter().map(|map| {
                let metadata = &map.metadata;
                (
                    metadata.namespace.clone().unwrap(),
                    metadata.name.clone().unwrap(),
                )
            });
            (names.next()? == ("jungle".into(), "tarzan".into()) && names.next().is_none()).then_some(())
        };
        waiting::eventually(PATIENCE, "the index finds tarzan, in the jungle", humans).await;
    }

    async fn stop(self) {
        self.running.stop().await;
        drop(self.folder);
    }
}

fn lives(member: &SimServer, name: &str, type_: &str) {
    let metadata = json!({"name": name, "namespace": "jungle", "labels": {"type": type_}});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    member.cluster().create(map).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_34_to_39_clusters_are_reached_with_secrets_whose_token_may_change() {
    let world = World::new(
        |builder, _| builder.consumer_secrets("me"),
        |hub, member, mut profile| {
            hub.create(secret("default", "member", member.kubeconfig()))
                .unwrap();
            profile["status"]
                .as_object_mut()
                .unwrap()
                .remove("accessProviders");
            hub.create(profile).unwrap();
        },
    )
    .await;
    world.five_cases().await;
    // P-39: another token, and the first one is gone.
    let before = world.cluster().unwrap();
    let member = world.member.cluster();
    member.set_user("second", SimUser::new("second").rule(SimRule::all()));
    change(&world.hub, "secrets", "default/member-for-me", |there| {
        there["data"]["Config"] = base64(world.member.kubeconfig_with_token("second")).into();
    });
    assert!(member.remove_user(&member.admin_token()));
    member.end_watches();
    lives(&world.member, "panther", "animal");
    world.is_fed("panther").await;
    assert!(
        world.cluster().unwrap().is_same(&before),
        "it is the same cluster"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_40_to_44_clusters_are_reached_with_access_providers() {
    let put = |hub: &SimCluster, _: &SimServer, profile| _ = hub.create(profile).unwrap();
    let world = World::new(|builder, plugins| builder.access_providers(plugins), put).await;
    world.five_cases().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_45_to_49_clusters_are_reached_with_the_deprecated_credential_providers() {
    let world = World::new(
        |builder, plugins| builder.access_providers(plugins).v1alpha1(),
        |hub, _, mut profile| {
            let status = profile["status"].as_object_mut().unwrap();
            let access = status.remove("accessProviders").unwrap();
            status.insert("credentialProviders".into(), access);
            hub.create(profile).unwrap();
        },
    )
    .await;
    world.five_cases().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_50_to_54_an_own_predicate_reports_which_clusters_are_ready() {
    let world = World::new(
        |builder, plugins| builder.access_providers(plugins).ready_when(|_| true),
        |hub, _, mut profile| {
            profile["status"]["conditions"] = json!([]);
            hub.create(profile).unwrap();
        },
    )
    .await;
    world.five_cases().await;
    world.stop().await;
}

#[tokio::test]
async fn p_55_to_58_there_is_exactly_one_way_to_reach_clusters() {
    let hub = hub();
    let builder = || ClusterInventoryProvider::builder().client(client(&hub));
    assert_eq!(builder().build().unwrap_err(), ClusterInventoryError::NoAccess);
    assert_eq!(
        builder()
            .access_providers(providers())
            .consumer_secrets("me")
            .build()
            .unwrap_err(),
        ClusterInventoryError::TwoAccesses
    );
    assert!(builder().access_providers(providers()).build().is_ok());
    assert!(builder().consumer_secrets("me").build().is_ok());
}
