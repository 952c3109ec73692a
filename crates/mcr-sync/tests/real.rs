//! Syncs between two real API servers.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, time::Duration};

use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use mcr::{
    Access, ClusterName, ClusterSelector, ClusterSpec, ControllerHandle, Manager, ManagerError, Trust,
};
use mcr_provider_clusters::ClustersProvider;
use mcr_sync::{Conflicts, NameTemplate, ObjectSync, TargetNamespace};
use mcr_testkit::{
    control_plane::{ControlPlane, Etcd},
    waiting::{Background, eventually},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const LIMIT: Duration = Duration::from_secs(120);
const MAP: &str = "ConfigMap";
const QUOTA: &str = "ResourceQuota";

type Any = ObjectSync<DynamicObject, DynamicObject>;

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
        Self {
            team,
            berlin,
            running: None,
        }
    }

    /// Syncs what the tests have created from the one cluster to the other. Names stay as they are.
    fn start(&mut self, sync: Any) {
        let provider = ClustersProvider::new();
        for plane in [&self.team, &self.berlin] {
            let access = Access::kubeconfig(plane.kubeconfig(), Trust::Trusted);
            let spec = ClusterSpec::named(plane.name(), access).unwrap();
            provider.handle().add(spec);
        }
        let controller = sync
            .from(ClusterSelector::name("team"))
            .to(ClusterName::new("berlin").unwrap())
            .name_by(NameTemplate::parse("{name}").unwrap())
            .filter(|object| object.metadata.labels == labels())
            .build()
            .unwrap();
        let handle = controller.handle();
        let manager = Manager::builder().provider(provider).controller(controller);
        let manager = manager.build().unwrap();
        self.running = Some((handle, Background::start(|stop| manager.run_until(stop))));
    }

    async fn stop(&mut self) {
        self.running.take().unwrap().1.stop().await.unwrap();
    }

    fn failing(&self) -> Vec<String> {
        let status = self.running.as_ref().unwrap().0.status();
        let failing = status.clusters.into_values().flat_map(|status| status.failing);
        failing.map(|request| request.error.to_string()).collect()
    }

    async fn reported(&self, words: &str) -> String {
        let reported = || self.failing().into_iter().find(|error| error.contains(words));
        eventually(LIMIT, words, reported).await
    }

    async fn source(&self, name: &str, data: Value) {
        create(&self.team, MAP, name, json!({"data": data})).await;
    }

    async fn change(&self, name: &str, data: Value) {
        patch(&self.team, MAP, name, Patch::Merge(json!({"data": data}))).await;
    }

    /// The writes to the objects of this name in both clusters, in their order.
    async fn writes(&self, name: &str) -> Vec<String> {
        let mut writes = Vec::new();
        for plane in [&self.team, &self.berlin] {
            let log = plane.audit().await.unwrap();
            let of = log.events().filter(|event| event.name == name);
            let of = of.filter(|event| !["get", "list", "watch"].contains(&&*event.verb));
            let cluster = plane.name();
            writes.extend(of.map(|event| (event.received.clone(), format!("{} {cluster}", event.verb))));
        }
        writes.sort();
        writes.into_iter().map(|(_, write)| write).collect()
    }
}

fn resource(kind: &str) -> ApiResource {
    let group = if kind == "Job" { "batch" } else { "" };
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

fn api(plane: &ControlPlane, kind: &str) -> Api<DynamicObject> {
    Api::namespaced_with(plane.client(), "default", &resource(kind))
}

/// The labels of what the tests create.
fn labels() -> Option<BTreeMap<String, String>> {
    Some([("copy".to_owned(), "yes".to_owned())].into())
}

async fn create(plane: &ControlPlane, kind: &str, name: &str, object: Value) -> Value {
    let mut object = DynamicObject::new(name, &resource(kind)).data(object);
    object.metadata.labels = labels();
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
    let started = Instant::now();
    loop {
        let found = api(plane, kind).get_opt(name).await.unwrap();
        let found = serde_json::to_value(found).unwrap();
        if wanted(&found) {
            return found;
        }
        assert!(started.elapsed() < LIMIT, "{kind} {name} is {found}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a target has this value of a field, and returns it.
async fn is(w: &World, kind: &str, name: &str, field: &str, value: Value) -> Value {
    let is = |found: &Value| found.pointer(field) == Some(&value);
    until(&w.berlin, kind, name, is).await
}

/// Makes an object of the data of each ConfigMap.
fn made(kind: &'static str, make: fn(&Value) -> Value) -> Any {
    Any::with("made", &resource(MAP), &resource(kind)).try_project(move |map, _| {
        let mut made = make(&map.data["data"]);
        made["apiVersion"] = "v1".into();
        made["kind"] = kind.into();
        serde_json::from_value::<DynamicObject>(made)
    })
}

async fn life(change: fn(Any) -> Any) {
    let sync = || change(made(QUOTA, |data| json!({"spec": {"hard": data}})));
    let (hard, one) = ("/spec/hard", json!({"cpu": "1"}));
    let mut w = World::new().await;
    w.source("db", json!({"cpu": "1000m", "pods": "7"})).await;
    w.start(sync());
    // The server stores 1000m as 1.
    is(&w, QUOTA, "db", hard, json!({"cpu": "1", "pods": "7"})).await;
    let hards = json!({"secrets": "3", "cpu": "5"});
    let theirs = json!({"metadata": {"labels": {"theirs": "kept"}}, "spec": {"hard": hards}});
    patch(&w.berlin, QUOTA, "db", Patch::Merge(theirs)).await;
    let repaired = json!({"cpu": "1", "pods": "7", "secrets": "3"});
    is(&w, QUOTA, "db", hard, repaired).await;
    w.change("db", json!({"pods": null})).await;
    let found = is(&w, QUOTA, "db", hard, json!({"cpu": "1", "secrets": "3"})).await;
    assert_eq!(found["metadata"]["labels"]["theirs"], "kept");
    w.source("before", one.clone()).await;
    is(&w, QUOTA, "before", hard, one.clone()).await;
    w.stop().await;

    let before = w.writes("db").await.len();
    w.start(sync());
    w.source("after", one.clone()).await;
    is(&w, QUOTA, "after", hard, one).await;
    let delete = DeleteParams::default();
    api(&w.team, MAP).delete("db", &delete).await.unwrap();
    until(&w.team, MAP, "db", Value::is_null).await;
    assert_eq!(api(&w.berlin, QUOTA).get_opt("db").await.unwrap(), None);
    w.stop().await;
    // A restart writes nothing: what follows is the deletion by the test, that of the target, and then the release. After
    // them, the restarted sync has certainly seen `db`.
    let writes = w.writes("db").await;
    assert_eq!(writes[before..], ["delete team", "delete berlin", "patch team"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_life_on_real_servers_with_merge_patches() {
    life(|sync| sync).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_life_on_real_servers_with_server_side_apply() {
    life(|sync| sync.server_side_apply(Conflicts::Revert)).await;
}

/// Waits until the Service `web` has these names of ports.
async fn ports(w: &World, wanted: &[&str]) -> Value {
    let is = |service: &Value| {
        let ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let mut ports = Vec::from_iter(ports.filter_map(|port| port["name"].as_str()));
        ports.sort_unstable();
        ports == wanted
    };
    until(&w.berlin, "Service", "web", is).await
}

/// Somebody sets the name of a port.
async fn named(w: &World, name: &str, port: u16) {
    let spec = json!({"ports": [{"name": name, "port": port}]});
    let theirs = json!({"apiVersion": "v1", "kind": "Service", "spec": spec});
    patch(&w.berlin, "Service", "web", Patch::Apply(theirs)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_apply_takes_over_merges_lists_and_reports_conflicts() {
    let services = || {
        made("Service", |data| {
            let ports = data.as_object().unwrap().values().filter_map(Value::as_str);
            let port = |port: &str| json!({"name": format!("p{port}"), "port": port.parse::<u16>().unwrap()});
            json!({"spec": {"ports": Vec::from_iter(ports.map(port))}})
        })
    };
    let mut w = World::new().await;
    w.source("web", json!({"port": "80", "other": "81"})).await;
    w.start(services());
    ports(&w, &["p80", "p81"]).await;
    w.stop().await;

    // From merge patches to apply. What merge patches had set goes, if it is no longer projected.
    w.change("web", json!({"other": null})).await;
    w.start(services().server_side_apply(Conflicts::Report));
    let service = ports(&w, &["p80"]).await;
    let annotations = service["metadata"]["annotations"].as_object().unwrap();
    assert!(!annotations.contains_key("sync.mcr.dev/fields"));

    // Somebody adds a port. It stays when the sync changes its own.
    named(&w, "theirs", 99).await;
    w.change("web", json!({"other": "82"})).await;
    ports(&w, &["p80", "p82", "theirs"]).await;

    // Somebody takes a field.
    named(&w, "taken", 80).await;
    let error = w.reported("somebody").await;
    assert!(error.contains("ports"), "{error}");
    assert!(error.contains("cluster://berlin/default/web"), "{error}");
    ports(&w, &["p82", "taken"]).await;
    w.stop().await;

    w.start(services().server_side_apply(Conflicts::Revert));
    ports(&w, &["p80", "p82"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_what_a_real_server_refuses_is_reported_or_made_anew_and_others_go_on() {
    let copies = || {
        made(MAP, |data| {
            let text = |key: &str, default| data[key].as_str().unwrap_or(default).to_owned();
            let large = "x".repeat(text("large", "1").parse().unwrap());
            let labels = json!({"label": text("label", "valid")});
            json!({"metadata": {"labels": labels}, "immutable": true, "data": {"size": data["size"], "large": large}})
        })
    };
    let mut w = World::new().await;
    let size = "/data/size";
    w.source("db", json!({"size": "1"})).await;
    // Over the limit of the kind, and over that of a request.
    w.source("huge", json!({"size": "1", "large": "2000000"})).await;
    w.source("giant", json!({"size": "1", "large": "4000000"})).await;
    w.start(copies());
    let first = is(&w, MAP, "db", size, "1".into()).await;
    for name in ["huge", "giant"] {
        let error = w.reported(&format!("default/{name} is too large")).await;
        let advice = "project less data, or shorten the source";
        assert!(error.ends_with(advice), "{error}");
    }
    w.change("db", json!({"size": "2"})).await;
    let error = w.reported("immutable").await;
    assert!(error.contains("cluster://berlin/default/db"), "{error}");
    w.change("huge", json!({"large": "2"})).await;
    is(&w, MAP, "huge", size, "1".into()).await;
    w.stop().await;

    w.start(copies().replace_when_immutable(true));
    let second = is(&w, MAP, "db", size, "2".into()).await;
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    w.change("db", json!({"size": "3", "label": "not valid"})).await;
    let error = w.reported("a valid label must").await;
    assert!(!error.contains("not valid"), "it quotes no value: {error}");
    w.stop().await;

    // Nobody ends the namespace, because there is no controller manager.
    let namespaces = Api::<DynamicObject>::all_with(w.berlin.client(), &resource("Namespace"));
    let dbs = DynamicObject::new("dbs", &resource("Namespace"));
    namespaces.create(&PostParams::default(), &dbs).await.unwrap();
    namespaces.delete("dbs", &DeleteParams::default()).await.unwrap();
    w.start(copies().namespace(TargetNamespace::Fixed("dbs".to_owned())));
    let error = w.reported("terminated").await;
    assert!(error.contains("cluster://berlin/dbs/"), "{error}");
    // What can't be made anew is not deleted.
    let kept = is(&w, MAP, "db", size, "2".into()).await;
    assert_eq!(second["metadata"]["uid"], kept["metadata"]["uid"]);
    is(&w, MAP, "huge", size, "1".into()).await;
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
    w.start(Any::with("mirror", &resource(kind), &resource(kind)).mirror());
    let target = is(w, kind, "x", "/metadata/name", "x".into()).await;
    // It comes to rest: nothing is written to it while another object is mirrored.
    for probe in 0.. {
        assert!(probe < 10, "{kind} is written without end: {:?}", w.failing());
        let (before, name) = (w.writes("x").await, format!("probe-{probe}"));
        create(&w.team, kind, &name, object.clone()).await;
        until(&w.berlin, kind, &name, Value::is_object).await;
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
        assert!(target.is_some() && source != target, "{path}: {source:?}");
    }
    assert_eq!(services[1]["spec"]["selector"], json!({"app": "web"}));
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.test/pi"}]}});
    for job in mirrored(&mut w, "Job", json!({"spec": {"template": pod}})).await {
        let chosen = &job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"];
        assert_eq!(*chosen, job["metadata"]["uid"]);
    }
}
