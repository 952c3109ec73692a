//! The assertions of multicluster-runtime's tests of its namespace provider: P-09 to P-15 of `docs/comparison.md`.

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::Cluster;
use mcr_testkit::control_plane::ControlPlane;

use crate::harness::*;

/// zoo, jungle and island with who lives there, and someone else of the same name elsewhere.
async fn world() -> (ControlPlane, Running) {
    let plane = ControlPlane::builder().audit(true).start().await.or_fail();
    let client = plane.client();
    for name in ["zoo", "jungle", "island"] {
        namespace(&client, name, &[]).await;
    }
    for (place, name, kind) in [
        ("zoo", "elephant", "animal"),
        ("zoo", "lion", "animal"),
        ("zoo", "keeper", "human"),
        ("jungle", "monkey", "animal"),
        ("jungle", "tarzan", "human"),
        ("island", "bird", "animal"),
        ("island", "crusoe", "human"),
    ] {
        lives(&client, place, name, kind).await;
    }
    let running = Running::start(provider(&plane).build().or_fail());
    (plane, running)
}

/// `namespace/name` of the humans of a cluster, by the index.
fn humans(cluster: &Cluster) -> Vec<String> {
    let Ok(store) = cluster.store::<ConfigMap>() else {
        return Vec::new();
    };
    let found = store.by_index("type", "human").unwrap_or_default();
    let mut humans: Vec<String> = found.iter().map(|map| name(map)).collect();
    humans.sort();
    humans
}

fn name(map: &ConfigMap) -> String {
    let metadata = &map.metadata;
    format!(
        "{}/{}",
        metadata.namespace.clone().unwrap_or_default(),
        metadata.name.clone().unwrap_or_default()
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_09_existing_p_10_new_and_p_11_updated_objects_are_reconciled() {
    let (plane, running) = world().await;
    let client = plane.client();
    for line in [
        "live zoo zoo/elephant",
        "live zoo zoo/lion",
        "live jungle jungle/monkey",
        "live island island/bird",
    ] {
        running.sees(line).await;
    }
    // They were fed, through the client of their own cluster.
    for (place, who) in [("zoo", "lion"), ("island", "bird")] {
        fed(&client, place, who).await;
    }

    lives(&client, "jungle", "tiger", "animal").await;
    running.sees("live jungle jungle/tiger").await;
    fed(&client, "jungle", "tiger").await;

    feed(&client, "island", "bird", "empty").await;
    fed(&client, "island", "bird").await;

    dies(&client, "zoo", "lion").await;
    running.sees("deleted zoo zoo/lion").await;

    // One list and one watch for all of them.
    let audit = plane.audit().await.or_fail();
    let lists =
        audit.count(|event| event.is_list("configmaps") && event.uri.starts_with("/api/v1/configmaps?"));
    let watches = audit
        .count(|event| event.is_watch_start("configmaps") && event.uri.starts_with("/api/v1/configmaps?"));
    assert_eq!((lists, watches), (1, 1));
    running.stop().await;
}

async fn fed(client: &kube::Client, place: &str, who: &str) {
    let started = std::time::Instant::now();
    loop {
        let map = maps(client, place).get(who).await.or_fail();
        if map.data.is_some_and(|data| data["stomach"] == "food") {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{place}/{who} is not fed");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_12_an_index_finds_who_is_in_the_cluster() {
    let (_plane, running) = world().await;
    let island = running.cluster("island").await;
    eventually("crusoe is found", || humans(&island) == ["island/crusoe"]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_13_an_index_finds_who_is_in_the_namespace() {
    let (_plane, running) = world().await;
    let island = running.cluster("island").await;
    eventually("crusoe is found", || !humans(&island).is_empty()).await;
    let store = island.store::<ConfigMap>().or_fail();
    let in_namespace = |namespace: &str| {
        let found = store.by_index("type", "human").or_fail();
        found
            .iter()
            .filter(|map| map.metadata.namespace.as_deref() == Some(namespace))
            .count()
    };
    assert_eq!((in_namespace("island"), in_namespace("default")), (1, 0));
    let key = mcr::ObjectKey::namespaced("island", "crusoe");
    assert_eq!(name(&store.get(&key).or_fail().unwrap()), "island/crusoe");
    assert!(
        store
            .get(&mcr::ObjectKey::namespaced("default", "crusoe"))
            .or_fail()
            .is_none()
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_14_an_index_finds_who_is_in_all_clusters() {
    let (_plane, running) = world().await;
    let all = eventually("three humans are found", || {
        let found = running.fleet.by_index::<ConfigMap>("type", "human");
        let found: Vec<String> = found
            .objects
            .iter()
            .map(|(cluster, map)| format!("{} {}", cluster.name(), name(map)))
            .collect();
        (found.len() == 3).then_some(found)
    })
    .await;
    assert_eq!(
        all,
        [
            "island island/crusoe",
            "jungle jungle/tarzan",
            "zoo zoo/keeper"
        ]
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_15_the_host_sees_who_is_where() {
    let (plane, running) = world().await;
    running.sees("live island island/crusoe").await;
    let crusoe = maps(&plane.client(), "island").get("crusoe").await.or_fail();
    assert_eq!(name(&crusoe), "island/crusoe");
    // The real namespace default is a cluster like the others, and nobody lives there.
    let default = running.cluster("default").await;
    let of_default = maps(&default.client(), "default")
        .list(&kube::api::ListParams::default().labels("type"))
        .await;
    assert_eq!(of_default.or_fail().items.len(), 0);
    running.stop().await;
}
