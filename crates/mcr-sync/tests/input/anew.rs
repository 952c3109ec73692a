//! Sources that are made anew under their name while the watch of the sync lags: another replica serves the new ones.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
use mcr::BuiltController;
use mcr_sync::Related;
use mcr_testkit::{sim::SimCluster, waiting::eventually};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    gate::Gate,
    world::{LIMIT, WIDGETS, World, allow, spec, sync, widget},
};

const LAG: Duration = Duration::from_secs(10);

/// A sync with a related object that goes along. With `limited`, its watch of sources has a selector, so no deletion is certain.
fn controller(limited: bool) -> BuiltController {
    let settings = Related::<DynamicObject, DynamicObject, ConfigMap>::down("settings")
        .named(|_, _| ["settings"])
        .name_by(|_, _| "w-settings".to_owned());
    let built = sync().related(settings).build_with(|controller| {
        controller.watch_request(|request| {
            if limited {
                request.labels("copy=yes")
            } else {
                request
            }
        })
    });
    built.unwrap()
}

const MADE: [(&str, &str); 2] = [(WIDGETS, "default/w"), ("configmaps", "default/w-settings")];

/// The target and its related copy, as far as they exist.
fn made(berlin: &SimCluster) -> Vec<Value> {
    MADE.iter()
        .filter_map(|(kind, key)| berlin.get(kind, key))
        .collect()
}

fn uids(objects: Vec<Value>) -> Vec<Value> {
    objects
        .iter()
        .map(|object| object["metadata"]["uid"].clone())
        .collect()
}

/// An object of the same contents.
fn anew(of: &Value) -> Value {
    let mut object = of.clone();
    let meta = object["metadata"].as_object_mut().unwrap();
    meta.retain(|field, _| ["name", "namespace", "labels", "annotations", "finalizers"].contains(&&**field));
    object
}

/// Ends a source although its targets are there.
fn end(team: &SimCluster) {
    if let Some(mut source) = team.get(WIDGETS, "default/w") {
        source["metadata"]["finalizers"] = Value::Null;
        team.update(source).unwrap();
        team.delete(WIDGETS, "default/w").ok();
    }
}

/// What another replica does: it ends the source, and a new source of its name gets a target and a copy. Returns their UIDs.
fn made_anew(team: &SimCluster, berlin: &SimCluster, source: &Value) -> Vec<Value> {
    let objects = made(berlin);
    for (kind, key) in MADE {
        berlin.delete(kind, key).ok();
    }
    end(team);
    team.create(anew(source)).unwrap();
    uids(
        objects
            .iter()
            .map(|object| berlin.create(anew(object)).unwrap())
            .collect(),
    )
}

/// A program that has synced a source. What stands before `team` and `berlin`.
async fn synced(limited: bool) -> (World, [Gate; 2]) {
    let mut world = World::new();
    let mut source = widget("default", "w", json!({"size": 1}));
    source["metadata"]["labels"] = json!({"copy": "yes"});
    world.team.create(source).unwrap();
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"}});
    world.team.create(settings).unwrap();
    let [team, berlin] = [Gate::default(), Gate::default()];
    let specs = [
        team.before(&world.team, "source"),
        berlin.before(&world.berlin, "target"),
    ];
    world.start_with(controller(limited), specs);
    world.told("w", "Synced").await;
    eventually(LIMIT, "the copy", || {
        (made(&world.berlin).len() == 2).then_some(())
    })
    .await;
    (world, [team, berlin])
}

/// The store has a source that is being deleted, then one that was deleted, and the server has another one all the time.
#[tokio::test(start_paused = true)]
async fn sync_source_that_is_made_anew_while_the_watch_lags_keeps_its_target_and_its_copies() {
    for limited in [false, true] {
        let (mut world, [team, _]) = synced(limited).await;
        // The deletion is seen, and hangs.
        allow(&world.berlin, &["get", "list", "watch", "create", "patch"]);
        world.team.delete(WIDGETS, "default/w").unwrap();
        world.told("w", "RequestFailed").await;
        team.lag(LAG);
        let source = world.team.get(WIDGETS, "default/w").unwrap();
        let kept = made_anew(&world.team, &world.berlin, &source);
        allow(&world.berlin, &["*"]);
        world.told("w", "Synced").await;
        sleep(LAG).await;
        assert_eq!(uids(made(&world.berlin)), kept, "limited: {limited}");
        assert_eq!(world.failing(), []);
        world.stop().await;
    }
}

/// The other replica is so fast that the source is still the former one, or gone, when its server is asked, and the target is not.
#[tokio::test(start_paused = true)]
async fn sync_target_that_is_made_anew_between_two_reads_stays() {
    for (read, is_gone) in [
        ("widgets/w", false),
        ("widgets/w", true),
        ("w-settings", false),
        ("w-settings", true),
    ] {
        let (mut world, [team, berlin]) = synced(false).await;
        let (clusters, kept) = (
            [world.team.clone(), world.berlin.clone()],
            Arc::new(Mutex::new(Vec::new())),
        );
        let (found, source) = (kept.clone(), world.team.get(WIDGETS, "default/w").unwrap());
        berlin.meanwhile(read, move || {
            team.lag(LAG);
            *found.lock().unwrap() = made_anew(&clusters[0], &clusters[1], &source);
        });
        world.team.delete(WIDGETS, "default/w").unwrap();
        if is_gone {
            end(&world.team);
        }
        eventually(LIMIT, read, || berlin.has_happened().then_some(())).await;
        world.told("w", "Synced").await;
        let (kept, now) = (kept.lock().unwrap().clone(), uids(made(&world.berlin)));
        assert!(
            !kept.is_empty() && kept.iter().all(|uid| now.contains(uid)),
            "{read}, {is_gone}: {now:?} and not {kept:?}"
        );
        world.stop().await;
    }
}

/// The cluster of the source is back after the grace, when its target has just been read to be deleted.
#[tokio::test(start_paused = true)]
async fn sync_target_of_a_cluster_that_is_back_at_the_last_moment_stays() {
    let mut world = World::new();
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    let owned = || sync().owner("eu");
    world.start(owned());
    world.told("w", "Synced").await;
    world.stop().await;
    let berlin = Gate::default();
    let specs = [berlin.before(&world.berlin, "target")];
    world.start_with(owned().delete_orphans_after(LAG).unwrap(), specs);
    let (clusters, team) = (world.clusters.clone(), spec(&world.team, "source"));
    berlin.meanwhile("widgets/w", move || assert!(clusters.add(team)));
    world.clusters.remove("team");
    eventually(LIMIT, "the read", || berlin.has_happened().then_some(())).await;
    sleep(LAG).await;
    assert_eq!(made(&world.berlin).len(), 1);
    world.stop().await;
}

/// The source loses its finalizer by hand and is deleted, which a list shows. A new one comes before its server is asked.
#[tokio::test(start_paused = true)]
async fn sync_target_of_a_source_that_is_made_anew_is_not_told_as_an_orphan() {
    for limited in [false, true] {
        let (mut world, [team, _]) = synced(limited).await;
        let source = world.team.get(WIDGETS, "default/w").unwrap();
        team.lag(10 * LAG);
        end(&world.team);
        world.team.compact(world.team.resource_version());
        let cluster = world.team.clone();
        team.meanwhile("widgets/w", move || drop(cluster.create(anew(&source)).unwrap()));
        world.team.end_watches();
        eventually(LIMIT, "the source is asked for", || {
            team.has_happened().then_some(())
        })
        .await;
        sleep(LAG).await;
        assert_eq!(world.failing(), []);
        team.lag(Duration::ZERO);
        world.team.end_watches();
        world.told("w", "Synced").await;
        world.stop().await;
    }
}
