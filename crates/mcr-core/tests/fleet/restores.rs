//! An etcd that is restored from a backup while the fleet watches: resource versions go back.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_testkit::control_plane::{ControlPlane, Etcd};

use crate::harness::*;

fn names<'a>(maps: impl IntoIterator<Item = &'a ConfigMap>) -> BTreeSet<Option<String>> {
    maps.into_iter().map(|map| map.metadata.name.clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_equals_an_etcd_that_was_restored_and_the_deletion_after_it_is_reported() {
    let etcd = Etcd::start().await.or_fail();
    let plane = ControlPlane::builder().etcd(&etcd).start().await.or_fail();
    create(&plane, "stays").await;
    create(&plane, "goes").await;
    etcd.back_up().or_fail();
    let running = Running::start_with(|settings| {
        // No watch ends by itself and leads to a list that way.
        Arc::make_mut(&mut settings.watch).watch_timeout = Duration::from_secs(3600);
        // Nor does silence lead to a probe.
        settings.probe_after = Duration::from_secs(3600);
    });
    let cluster = running.join("a", &plane.kubeconfig()).await;
    let (watch, log) = watch_config_maps(&cluster);
    for i in 0..60 {
        create(&plane, &format!("lost-{i}")).await;
    }
    eventually(SOON, "all is held", || log.has("+lost-59")).await;

    plane.stop().await.or_fail();
    etcd.restore().await.or_fail();
    plane.restart().await.or_fail();
    delete(&plane, "goes").await;
    let noticed = || watch.status().lists >= 2;
    eventually(SOON, "the versions that went back are noticed", noticed).await;
    // The versions pass the old ones.
    for i in 0..80 {
        create(&plane, &format!("later-{i}")).await;
    }
    let all = kube::Api::<ConfigMap>::all(plane.client());
    let there = names(&all.list(&Default::default()).await.or_fail().items);
    let store = cluster.store::<ConfigMap>().or_fail();
    eventually(SOON, "the store equals the server", || {
        let held = store.list().or_fail();
        names(held.iter().map(|map| &**map)) == there
    })
    .await;
    let reported = (log.count("-goes"), log.count("-lost-0"), log.count("-stays"));
    assert_eq!(reported, (1, 1, 0), "{:?}", log.lines());
    running.stop().await;
}
