//! Syncs between two real API servers.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, ResourceQuota, Service, ServiceAccount},
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use mcr::{
    Access, BoxError, BuiltController, ClusterName, ClusterSelector, ClusterSpec, Manager, ManagerError,
    Trust,
};
use mcr_provider_clusters::ClustersProvider;
use mcr_sync::{Conflicts, NameTemplate, ObjectSync};
use mcr_testkit::{
    control_plane::{ControlPlane, Etcd},
    waiting::{Background, eventually},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(120);

/// A source cluster and a target cluster.
struct World {
    team: ControlPlane,
    berlin: ControlPlane,
}

type Running = Background<Result<(), ManagerError>>;

impl World {
    async fn new() -> Self {
        let etcd = Etcd::start().await.unwrap();
        let plane = |name: &str| ControlPlane::builder().name(name).etcd(&etcd).audit(true).start();
        let (team, berlin) = tokio::try_join!(plane("team"), plane("berlin")).unwrap();
        Self { team, berlin }
    }

    /// Runs this sync from the one cluster to the other. Names stay as they are.
    fn start<S, T>(&self, sync: ObjectSync<S, T>) -> (Running, impl Fn() -> Option<String> + use<S, T>)
    where
        S: Resource + DeserializeOwned + Send + Sync + 'static,
        T: Resource + DeserializeOwned + Serialize + Send + Sync + 'static,
    {
        let provider = ClustersProvider::new();
        for plane in [&self.team, &self.berlin] {
            let access = Access::kubeconfig(plane.kubeconfig(), Trust::Trusted);
            provider
                .handle()
                .add(ClusterSpec::named(plane.name(), access).unwrap());
        }
        let controller: BuiltController = sync
            .from(ClusterSelector::name("team"))
            .to(ClusterName::new("berlin").unwrap())
            .name_by(NameTemplate::parse("{name}").unwrap())
            .build()
            .unwrap();
        let manager = Manager::builder()
            .provider(provider)
            .controller(controller)
            .build()
            .unwrap();
        let controller = manager.controllers().remove(0);
        let failing = move || {
            let clusters = controller.status().clusters.into_iter();
            let told: Vec<String> = clusters
                .flat_map(|(_, status)| status.failing)
                .map(|request| request.error.to_string())
                .collect();
            (!told.is_empty()).then(|| told.join("\n"))
        };
        (Background::start(|stop| manager.run_until(stop)), failing)
    }

    async fn source(&self, name: &str, data: Value) {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        let map = serde_json::from_value(map).unwrap();
        api::<ConfigMap>(&self.team)
            .create(&PostParams::default(), &map)
            .await
            .unwrap();
    }

    async fn change(&self, name: &str, data: Value) {
        merge::<ConfigMap>(&self.team, name, json!({"data": data})).await;
    }
}

fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(plane: &ControlPlane) -> Api<K> {
    Api::namespaced(plane.client(), "default")
}

async fn merge<K>(plane: &ControlPlane, name: &str, patch: Value)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let params = PatchParams {
        field_manager: Some("somebody".to_owned()),
        ..PatchParams::default()
    };
    api::<K>(plane)
        .patch(name, &params, &Patch::Merge(patch))
        .await
        .unwrap();
}

/// Waits until the object is as wanted.
async fn until<K, A>(
    plane: &ControlPlane,
    name: &str,
    what: &str,
    wanted: impl Fn(Option<&K>) -> Option<A>,
) -> A
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let wait = async {
        loop {
            let found = api::<K>(plane).get_opt(name).await.unwrap();
            if let Some(answer) = wanted(found.as_ref()) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, wait)
        .await
        .unwrap_or_else(|_| panic!("not in time: {name} {what}"))
}

/// The writes to the object of this name in both clusters.
async fn writes(world: &World, name: &str) -> usize {
    let mut sum = 0;
    for plane in [&world.team, &world.berlin] {
        let is_write = |verb: &str| ["create", "update", "patch", "delete"].contains(&verb);
        let log = plane.audit().await.unwrap();
        sum += log.count(|event| event.name == name && is_write(&event.verb));
    }
    sum
}

fn hard(quota: Option<&ResourceQuota>) -> Option<BTreeMap<String, String>> {
    let hard = quota?.spec.as_ref()?.hard.as_ref()?;
    Some(
        hard.iter()
            .map(|(key, value)| (key.clone(), value.0.clone()))
            .collect(),
    )
}

/// Each ConfigMap with a `cpu` becomes a quota.
fn quotas() -> ObjectSync<ConfigMap, ResourceQuota> {
    ObjectSync::new("quotas")
        .filter(|map: &ConfigMap| map.data.as_ref().is_some_and(|data| data.contains_key("cpu")))
        .project(|map: &ConfigMap, _| {
            let hard = map.data.iter().flatten();
            let mut quota = ResourceQuota::default();
            quota.spec.get_or_insert_default().hard = Some(
                hard.map(|(key, value)| (key.clone(), Quantity(value.clone())))
                    .collect(),
            );
            quota
        })
}

async fn life(sync: impl Fn() -> ObjectSync<ConfigMap, ResourceQuota>) {
    let world = World::new().await;
    world.source("db", json!({"cpu": "1000m", "pods": "7"})).await;
    let (running, _) = world.start(sync());
    let is = |wanted: &'static [(&'static str, &'static str)]| {
        move |quota: Option<&ResourceQuota>| {
            let wanted = wanted
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            (hard(quota)? == wanted.collect()).then_some(())
        }
    };
    // The server stores 1000m as 1.
    until(
        &world.berlin,
        "db",
        "as projected",
        is(&[("cpu", "1"), ("pods", "7")]),
    )
    .await;
    let theirs = json!({"metadata": {"labels": {"theirs": "kept"}}, "spec": {"hard": {"secrets": "3"}}});
    merge::<ResourceQuota>(&world.berlin, "db", theirs).await;
    world.change("db", json!({"pods": null})).await;
    until(
        &world.berlin,
        "db",
        "without pods",
        is(&[("cpu", "1"), ("secrets", "3")]),
    )
    .await;
    merge::<ResourceQuota>(&world.berlin, "db", json!({"spec": {"hard": {"cpu": "5"}}})).await;
    until(
        &world.berlin,
        "db",
        "repaired",
        is(&[("cpu", "1"), ("secrets", "3")]),
    )
    .await;
    let quota = api::<ResourceQuota>(&world.berlin).get("db").await.unwrap();
    assert_eq!(quota.metadata.labels.unwrap()["theirs"], "kept");
    world.source("before", json!({"cpu": "1"})).await;
    until(&world.berlin, "before", "made", is(&[("cpu", "1")])).await;
    running.stop().await.unwrap();

    let before = writes(&world, "db").await;
    let (running, _) = world.start(sync());
    world.source("after", json!({"cpu": "1"})).await;
    until(&world.berlin, "after", "made", is(&[("cpu", "1")])).await;
    let delete = DeleteParams::default();
    api::<ConfigMap>(&world.team).delete("db", &delete).await.unwrap();
    until::<ConfigMap, _>(&world.team, "db", "released", |map| map.is_none().then_some(())).await;
    assert!(
        api::<ResourceQuota>(&world.berlin)
            .get_opt("db")
            .await
            .unwrap()
            .is_none()
    );
    running.stop().await.unwrap();
    // The deletion by the test, that of the target, and the release. After them, the restarted sync has certainly seen `db`.
    assert_eq!(writes(&world, "db").await, before + 3, "a restart writes nothing");
    // The target went before its source was released.
    let deleted = world.berlin.audit().await.unwrap();
    let deleted = deleted
        .events()
        .filter(|event| event.name == "db" && event.verb == "delete")
        .last()
        .unwrap();
    let released = world.team.audit().await.unwrap();
    let released = released
        .events()
        .filter(|event| event.name == "db" && event.verb == "patch")
        .last()
        .unwrap();
    assert!(deleted.received < released.received, "{deleted:?} {released:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_life_on_real_servers_with_merge_patches() {
    life(quotas).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_life_on_real_servers_with_server_side_apply() {
    life(|| quotas().server_side_apply(Conflicts::Revert)).await;
}

fn services() -> ObjectSync<ConfigMap, Service> {
    ObjectSync::new("services").filter(|map: &ConfigMap| map.data.as_ref().is_some_and(|data| data.contains_key("port"))).try_project(
        |map: &ConfigMap, _| {
            let data = map.data.as_ref().ok_or("no data")?;
            let ports: Vec<Value> = ["port", "other"]
                .iter()
                .filter_map(|key| data.get(*key))
                .map(|port| json!({"name": format!("p{port}"), "port": port.parse::<u16>().unwrap_or_default()}))
                .collect();
            Ok::<Service, BoxError>(serde_json::from_value(json!({"spec": {"ports": ports}}))?)
        },
    )
}

fn ports(service: Option<&Service>) -> Option<Vec<(i32, String)>> {
    let ports = service?.spec.as_ref()?.ports.as_ref()?;
    let mut ports: Vec<_> = ports
        .iter()
        .map(|port| (port.port, port.name.clone().unwrap_or_default()))
        .collect();
    ports.sort();
    Some(ports)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_apply_takes_over_merges_lists_and_tells_conflicts() {
    let world = World::new().await;
    world.source("web", json!({"port": "80", "other": "81"})).await;
    world.source("well", json!({"port": "80"})).await;
    let (running, _) = world.start(services());
    let is = |wanted: &'static [(i32, &'static str)]| {
        move |service: Option<&Service>| {
            let found = ports(service)?;
            let found = found.iter().map(|(port, name)| (*port, &**name));
            found.eq(wanted.iter().copied()).then_some(())
        }
    };
    until(
        &world.berlin,
        "web",
        "with two ports",
        is(&[(80, "p80"), (81, "p81")]),
    )
    .await;
    until(&world.berlin, "well", "with its port", is(&[(80, "p80")])).await;
    running.stop().await.unwrap();

    // From merge patches to apply. What merge patches had set goes, if it is no longer projected.
    world.change("web", json!({"other": null})).await;
    let (running, failing) = world.start(services().server_side_apply(Conflicts::Tell));
    until(&world.berlin, "web", "with one port", is(&[(80, "p80")])).await;
    let service = api::<Service>(&world.berlin).get("web").await.unwrap();
    assert!(
        !service
            .metadata
            .annotations
            .unwrap()
            .contains_key("sync.mcr.dev/fields")
    );

    // Somebody adds a port. It stays when the sync changes its own.
    let theirs =
        json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"name": "theirs", "port": 99}]}});
    let apply = PatchParams::apply("somebody");
    api::<Service>(&world.berlin)
        .patch("web", &apply, &Patch::Apply(theirs))
        .await
        .unwrap();
    world.change("web", json!({"other": "82"})).await;
    until(
        &world.berlin,
        "web",
        "with all",
        is(&[(80, "p80"), (82, "p82"), (99, "theirs")]),
    )
    .await;

    // Somebody takes a field.
    let theirs =
        json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"name": "taken", "port": 80}]}});
    let force = PatchParams::apply("somebody").force();
    api::<Service>(&world.berlin)
        .patch("web", &force, &Patch::Apply(theirs))
        .await
        .unwrap();
    let told = || failing().filter(|error| error.contains("somebody") && error.contains("ports"));
    let error = eventually(LIMIT, "the conflict is told", told).await;
    assert!(error.contains("cluster://berlin/default/web"), "{error}");
    world.change("well", json!({"port": "90"})).await;
    until(&world.berlin, "well", "changed nevertheless", is(&[(90, "p90")])).await;
    let found = api::<Service>(&world.berlin).get("web").await.unwrap();
    assert!(
        ports(Some(&found)).unwrap().contains(&(80, "taken".to_owned())),
        "nothing was written"
    );
    running.stop().await.unwrap();

    let (running, _) = world.start(services().server_side_apply(Conflicts::Revert));
    until(&world.berlin, "web", "reverted", is(&[(80, "p80"), (82, "p82")])).await;
    running.stop().await.unwrap();
}

/// Copies as immutable objects.
fn fixed() -> ObjectSync<ConfigMap, ConfigMap> {
    ObjectSync::new("fixed")
        .filter(|map: &ConfigMap| map.data.as_ref().is_some_and(|data| data.contains_key("size")))
        .project(|map: &ConfigMap, _| {
            let mut copy = ConfigMap {
                data: map.data.clone(),
                immutable: Some(true),
                ..ConfigMap::default()
            };
            let label = map.data.iter().flatten().filter(|(key, _)| *key == "label");
            copy.metadata.labels = Some(label.map(|(key, value)| (key.clone(), value.clone())).collect());
            copy
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_immutable_target_is_told_or_replaced_and_an_invalid_one_stays() {
    let world = World::new().await;
    let has = |key: &'static str, value: &'static str| {
        move |map: Option<&ConfigMap>| {
            let map = map?;
            (map.data.as_ref()?.get(key)? == value).then(|| map.metadata.uid.clone().unwrap())
        }
    };
    world.source("db", json!({"size": "1"})).await;
    let (running, failing) = world.start(fixed());
    let first = until(&world.berlin, "db", "made", has("size", "1")).await;
    world.change("db", json!({"size": "2"})).await;
    let error = eventually(LIMIT, "the refusal", || {
        failing().filter(|error| error.contains("immutable"))
    })
    .await;
    assert!(error.contains("cluster://berlin/default/db"), "{error}");
    world.source("well", json!({"size": "1"})).await;
    until(&world.berlin, "well", "made nevertheless", has("size", "1")).await;
    running.stop().await.unwrap();

    let (running, failing) = world.start(fixed().replace_when_immutable(true));
    let second = until(&world.berlin, "db", "replaced", has("size", "2")).await;
    assert_ne!(first, second);
    world
        .change("db", json!({"size": "3", "label": "not valid"}))
        .await;
    let error = eventually(LIMIT, "the other refusal", || {
        failing().filter(|error| error.contains("a valid label must"))
    })
    .await;
    assert!(!error.contains("not valid"), "it quotes no value: {error}");
    let kept = until(&world.berlin, "db", "as it was", has("size", "2")).await;
    assert_eq!(second, kept, "what can't be made anew is not deleted");
    running.stop().await.unwrap();
}

/// Copies the ConfigMaps with a `copy`, into the namespace `dbs`.
fn copies() -> ObjectSync<ConfigMap, ConfigMap> {
    ObjectSync::new("copies")
        .filter(|map: &ConfigMap| map.data.as_ref().is_some_and(|data| data.contains_key("copy")))
        .project(|map: &ConfigMap, _| {
            let mut copy = ConfigMap {
                data: map.data.clone(),
                ..ConfigMap::default()
            };
            let copies: usize = copy
                .data
                .iter()
                .flatten()
                .filter_map(|(_, size)| size.parse::<usize>().ok())
                .sum();
            copy.data
                .get_or_insert_default()
                .insert("large".to_owned(), "x".repeat(copies));
            copy
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_object_over_one_megabyte_and_namespace_that_ends_are_told_and_others_go_on() {
    let world = World::new().await;
    // Over the limit of the kind, and over that of a request.
    world.source("huge", json!({"copy": "2000000"})).await;
    world.source("giant", json!({"copy": "4000000"})).await;
    let (running, failing) = world.start(copies());
    let told = |part: &'static str| {
        let failing = &failing;
        move || failing().filter(|error| error.contains(part))
    };
    for name in ["default/huge is too large", "default/giant is too large"] {
        eventually(LIMIT, "the size is told", told(name)).await;
    }
    let error = failing().unwrap();
    assert!(
        error.ends_with("project less data, or shorten the source"),
        "{error}"
    );
    let has = |map: Option<&ConfigMap>| map.map(drop);
    world.source("well", json!({"copy": "1"})).await;
    until(&world.berlin, "well", "made nevertheless", has).await;
    world.change("huge", json!({"copy": "2"})).await;
    until(&world.berlin, "huge", "made when it is small", has).await;
    running.stop().await.unwrap();

    // Nobody ends the namespace, because there is no controller manager.
    let namespaces = Api::<Namespace>::all(world.berlin.client());
    let dbs = serde_json::from_value(json!({"metadata": {"name": "dbs"}})).unwrap();
    namespaces.create(&PostParams::default(), &dbs).await.unwrap();
    namespaces.delete("dbs", &DeleteParams::default()).await.unwrap();
    let sync = copies().namespace(mcr_sync::TargetNamespace::Fixed("dbs".to_owned()));
    let (running, failing) = world.start(sync);
    let error = eventually(LIMIT, "the end is told", || {
        failing().filter(|error| error.contains("terminated"))
    })
    .await;
    assert!(error.contains("cluster://berlin/dbs/"), "{error}");
    // The former targets stay, because there are no new ones.
    for name in ["huge", "well"] {
        until(&world.berlin, name, "kept", has).await;
    }
    running.stop().await.unwrap();
}

/// Creates an object named `x`, mirrors its kind, and returns both.
async fn mirrored<K>(world: &World, spec: Value) -> [Value; 2]
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + DeserializeOwned
        + Serialize
        + Clone
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    let mut object = spec;
    object["metadata"] = json!({"name": "x", "labels": {"copy": "yes"}});
    let object: K = serde_json::from_value(object).unwrap();
    let source = api::<K>(&world.team)
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
    let source = serde_json::to_value(source).unwrap();
    // The address and the port of the source are taken in the other cluster.
    if let Some(port) = source["spec"]["ports"][0]["nodePort"].as_i64() {
        let taken = json!({"metadata": {"name": "taken"}, "spec": {
            "type": "NodePort", "clusterIP": source["spec"]["clusterIP"], "ports": [{"port": 80, "nodePort": port}]}});
        let taken: Service = serde_json::from_value(taken).unwrap();
        api::<Service>(&world.berlin)
            .create(&PostParams::default(), &taken)
            .await
            .unwrap();
    }
    let is_chosen = |object: &K| {
        object
            .meta()
            .labels
            .as_ref()
            .is_some_and(|labels| labels.contains_key("copy"))
    };
    let (running, failing) = world.start(ObjectSync::<K, K>::new("mirror").filter(is_chosen).mirror());
    let target = until::<K, _>(&world.berlin, "x", "mirrored", |found| found.cloned()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = writes(world, "x").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        (failing(), writes(world, "x").await),
        (None, before),
        "nothing is written without end"
    );
    running.stop().await.unwrap();
    [source, serde_json::to_value(target).unwrap()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_mirror_between_real_servers_leaves_out_what_each_of_them_chooses() {
    let world = World::new().await;
    let spec = json!({"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80}]});
    let [source, target] = mirrored::<Service>(&world, json!({"spec": spec})).await;
    for path in ["/spec/clusterIP", "/spec/ports/0/nodePort"] {
        let [source, target] = [&source, &target].map(|service| service.pointer(path));
        assert!(
            target.is_some() && source != target,
            "{path}: {source:?} {target:?}"
        );
    }
    assert_eq!(target["spec"]["selector"], json!({"app": "web"}));
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.test/pi"}]}});
    let [source, target] = mirrored::<Job>(&world, json!({"spec": {"template": pod}})).await;
    let uid =
        |job: &Value| job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"].clone();
    assert_eq!(
        (uid(&source), uid(&target)),
        (
            source["metadata"]["uid"].clone(),
            target["metadata"]["uid"].clone()
        )
    );
    let claim = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "slow", "volumeName": "pv-1",
        "resources": {"requests": {"storage": "1Gi"}}});
    let [_, target] = mirrored::<PersistentVolumeClaim>(&world, json!({"spec": claim})).await;
    assert_eq!(target["spec"]["volumeName"], Value::Null);
    let [_, target] = mirrored::<ServiceAccount>(&world, json!({"secrets": [{"name": "x-token"}]})).await;
    assert_eq!(target["secrets"], Value::Null);
}
