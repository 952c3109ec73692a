//! The places of one source do not wait for each other.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Access, ClusterSelector, ClusterSpec, Manager};
use mcr_provider_clusters::ClustersProvider;
use mcr_sync::{NameTemplate, ObjectSync};
use mcr_testkit::{
    sim::{SimCluster, SimRule, SimUser},
    waiting::{Background, eventually},
};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn sync_target_cluster_that_refuses_does_not_hold_the_others() {
    let [source, berlin, lyon, paris] =
        ["team-a", "berlin", "lyon", "paris"].map(|name| SimCluster::builder().name(name).build());
    let rights =
        |verbs: &[&str]| SimUser::new("sync").rule(SimRule::new(["*"], ["*"], verbs.iter().copied()));
    // The first and the last of them, in whatever order the sync goes.
    for refusing in [&berlin, &paris] {
        refusing.set_user("sync", rights(&["get", "list", "watch"]));
    }
    lyon.set_user("sync", rights(&["*"]));
    let provider = ClustersProvider::new();
    let clusters = provider.handle();
    clusters.add(ClusterSpec::named("team-a", Access::from(source.client())).unwrap());
    for target in [&berlin, &lyon, &paris] {
        let access = Access::from(target.client_with_token("sync"));
        let spec = ClusterSpec::named(target.name(), access).unwrap();
        clusters.add(spec.label("role", "target"));
    }
    let targets = ClusterSelector::label("role", "target");
    let controller = ObjectSync::<ConfigMap, ConfigMap>::new("maps")
        .from(ClusterSelector::name("team-a"))
        .to_each(targets)
        .name_by(NameTemplate::parse("{name}").unwrap())
        .mirror()
        .build()
        .unwrap();
    let manager = Manager::builder()
        .provider(provider)
        .controller(controller)
        .build()
        .unwrap();
    let running = Background::start(|stop| manager.run_until(stop));
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "db", "namespace": "default"}});
    source.create(map).unwrap();
    let served = |cluster: &SimCluster| cluster.get("configmaps", "default/db").map(drop);
    eventually(LIMIT, "the target in lyon", || served(&lyon)).await;
    assert!(served(&berlin).or(served(&paris)).is_none());

    for refusing in [&berlin, &paris] {
        refusing.set_user("sync", rights(&["*"]));
        eventually(LIMIT, "the target, with the rights", || served(refusing)).await;
        refusing.set_user("sync", rights(&["get", "list", "watch"]));
    }
    source.delete("configmaps", "default/db").unwrap();
    eventually(LIMIT, "no target in lyon", || {
        served(&lyon).is_none().then_some(())
    })
    .await;
    let all = || served(&berlin).and(served(&paris)).and(served(&source));
    assert!(all().is_some(), "the source waits for the targets that are left");
    for refusing in [&berlin, &paris] {
        refusing.set_user("sync", rights(&["*"]));
    }
    eventually(LIMIT, "no source", || served(&source).is_none().then_some(())).await;
    assert!(served(&berlin).or(served(&paris)).is_none());
    running.stop().await.unwrap();
}
