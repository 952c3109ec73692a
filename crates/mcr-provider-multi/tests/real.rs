//! Children over real API servers. The animals are those of upstream's tests, and the test is named after its cases.
//!
//! Needs the control-plane binaries (`cargo xtask assets`); `cargo xtask test` sets everything up.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use mcr::{Action, Controller, Fleet, Manager, Request};
use mcr_core::{Access, ClusterSpec, Trust};
use mcr_provider_clusters::ClustersProvider;
use mcr_provider_multi::MultiProvider;
use mcr_testkit::{
    control_plane::{ControlPlane, Etcd},
    waiting::{Background, OrFail, eventually},
};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(90);

fn cloud(island: &ControlPlane) -> ClustersProvider {
    let access = Access::kubeconfig(island.kubeconfig(), Trust::Trusted);
    let island = ClusterSpec::named("island", access).or_fail();
    ClustersProvider::builder().cluster(island).build()
}

async fn create(plane: &ControlPlane, name: &str) {
    let human = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            labels: Some(BTreeMap::from([("type".into(), "human".into())])),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    let maps = kube::Api::namespaced(plane.client(), "default");
    maps.create(&PostParams::default(), &human).await.or_fail();
}

async fn feed(request: Request<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
    let hungry = |map: &ConfigMap| map.data.is_none();
    if request.live().is_some_and(hungry) {
        let patch = Patch::Merge(json!({"data": {"stomach": "food"}}));
        let maps = request.cluster.namespaced::<ConfigMap>("default");
        maps.patch(request.name(), &PatchParams::default(), &patch).await?;
    }
    Ok(Action::await_change())
}

/// Who is human in a cluster by the index, and was fed.
async fn humans_are(fleet: &Fleet, cluster: &str, names: &[&str]) {
    let fed = || {
        let store = fleet.get(cluster).ok()?.store::<ConfigMap>().ok()?;
        let mut humans = store.by_index("type", "human").ok()?;
        humans.retain(|human| human.data.is_some());
        let mut found: Vec<_> = humans.iter().filter_map(|human| human.metadata.name.clone()).collect();
        found.sort();
        (found == names).then_some(())
    };
    eventually(PATIENCE, cluster, fed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_27_to_31_animals_are_fed_and_an_index_finds_humans_in_a_cloud_added_later_too() {
    let etcd = Etcd::start().await.or_fail();
    let island = ControlPlane::builder().etcd(&etcd).start().await.or_fail();
    let other_island = ControlPlane::builder().etcd(&etcd).start().await.or_fail();
    create(&island, "crusoe").await;
    create(&other_island, "selkirk").await;
    let multi = MultiProvider::builder()
        .child_as("cloud1", cloud(&island))
        .build()
        .or_fail();
    let children = multi.handle();
    let keeper = Controller::<ConfigMap>::new("keeper")
        .watch_request(|watch| watch.namespace("default").labels("type"))
        .build(feed, Arc::new(()));
    let manager = Manager::builder().provider(multi).controller(keeper).build().or_fail();
    let fleet = manager.fleet().clone();
    // Once, before any cluster is there.
    fleet.index::<ConfigMap>("type", |map| {
        let labels = map.metadata.labels.iter().flatten();
        labels.filter(|(key, _)| *key == "type").map(|(_, kind)| kind.clone()).collect()
    });
    let running = Background::start(|stop| manager.run_until(stop));

    humans_are(&fleet, "cloud1#island", &["crusoe"]).await;
    assert_eq!(fleet.get("cloud1#island").or_fail().provider(), "cloud1");
    create(&island, "friday").await;
    humans_are(&fleet, "cloud1#island", &["crusoe", "friday"]).await;
    children.add_as("cloud2", cloud(&other_island)).or_fail();
    humans_are(&fleet, "cloud2#island", &["selkirk"]).await;
    assert!(children.remove("cloud1"));
    eventually(PATIENCE, "it leaves", || fleet.get("cloud1#island").is_err()).await;
    humans_are(&fleet, "cloud2#island", &["selkirk"]).await;
    running.stop().await.or_fail();
}
