//! Upstream's cases.

use mcr_core::ClusterState;
use mcr_testkit::{
    control_plane::Etcd,
    waiting::{OrFail, eventually},
};

use crate::harness::{Hub, PATIENCE, Running, create, empty_stomach, is_fed, lists, planes};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_16_to_23_secrets_are_clusters_that_come_change_and_go() {
    let etcd = Etcd::start().await.or_fail();
    let [hub, zoo, jungle, island] = planes(&etcd).await;
    let hub = Hub::new(hub, "upstream").await;
    create(&zoo, "elephant", "animal").await;
    create(&jungle, "monkey", "animal").await;
    create(&island, "crusoe", "human").await;
    create(&island, "parrot", "animal").await;
    for (name, plane) in [("zoo", &zoo), ("jungle", &jungle), ("island", &island)] {
        hub.put(name, plane.kubeconfig()).await;
    }

    // P-16: three Secrets, three clusters.
    let running = Running::start(hub.provider().await.build().or_fail());
    running.names_are(&["island", "jungle", "zoo"]).await;
    assert_eq!(running.ready("zoo").await.provider(), "kubeconfig");
    // P-17: existing.
    for (plane, animal) in [(&zoo, "elephant"), (&jungle, "monkey"), (&island, "crusoe")] {
        is_fed(plane, animal).await;
    }
    assert!(running.seen.has("zoo elephant") && running.seen.has("island crusoe"));
    // P-18: new.
    create(&zoo, "lion", "animal").await;
    is_fed(&zoo, "lion").await;
    // P-19: updated.
    empty_stomach(&zoo, "elephant").await;
    is_fed(&zoo, "elephant").await;
    // P-20: an index.
    assert_eq!(running.humans("island").await, ["crusoe"]);

    // P-22: an annotation on a Secret changes nothing at the cluster.
    let before = running.ready("island").await;
    let mark = island.audit().await.or_fail().mark();
    hub.annotate("island", "example.com/touched", "today").await;
    hub.annotate("island", "property.mcr.dev/climate", "tropical")
        .await;
    eventually(PATIENCE, "the property is told", || {
        (before.properties().get("climate")? == "tropical").then_some(())
    })
    .await;
    create(&island, "goat", "animal").await;
    is_fed(&island, "goat").await;
    assert!(running.fleet.get("island").or_fail().is_same(&before));
    let asked = island.audit_since(mark).await.or_fail();
    assert_eq!(lists(&asked), 0);
    assert_eq!(
        asked.count(|event| event.is_watch_start("configmaps")),
        0,
        "no connection is touched"
    );

    // P-21: the Secret of the island leads to the jungle now.
    hub.put("island", jungle.kubeconfig()).await;
    eventually(PATIENCE, "another cluster has the name", || {
        running
            .fleet
            .get("island")
            .ok()
            .filter(|now| !now.is_same(&before))
    })
    .await;
    create(&jungle, "tiger", "animal").await;
    is_fed(&jungle, "tiger").await;
    eventually(PATIENCE, "it is seen in the cluster of the old name", || {
        running.seen.has("island tiger")
    })
    .await;
    eventually(PATIENCE, "nothing is left of the island", || {
        before.state() == ClusterState::Gone
    })
    .await;
    assert_eq!(running.humans("island").await, [""; 0]);

    // P-23: a Secret is deleted.
    hub.delete("island").await;
    running.names_are(&["jungle", "zoo"]).await;
    create(&zoo, "zebra", "animal").await;
    is_fed(&zoo, "zebra").await;
    running.stop().await;

    let asked = hub.asked().await;
    assert_eq!(
        asked.iter().filter(|asked| asked.starts_with("list")).count(),
        1,
        "one LIST at the hub: {asked:?}"
    );
    let selected = |uri: &&String| {
        uri.contains("/api/v1/namespaces/upstream/secrets?")
            && uri.contains("labelSelector=sigs.k8s.io%2Fmulticluster-runtime-kubeconfig%3Dtrue")
    };
    assert_eq!(asked.iter().filter(selected).count(), asked.len(), "{asked:?}");
}
