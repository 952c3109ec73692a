//! Failing clusters beside healthy ones.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mcr::{ClusterState, Controller, Manager, Request, core::TransportSettings};
use mcr_testkit::control_plane::{ControlPlane, Credentials, Etcd};

use crate::harness::*;

/// Of ten contexts, one never answers, one refuses connections and one may not list. The other seven reconcile, although the
/// connect timeout is an hour here. The status of the two that answer shows the reason, and the forbidden one recovers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seven_of_ten_contexts_reconcile_at_once_and_three_report_why_not() {
    let plane = ControlPlane::start().await.or_fail();
    create(&plane, "hello").await;
    let nobody = plane.user("nobody").create().await.or_fail();
    let hole = BlackHole::dig();
    // The socket is bound and does not listen, so no other program can take the port.
    let refusing = tokio::net::TcpSocket::new_v4().or_fail();
    refusing.bind("127.0.0.1:0".parse().or_fail()).or_fail();
    let refusing_at = refusing.local_addr().or_fail();
    let healthy: Vec<String> = (0..7).map(|i| format!("healthy-{i}")).collect();
    let at = |name, server: String| (name, server, plane.ca_pem(), plane.admin_credentials());
    // The failing clusters come first, to show that the others do not wait for them.
    let mut contexts = vec![
        at("black-holed", format!("https://{}", hole.address)),
        at("refusing", format!("https://{refusing_at}")),
        ("forbidden", plane.url(), plane.ca_pem(), nobody.credentials()),
    ];
    contexts.extend(healthy.iter().map(|name| admin(name, &plane)));
    let file = kubeconfig(contexts);

    let seen = Arc::new(Seen::default());
    let running = Running::start_with(&[("fleet.kubeconfig", &file)], vec![noting(&seen)], |settings| {
        let mut transport = TransportSettings::default();
        transport.connect_timeout = Duration::from_secs(3600);
        settings.transport = transport.into();
    });
    eventually(PATIENCE, "seven clusters reconcile", || {
        healthy.iter().all(|name| seen.has(&format!("live {name} hello")))
    })
    .await;
    let state = |context: &str| running.fleet.get(context).or_fail().state();
    eventually(PATIENCE, "the refusing one says so", || {
        let refused =
            "can't connect: connection refused: nothing listens at this address; the API server may be down";
        state("refusing").reason() == Some(refused)
    })
    .await;
    eventually(PATIENCE, "the controller's status names the kind and why", || {
        let status = serde_json::to_string(&running.controllers[0].status()).or_fail();
        status.contains("configmaps is forbidden")
    })
    .await;
    assert!(!seen.any(|line| line.contains("forbidden")), "{:?}", seen.lines());

    nobody.allow(may_read_config_maps()).await.or_fail();
    eventually(PATIENCE, "the forbidden one recovers", || {
        seen.has("live forbidden hello")
    })
    .await;
    assert!(
        !seen.any(|line| line.starts_with("deleted")),
        "{:?}",
        seen.lines()
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_reports_so_when_it_was_dialled_for_long_enough() {
    let hole = BlackHole::dig();
    let token = Credentials::Token("t".to_owned());
    let context = (
        "black-holed",
        format!("https://{}", hole.address),
        String::new(),
        token,
    );
    let running = Running::start_with(
        &[("fleet.kubeconfig", &kubeconfig([context]))],
        vec![noting(&Arc::default())],
        |settings| {
            let mut transport = TransportSettings::default();
            transport.connect_timeout = Duration::from_secs(2);
            settings.transport = transport.into();
        },
    );
    let name = "black-holed";
    let state = || running.fleet.get(name).ok().map(|cluster| cluster.state());
    let reason = eventually(PATIENCE, "it says so", || match state()? {
        ClusterState::Unreachable { reason } => Some(reason),
        _ => None,
    })
    .await;
    assert_eq!(
        &*reason,
        "can't connect: the connection timed out: the other side does not answer (down, or a firewall drops packets)"
    );
    running.stop().await;
}

/// An address that drops every SYN: a listening socket with a full queue.
struct BlackHole {
    address: std::net::SocketAddr,
    _listener: std::net::TcpListener,
    _queue: Vec<std::net::TcpStream>,
}

impl BlackHole {
    fn dig() -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).or_fail();
        let any: std::net::SocketAddr = "127.0.0.1:0".parse().or_fail();
        socket.bind(&any.into()).or_fail();
        socket.listen(1).or_fail();
        let listener: std::net::TcpListener = socket.into();
        let address = listener.local_addr().or_fail();
        let mut queue = Vec::new();
        while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            queue.push(stream);
            assert!(queue.len() < 100, "the queue of the listener fills up");
        }
        Self {
            address,
            _listener: listener,
            _queue: queue,
        }
    }
}

/// An API server stops for a while. No object counts as deleted meanwhile, and real deletions arrive afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_deleted_objects_arrive_as_deleted_and_others_not() {
    let etcd = Etcd::start().await.or_fail();
    let plane = ControlPlane::builder().etcd(&etcd).start().await.or_fail();
    let other_door = ControlPlane::builder().replica_of(&plane).start().await.or_fail();
    let bystander = ControlPlane::builder().etcd(&etcd).start().await.or_fail();
    create(&plane, "goes").await;
    create(&plane, "stays").await;
    let seen = Arc::new(Seen::default());
    let file = kubeconfig([admin("stops", &plane), admin("stays-up", &bystander)]);
    let running = Running::start(&[("fleet.kubeconfig", &file)], vec![noting(&seen)]);
    eventually(PATIENCE, "both are seen", || {
        seen.has("live stops goes") && seen.has("live stops stays")
    })
    .await;

    plane.stop().await.or_fail();
    delete(&other_door, "goes").await;
    create(&bystander, "meanwhile").await;
    eventually(PATIENCE, "the other cluster goes on", || {
        seen.has("live stays-up meanwhile")
    })
    .await;
    let cluster = running.fleet.get("stops").or_fail();
    eventually(PATIENCE, "it is seen to be away", || {
        matches!(cluster.state(), ClusterState::Unreachable { .. })
    })
    .await;
    assert!(
        !seen.any(|line| line.starts_with("deleted")),
        "{:?}",
        seen.lines()
    );
    plane.restart().await.or_fail();
    eventually(PATIENCE, "the delete arrives", || seen.has("deleted stops goes")).await;
    assert_eq!(seen.count("deleted stops goes"), 1);
    assert!(
        !seen.any(|line| line == "deleted stops stays"),
        "{:?}",
        seen.lines()
    );
    running.stop().await;
}

/// Rights are withdrawn and given back. No object counts as deleted meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_is_not_deleted() {
    let plane = ControlPlane::start().await.or_fail();
    create(&plane, "stays").await;
    let robot = plane
        .service_account("default", "robot")
        .cluster_rules(may_read_config_maps())
        .create()
        .await
        .or_fail();
    let context = |token: String| kubeconfig([("a", plane.url(), plane.ca_pem(), Credentials::Token(token))]);
    let seen = Arc::new(Seen::default());
    let file = context(robot.token().await.or_fail());
    let running = Running::start(&[("fleet.kubeconfig", &file)], vec![noting(&seen)]);
    eventually(PATIENCE, "seen", || seen.has("live a stays")).await;

    robot.revoke().await.or_fail();
    // Open watches go on after rights are withdrawn; new ones are refused.
    plane.stop().await.or_fail();
    plane.restart().await.or_fail();
    let cluster = "a";
    eventually(PATIENCE, "the watch is refused", || {
        let kinds = running.fleet.get(cluster).ok()?.kinds();
        kinds
            .first()?
            .problem
            .as_ref()
            .filter(|problem| problem.starts_with("forbidden"))
            .map(|_| ())
    })
    .await;
    robot.allow(may_read_config_maps()).await.or_fail();
    touch(&plane, "stays", "again").await;
    let before = seen.count("live a stays");
    eventually(PATIENCE, "it goes on", || seen.count("live a stays") > before).await;
    assert!(
        !seen.any(|line| line.starts_with("deleted") || line.starts_with("absent")),
        "{:?}",
        seen.lines()
    );
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
    let (seen, found) = (Arc::new(Seen::default()), Arc::new(Mutex::new(Vec::new())));
    let of_widgets = Controller::<DynamicObject>::with("widgets", &widgets).build(
        |request: Request<DynamicObject>, found: Arc<Mutex<Vec<String>>>| async move {
            let colour = request
                .live()
                .map(|widget| widget.data["spec"]["colour"].to_string());
            found
                .lock()
                .unwrap()
                .push(format!("{} {colour:?}", request.name()));
            Ok::<_, std::convert::Infallible>(())
        },
        found.clone(),
    );
    let file = kubeconfig([admin("gets-it", &gets_it), admin("lacks-it", &lacks_it)]);
    let running = Running::start(&[("f.kubeconfig", &file)], vec![noting(&seen), of_widgets]);
    create(&gets_it, "one").await;
    create(&lacks_it, "two").await;
    eventually(PATIENCE, "ConfigMaps are reconciled in both", || {
        seen.has("live gets-it one") && seen.has("live lacks-it two")
    })
    .await;
    // A server that has just started answers for kinds of CRDs only after it has read its CRDs.
    eventually(PATIENCE, "the kind is missed in both", || {
        let status = serde_json::to_string(&running.controllers[1].status()).or_fail();
        status.matches("does not serve this kind (404)").count() == 2
    })
    .await;

    gets_it.install_crd(widget_crd()).await.or_fail();
    let widget = DynamicObject::new("w", &widgets).data(serde_json::json!({"spec": {"colour": "red"}}));
    let api = kube::Api::<DynamicObject>::namespaced_with(gets_it.client(), "default", &widgets);
    api.create(&Default::default(), &widget).await.or_fail();
    eventually(PATIENCE, "the new kind is reconciled", || {
        found
            .lock()
            .unwrap()
            .iter()
            .any(|line| line == r#"w Some("\"red\"")"#)
    })
    .await;
    create(&lacks_it, "three").await;
    eventually(PATIENCE, "the cluster without it goes on", || {
        seen.has("live lacks-it three")
    })
    .await;
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

/// The same controller on a single cluster, without provider and file, and without a change of its code.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_controller_runs_on_a_single_cluster() {
    let plane = ControlPlane::start().await.or_fail();
    create(&plane, "hello").await;
    let seen = Arc::new(Seen::default());
    let manager = Manager::single(plane.client())
        .controller(noting(&seen))
        .build()
        .or_fail();
    let stop = tokio_util::sync::CancellationToken::new();
    let task = tokio::spawn(manager.run_until(stop.clone()));
    eventually(PATIENCE, "reconciled", || seen.has("live local hello")).await;
    delete(&plane, "hello").await;
    eventually(PATIENCE, "deleted", || seen.has("deleted local hello")).await;
    stop.cancel();
    task.await.or_fail().or_fail();
}
