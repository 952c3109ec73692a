//! The assertions of multicluster-runtime's tests of its provider of cluster inventories: P-34 to P-54 of `docs/comparison.md`. Hub
//! and member are simulated; the plugin is a program that runs.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use mcr::{Action, Cluster, Controller, Manager, Request};
use mcr_provider_cluster_inventory::{
    AccessProviderConfig, AccessProviders, ClusterInventoryProvider, ClusterInventoryProviderBuilder,
};
use mcr_testkit::{
    sim::{SimCluster, SimRule, SimServer, SimUser},
    waiting::{self, Background},
};
use serde_json::{Value, json};
use support::{access, client, hub, loopback_policy, object, plugin, prints};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixListener,
    task::JoinSet,
};

/// What never comes is given up after this.
const PATIENCE: Duration = Duration::from_secs(60);

/// Puts food into the empty stomachs of animals, through the client of their cluster.
async fn keeper(request: Request<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
    let hungry = request.live().is_some_and(|map| {
        let labels = map.metadata.labels.as_ref();
        let animal = labels.is_some_and(|labels| labels.get("type").is_some_and(|type_| type_ == "animal"));
        let stomach = map.data.as_ref().and_then(|data| data.get("stomach"));
        animal && stomach.is_none_or(|stomach| stomach != "food")
    });
    if hungry {
        let maps = request.cluster.namespaced::<ConfigMap>("default");
        let food = Patch::Merge(json!({"data": {"stomach": "food"}}));
        maps.patch(request.name(), &PatchParams::default(), &food).await?;
    }
    Ok(Action::await_change())
}

/// The plugin as a service: each document that comes is a run, and is answered with the token in the file.
async fn serve(listener: UnixListener, token: PathBuf, runs: PathBuf) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}}") {
            assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
        }
        let request = String::from_utf8(request).unwrap();
        assert!(
            request.starts_with("POST / ") && request.contains("ExecCredential"),
            "{request}"
        );
        let all = fs::read_to_string(&runs).unwrap_or_default();
        fs::write(&runs, format!("{all}run\n")).unwrap();
        let token = fs::read_to_string(&token).unwrap();
        let version = "client.authentication.k8s.io/v1";
        let answer = json!({"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}});
        let answer = answer.to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
        stream
            .write_all(format!("{head}{answer}").as_bytes())
            .await
            .unwrap();
    }
}

/// A hub, a member with animals, and a manager.
struct World {
    hub: SimCluster,
    member: SimServer,
    folder: TempDir,
    fleet: mcr::Fleet,
    running: Background<()>,
    _service: JoinSet<()>,
}

impl World {
    /// `options` gets the plugin, the access provider `p`: a program, or a service on a socket. `profile` changes the ClusterProfile of
    /// the member.
    async fn new(
        is_service: bool,
        options: impl FnOnce(ClusterInventoryProviderBuilder, AccessProviders) -> ClusterInventoryProviderBuilder,
        profile: impl FnOnce(&mut Value),
    ) -> Self {
        let member = SimCluster::builder()
            .name("member")
            .build()
            .serve()
            .await
            .unwrap();
        lives(&member, "monkey", "animal");
        lives(&member, "tarzan", "human");
        let folder = tempfile::tempdir().unwrap();
        let (token, runs) = (folder.path().join("token"), folder.path().join("runs"));
        fs::write(&token, member.cluster().admin_token()).unwrap();
        let text = prints(&format!("$(cat {})", token.display()));
        let program = plugin(&folder, &format!("echo run >> {}\n{text}", runs.display()));
        let (socket, mut service) = (folder.path().join("p.sock"), JoinSet::new());
        let config = if is_service {
            service.spawn(serve(UnixListener::bind(&socket).unwrap(), token, runs));
            AccessProviderConfig::new("p", format!("unix://{}", socket.display()))
        } else {
            AccessProviderConfig::new("p", program.to_str().unwrap())
        };
        let plugins = AccessProviders::new([config]).unwrap();
        let policy = loopback_policy(&[]).credential_plugins(plugins.plugin_policy());
        let hub = hub(SimCluster::builder());
        let access = access("p", &member.url(), &member.ca_pem(), json!({}));
        let mut described = object(
            "profile default/member",
            json!({"status": {"accessProviders": access}}),
        );
        profile(&mut described);
        hub.create(described).unwrap();
        let secret = json!({"stringData": {"Config": member.kubeconfig()}});
        hub.create(object("secret member", secret)).unwrap();
        let builder = ClusterInventoryProvider::builder()
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
            _service: service,
        }
    }

    async fn is_fed(&self, name: &str) {
        let fed = || {
            let map = self
                .member
                .cluster()
                .get("configmaps", &format!("default/{name}"));
            map.is_some_and(|map| map["data"]["stomach"] == "food")
        };
        waiting::eventually(PATIENCE, format!("{name} is fed"), fed).await;
    }

    fn cluster(&self) -> Option<Cluster> {
        self.fleet.get("default/member").ok()
    }

    /// The cases that upstream has for each strategy: existing, new and updated objects, and an index.
    async fn five_cases(&self) {
        self.is_fed("monkey").await;
        lives(&self.member, "tiger", "animal");
        self.is_fed("tiger").await;
        let mut tiger = self.member.cluster().get("configmaps", "default/tiger").unwrap();
        tiger["data"] = json!({"stomach": "empty"});
        self.member.cluster().update(tiger).unwrap();
        self.is_fed("tiger").await;
        let humans = || {
            let store = self.cluster()?.store::<ConfigMap>().ok()?;
            let found = store.by_index("type", "human").ok()?;
            let names: Vec<_> = found.iter().filter_map(|map| map.metadata.name.clone()).collect();
            (names == ["tarzan"]).then_some(())
        };
        waiting::eventually(PATIENCE, "the index finds tarzan", humans).await;
    }

    /// Revokes the token of the member, for which there is another one by then, and sees that all goes on without a LIST.
    async fn revoked(&self) {
        let (before, member) = (self.cluster().unwrap(), self.member.cluster());
        assert!(member.remove_user(&member.admin_token()));
        member.end_watches();
        lives(&self.member, "panther", "animal");
        self.is_fed("panther").await;
        assert!(self.cluster().unwrap().is_same(&before), "it is the same cluster");
        assert_eq!(
            member.audit().count(|event| event.is_list("configmaps")),
            1,
            "no LIST but the first"
        );
    }

    fn second_user(&self) {
        let all = SimUser::new("second").rule(SimRule::all());
        self.member.cluster().set_user("second", all);
    }
}

fn lives(member: &SimServer, name: &str, type_: &str) {
    let metadata = json!({"name": name, "namespace": "default", "labels": {"type": type_}});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    member.cluster().create(map).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_34_to_39_clusters_are_reached_with_secrets_whose_token_may_change() {
    let no_access = |profile: &mut Value| profile["status"]["accessProviders"] = json!([]);
    let world = World::new(false, |builder, _| builder.consumer_secrets("me"), no_access).await;
    world.five_cases().await;
    world.second_user();
    let mut secret = world.hub.get("secrets", "default/member-for-me").unwrap();
    secret["stringData"] = json!({"Config": world.member.kubeconfig_with_token("second")});
    world.hub.update(secret).unwrap();
    world.revoked().await;
    world.running.stop().await;
}

/// A plugin runs once, and again when its credential is refused, as a program and as a service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_40_to_44_clusters_are_reached_with_access_providers() {
    for is_service in [false, true] {
        let world = World::new(
            is_service,
            |builder, plugins| builder.access_providers(plugins),
            |_| {},
        )
        .await;
        world.five_cases().await;
        let runs = || fs::read_to_string(world.folder.path().join("runs")).unwrap();
        assert_eq!(runs(), "run\n");
        world.second_user();
        fs::write(world.folder.path().join("token"), "second").unwrap();
        world.revoked().await;
        assert_eq!(runs(), "run\nrun\n");
        world.running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_45_to_54_credential_providers_are_deprecated_and_an_own_predicate_reports_which_clusters_are_ready()
 {
    let world = World::new(
        false,
        |builder, plugins| builder.access_providers(plugins).v1alpha1().ready_when(|_| true),
        |profile| {
            let access = profile["status"]["accessProviders"].take();
            profile["status"] = json!({"credentialProviders": access});
        },
    )
    .await;
    world.five_cases().await;
    world.running.stop().await;
}
