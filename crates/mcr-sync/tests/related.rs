//! Related objects of a sync, in both directions, on simulated API servers.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mcr::{Access, BoxError, ClusterName, ClusterSelector, ClusterSpec, Manager, ManagerError};
use mcr_provider_clusters::{ClustersHandle, ClustersProvider};
use mcr_sync::{BuildError, NameTemplate, ObjectSync, Related};
use mcr_testkit::{
    sim::{SimAuditEvent, SimCluster},
    waiting::{Background, eventually},
};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

type Maps = ObjectSync<ConfigMap, ConfigMap>;
type Of<K> = Related<ConfigMap, ConfigMap, K>;

/// The source clusters `team-a` and `team-b`, and the target clusters `berlin` and `lyon`.
struct World {
    team_a: SimCluster,
    team_b: SimCluster,
    berlin: SimCluster,
    lyon: SimCluster,
    clusters: ClustersHandle,
    running: Option<Background<Result<(), ManagerError>>>,
}

fn spec(cluster: &SimCluster) -> ClusterSpec {
    let role = if cluster.name().starts_with("team") {
        "source"
    } else {
        "target"
    };
    ClusterSpec::named(cluster.name(), Access::from(cluster.client()))
        .unwrap()
        .label("role", role)
}

impl World {
    fn new() -> Self {
        let cluster = |name: &str| SimCluster::builder().name(name).build();
        Self {
            team_a: cluster("team-a"),
            team_b: cluster("team-b"),
            berlin: cluster("berlin"),
            lyon: cluster("lyon"),
            clusters: ClustersProvider::new().handle(),
            running: None,
        }
    }

    fn start(&mut self, sync: Maps) {
        self.start_without(sync, "nobody");
    }

    fn start_without(&mut self, sync: Maps, absent: &str) {
        let provider = ClustersProvider::new();
        self.clusters = provider.handle();
        for cluster in [&self.team_a, &self.team_b, &self.berlin, &self.lyon] {
            if cluster.name() != absent {
                self.clusters.add(spec(cluster));
            }
        }
        let manager = Manager::builder()
            .provider(provider)
            .controller(sync.build().unwrap())
            .build()
            .unwrap();
        self.running = Some(Background::start(|stop| manager.run_until(stop)));
    }

    async fn stop(&mut self) {
        self.running.take().unwrap().stop().await.unwrap();
    }

    fn writes(&self) -> Vec<usize> {
        let is_write = |verb: &str| ["create", "update", "patch", "delete"].contains(&verb);
        let clusters = [&self.team_a, &self.team_b, &self.berlin, &self.lyon].into_iter();
        clusters
            .map(|cluster| cluster.audit().count(|event| is_write(&event.verb)))
            .collect()
    }
}

/// Copies the ConfigMaps with an `at` to the cluster of that name, with readable names.
fn maps() -> Maps {
    let place = |map: &ConfigMap, _: &mcr::Cluster, _: &mcr::Fleet| {
        let at = value_of(map, "at").map(|at| ClusterName::new(at).unwrap());
        at.into_iter().collect()
    };
    Maps::new("maps")
        .from(ClusterSelector::label("role", "source"))
        .place(ClusterSelector::label("role", "target"), place)
        .name_by(NameTemplate::parse("{cluster}-{name}").unwrap())
        .mirror()
}

fn value_of(map: &ConfigMap, key: &str) -> Option<String> {
    map.data.as_ref()?.get(key).cloned()
}

fn own_name(map: &ConfigMap) -> String {
    map.metadata.name.clone().unwrap()
}

/// The Secret that a service names after its object.
fn connection() -> Of<Secret> {
    Of::<Secret>::up("connection")
        .named(|_, target| target.map(|target| format!("{}-secret", own_name(target))))
        .name_by(|source, _| format!("{}-connection", own_name(source)))
}

/// The ConfigMap that the source names in `settings`.
fn settings() -> Of<ConfigMap> {
    Of::<ConfigMap>::down("settings")
        .named(|source, _| value_of(source, "settings"))
        .name_by(|source, object| format!("{}-{}", own_name(source), own_name(object)))
}

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data})
}

fn labelled(name: &str, labels: Value) -> Value {
    let mut map = map(name, json!({"of": name}));
    map["metadata"]["labels"] = labels;
    map
}

fn secret(name: &str, password: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "example.com/connection",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "db"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x"}},
        "data": {"password": password},
    })
}

async fn is(cluster: &SimCluster, kind: &str, name: &str, data: Value) -> Value {
    let what = format!("{kind} {name} in {} with {data}", cluster.name());
    eventually(LIMIT, what, || {
        let found = cluster.get(kind, &format!("default/{name}"));
        found.filter(|found| found["data"] == data)
    })
    .await
}

async fn gone(cluster: &SimCluster, kind: &str, name: &str) {
    let what = format!("{kind} {name} is gone from {}", cluster.name());
    eventually(LIMIT, what, || {
        let found = cluster.get(kind, &format!("default/{name}"));
        found.is_none().then_some(())
    })
    .await;
}

fn set(cluster: &SimCluster, name: &str, data: Value) {
    let mut map = cluster.get("configmaps", &format!("default/{name}")).unwrap();
    map["data"] = data;
    cluster.update(map).unwrap();
}

fn copies_in(cluster: &SimCluster, kind: &str) -> Vec<String> {
    let all = cluster.list(kind, "default").into_iter();
    let copies = all.filter(|object| object["metadata"]["labels"]["sync.mcr.dev/related"].is_string());
    copies
        .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn sync_related_secret_that_the_service_makes_comes_up_and_follows_it() {
    let mut world = World::new();
    world.start(maps().related(connection()));
    world.team_a.create(map("db", json!({"at": "berlin"}))).unwrap();
    world.team_b.create(map("db", json!({"at": "berlin"}))).unwrap();
    is(&world.berlin, "configmaps", "team-a-db", json!({"at": "berlin"})).await;
    world.berlin.create(secret("team-a-db-secret", "b25l")).unwrap();
    world.berlin.create(secret("unrelated", "b3RoZXI=")).unwrap();
    let copy = is(
        &world.team_a,
        "secrets",
        "db-connection",
        json!({"password": "b25l"}),
    )
    .await;
    assert_eq!(
        (&copy["type"], &copy["metadata"]["labels"]["app"]),
        (&json!("example.com/connection"), &json!("db"))
    );
    let annotations = copy["metadata"]["annotations"].to_string();
    assert!(
        !annotations.contains("b25l") && !annotations.contains("kubectl"),
        "{annotations}"
    );

    // Another value, and another object of the name.
    let mut origin = world.berlin.get("secrets", "default/team-a-db-secret").unwrap();
    origin["data"]["password"] = "dHdv".into();
    world.berlin.update(origin).unwrap();
    is(
        &world.team_a,
        "secrets",
        "db-connection",
        json!({"password": "dHdv"}),
    )
    .await;
    world
        .berlin
        .delete("secrets", "default/team-a-db-secret")
        .unwrap();
    gone(&world.team_a, "secrets", "db-connection").await;
    let mut third = secret("team-a-db-secret", "dGhyZWU=");
    third["immutable"] = true.into();
    world.berlin.create(third).unwrap();
    let mut copy = is(
        &world.team_a,
        "secrets",
        "db-connection",
        json!({"password": "dGhyZWU="}),
    )
    .await;

    assert!(copy["immutable"].is_null(), "it must be able to follow a new one");

    // Drift is repaired, what others add stays, and a copy that is deleted is made again.
    copy["data"] = json!({"password": "ZHJpZnQ=", "theirs": "a2VwdA=="});
    world.team_a.update(copy).unwrap();
    let data = json!({"password": "dGhyZWU=", "theirs": "a2VwdA=="});
    is(&world.team_a, "secrets", "db-connection", data).await;
    world.team_a.delete("secrets", "default/db-connection").unwrap();
    is(
        &world.team_a,
        "secrets",
        "db-connection",
        json!({"password": "dGhyZWU="}),
    )
    .await;
    assert_eq!(copies_in(&world.team_a, "secrets"), ["db-connection"]);
    assert!(
        copies_in(&world.team_b, "secrets").is_empty(),
        "its service has made none"
    );
    world.stop().await;
}

#[tokio::test]
async fn sync_related_object_that_the_source_names_goes_down_before_the_target_and_follows_the_name() {
    let mut world = World::new();
    world.team_a.create(map("one", json!({"a": "1"}))).unwrap();
    world.team_a.create(map("two", json!({"a": "2"}))).unwrap();
    world.start(maps().related(settings()));
    let data = json!({"at": "berlin", "settings": "one"});
    world.team_a.create(map("db", data.clone())).unwrap();
    is(&world.berlin, "configmaps", "team-a-db", data).await;
    is(&world.berlin, "configmaps", "db-one", json!({"a": "1"})).await;
    let version = |name: &str| {
        let object = world
            .berlin
            .get("configmaps", &format!("default/{name}"))
            .unwrap();
        let version = object["metadata"]["resourceVersion"].as_str().unwrap();
        version.parse::<u64>().unwrap()
    };
    assert!(
        version("db-one") < version("team-a-db"),
        "the service finds its settings"
    );

    set(&world.team_a, "db", json!({"at": "berlin", "settings": "two"}));
    is(&world.berlin, "configmaps", "db-two", json!({"a": "2"})).await;
    gone(&world.berlin, "configmaps", "db-one").await;
    // An object that does not exist yet is copied when it does. The name of a path is no name.
    set(&world.team_a, "db", json!({"at": "berlin", "settings": "three"}));
    gone(&world.berlin, "configmaps", "db-two").await;
    world.team_a.create(map("three", json!({"a": "3"}))).unwrap();
    is(&world.berlin, "configmaps", "db-three", json!({"a": "3"})).await;
    set(
        &world.team_a,
        "db",
        json!({"at": "berlin", "settings": "../secrets/x"}),
    );
    gone(&world.berlin, "configmaps", "db-three").await;
    world.stop().await;
    let audit = world.team_a.audit();
    assert_eq!(audit.count(|event| event.uri.contains("..")), 0);
}

#[tokio::test]
async fn sync_related_objects_are_chosen_by_label_or_by_a_function_and_made_by_a_function() {
    let mut world = World::new();
    let by_label = Of::<ConfigMap>::down("by-label")
        .labelled(|source, _| [("of", own_name(source))])
        .try_project(|source, object| {
            let mut made = object.clone();
            let data = made.data.get_or_insert_default();
            if data.contains_key("bad") {
                return Err(BoxError::from("it is bad"));
            }
            data.insert("for".into(), own_name(source));
            Ok(made)
        });
    let by_function = Of::<Secret>::up("by-function").select(|_, target, object| {
        let data = object.data.as_ref();
        let owner = data
            .and_then(|data| data.get("password"))
            .map(|owner| owner.0.clone());
        owner == target.map(|target| own_name(target).into_bytes())
    });
    world.start(maps().related(by_label).related(by_function));
    world.team_a.create(map("db", json!({"at": "berlin"}))).unwrap();
    for (name, of) in [("a", "db"), ("b", "db"), ("c", "other")] {
        world.team_a.create(labelled(name, json!({"of": of}))).unwrap();
    }
    let copied = |names: &'static [&'static str]| {
        let berlin = world.berlin.clone();
        move || {
            let copies = berlin.list("configmaps", "default").into_iter();
            let copies = copies.filter(|map| map["data"]["for"] == "db");
            let mut of: Vec<String> = copies
                .map(|map| map["data"]["of"].as_str().unwrap().to_owned())
                .collect();
            of.sort();
            (of == names).then_some(())
        }
    };
    eventually(LIMIT, "a and b", copied(&["a", "b"])).await;
    // One more, one less, and one that the function refuses, whose copy stays.
    world.team_a.create(labelled("d", json!({"of": "db"}))).unwrap();
    eventually(LIMIT, "a, b and d", copied(&["a", "b", "d"])).await;
    let mut other = world.team_a.get("configmaps", "default/a").unwrap();
    other["metadata"]["labels"]["of"] = "other".into();
    world.team_a.update(other).unwrap();
    eventually(LIMIT, "b and d", copied(&["b", "d"])).await;
    set(&world.team_a, "b", json!({"of": "b", "bad": "x"}));
    world.team_a.create(labelled("e", json!({"of": "db"}))).unwrap();
    eventually(LIMIT, "b, d and e", copied(&["b", "d", "e"])).await;

    world.berlin.create(secret("mine", "dGVhbS1hLWRi")).unwrap();
    world.berlin.create(secret("not-mine", "dGVhbS1iLWRi")).unwrap();
    let up = || (copies_in(&world.team_a, "secrets").len() == 1).then_some(());
    eventually(LIMIT, "the Secret for team-a-db", up).await;
    assert!(copies_in(&world.team_a, "secrets")[0].starts_with("mine-"));
    world.stop().await;
}

#[tokio::test]
async fn sync_related_copies_go_before_the_target_and_the_target_before_the_source() {
    let mut world = World::new();
    world.team_a.create(map("one", json!({"a": "1"}))).unwrap();
    world
        .team_a
        .create(map("db", json!({"at": "berlin", "settings": "one"})))
        .unwrap();
    world.start(maps().related(connection()).related(settings()));
    world.berlin.create(secret("team-a-db-secret", "b25l")).unwrap();
    is(
        &world.team_a,
        "secrets",
        "db-connection",
        json!({"password": "b25l"}),
    )
    .await;
    is(&world.berlin, "configmaps", "db-one", json!({"a": "1"})).await;
    let (team_a, berlin) = (world.team_a.audit().mark(), world.berlin.audit().mark());
    world.team_a.delete("configmaps", "default/db").unwrap();
    gone(&world.team_a, "configmaps", "db").await;
    world.stop().await;
    let steps = |cluster: &SimCluster, mark, copies: &str, copy: &str| {
        let audit = cluster.audit().since(mark);
        let is_list_of_copies = |event: &SimAuditEvent| {
            event.is_list(copies) && event.uri.contains("source") && event.uri.contains("related")
        };
        let told = audit.events().filter_map(|event| match &*event.verb {
            "delete" | "patch" => Some(format!("{} {}", event.verb, event.name)),
            "get" if event.name == copy => Some(format!("get {copy}")),
            _ if is_list_of_copies(event) => Some("list".to_owned()),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(
        steps(&world.team_a, team_a, "secrets", "db-connection"),
        [
            "list",
            "get db-connection",
            "delete db-connection",
            "get db-connection",
            "patch db"
        ]
    );
    assert_eq!(
        steps(&world.berlin, berlin, "configmaps", "db-one"),
        [
            "list",
            "get db-one",
            "delete db-one",
            "get db-one",
            "delete team-a-db"
        ]
    );
    assert!(
        world.berlin.get("secrets", "default/team-a-db-secret").is_some(),
        "the origin is not ours"
    );
}

#[tokio::test]
async fn sync_related_object_of_somebody_else_with_the_name_of_a_copy_is_not_touched() {
    let mut world = World::new();
    let theirs = world.team_a.create(secret("db-connection", "dGhlaXJz")).unwrap();
    world.team_a.create(map("db", json!({"at": "berlin"}))).unwrap();
    world.berlin.create(secret("team-a-db-secret", "b25l")).unwrap();
    world.start(maps().related(connection()));
    let is_read = || {
        let audit = world.team_a.audit();
        let reads = audit.count(|event| event.verb == "get" && event.name == "db-connection");
        (reads > 0).then_some(())
    };
    eventually(LIMIT, "a look at the object", is_read).await;
    world.team_a.delete("configmaps", "default/db").unwrap();
    gone(&world.team_a, "configmaps", "db").await;
    world.stop().await;
    assert_eq!(world.team_a.get("secrets", "default/db-connection"), Some(theirs));
}

#[tokio::test]
async fn sync_related_copy_stays_while_the_cluster_of_its_origin_or_of_its_source_is_away() {
    let mut world = World::new();
    world.team_a.create(map("one", json!({"a": "1"}))).unwrap();
    world
        .team_a
        .create(map("db", json!({"at": "berlin", "settings": "one"})))
        .unwrap();
    world.berlin.create(secret("team-a-db-secret", "b25l")).unwrap();
    let sync = || maps().related(connection()).related(settings());
    world.start(sync());
    is(
        &world.team_a,
        "secrets",
        "db-connection",
        json!({"password": "b25l"}),
    )
    .await;
    is(&world.berlin, "configmaps", "db-one", json!({"a": "1"})).await;
    world.stop().await;

    // A probe is reconciled after `db`, so `db` was seen without the other cluster.
    for (absent, late) in [("berlin", false), ("berlin", true), ("team-a", true)] {
        let is_berlin = absent == "berlin";
        let of = if is_berlin { &world.team_a } else { &world.team_b }.clone();
        let lyon = world.lyon.clone();
        let probe = async |name: String| {
            of.create(map(&name, json!({"at": "lyon"}))).unwrap();
            let target = format!("{}-{name}", of.name());
            is(&lyon, "configmaps", &target, json!({"at": "lyon"})).await;
        };
        if late {
            world.start(sync());
            probe(format!("before-{absent}")).await;
            world.clusters.remove(absent);
        } else {
            world.start_without(sync(), absent);
        }
        if is_berlin {
            let data = json!({"at": "berlin", "settings": "one", "late": late.to_string()});
            set(&world.team_a, "db", data);
        }
        probe(format!("after-{absent}-{late}")).await;
        world.stop().await;
        let up = copies_in(&world.team_a, "secrets");
        assert_eq!(up, ["db-connection"], "without {absent}");
        let down = copies_in(&world.berlin, "configmaps");
        assert_eq!(down, ["db-one"], "without {absent}");
    }
    for cluster in [&world.team_a, &world.berlin] {
        assert_eq!(cluster.audit().count(|event| event.verb == "delete"), 0);
    }
}

#[tokio::test]
async fn sync_related_restart_writes_nothing_and_cleans_up_what_lost_its_origin() {
    let mut world = World::new();
    for at in 0..5 {
        let settings = format!("settings-{at}");
        world.team_a.create(map(&settings, json!({"a": "1"}))).unwrap();
        let data = json!({"at": "berlin", "settings": settings});
        world.team_a.create(map(&format!("db-{at}"), data)).unwrap();
        world
            .berlin
            .create(secret(&format!("team-a-db-{at}-secret"), "b25l"))
            .unwrap();
    }
    let sync = || maps().related(connection()).related(settings());
    world.start(sync());
    for at in 0..5 {
        is(
            &world.team_a,
            "secrets",
            &format!("db-{at}-connection"),
            json!({"password": "b25l"}),
        )
        .await;
        is(
            &world.berlin,
            "configmaps",
            &format!("db-{at}-settings-{at}"),
            json!({"a": "1"}),
        )
        .await;
    }
    world.stop().await;
    let before = world.writes();
    // Nobody watches while one origin goes.
    world
        .berlin
        .delete("secrets", "default/team-a-db-3-secret")
        .unwrap();
    world.start(sync());
    gone(&world.team_a, "secrets", "db-3-connection").await;
    world.team_b.create(map("last", json!({"at": "berlin"}))).unwrap();
    is(
        &world.berlin,
        "configmaps",
        "team-b-last",
        json!({"at": "berlin"}),
    )
    .await;
    world.stop().await;
    let written: Vec<usize> = world
        .writes()
        .iter()
        .zip(before)
        .map(|(after, before)| after - before)
        .collect();
    assert_eq!(
        written,
        [1, 1, 1, 0],
        "one deletion, and the record and the target of `last`"
    );
}

#[tokio::test]
async fn sync_related_copies_move_with_their_target_and_the_former_ones_stay_until_then() {
    let mut world = World::new();
    world.team_a.create(map("one", json!({"a": "1"}))).unwrap();
    world
        .team_a
        .create(map("db", json!({"at": "berlin", "settings": "one"})))
        .unwrap();
    world.berlin.create(secret("team-a-db-secret", "b25l")).unwrap();
    world.start(maps().related(connection()).related(settings()));
    is(
        &world.team_a,
        "secrets",
        "db-connection",
        json!({"password": "b25l"}),
    )
    .await;
    let moved = json!({"at": "lyon", "settings": "one"});
    set(&world.team_a, "db", moved.clone());
    is(&world.lyon, "configmaps", "team-a-db", moved).await;
    is(&world.lyon, "configmaps", "db-one", json!({"a": "1"})).await;
    // The service in lyon has made no Secret yet, so the consumer keeps the one of berlin, and berlin its database.
    world.team_a.create(map("probe", json!({"at": "lyon"}))).unwrap();
    is(&world.lyon, "configmaps", "team-a-probe", json!({"at": "lyon"})).await;
    assert_eq!(copies_in(&world.team_a, "secrets"), ["db-connection"]);
    assert!(world.berlin.get("configmaps", "default/team-a-db").is_some());
    world.lyon.create(secret("team-a-db-secret", "dHdv")).unwrap();
    is(
        &world.team_a,
        "secrets",
        "db-connection",
        json!({"password": "dHdv"}),
    )
    .await;
    gone(&world.berlin, "configmaps", "team-a-db").await;
    assert!(copies_in(&world.berlin, "configmaps").is_empty());
    world.stop().await;
    assert_eq!(copies_in(&world.lyon, "configmaps"), ["db-one"]);
}

#[tokio::test]
async fn sync_related_copy_is_no_source_no_target_and_no_origin() {
    let mut world = World::new();
    // A copy of the first relation would be a source by its data, and an origin of the second relation by its labels.
    let up = Of::<ConfigMap>::up("up")
        .named(|_, target| target.map(|target| format!("{}-info", own_name(target))))
        .name_by(|_, object| own_name(object));
    let down = Of::<ConfigMap>::down("down").labelled(|source, _| [("of", own_name(source))]);
    // A copy of the third relation has the name of the target.
    let same = Of::<ConfigMap>::down("same")
        .named(|source, _| value_of(source, "settings"))
        .name_by(|source, _| format!("team-a-{}", own_name(source)));
    world.start(maps().related(up).related(down).related(same));
    world.team_a.create(map("db", json!({"at": "berlin"}))).unwrap();
    let mut info = map("team-a-db-info", json!({"at": "lyon"}));
    info["metadata"]["labels"] = json!({"of": "db"});
    world.berlin.create(info).unwrap();
    is(
        &world.team_a,
        "configmaps",
        "team-a-db-info",
        json!({"at": "lyon"}),
    )
    .await;
    world.team_a.create(map("one", json!({"a": "1"}))).unwrap();
    world
        .team_a
        .create(map("clash", json!({"at": "berlin", "settings": "one"})))
        .unwrap();
    is(&world.berlin, "configmaps", "team-a-clash", json!({"a": "1"})).await;
    world.team_a.create(map("probe", json!({"at": "lyon"}))).unwrap();
    is(&world.lyon, "configmaps", "team-a-probe", json!({"at": "lyon"})).await;
    world.team_a.delete("configmaps", "default/clash").unwrap();
    gone(&world.team_a, "configmaps", "clash").await;
    assert!(world.berlin.get("configmaps", "default/team-a-clash").is_none());
    world.stop().await;
    assert_eq!(
        world.lyon.list("configmaps", "default").len(),
        1,
        "only the target of `probe`"
    );
    assert!(copies_in(&world.berlin, "configmaps").is_empty());
    let data = world.berlin.audit().count(|event| event.verb == "patch");
    assert_eq!(data, 0, "target and copy do not take turns");
}

fn widgets() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"))
}

#[tokio::test]
async fn sync_related_problems_are_told_in_the_condition() {
    let (team_a, berlin) = (
        SimCluster::builder().name("team-a").build(),
        SimCluster::builder().name("berlin").build(),
    );
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    for cluster in [&team_a, &berlin] {
        let version = json!({"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": any}});
        let names = json!({"kind": "Widget", "plural": "widgets"});
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
        });
        cluster.create(crd).unwrap();
    }
    type Widgets = Related<DynamicObject, DynamicObject, Secret>;
    let related = Widgets::up("connection")
        .named(|_, _| ["first", "second"])
        .name_by(|_, _| "copy".to_owned())
        .try_project(
            |_, object| match object.data.as_ref().is_some_and(|data| data.len() > 1) {
                true => Err(BoxError::from("one key is allowed")),
                false => Ok(object.clone()),
            },
        );
    let provider = ClustersProvider::new();
    let clusters = provider.handle();
    clusters.add(spec(&team_a));
    clusters.add(spec(&berlin));
    let sync = ObjectSync::<DynamicObject, DynamicObject>::with("widgets", &widgets(), &widgets())
        .from(ClusterSelector::label("role", "source"))
        .to(ClusterName::new("berlin").unwrap())
        .mirror()
        .condition("Synced")
        .related(related);
    let manager = Manager::builder()
        .provider(provider)
        .controller(sync.build().unwrap())
        .build()
        .unwrap();
    let running = Background::start(|stop| manager.run_until(stop));
    team_a.create(secret("copy", "dGhlaXJz")).unwrap();
    let meta = json!({"name": "w", "namespace": "default"});
    team_a
        .create(json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta, "spec": {}}))
        .unwrap();
    let told = async |reason: &str, text: &str| {
        eventually(LIMIT, format!("{reason}: {text}"), || {
            let widget = team_a.get("widgets.example.com", "default/w")?;
            let condition = widget["status"]["conditions"][0].clone();
            let message = condition["message"].as_str()?.to_owned();
            (condition["reason"] == reason && message.contains(text)).then_some(message)
        })
        .await
    };
    let message = told("RelatedMissing", "Secret default/second in cluster berlin").await;
    assert!(
        message.contains("Secret default/first in cluster berlin"),
        "{message}"
    );
    berlin.create(secret("second", "dHdv")).unwrap();
    told(
        "RelatedMissing",
        "default/copy in cluster team-a, related by \"connection\", belongs to somebody else",
    )
    .await;
    team_a.delete("secrets", "default/copy").unwrap();
    let mut first = secret("first", "b25l");
    first["data"]["user"] = "bWU=".into();
    berlin.create(first).unwrap();
    let message = told("FunctionFailed", "one key is allowed").await;
    assert!(!message.contains("b25l"), "{message}");
    let mut first = berlin.get("secrets", "default/first").unwrap();
    first["data"] = json!({"password": "b25l"});
    berlin.update(first).unwrap();
    told(
        "NameTaken",
        "default/copy in cluster team-a, related by \"connection\", is the copy of another object",
    )
    .await;
    is(&team_a, "secrets", "copy", json!({"password": "b25l"})).await;
    running.stop().await.unwrap();
}

#[test]
fn a_relation_without_a_usable_id_or_without_a_selection_is_not_built() {
    let error = |sync: Maps| sync.build().unwrap_err();
    let twice = maps().related(connection()).related(connection());
    assert!(matches!(error(twice), BuildError::RelatedId(_)));
    let bad = Of::<Secret>::up("a_b").named(|_, _| None::<String>);
    assert!(matches!(error(maps().related(bad)), BuildError::RelatedId(_)));
    let nothing = Of::<Secret>::up("x");
    assert!(matches!(
        error(maps().related(nothing)),
        BuildError::NoSelection(_)
    ));
}

#[tokio::test]
async fn sync_related_object_that_no_longer_matches_its_watch_is_no_longer_copied() {
    let mut world = World::new();
    let connection = connection().watch_labels("app=db");
    world.start(maps().related(connection));
    world.team_a.create(map("db", json!({"at": "berlin"}))).unwrap();
    is(&world.berlin, "configmaps", "team-a-db", json!({"at": "berlin"})).await;
    world.berlin.create(secret("team-a-db-secret", "YQ==")).unwrap();
    is(
        &world.team_a,
        "secrets",
        "db-connection",
        json!({"password": "YQ=="}),
    )
    .await;
    let mut origin = world.berlin.get("secrets", "default/team-a-db-secret").unwrap();
    origin["metadata"]["labels"]["app"] = "other".into();
    world.berlin.update(origin).unwrap();
    gone(&world.team_a, "secrets", "db-connection").await;
    world.stop().await;
}
