//! Related objects of a sync, in both directions, on simulated API servers.
#![allow(clippy::unwrap_used)]

mod world;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::DynamicObject;
use mcr::{BoxError, ClusterSelector};
use mcr_sync::{ABANDON, NameTemplate, ObjectSync, Related, TargetNamespace};
use mcr_testkit::{sim::SimCluster, waiting::eventually};
use serde_json::{Value, json};

use crate::world::*;

type Maps = ObjectSync<ConfigMap, ConfigMap>;
type Of<K> = Related<ConfigMap, ConfigMap, K>;

const MAPS: &str = "configmaps";
const SECRETS: &str = "secrets";

/// Copies the ConfigMaps with an `at` to the cluster of that name, with readable names.
fn maps() -> Maps {
    Maps::new("maps")
        .place(ClusterSelector::label("role", "target"), at)
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

fn both() -> Maps {
    maps().related(connection()).related(settings())
}

fn secret(cluster: &SimCluster, name: &str, password: &str) -> Value {
    let mut secret = map(name, json!({"password": password}));
    secret["kind"] = "Secret".into();
    secret["type"] = "example.com/connection".into();
    secret["metadata"]["labels"] = json!({"app": "db"});
    secret["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": "x"});
    cluster.create(secret).unwrap()
}

async fn is(cluster: &SimCluster, kind: &str, name: &str, data: Value) -> Value {
    let what = format!("{kind} {name} in {} with {data}", cluster.name());
    let found = || cluster.get(kind, &format!("default/{name}"));
    eventually(LIMIT, what, || found().filter(|found| found["data"] == data)).await
}

async fn password(cluster: &SimCluster, secret: &str, password: &str) -> Value {
    is(cluster, SECRETS, secret, json!({"password": password})).await
}

async fn no(cluster: &SimCluster, kind: &str, name: &str) {
    let what = format!("no {kind} {name} in {}", cluster.name());
    let found = || cluster.get(kind, &format!("default/{name}"));
    eventually(LIMIT, what, || found().is_none()).await;
}

fn copies_in(cluster: &SimCluster, kind: &str) -> Vec<String> {
    let mut all = cluster.list(kind, "default");
    all.retain(|object| object["metadata"]["labels"]["sync.mcr.dev/related"].is_string());
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    all.iter().map(name).collect()
}

/// The source `db` with its settings in berlin, and the Secret of its service.
async fn synced() -> World {
    let mut w = World::new();
    make(&w.team_a, "one", json!({"a": "1"}));
    make(&w.team_a, "db", json!({"at": "berlin", "settings": "one"}));
    secret(&w.berlin, "team-a-db-secret", "b25l");
    w.start(both());
    password(&w.team_a, "db-connection", "b25l").await;
    is(&w.berlin, MAPS, "db-one", json!({"a": "1"})).await;
    w
}

#[tokio::test(start_paused = true)]
async fn sync_related_secret_that_the_service_makes_comes_up_and_follows_it_while_it_matches_its_watch() {
    let mut w = World::new();
    let (origin, copy) = ("team-a-db-secret", "db-connection");
    w.start(maps().related(connection().watch_labels("app=db")));
    make(&w.team_a, "db", json!({"at": "berlin"}));
    make(&w.team_b, "db", json!({"at": "berlin"}));
    is(&w.berlin, MAPS, "team-a-db", json!({"at": "berlin"})).await;
    secret(&w.berlin, origin, "b25l");
    secret(&w.berlin, "unrelated", "b3RoZXI=");
    let found = password(&w.team_a, copy, "b25l").await;
    assert_eq!(found["type"], "example.com/connection");
    assert_eq!(found["metadata"]["labels"]["app"], "db");
    let annotations = found["metadata"]["annotations"].to_string();
    assert!(!annotations.contains("b25l"), "{annotations}");
    assert!(!annotations.contains("kubectl"), "{annotations}");

    // Another value, and another object of the name.
    change(&w.berlin, SECRETS, origin, "/data/password", "dHdv".into());
    password(&w.team_a, copy, "dHdv").await;
    delete(&w.berlin, SECRETS, origin);
    no(&w.team_a, SECRETS, copy).await;
    secret(&w.berlin, origin, "dGhyZWU=");
    let fix = |object: &mut Value| object["immutable"] = true.into();
    edit(&w.berlin, SECRETS, "default/team-a-db-secret", fix);
    let found = password(&w.team_a, copy, "dGhyZWU=").await;
    assert!(found["immutable"].is_null(), "it may have to follow a new one");

    assert_eq!(copies_in(&w.team_a, SECRETS), [copy]);
    assert!(copies_in(&w.team_b, SECRETS).is_empty(), "it has no origin");

    change(&w.berlin, SECRETS, origin, "/metadata/labels/app", "other".into());
    no(&w.team_a, SECRETS, copy).await;
}

#[tokio::test(start_paused = true)]
async fn sync_related_object_that_the_source_names_goes_down_and_follows_the_name() {
    let mut w = World::new();
    make(&w.team_a, "one", json!({"a": "1"}));
    make(&w.team_a, "two", json!({"a": "2"}));
    w.start(maps().related(settings()));
    let named = |settings: &str| json!({"at": "berlin", "settings": settings});
    make(&w.team_a, "db", named("one"));
    is(&w.berlin, MAPS, "team-a-db", named("one")).await;
    is(&w.berlin, MAPS, "db-one", json!({"a": "1"})).await;
    set(&w.team_a, "db", named("two"));
    is(&w.berlin, MAPS, "db-two", json!({"a": "2"})).await;
    no(&w.berlin, MAPS, "db-one").await;
    // An object that does not exist yet is copied when it does. The name of a path is no name.
    set(&w.team_a, "db", named("three"));
    no(&w.berlin, MAPS, "db-two").await;
    make(&w.team_a, "three", json!({"a": "3"}));
    is(&w.berlin, MAPS, "db-three", json!({"a": "3"})).await;
    set(&w.team_a, "db", named("../secrets/x"));
    no(&w.berlin, MAPS, "db-three").await;
    rest().await;
    let audit = w.team_a.audit();
    assert_eq!(audit.count(|event| event.uri.contains("..")), 0);
}

#[tokio::test(start_paused = true)]
async fn sync_related_objects_are_chosen_by_label_or_by_a_function_and_made_by_a_function() {
    let mut w = World::new();
    let by_label = Of::<ConfigMap>::down("by-label")
        .labelled(|source, _| [("of", own_name(source))])
        .try_project(|source, object| {
            let mut made = object.clone();
            let data = made.data.get_or_insert_default();
            data.insert("for".into(), own_name(source));
            let bad = value_of(object, "bad");
            bad.map_or(Ok(made), |_| Err(BoxError::from("it is bad")))
        });
    let by_function = Of::<Secret>::up("by-function").select(|_, target, object| {
        let owner = object.data.as_ref().and_then(|data| data.get("password"));
        owner.map(|owner| owner.0.clone()) == target.map(|target| own_name(target).into_bytes())
    });
    w.start(maps().related(by_label).related(by_function));
    make(&w.team_a, "db", json!({"at": "berlin"}));
    let labelled = |name: &str, of: &str| {
        let mut map = map(name, json!({"of": name}));
        map["metadata"]["labels"] = json!({"of": of});
        w.team_a.create(map).unwrap();
    };
    let copied = async |wanted: &str| {
        let is = || {
            let mut copies = w.berlin.list(MAPS, "default");
            copies.retain(|map| map["data"]["for"] == "db");
            let of = copies.iter().map(|map| map["data"]["of"].as_str().unwrap());
            String::from_iter(of) == wanted
        };
        eventually(LIMIT, wanted, is).await;
    };
    labelled("a", "db");
    labelled("b", "db");
    labelled("c", "other");
    copied("ab").await;
    // One more, one less, and one that the function refuses, whose copy stays.
    labelled("d", "db");
    copied("abd").await;
    change(&w.team_a, MAPS, "a", "/metadata/labels/of", "other".into());
    copied("bd").await;
    set(&w.team_a, "b", json!({"of": "b", "bad": "x"}));
    labelled("e", "db");
    copied("bde").await;
    rest().await;
    copied("bde").await;

    secret(&w.berlin, "mine", "dGVhbS1hLWRi");
    secret(&w.berlin, "not-mine", "dGVhbS1iLWRi");
    rest().await;
    let up = copies_in(&w.team_a, SECRETS);
    assert!(up.len() == 1 && up[0].starts_with("mine-"), "{up:?}");
}

#[tokio::test(start_paused = true)]
async fn sync_related_copy_is_no_source_no_target_and_no_origin() {
    let mut w = World::new();
    // A copy of the first relation would be a source by its data, and an origin of the second relation by its labels.
    let up = Of::<ConfigMap>::up("up")
        .named(|_, target| target.map(|target| format!("{}-info", own_name(target))))
        .name_by(|_, object| own_name(object));
    let down = Of::<ConfigMap>::down("down").labelled(|source, _| [("of", own_name(source))]);
    // A copy of the third relation has the name of the target.
    let same = Of::<ConfigMap>::down("same")
        .named(|source, _| value_of(source, "settings"))
        .name_by(|source, _| format!("team-a-{}", own_name(source)));
    w.start(maps().related(up).related(down).related(same));
    make(&w.team_a, "db", json!({"at": "berlin"}));
    let mut info = map("team-a-db-info", json!({"at": "lyon"}));
    info["metadata"]["labels"] = json!({"of": "db"});
    w.berlin.create(info).unwrap();
    is(&w.team_a, MAPS, "team-a-db-info", json!({"at": "lyon"})).await;
    make(&w.team_a, "one", json!({"a": "1"}));
    make(&w.team_a, "clash", json!({"at": "berlin", "settings": "one"}));
    is(&w.berlin, MAPS, "team-a-clash", json!({"a": "1"})).await;
    rest().await;
    is(&w.berlin, MAPS, "team-a-clash", json!({"a": "1"})).await;
    delete(&w.team_a, MAPS, "clash");
    gone(&w.team_a, "default/clash").await;
    assert!(w.berlin.get(MAPS, "default/team-a-clash").is_none());
    w.stop().await;
    assert!(w.lyon.list(MAPS, "default").is_empty(), "the copy is no source");
    assert!(copies_in(&w.berlin, MAPS).is_empty());
    let patches = w.berlin.audit().count(|event| event.verb == "patch");
    assert_eq!(patches, 0, "target and copy do not take turns");
}

#[tokio::test(start_paused = true)]
async fn sync_related_problems_are_reported_in_the_condition() {
    let mut w = World::with(&["w"]);
    let related = Related::<DynamicObject, DynamicObject, Secret>::up("connection")
        .named(|_, _| ["first", "second"])
        .name_by(|_, _| "copy".to_owned())
        .try_project(|_, object| match object.data.as_ref().map(|data| data.len()) {
            Some(1) => Ok(object.clone()),
            _ => Err(BoxError::from("one key is allowed")),
        });
    secret(&w.team_a, "copy", "dGhlaXJz");
    w.begin(widgets::sync().related(related));
    let copy = "default/copy in cluster team-a, related by \"connection\",";
    let second = "Secret default/second in cluster berlin";
    let message = w.condition_is("w", "RelatedMissing", second).await;
    let first = "Secret default/first in cluster berlin";
    assert!(message.contains(first), "{message}");
    secret(&w.berlin, "second", "dHdv");
    let taken = format!("{copy} belongs to somebody else");
    w.condition_is("w", "RelatedMissing", &taken).await;
    delete(&w.team_a, SECRETS, "copy");
    let mut first = map("first", json!({"password": "b25l", "user": "bWU="}));
    first["kind"] = "Secret".into();
    w.berlin.create(first).unwrap();
    let message = w.condition_is("w", "FunctionFailed", "one key is allowed").await;
    assert!(!message.contains("b25l"), "{message}");
    let data = json!({"password": "b25l"});
    change(&w.berlin, SECRETS, "first", "/data", data);
    let other = format!("{copy} is the copy of another object");
    w.condition_is("w", "NameTaken", &other).await;
    password(&w.team_a, "copy", "b25l").await;
}

#[test]
fn a_sync_that_makes_no_sense_is_not_built() {
    let built = |sync: Maps| format!("{:?}", sync.build().unwrap_err());
    let orphans = |sync: Maps| format!("{:?}", sync.delete_orphans_after(LIMIT).unwrap_err());
    let unnamed = || Maps::new("x").mirror().to(name("berlin"));
    let mut rows = vec![
        (built(Maps::new("x").mirror()), "NoPlacement("),
        (built(Maps::new("x").to(name("berlin"))), "NoProjection("),
        (built(maps().owner("EU")), "Owner("),
        (orphans(maps().owner("EU")), "Owner("),
        (orphans(maps()), "NoOwner("),
        (
            built(maps().related(connection()).related(connection())),
            "RelatedId(",
        ),
        (
            built(maps().related(Of::<Secret>::up("a_b").named(|_, _| None::<String>))),
            "RelatedId(",
        ),
        (built(maps().related(Of::<Secret>::up("x"))), "NoSelection("),
    ];
    for bad in ["", "A", "-a", "a_b", &"a".repeat(64)] {
        let namespace = TargetNamespace::Fixed(bad.to_owned());
        rows.push((built(unnamed().namespace(namespace)), "Namespace("));
        rows.push((built(Maps::new(bad).mirror().to(name("berlin"))), "Name("));
    }
    for (error, wanted) in rows {
        assert!(error.starts_with(wanted), "{error}");
    }
    let longest = TargetNamespace::Fixed("a".repeat(63));
    assert!(unnamed().namespace(longest).build().is_ok());
}

#[tokio::test(start_paused = true)]
async fn sync_source_whose_copies_may_not_be_read_any_more_is_released_when_its_own_cluster_is_given_up() {
    let w = synced().await;
    widgets::allow_each(&w.team_a, &[("configmaps", &["*"])]);
    delete(&w.team_a, MAPS, "db");
    tokio::time::sleep(LIMIT).await;
    let give_up = |object: &mut Value| object["metadata"]["annotations"][ABANDON] = "team-a".into();
    edit(&w.team_a, MAPS, "default/db", give_up);
    no(&w.team_a, MAPS, "db").await;
    no(&w.berlin, MAPS, "team-a-db").await;
    no(&w.berlin, MAPS, "db-one").await;
    assert_eq!(copies_in(&w.team_a, SECRETS), ["db-connection"]);
}
