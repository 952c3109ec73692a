//! Syncs between two real API servers.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ResourceQuota, Service};
use kube::{
    Api, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use mcr::{
    Access, BoxError, ClusterName, ClusterSelector, ClusterSpec, ControllerHandle, Manager, ManagerError,
    Trust,
};
use mcr_provider_clusters::ClustersProvider;
use mcr_sync::{Conflicts, NameTemplate, ObjectSync, TargetNamespace};
use mcr_testkit::{
    control_plane::{ControlPlane, Etcd},
    waiting::{Background, eventually},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(120);

/// A source cluster, a target cluster, and the sync that runs.
struct World {
    team: ControlPlane,
    berlin: ControlPlane,
    running: Option<(ControllerHandle, Background<Result<(), ManagerError>>)>,
}

impl World {
    async fn new() -> Self {
        let etcd = Etcd::start().await.unwrap();
        let plane = |name: &str| ControlPlane::builder().name(name).etcd(&etcd).audit(true).start();
        let (team, berlin) = tokio::try_join!(plane("team"), plane("berlin")).unwrap();
        let running = None;
        Self {
            team,
            berlin,
            running,
        }
    }

    /// Runs this sync from the one cluster to the other. Names stay as they are.
    fn start<S, T>(&mut self, sync: ObjectSync<S, T>)
    where
        S: Resource + DeserializeOwned + Send + Sync + 'static,
        T: Resource + DeserializeOwned + Serialize + Send + Sync + 'static,
    {
        let provider = ClustersProvider::new();
        for plane in [&self.team, &self.berlin] {
            let access = Access::kubeconfig(plane.kubeconfig(), Trust::Trusted);
            let spec = ClusterSpec::named(plane.name(), access).unwrap();
            provider.handle().add(spec);
        }
        let sync = sync
            .from(ClusterSelector::name("team"))
            .to(ClusterName::new("berlin").unwrap())
            .name_by(NameTemplate::parse("{name}").unwrap());
        let controller = sync.build().unwrap();
        let handle = controller.handle();
        let manager = Manager::builder().provider(provider).controller(controller);
        let manager = manager.build().unwrap();
        self.running = Some((handle, Background::start(|stop| manager.run_until(stop))));
    }

    async fn stop(&mut self) {
        self.running.take().unwrap().1.stop().await.unwrap();
    }

    /// All errors that are reported now.
    fn failing(&self) -> String {
        let status = self.running.as_ref().unwrap().0.status();
        let failing = status.clusters.into_iter().flat_map(|(_, status)| status.failing);
        Vec::from_iter(failing.map(|request| request.error.to_string())).join("\n")
    }

    async fn told(&self, words: &str) -> String {
        let told = || Some(self.failing()).filter(|told| told.contains(words));
        eventually(LIMIT, words, told).await
    }

    async fn source(&self, name: &str, data: Value) {
        create(&self.team, "ConfigMap", name, json!({"data": data})).await;
    }

    async fn change(&self, name: &str, data: Value) {
        patch(&self.team, "ConfigMap", name, Patch::Merge(json!({"data": data}))).await;
    }

    /// The writes to the objects of this name in both clusters.
    async fn writes(&self, name: &str) -> usize {
        let mut sum = 0;
        for plane in [&self.team, &self.berlin] {
            let is_write = |verb: &str| ["create", "update", "patch", "delete"].contains(&verb);
            let log = plane.audit().await.unwrap();
            sum += log.count(|event| event.name == name && is_write(&event.verb));
        }
        sum
    }
}

fn resource(kind: &str) -> ApiResource {
    let group = if kind == "Job" { "batch" } else { "" };
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

fn api(plane: &ControlPlane, kind: &str) -> Api<DynamicObject> {
    Api::namespaced_with(plane.client(), "default", &resource(kind))
}

async fn create(plane: &ControlPlane, kind: &str, name: &str, object: Value) -> Value {
    let mut object = DynamicObject::new(name, &resource(kind)).data(object);
    object.metadata.labels = Some(BTreeMap::from([("copy".to_owned(), "yes".to_owned())]));
    let object = api(plane, kind).create(&PostParams::default(), &object).await;
    serde_json::to_value(object.unwrap()).unwrap()
}

/// Changes an object as somebody who forces conflicts.
async fn patch(plane: &ControlPlane, kind: &str, name: &str, patch: Patch<Value>) {
    let mut params = PatchParams::apply("somebody");
    params.force = matches!(patch, Patch::Apply(_));
    api(plane, kind).patch(name, &params, &patch).await.unwrap();
}

/// Waits until the object is as wanted, and returns it. Null is none.
async fn until(plane: &ControlPlane, kind: &str, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut found = Value::Null;
    let wait = async {
        loop {
            found = serde_json::to_value(api(plane, kind).get_opt(name).await.unwrap()).unwrap();
            if wanted(&found) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let in_time = tokio::time::timeout(LIMIT, wait).await.is_ok();
    assert!(in_time, "{kind} {name} is {found}");
    found
}

/// Makes an object of each ConfigMap that has this key.
fn made<T>(
    key: &'static str,
    make: impl Fn(&BTreeMap<String, String>) -> Value + Send + Sync + 'static,
) -> ObjectSync<ConfigMap, T>
where
    T: Resource<DynamicType = ()> + DeserializeOwned + Serialize + Send + Sync + 'static,
{
    ObjectSync::new("made")
        .filter(|map: &ConfigMap| map.data.as_ref().is_some_and(|data| data.contains_key(key)))
        .try_project(move |map: &ConfigMap, _| serde_json::from_value::<T>(make(map.data.as_ref().unwrap())))
}

async fn quota(w: &World, name: &str, hard: &Value) -> Value {
    until(&w.berlin, "ResourceQuota", name, |quota| {
        quota["spec"]["hard"] == *hard
    })
    .await
}

async fn life(change: impl Fn(ObjectSync<ConfigMap, ResourceQuota>) -> ObjectSync<ConfigMap, ResourceQuota>) {
    let sync = || change(made("cpu", |data| json!({"spec": {"hard": data}})));
    let mut w = World::new().await;
    w.source("db", json!({"cpu": "1000m", "pods": "7"})).await;
    w.start(sync());
    // The server stores 1000m as 1.
    quota(&w, "db", &json!({"cpu": "1", "pods": "7"})).await;
    let theirs = json!({"metadata": {"labels": {"theirs": "kept"}}, "spec": {"hard": {"secrets": "3"}}});
    patch(&w.berlin, "ResourceQuota", "db", Patch::Merge(theirs)).await;
    w.change("db", json!({"pods": null})).await;
    let both = json!({"cpu": "1", "secrets": "3"});
    quota(&w, "db", &both).await;
    let drift = json!({"spec": {"hard": {"cpu": "5"}}});
    patch(&w.berlin, "ResourceQuota", "db", Patch::Merge(drift)).await;
    let found = quota(&w, "db", &both).await;
    assert_eq!(found["metadata"]["labels"]["theirs"], "kept");
    let one = json!({"cpu": "1"});
    w.source("before", one.clone()).await;
    quota(&w, "before", &one).await;
    w.stop().await;

    let before = w.writes("db").await;
    w.start(sync());
    w.source("after", one.clone()).await;
    quota(&w, "after", &one).await;
    let delete = DeleteParams::default();
    api(&w.team, "ConfigMap").delete("db", &delete).await.unwrap();
    until(&w.team, "ConfigMap", "db", Value::is_null).await;
    assert_eq!(api(&w.berlin, "ResourceQuota").get_opt("db").await.unwrap(), None);
    w.stop().await;
    // The deletion by the test, that of the target, and the release. After them, the restarted sync has certainly seen `db`.
    assert_eq!(w.writes("db").await, before + 3, "a restart writes nothing");
    // The target went before its source was released.
    let mut last = Vec::new();
    for (plane, verb) in [(&w.berlin, "delete"), (&w.team, "patch")] {
        let audit = plane.audit().await.unwrap();
        let events = audit
            .events()
            .filter(|event| event.name == "db" && event.verb == verb);
        last.push(events.last().unwrap().received.clone());
    }
    assert!(last[0] < last[1], "{last:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_life_on_real_servers_with_merge_patches() {
    life(|sync| sync).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_life_on_real_servers_with_server_side_apply() {
    life(|sync| sync.server_side_apply(Conflicts::Revert)).await;
}

fn services() -> ObjectSync<ConfigMap, Service> {
    made("port", |data| {
        let ports = ["port", "other"].iter().filter_map(|key| data.get(*key));
        let ports =
            ports.map(|port| json!({"name": format!("p{port}"), "port": port.parse::<u16>().unwrap()}));
        json!({"spec": {"ports": Vec::from_iter(ports)}})
    })
}

/// Waits until a Service has these names of ports.
async fn ports(w: &World, name: &str, wanted: &[&str]) -> Value {
    let is = |service: &Value| {
        let ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let mut ports = Vec::from_iter(ports.filter_map(|port| port["name"].as_str()));
        ports.sort_unstable();
        ports == wanted
    };
    until(&w.berlin, "Service", name, is).await
}

/// Somebody sets the name of a port.
async fn named(w: &World, name: &str, port: u16) {
    let spec = json!({"ports": [{"name": name, "port": port}]});
    let theirs = json!({"apiVersion": "v1", "kind": "Service", "spec": spec});
    patch(&w.berlin, "Service", "web", Patch::Apply(theirs)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_apply_takes_over_merges_lists_and_tells_conflicts() {
    let mut w = World::new().await;
    w.source("web", json!({"port": "80", "other": "81"})).await;
    w.source("well", json!({"port": "80"})).await;
    w.start(services());
    ports(&w, "web", &["p80", "p81"]).await;
    ports(&w, "well", &["p80"]).await;
    w.stop().await;

    // From merge patches to apply. What merge patches had set goes, if it is no longer projected.
    w.change("web", json!({"other": null})).await;
    w.start(services().server_side_apply(Conflicts::Tell));
    let service = ports(&w, "web", &["p80"]).await;
    let annotations = service["metadata"]["annotations"].as_object().unwrap();
    assert!(!annotations.contains_key("sync.mcr.dev/fields"));

    // Somebody adds a port. It stays when the sync changes its own.
    named(&w, "theirs", 99).await;
    w.change("web", json!({"other": "82"})).await;
    ports(&w, "web", &["p80", "p82", "theirs"]).await;

    // Somebody takes a field.
    named(&w, "taken", 80).await;
    let error = w.told("somebody").await;
    for words in ["ports", "cluster://berlin/default/web"] {
        assert!(error.contains(words), "{error}");
    }
    w.change("well", json!({"port": "90"})).await;
    ports(&w, "well", &["p90"]).await;
    ports(&w, "web", &["p82", "taken"]).await;
    w.stop().await;

    w.start(services().server_side_apply(Conflicts::Revert));
    ports(&w, "web", &["p80", "p82"]).await;
}

/// Waits until a copy has this size, and returns its UID.
async fn sized(w: &World, name: &str, size: &str) -> Value {
    let is = |map: &Value| map["data"]["size"] == size;
    until(&w.berlin, "ConfigMap", name, is).await["metadata"]["uid"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_immutable_target_is_told_or_replaced_and_an_invalid_one_stays() {
    let fixed = || {
        made::<ConfigMap>("size", |data| {
            let mut labels = data.clone();
            labels.retain(|key, _| key == "label");
            json!({"metadata": {"labels": labels}, "data": data, "immutable": true})
        })
    };
    let mut w = World::new().await;
    w.source("db", json!({"size": "1"})).await;
    w.start(fixed());
    let first = sized(&w, "db", "1").await;
    w.change("db", json!({"size": "2"})).await;
    let error = w.told("immutable").await;
    assert!(error.contains("cluster://berlin/default/db"), "{error}");
    w.source("well", json!({"size": "1"})).await;
    sized(&w, "well", "1").await;
    w.stop().await;

    w.start(fixed().replace_when_immutable(true));
    let second = sized(&w, "db", "2").await;
    assert_ne!(first, second);
    w.change("db", json!({"size": "3", "label": "not valid"})).await;
    let error = w.told("a valid label must").await;
    assert!(!error.contains("not valid"), "it quotes no value: {error}");
    let kept = sized(&w, "db", "2").await;
    assert_eq!(second, kept, "what can't be made anew is not deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_object_over_one_megabyte_and_namespace_that_ends_are_told_and_others_go_on() {
    let copies = || {
        made::<ConfigMap>("size", |data| {
            let large = "x".repeat(data["size"].parse().unwrap());
            json!({"data": {"size": data["size"], "large": large}})
        })
    };
    let mut w = World::new().await;
    // Over the limit of the kind, and over that of a request.
    w.source("huge", json!({"size": "2000000"})).await;
    w.source("giant", json!({"size": "4000000"})).await;
    w.start(copies());
    w.told("default/huge is too large").await;
    let error = w.told("default/giant is too large").await;
    assert!(
        error.ends_with("project less data, or shorten the source"),
        "{error}"
    );
    w.source("well", json!({"size": "1"})).await;
    sized(&w, "well", "1").await;
    w.change("huge", json!({"size": "2"})).await;
    sized(&w, "huge", "2").await;
    w.stop().await;

    // Nobody ends the namespace, because there is no controller manager.
    let namespaces = Api::<Namespace>::all(w.berlin.client());
    let dbs = serde_json::from_value(json!({"metadata": {"name": "dbs"}})).unwrap();
    namespaces.create(&PostParams::default(), &dbs).await.unwrap();
    namespaces.delete("dbs", &DeleteParams::default()).await.unwrap();
    w.start(copies().namespace(TargetNamespace::Fixed("dbs".to_owned())));
    let error = w.told("terminated").await;
    assert!(error.contains("cluster://berlin/dbs/"), "{error}");
    // The former targets stay, because there are no new ones.
    sized(&w, "well", "1").await;
    sized(&w, "huge", "2").await;
}

/// Mirrors an object, and returns both.
async fn mirrored(w: &mut World, kind: &str, object: Value) -> [Value; 2] {
    let source = create(&w.team, kind, "x", object.clone()).await;
    // The address and the port of the source are taken in the other cluster.
    if let Some(port) = source["spec"]["ports"][0]["nodePort"].as_i64() {
        let ports = json!([{"port": 80, "nodePort": port}]);
        let spec = json!({"type": "NodePort", "clusterIP": source["spec"]["clusterIP"], "ports": ports});
        create(&w.berlin, kind, "taken", json!({"spec": spec})).await;
    }
    let sync = ObjectSync::<DynamicObject, DynamicObject>::with("mirror", &resource(kind), &resource(kind));
    let is_chosen = |object: &DynamicObject| {
        object
            .metadata
            .labels
            .iter()
            .flatten()
            .any(|(key, _)| key == "copy")
    };
    w.start(sync.filter(is_chosen).mirror());
    let target = until(&w.berlin, kind, "x", |found| !found.is_null()).await;
    // It comes to rest: nothing is written to it while another object is mirrored.
    for probe in 0.. {
        assert!(probe < 10, "{kind} is written without end: {}", w.failing());
        let (before, name) = (w.writes("x").await, format!("probe-{probe}"));
        create(&w.team, kind, &name, object.clone()).await;
        until(&w.berlin, kind, &name, |found| !found.is_null()).await;
        if w.writes("x").await == before && w.failing().is_empty() {
            break;
        }
    }
    w.stop().await;
    [source, target]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_mirror_between_real_servers_leaves_out_what_each_of_them_chooses() {
    let mut w = World::new().await;
    let spec = json!({"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80}]});
    let services = mirrored(&mut w, "Service", json!({"spec": spec})).await;
    for path in ["/spec/clusterIP", "/spec/ports/0/nodePort"] {
        let [source, target] = services.each_ref().map(|service| service.pointer(path));
        assert!(
            target.is_some() && source != target,
            "{path}: {source:?} {target:?}"
        );
    }
    assert_eq!(services[1]["spec"]["selector"], json!({"app": "web"}));
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.test/pi"}]}});
    for job in mirrored(&mut w, "Job", json!({"spec": {"template": pod}})).await {
        let labels = &job["spec"]["selector"]["matchLabels"];
        assert_eq!(
            labels["batch.kubernetes.io/controller-uid"],
            job["metadata"]["uid"]
        );
    }
    let claim = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "slow", "volumeName": "pv-1",
        "resources": {"requests": {"storage": "1Gi"}}});
    let [_, target] = mirrored(&mut w, "PersistentVolumeClaim", json!({"spec": claim})).await;
    assert_eq!(target["spec"]["volumeName"], Value::Null);
    let [_, target] = mirrored(
        &mut w,
        "ServiceAccount",
        json!({"secrets": [{"name": "x-token"}]}),
    )
    .await;
    assert_eq!(target["secrets"], Value::Null);
}
