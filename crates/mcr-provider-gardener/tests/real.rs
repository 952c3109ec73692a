//! Renewals of real client certificates, with real API servers as the garden, as a seed and as a Shoot.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};

use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Secret},
    rbac::v1::PolicyRule,
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use mcr_core::{ClusterState, WatchRequest};
use mcr_garden_double::{Garden, Issued};
use mcr_provider_gardener::{GardenerProvider, Topology, v1alpha1::Cluster};
use mcr_testkit::{
    control_plane::{ControlPlane, Etcd, policy_rule},
    waiting::{self, OrFail},
};
use serde_json::json;
use support::fleet_of;

/// What never comes is given up after this.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long the certificates are valid.
const LIFE: Duration = Duration::from_secs(8);
const RENEWALS: usize = 20;

async fn eventually(what: &str, so: impl FnMut() -> bool) {
    waiting::eventually(PATIENCE, what, so).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_renewals_of_real_certificates_list_nothing_and_fail_nothing() {
    let etcd = Etcd::start().await.or_fail();
    let garden = ControlPlane::builder()
        .name("garden")
        .etcd(&etcd)
        .audit(true)
        .crd(Garden::crd())
        .crd(Garden::cluster_crd());
    let member = ControlPlane::builder().name("member").etcd(&etcd).audit(true);
    let (garden, member) = tokio::join!(garden.start(), member.start());
    let (garden, member) = (garden.or_fail(), member.or_fail());
    let namespace =
        json!({"metadata": {"name": "garden-dev", "labels": {"project.gardener.cloud/name": "dev"}}});
    Api::<Namespace>::all(garden.client())
        .create(
            &PostParams::default(),
            &serde_json::from_value(namespace).unwrap(),
        )
        .await
        .or_fail();
    let shoots = ApiResource {
        group: "core.gardener.cloud".into(),
        version: "v1beta1".into(),
        api_version: "core.gardener.cloud/v1beta1".into(),
        kind: "Shoot".into(),
        plural: "shoots".into(),
    };
    let shoot: DynamicObject = serde_json::from_value(Garden::shoot("garden-dev", "a")).unwrap();
    Api::<DynamicObject>::namespaced_with(garden.client(), "garden-dev", &shoots)
        .create(&PostParams::default(), &shoot)
        .await
        .or_fail();

    let issued = Arc::new(AtomicUsize::new(0));
    let stand_in = Garden::new({
        let (issued, member) = (issued.clone(), member.clone());
        move |_| {
            let user = member
                .user(format!("user-{}", issued.fetch_add(1, SeqCst) + 1))
                .groups(["system:masters"])
                .valid_for(LIFE);
            async move { Issued::kubeconfig(user.create().await.or_fail().kubeconfig(), LIFE) }
        }
    });
    let reader = garden
        .user("reader")
        .rules([policy_rule([""], ["namespaces"], ["get"])])
        .rules_in(
            "garden-dev",
            [
                policy_rule(["core.gardener.cloud"], ["shoots"], ["list", "watch"]),
                policy_rule(["core.gardener.cloud"], ["shoots/adminkubeconfig"], ["create"]),
            ],
        )
        .create()
        .await
        .or_fail();
    let provider = GardenerProvider::builder()
        .client(stand_in.client(reader.client().await.or_fail()))
        .namespace("garden-dev")
        .build()
        .unwrap();
    let (fleet, running) = fleet_of(provider, |_| {});
    let ready = || matches!(fleet.get("dev/a").map(|a| a.state()), Ok(ClusterState::Ready));
    eventually("it is ready", ready).await;
    let cluster = fleet.get("dev/a").unwrap();
    let maps = cluster.watch(WatchRequest::of::<ConfigMap>(), None).unwrap();
    eventually("its objects are listed", || maps.status().synced).await;
    let read = Api::<Namespace>::all(cluster.client());
    while issued.load(SeqCst) <= RENEWALS {
        read.get("default").await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(ready());
    running.stop().await;

    let audit = member.audit().await.or_fail();
    let lists = |kind: &str| audit.count(|event| event.is_list(kind) && event.user.starts_with("user-"));
    assert_eq!(lists("configmaps"), 1, "no LIST but the first");
    for number in 1..=RENEWALS {
        let uses = audit.count(|event| event.user == format!("user-{number}"));
        assert!(uses > 0, "nothing was done as user {number}");
    }
    in_a_seed(&garden, &member).await;
    for event in garden.audit().await.or_fail().events() {
        assert!(!event.user.ends_with("reader") || event.code < 300, "{event:?}");
    }
}

/// The same with the topology of a seed. RBAC limits its rights to the Secrets of one name.
async fn in_a_seed(seed: &ControlPlane, member: &ControlPlane) {
    let mut shoot = Garden::shoot("garden-dev", "b");
    shoot["metadata"]["uid"] = "uid-of-b".into();
    let params = PostParams::default();
    let cluster: Cluster = serde_json::from_value(Garden::cluster(&shoot)).unwrap();
    let namespace = serde_json::from_value(json!({"metadata": {"name": "shoot--dev--b"}})).unwrap();
    Api::<Namespace>::all(seed.client())
        .create(&params, &namespace)
        .await
        .or_fail();
    let secrets = Api::<Secret>::namespaced(seed.client(), "shoot--dev--b");
    let put = async |number: usize| {
        let user = member
            .user(format!("seed-user-{number}"))
            .groups(["system:masters"]);
        let kubeconfig = user.create().await.or_fail().kubeconfig().to_owned();
        let secret = Garden::secret("shoot--dev--b", &kubeconfig, SystemTime::now());
        let apply = PatchParams::apply("gardener").force();
        secrets
            .patch("gardener", &apply, &Patch::Apply(secret))
            .await
            .or_fail();
    };
    put(0).await;
    Api::<Cluster>::all(seed.client())
        .create(&params, &cluster)
        .await
        .or_fail();
    let reader = seed
        .user("seed-reader")
        .rules([
            policy_rule(["extensions.gardener.cloud"], ["clusters"], ["list", "watch"]),
            PolicyRule {
                resource_names: Some(vec!["gardener".into()]),
                ..policy_rule([""], ["secrets"], ["list", "watch", "get"])
            },
        ])
        .create()
        .await
        .or_fail();
    let provider = GardenerProvider::builder()
        .client(reader.client().await.or_fail())
        .topology(Topology::Seed)
        .build()
        .unwrap();
    let (fleet, running) = fleet_of(provider, |_| {});
    let ready = || matches!(fleet.get("dev/b").map(|b| b.state()), Ok(ClusterState::Ready));
    eventually("it is ready", ready).await;
    let cluster = fleet.get("dev/b").unwrap();
    let maps = cluster.watch(WatchRequest::of::<ConfigMap>(), None).unwrap();
    eventually("its objects are listed", || maps.status().synced).await;
    let read = Api::<Namespace>::all(cluster.client());
    for number in 1..=3 {
        put(number).await;
        let name = format!("seed-user-{number}");
        let begun = std::time::Instant::now();
        while member.audit().await.or_fail().count(|event| event.user == name) == 0 {
            assert!(begun.elapsed() < PATIENCE, "nothing was done as {name}");
            read.get("default").await.unwrap();
        }
        assert!(ready());
    }
    running.stop().await;
    let audit = member.audit().await.or_fail();
    let lists = audit.count(|event| event.is_list("configmaps") && event.user.starts_with("seed-user-"));
    assert_eq!(lists, 1, "no LIST but the first");
}
