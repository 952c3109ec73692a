//! A fleet that packs what it holds beside one that does not, of the same cluster.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_core::{Cluster, Packing, StoreFormat, WatchHandle};
use mcr_testkit::control_plane::ControlPlane;
use serde_json::Value;

use crate::harness::*;

/// One of the two fleets.
struct Side {
    running: Running,
    cluster: Cluster,
    log: Arc<Log>,
    _watch: WatchHandle,
}

impl Side {
    async fn start(format: StoreFormat, kubeconfig: &str) -> Self {
        let running = Running::start_with(|settings| settings.store = format);
        running.fleet.index("color", |map: &ConfigMap| {
            let labels = map.metadata.labels.as_ref();
            labels
                .and_then(|labels| labels.get("color").cloned())
                .into_iter()
                .collect()
        });
        let cluster = running.join("a", kubeconfig).await;
        let (watch, log) = watch_config_maps(&cluster);
        ready(&cluster).await;
        synced(&cluster).await;
        Self {
            running,
            cluster,
            log,
            _watch: watch,
        }
    }

    /// All that can be read, in the order of the keys.
    fn reads(&self) -> Vec<(String, Value, ConfigMap)> {
        let store = self.cluster.store::<ConfigMap>().or_fail();
        let mut keys = store.keys().or_fail();
        keys.sort();
        let read = |key| {
            let json = store.raw(key).or_fail()?.to_json().or_fail();
            let map = store.get(key).or_fail()?;
            Some((
                key.to_string(),
                serde_json::from_slice(&json).or_fail(),
                (*map).clone(),
            ))
        };
        keys.iter().filter_map(read).collect()
    }

    fn of_color(&self, color: &str) -> Vec<String> {
        let found = self
            .cluster
            .store::<ConfigMap>()
            .or_fail()
            .by_index("color", color)
            .or_fail();
        let mut names: Vec<String> = found.iter().filter_map(|map| map.metadata.name.clone()).collect();
        names.sort();
        names
    }

    fn bytes(&self) -> (usize, usize) {
        let store = self.cluster.store::<ConfigMap>().or_fail();
        (store.bytes(), store.held_bytes())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_packed_fleet_reads_finds_and_tells_what_a_plain_one_does() {
    let plane = ControlPlane::builder().start().await.or_fail();
    let robot = plane
        .service_account("default", "robot")
        .cluster_rules(may_read_config_maps())
        .create()
        .await
        .or_fail();
    let kubeconfig = robot.kubeconfig(robot.token().await.or_fail());
    let color = |n: usize| ["red", "green", "blue"][n % 3];
    for n in 0..20 {
        let labels = [
            ("color", color(n)),
            ("app.kubernetes.io/part-of", "something-of-many-parts"),
        ];
        create_with(&plane, &format!("m{n}"), &labels).await;
    }
    let plain = Side::start(StoreFormat::Plain, &kubeconfig).await;
    let mut packing = Packing::default();
    packing.samples = 16;
    let packed = Side::start(StoreFormat::Packed(packing), &kubeconfig).await;
    assert!(plain.running.fleet.packing().is_none());
    eventually(SOON, "what was there before the dictionary is packed", || {
        (packed.bytes().1 < plain.bytes().1).then_some(())
    })
    .await;
    for n in 20..30 {
        create_with(&plane, &format!("m{n}"), &[("color", color(n))]).await;
    }
    for n in (0..30).step_by(4) {
        delete(&plane, &format!("m{n}")).await;
    }
    create_with(&plane, "last", &[]).await;
    for side in [&plain, &packed] {
        eventually(SOON, "all changes came", || side.log.has("+last").then_some(())).await;
    }
    assert_eq!(packed.reads(), plain.reads());
    assert_eq!(packed.bytes().0, plain.bytes().0);
    for color in ["red", "green", "blue"] {
        assert_eq!(packed.of_color(color), plain.of_color(color));
        assert!(!plain.of_color(color).is_empty());
    }
    // A list comes in the order of the server's, and so do events.
    assert_eq!(packed.log.lines(), plain.log.lines());
    assert_eq!(plain.log.lines().len(), 20 + 10 + 8 + 1);
    plain.running.stop().await;
    packed.running.stop().await;
}
