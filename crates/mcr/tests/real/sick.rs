//! Failing clusters beside healthy ones.

use std::{
    convert::Infallible,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::PolicyRule};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mcr::{
    Action, BuildError, BuiltController, Cluster, ClusterSpec, Controller, ControllerHandle, FleetSettings,
    Request, RequestObject,
};
use mcr_testkit::{
    control_plane::{ControlPlane, Credentials, Etcd, KubeconfigBuilder, policy_rule},
    faults::Fault,
    waiting::{Background, eventually},
};

use crate::fleet::{OrFail, PATIENCE, Running, Servers, World, spec, write_really};

/// The requests of a reconciler, as `live|deleted|absent <cluster> <name>`.
#[derive(Default)]
struct Noted(Mutex<Vec<String>>);

impl Noted {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn count(&self, line: &str) -> usize {
        self.lines().iter().filter(|known| *known == line).count()
    }

    fn has(&self, line: &str) -> bool {
        self.count(line) > 0
    }

    #[track_caller]
    fn has_none(&self, word: &str) {
        let lines = self.lines();
        assert!(!lines.iter().any(|line| line.contains(word)), "{lines:?}");
    }
}

async fn note(request: Request<ConfigMap>, noted: Arc<Noted>) -> Result<Action, Infallible> {
    let what = match &request.object {
        RequestObject::Live(_) => "live",
        RequestObject::Deleted { .. } => "deleted",
        _ => "absent",
    };
    let line = format!("{what} {} {}", request.cluster.name(), request.name());
    noted.0.lock().unwrap().push(line);
    Ok(Action::await_change())
}

fn noting(noted: &Arc<Noted>) -> Result<BuiltController, BuildError> {
    Controller::<ConfigMap>::new("noting")
        .watch_request(|watch| watch.namespace("default"))
        .build(note, noted.clone())
}

/// A cluster at this address, with the authority of a control plane.
fn member(name: &str, server: String, plane: &ControlPlane, credentials: Credentials) -> ClusterSpec {
    let kubeconfig = KubeconfigBuilder::new().context(name, server, plane.ca_pem(), credentials);
    spec(name, &kubeconfig.to_yaml())
}

fn admin(name: &str, plane: &ControlPlane) -> ClusterSpec {
    member(name, plane.url(), plane, plane.admin_credentials())
}

fn status(controller: &ControllerHandle) -> String {
    serde_json::to_string(&controller.status()).or_fail()
}

fn may_read_config_maps() -> Vec<PolicyRule> {
    vec![
        policy_rule([""], ["configmaps"], ["get", "list", "watch"]),
        policy_rule([""], ["namespaces"], ["get"]),
    ]
}

/// Rights are withdrawn and given back. No object counts as deleted meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_is_not_deleted() {
    let plane = ControlPlane::start().await.or_fail();
    write_really(&plane, "stays", 0).await;
    let robot = plane
        .service_account("default", "robot")
        .cluster_rules(may_read_config_maps())
        .create()
        .await
        .or_fail();
    let token = Credentials::Token(robot.token().await.or_fail());
    let noted = Arc::new(Noted::default());
    let a = member("a", plane.url(), &plane, token);
    let running = Running::start([a], |_| noting(&noted), |_| {});
    eventually(PATIENCE, "it is reconciled", || noted.has("live a stays")).await;

    robot.revoke().await.or_fail();
    // Open watches go on after rights are withdrawn; new ones are refused.
    plane.stop().await.or_fail();
    plane.restart().await.or_fail();
    eventually(PATIENCE, "the watch is refused", || {
        let kinds = running.fleet.get("a").ok()?.kinds();
        let problem = kinds.first()?.problem.clone();
        problem.filter(|problem| problem.starts_with("forbidden"))
    })
    .await;
    robot.allow(may_read_config_maps()).await.or_fail();
    write_really(&plane, "stays", 1).await;
    let before = noted.count("live a stays");
    eventually(PATIENCE, "it goes on", || noted.count("live a stays") > before).await;
    noted.has_none("deleted");
    noted.has_none("absent");
    running.stop().await;
}

/// A CRD that is installed later is watched in its cluster. A controller of another kind, and the cluster without the CRD, go
/// on all the while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crd_installed_after_the_start_is_picked_up_where_it_is_installed() {
    let etcd = Etcd::start().await.or_fail();
    let gets_it = ControlPlane::builder().etcd(&etcd).start().await.or_fail();
    let lacks_it = ControlPlane::builder().etcd(&etcd).start().await.or_fail();
    let widgets =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Widget"), "widgets");
    let (noted, found) = (Arc::new(Noted::default()), Arc::new(Noted::default()));
    let of_widgets = async |request: Request<DynamicObject>, found: Arc<Noted>| {
        let colour = request.live().map(|widget| widget.data["spec"]["colour"].clone());
        let line = format!("{} {}", request.name(), colour.unwrap_or_default());
        found.0.lock().unwrap().push(line);
        Ok::<_, Infallible>(())
    };
    let of_widgets = Controller::<DynamicObject>::with("widgets", &widgets)
        .build(of_widgets, found.clone())
        .or_fail();
    let specs = [admin("gets-it", &gets_it), admin("lacks-it", &lacks_it)];
    let running = Running::start(specs, |_| noting(&noted), |_| {});
    let (handle, fleet) = (of_widgets.handle(), running.fleet.clone());
    let with_widgets = Background::start(|stop| of_widgets.run(fleet, stop));
    write_really(&gets_it, "one", 0).await;
    write_really(&lacks_it, "two", 0).await;
    eventually(PATIENCE, "ConfigMaps are reconciled in both", || {
        noted.has("live gets-it one") && noted.has("live lacks-it two")
    })
    .await;
    // A server that has just started answers for kinds of CRDs only after it has read its CRDs.
    eventually(PATIENCE, "the kind is missed in both", || {
        status(&handle).matches("does not serve this kind (404)").count() == 2
    })
    .await;

    gets_it.install_crd(widget_crd()).await.or_fail();
    let widget = DynamicObject::new("w", &widgets).data(serde_json::json!({"spec": {"colour": "red"}}));
    let api = kube::Api::<DynamicObject>::namespaced_with(gets_it.client(), "default", &widgets);
    api.create(&Default::default(), &widget).await.or_fail();
    eventually(PATIENCE, "the new kind is reconciled", || found.has("w \"red\"")).await;
    write_really(&lacks_it, "three", 0).await;
    eventually(PATIENCE, "the cluster without it goes on", || {
        noted.has("live lacks-it three")
    })
    .await;
    with_widgets.stop().await.or_fail();
    running.stop().await;
}

fn widget_crd() -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]
        }
    })
}

/// What acknowledges and does not answer is noticed by a probe: after 4 s if work waits, and else after 13 s, a fifth of the usual
/// times. The work is a reconcile that sends no request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_is_unreachable_and_sooner_if_work_waits_for_it() {
    let world = World::real(1, 0, 3).await;
    let Servers::Real(plane) = &world.servers else {
        panic!("it is simulated")
    };
    let (paused, with_work, half_open) = ("healthy-0", "sick-0", "sick-2");
    let noted = Arc::new(Noted::default());
    let reconcile = async |request: Request<ConfigMap>, noted: Arc<Noted>| {
        let line = format!("{} {}", request.cluster.name(), request.name());
        let works = line.starts_with("sick-0 ");
        noted.0.lock().unwrap().push(line);
        if works {
            pending::<()>().await;
        }
        Ok::<_, Infallible>(())
    };
    let controller = Controller::<ConfigMap>::new("works").build(reconcile, noted.clone());
    let limits = |settings: &mut FleetSettings| {
        settings.probe_after = Duration::from_secs(4);
        settings.probe_timeout = Duration::from_secs(2);
    };
    let running = Running::start(world.specs(), |_| controller, limits);
    for name in ["hello", "again"] {
        write_really(plane, name, 0).await;
        eventually(PATIENCE, "all have just sent something", || {
            let clusters = running.fleet.clusters();
            let has = |cluster: &Cluster| noted.has(&format!("{} {name}", cluster.name()));
            clusters.len() == 4 && clusters.iter().all(has)
        })
        .await;
    }
    let began = tokio::time::Instant::now();
    world
        .infect(&[
            Fault::BlackHole.into(),
            Fault::BlackHole.into(),
            Fault::HalfOpen.into(),
        ])
        .await;
    plane.pause().or_fail();
    let mut took = Vec::new();
    for name in [with_work, "sick-1", half_open, paused] {
        let cluster = running.fleet.get(name).or_fail();
        cluster.wait_for(|state| !state.is_ready()).await;
        took.push(began.elapsed().as_secs());
    }
    assert!(took[0] <= 10 && took[1] > 10 && took[3] < 30, "{took:?}");
    plane.resume().or_fail();
    // New connections work. Those that were half-open stay so.
    for sick in world.sick.iter().filter(|sick| sick.name != half_open) {
        sick.proxy.clear().await;
    }
    eventually(PATIENCE, "all are ready", || {
        running
            .fleet
            .clusters()
            .iter()
            .all(|cluster| cluster.state().is_ready())
    })
    .await;
    running.stop().await;
}
