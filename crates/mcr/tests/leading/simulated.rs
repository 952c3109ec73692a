//! One manager and a Lease that the test changes.

use std::{
    net::TcpListener,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{
    Access, BoxError, BuiltController, ClusterSpec, Controller, LeaderElection, Leadership, Manager,
    ManagerBuilder, ManagerError, Request, Role, server::ServerOptions,
};
use mcr_provider_clusters::ClustersProvider;
use mcr_testkit::{
    sim::SimCluster,
    waiting::{Background, OrFail, eventually},
};
use serde_json::{Value, json};

use crate::support::{Dropped, Seen};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PATIENCE: Duration = Duration::from_secs(60);

async fn until(seen: &Seen<String>, line: &str) {
    let has = || seen.all().iter().any(|seen| seen == line);
    eventually(PATIENCE, format!("{line:?} in {:?}", seen.all()), has).await;
}

/// A Lease that is held for an hour by a process that is not there, or by nobody.
fn lease(holder: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "lock", "namespace": "default"},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": if holder.is_empty() { 1 } else { 3600 },
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    })
}

fn set_holder(cluster: &SimCluster, holder: &str) {
    cluster.update(lease(holder)).or_fail();
}

fn holder(cluster: &SimCluster) -> String {
    let lease = cluster.get("leases.coordination.k8s.io", "default/lock").unwrap();
    lease["spec"]["holderIdentity"].as_str().unwrap().to_owned()
}

fn put_map(cluster: &SimCluster, name: &str) {
    let metadata = json!({"name": name, "namespace": "default"});
    cluster
        .create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
        .or_fail();
}

fn controller(name: &str) -> Controller<ConfigMap> {
    Controller::<ConfigMap>::new(name.to_owned()).watch_request(|watch| watch.namespace("default"))
}

/// An election that loses the Lease soon if it can't be renewed.
fn short_election(cluster: &SimCluster) -> LeaderElection {
    election(cluster)
        .lease_duration(Duration::from_secs(6))
        .renew_deadline(Duration::from_secs(2))
}

/// An election that does not lose the Lease because the machine is busy.
fn election(cluster: &SimCluster) -> LeaderElection {
    LeaderElection::new("lock")
        .namespace("default")
        .client(cluster.client())
        .identity("me")
        .lease_duration(Duration::from_secs(60))
        .renew_deadline(Duration::from_secs(40))
        .retry_period(Duration::from_millis(50))
}

struct Running {
    leadership: Leadership,
    running: Background<Result<(), ManagerError>>,
}

fn start(builder: ManagerBuilder, election: LeaderElection) -> Running {
    let manager = builder.leader_election(election).build().unwrap();
    Running {
        leadership: manager.leadership().unwrap(),
        running: Background::start(|stop| manager.run_until(stop)),
    }
}

async fn note(request: Request<ConfigMap>, seen: Arc<Seen<String>>) -> Result<(), BoxError> {
    seen.push(request.name().to_owned());
    Ok(())
}

fn noting(controller: Controller<ConfigMap>, seen: &Seen<String>) -> BuiltController {
    controller.build(note, Arc::new(seen.clone())).unwrap()
}

async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.or_fail();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.or_fail();
    let mut all = String::new();
    stream.read_to_string(&mut all).await.or_fail();
    all
}

#[tokio::test]
async fn a_standby_is_warm_and_reconciles_when_it_leads() {
    let cluster = SimCluster::new();
    cluster.create(lease("other")).or_fail();
    put_map(&cluster, "kept");
    put_map(&cluster, "deleted");
    let (led, everywhere) = (Seen::default(), Seen::default());
    let (maps, audit) = (
        noting(controller("maps"), &led),
        noting(controller("everywhere").leader_only(false), &everywhere),
    );
    let status = maps.handle();
    let listener = TcpListener::bind("127.0.0.1:0").or_fail();
    let address = listener.local_addr().or_fail();
    let builder = Manager::single(cluster.client())
        .controller(maps)
        .controller(audit)
        .serve(ServerOptions::from(listener));
    let process = start(builder, election(&cluster));

    until(&everywhere, "kept").await;
    let ready = |count: usize| (status.status().queue.ready == count).then_some(());
    eventually(PATIENCE, "the requests wait", || ready(2)).await;
    // Another replica reconciles the deletion. The standby does not keep the key.
    cluster.delete("configmaps", "default/deleted").or_fail();
    eventually(PATIENCE, "the key is forgotten", || ready(1)).await;
    let known = || {
        process
            .leadership
            .status()
            .holder
            .filter(|holder| &**holder == "other")
    };
    eventually(PATIENCE, "the holder is known", known).await;
    assert_eq!(led.all(), Vec::<String>::new());
    let readyz = get(address, "/readyz").await;
    assert!(
        readyz.starts_with("HTTP/1.1 200") && readyz.contains(r#""role":"standby""#),
        "{readyz}"
    );
    let clusters = get(address, "/clusters").await;
    let report: Value = serde_json::from_str(clusters.split_once("\r\n\r\n").unwrap().1).unwrap();
    let election = &report["leaderElection"];
    assert_eq!(election["role"], "standby");
    assert!(election["since"].as_str().unwrap().ends_with('Z'));
    assert_eq!(
        (&election["holder"], &election["lease"]),
        (&json!("other"), &json!("default/lock"))
    );
    assert!(get(address, "/metrics").await.contains("\nmcr_leader 0\n"));

    set_holder(&cluster, "");
    until(&led, "kept").await;
    assert_eq!(led.all(), ["kept"]);
    assert!(get(address, "/readyz").await.contains(r#""role":"leader""#));
    assert!(get(address, "/metrics").await.contains("\nmcr_leader 1\n"));
    assert!(holder(&cluster).starts_with("me_"));
    process.running.stop().await.or_fail();
    assert_eq!(holder(&cluster), "", "the Lease is released");
}

async fn deaf(_: Request<ConfigMap>, seen: Arc<Seen<String>>) -> Result<(), BoxError> {
    seen.push("began");
    let _dropped = Dropped(seen.clone());
    std::future::pending().await
}

#[tokio::test]
async fn a_rival_in_the_lease_aborts_what_runs_and_the_process_can_lead_again() {
    let cluster = SimCluster::new();
    cluster.create(lease("")).or_fail();
    put_map(&cluster, "a");
    let seen = Seen::<String>::default();
    let (maps, noted) = (
        controller("maps").build(deaf, Arc::new(seen.clone())),
        Seen::default(),
    );
    let process = start(
        Manager::single(cluster.client())
            .controller(maps)
            .controller(noting(controller("notes"), &noted)),
        election(&cluster),
    );
    until(&seen, "began").await;
    until(&noted, "a").await;
    set_holder(&cluster, "rival");
    until(&seen, "dropped").await;
    let status = process.leadership.status();
    assert_eq!(
        (status.role, status.holder.as_deref()),
        (Role::Standby, Some("rival"))
    );
    set_holder(&cluster, "");
    let twice = || seen.all() == ["began", "dropped", "began"];
    eventually(PATIENCE, "the request is reconciled again", twice).await;
    let twice = || noted.all() == ["a", "a"];
    eventually(PATIENCE, "the rival may have failed with what succeeded", twice).await;
    drop(process);
}

async fn polite(request: Request<ConfigMap>, seen: Arc<Seen<String>>) -> Result<(), BoxError> {
    seen.push("began");
    request.token().cancelled().await;
    seen.push("cancelled");
    tokio::time::sleep(Duration::from_millis(20)).await;
    seen.push("ended");
    Ok(())
}

#[tokio::test]
async fn without_the_cluster_of_the_lease_reconciles_are_cancelled_at_the_deadline_and_watches_go_on() {
    let (hub, work) = (SimCluster::new(), SimCluster::builder().name("work").build());
    hub.create(lease("")).or_fail();
    put_map(&work, "a");
    let seen = Seen::<String>::default();
    let maps = controller("maps").build(polite, Arc::new(seen.clone())).unwrap();
    let status = maps.handle();
    let token = hub.admin_token();
    let election = short_election(&hub).client(hub.client_with_token(&token));
    let process = start(Manager::single(work.client()).controller(maps), election);
    until(&seen, "began").await;
    hub.remove_user(&token);
    until(&seen, "ended").await;
    assert_eq!(seen.all(), ["began", "cancelled", "ended"]);
    assert!(!process.leadership.is_held());
    assert!(process.leadership.status().error.unwrap().contains("401"));
    put_map(&work, "b");
    let waits = || status.status().queue.ready > 0;
    eventually(PATIENCE, "the watch goes on", waits).await;
    assert_eq!(seen.all().len(), 3, "no reconcile begins after the loss");
    drop(process);
}

#[tokio::test]
async fn the_lease_is_released_after_the_reconciles_have_ended() {
    let cluster = SimCluster::new();
    cluster.create(lease("")).or_fail();
    put_map(&cluster, "a");
    let seen = Seen::<String>::default();
    let server = cluster.clone();
    let reconcile = move |request: Request<ConfigMap>, seen: Arc<Seen<String>>| {
        let server = server.clone();
        async move {
            seen.push("began");
            request.token().cancelled().await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            seen.push(holder(&server));
            Ok::<_, BoxError>(())
        }
    };
    let maps = controller("maps").build(reconcile, Arc::new(seen.clone()));
    let process = start(
        Manager::single(cluster.client()).controller(maps),
        election(&cluster),
    );
    until(&seen, "began").await;
    process.running.stop().await.or_fail();
    let seen = seen.all();
    assert!(seen.len() == 2 && seen[1].starts_with("me_"), "{seen:?}");
    assert_eq!(holder(&cluster), "");
}

type Block = Arc<dyn Fn() + Send + Sync>;

/// What never awaits can't be aborted, so it may go on: the Lease is neither released nor renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_task_that_never_awaits_keeps_neither_the_manager_nor_the_lease() {
    for of_controller in [false, true] {
        let cluster = SimCluster::new();
        cluster.create(lease("")).or_fail();
        put_map(&cluster, "a");
        let seen = Seen::<String>::default();
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let (of_task, wait) = (seen.clone(), Mutex::new(wait));
        let block: Block = Arc::new(move || {
            of_task.push("began");
            let _ = wait.lock().unwrap().recv();
        });
        let builder = Manager::single(cluster.client()).shutdown_grace(Duration::from_millis(20));
        let builder = if of_controller {
            let reconcile = |_: Request<ConfigMap>, block: Arc<Block>| async move {
                block();
                Ok::<_, BoxError>(())
            };
            builder.controller(controller("maps").build(reconcile, Arc::new(block)))
        } else {
            builder.task("deaf", |_, _| async move {
                block();
                Ok(())
            })
        };
        let process = start(builder, election(&cluster));
        until(&seen, "began").await;
        eventually(PATIENCE, "it leads", || process.leadership.is_held()).await;
        let stopped = tokio::time::timeout(PATIENCE, process.running.stop())
            .await
            .or_fail();
        assert!(matches!(stopped, Err(ManagerError::Stuck { .. })), "{stopped:?}");
        assert!(holder(&cluster).starts_with("me_"), "the Lease is not released");
        let lease = || cluster.get("leases.coordination.k8s.io", "default/lock").unwrap();
        let last = lease();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(lease(), last, "nor renewed");
        drop(go_on);
    }
}

#[tokio::test]
async fn a_leader_task_runs_in_each_term_and_ends_with_it() {
    let cluster = SimCluster::new();
    cluster.create(lease("other")).or_fail();
    let seen = Seen::<String>::default();
    let (of_leader, of_task) = (seen.clone(), seen.clone());
    let builder = Manager::single(cluster.client()).leader_election(election(&cluster));
    let (leadership, leads) = (builder.leadership().unwrap(), builder.leadership().unwrap());
    let leader_task = move |_, stop: tokio_util::sync::CancellationToken| {
        let seen = of_leader.clone();
        async move {
            seen.push("began");
            let _dropped = Dropped(Arc::new(seen));
            stop.cancelled().await;
            Ok(())
        }
    };
    let task = async move {
        of_task.push(format!("leads: {}", leadership.is_held()));
        Ok(())
    };
    let builder = builder
        .leader_task("cleaner", leader_task)
        .task("everywhere", |_, _| task);
    let manager = builder.build().unwrap();
    let running = Background::start(|stop| manager.run_until(stop));
    until(&seen, "leads: false").await;
    for terms in 1..=2 {
        assert_eq!(seen.all().len(), terms * 2 - 1, "{:?}", seen.all());
        set_holder(&cluster, "");
        eventually(PATIENCE, "it begins", || seen.all().len() == terms * 2).await;
        set_holder(&cluster, "rival");
        eventually(PATIENCE, "it ends", || {
            !leads.is_held() && seen.all().len() == terms * 2 + 1
        })
        .await;
    }
    running.stop().await.or_fail();
    assert_eq!(seen.all()[1..], ["began", "dropped", "began", "dropped"]);
}

#[tokio::test]
async fn a_replica_cleans_up_in_each_of_its_terms_and_not_before() {
    let cluster = SimCluster::new();
    cluster.create(lease("other")).or_fail();
    let (led, everywhere) = (Seen::<String>::default(), Seen::<String>::default());
    let cleans = |name, seen: &Seen<String>| {
        let seen = seen.clone();
        let controller = controller(name).clusters(mcr::ClusterSelector::label("env", "prod"));
        controller.on_deselected(move |_, _| {
            seen.push("cleaned");
            async { Ok(()) }
        })
    };
    let (provider, access) = (ClustersProvider::new(), Access::from(cluster.client()));
    let clusters = provider.handle();
    let labelled = |env: &str| ClusterSpec::named("a", access.clone()).unwrap().label("env", env);
    clusters.add(labelled("prod"));
    let all = noting(cleans("all", &everywhere).leader_only(false), &Seen::default());
    let status = all.handle();
    let builder = Manager::builder().provider(provider).controller(all);
    let process = start(
        builder.controller(noting(cleans("maps", &led), &Seen::default())),
        election(&cluster),
    );
    eventually(PATIENCE, "it is selected", || status.status().clusters.len() == 1).await;
    clusters.add(labelled("test"));
    until(&everywhere, "cleaned").await;
    assert_eq!(led.len(), 0);
    set_holder(&cluster, "");
    until(&led, "cleaned").await;
    // Another replica leads for a while, and may write where its selector is another one.
    set_holder(&cluster, "rival");
    let leads = || process.leadership.is_held();
    eventually(PATIENCE, "the term ends", || !leads()).await;
    set_holder(&cluster, "");
    eventually(PATIENCE, "it cleans up again", || led.len() == 2).await;
    assert_eq!(everywhere.len(), 1);
    process.running.stop().await.or_fail();
}
