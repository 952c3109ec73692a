//! Reads over the fleet: a cluster that can't be read looks like a cluster without objects, unless it is named.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject},
};
use mcr_core::{FleetObjects, StoreError, WatchRequest};

use mcr_doubles::scripted::{Answer, Server};

use crate::{harness::*, ready::gated};

fn quiet_in_memory() -> Server {
    Server::in_memory(serves_one_map)
}

/// `cluster/name` of the objects, and the texts of the missing clusters.
fn reported<K: ResourceExt>(read: &FleetObjects<K>) -> (Vec<String>, Vec<String>) {
    let objects = read.objects.iter();
    let objects = objects.map(|(cluster, object)| format!("{}/{}", cluster.name(), object.name_any()));
    assert_eq!(read.is_complete(), read.missing.is_empty());
    (
        objects.collect(),
        read.missing.iter().map(ToString::to_string).collect(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_read_over_the_fleet_names_every_cluster_that_is_missing() {
    let running = Running::start();
    let fleet = &running.fleet;
    let (good, (late, gate)) = (quiet_in_memory(), gated());
    let listed = running.join_by("good", good.access()).await;
    let _maps = listed.watch(WatchRequest::of::<ConfigMap>(), None).unwrap();
    let unlisted = running.join_by("late", late.access()).await;
    let (maps, log) = follow(&unlisted, WatchRequest::of::<ConfigMap>());
    let _secrets = unlisted.watch(WatchRequest::of::<Secret>(), None).unwrap();
    // Nothing is watched here, as in most hubs.
    let hub = running.join_by("hub", quiet_in_memory().access()).await;
    for cluster in [&listed, &unlisted, &hub] {
        ready(cluster).await;
    }
    eventually("it is listed", || {
        listed.store::<ConfigMap>().ok()?.is_synced().then_some(())
    })
    .await;
    let forbidden = eventually("it is forbidden", || {
        unlisted.store::<Secret>().ok()?.status().problem
    })
    .await;

    let read = fleet.list::<ConfigMap>();
    assert!(matches!(read.missing[0].error, StoreError::NotWatched { .. }));
    assert!(matches!(
        read.missing[1].error,
        StoreError::NotListed { problem: None, .. }
    ));
    assert!(read.missing[0].cluster.is_same(&hub) && read.missing[1].cluster.is_same(&unlisted));
    let (objects, missing) = reported(&read);
    assert_eq!(objects, ["good/a"]);
    assert_eq!(missing.len(), 2);
    let remedy = "Return the error to try again, or wait with Store::wait_synced. For an optional kind, \
                  Store::get_unsynced reads what is there";
    assert!(missing[0].starts_with("cluster hub: configmaps is not watched"));
    assert_eq!(
        missing[1],
        format!("cluster late: configmaps is not listed yet. {remedy}")
    );
    let why = reported(&fleet.list::<Secret>()).1.pop().unwrap();
    let expected = format!(
        "cluster late: secrets is not listed yet: {}. {remedy}",
        forbidden.error
    );
    assert_eq!(why, expected);

    // An index that nobody has registered.
    let (objects, missing) = reported(&fleet.by_index::<ConfigMap>("by", "a"));
    assert!(objects.is_empty());
    assert!(
        missing[0].starts_with("cluster good: no index \"by\" over ConfigMap"),
        "{missing:?}"
    );
    fleet.index::<ConfigMap>("by", |map| vec![map.name_any()]);
    gate.add_permits(1);
    log.becomes(&["+a"]).await;
    synced(&maps).await;
    let (objects, missing) = reported(&fleet.by_index::<ConfigMap>("by", "a"));
    assert_eq!(
        (objects, missing.len()),
        (vec!["good/a".into(), "late/a".into()], 1)
    );

    // An unreachable cluster is not missing: what was read from it is old.
    good.fall_silent();
    unreachable(&listed, "").await;
    let read = fleet.list::<ConfigMap>();
    assert_eq!(reported(&read).0, ["good/a", "late/a"]);
    assert!(!read.objects[0].0.state().is_ready() && read.objects[1].0.state().is_ready());

    // A cluster that has left is not a cluster of the fleet.
    for left in ["hub", "good"] {
        running.clusters.remove(&name(left));
    }
    eventually("they are gone", || fleet.clusters().len() == 1).await;
    let read = fleet.list::<ConfigMap>();
    assert_eq!(reported(&read), (vec!["late/a".into()], Vec::new()));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_known_at_run_time_has_all_that_a_typed_one_has() {
    let running = Running::start();
    let fleet = &running.fleet;
    let maps = ApiResource::erase::<ConfigMap>(&());
    let server = Server::in_memory(|asked| match (asked.is_watch(), &*asked.path) {
        (true, _) => quiet(),
        (false, MAPS) => list(10, [map("a", 1), map("b", 2)]),
        (false, "/api/v1/namespaces/default/configmaps") => list(10, [map("b", 2)]),
        (false, path) => Answer::status(404, "NotFound", path),
    });
    let by_name = |object: &DynamicObject| vec![object.name_any()];
    fleet.index_with::<DynamicObject>(&maps, "early", by_name);
    let cluster = running.join_by("eu", server.access()).await;
    let (watch, _log) = follow(&cluster, WatchRequest::resource(&maps));
    synced(&watch).await;
    fleet.index_with::<DynamicObject>(&maps, "late", by_name);

    let all = fleet.list_with::<DynamicObject>(&maps);
    let (mut names, missing) = reported(&all);
    names.sort();
    assert_eq!(
        (names, missing),
        (vec!["eu/a".to_owned(), "eu/b".to_owned()], Vec::new())
    );
    assert_eq!(all.objects[0].1.types.as_ref().unwrap().kind, "ConfigMap");
    for index in ["early", "late"] {
        let found = fleet.by_index_with::<DynamicObject>(&maps, index, "b");
        assert_eq!(reported(&found), (vec!["eu/b".to_owned()], Vec::new()));
    }
    let stores = fleet.stores_with::<DynamicObject>(&maps);
    assert_eq!((stores.len(), stores[0].1.len().unwrap()), (1, 2));
    // The typed and the dynamic form are one kind.
    assert_eq!(fleet.list::<ConfigMap>().objects.len(), 2);
    let secrets = ApiResource::erase::<Secret>(&());
    let unwatched = fleet.list_with::<DynamicObject>(&secrets);
    assert!(matches!(
        unwatched.missing[0].error,
        StoreError::NotWatched { .. }
    ));

    let count = async |api: kube::Api<DynamicObject>| {
        let listed = api.list(&ListParams::default()).await.unwrap();
        listed.items.len()
    };
    ready(&cluster).await;
    assert_eq!(count(cluster.api_with(&maps)).await, 2);
    assert_eq!(count(cluster.namespaced_with("default", &maps)).await, 1);
    running.stop().await;
}
