//! Building, running and ending managers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::support::{Api, Dropped, Seen, sleep};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mcr::{
    BoxError, BuildError, Controller, Fleet, LeaderElection, Manager, ManagerError, Request, RequestKey,
    SINGLE_CLUSTER, WatchRequest,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

async fn nothing<K>(_: Request<K>, _: Arc<()>) -> Result<(), BoxError> {
    Ok(())
}

fn maps(name: &str) -> Result<mcr::BuiltController, BuildError> {
    Controller::<ConfigMap>::new(name).build(nothing, Arc::new(()))
}

#[test]
fn misuse_is_reported_when_it_is_built() {
    let text = |error: BuildError| error.to_string();
    assert_eq!(maps("").unwrap_err(), BuildError::EmptyName);
    let error = Controller::named("idle")
        .build(nothing::<()>, Arc::new(()))
        .unwrap_err();
    assert!(text(error).starts_with("controller idle: nothing is watched, so it would never be triggered."));
    let error = Controller::<ConfigMap>::new("x")
        .concurrency(0)
        .build(nothing, Arc::new(()))
        .unwrap_err();
    assert!(text(error).starts_with("controller x: concurrency is zero"));
    let other = Controller::<ConfigMap>::new("x").watch_request(|_| WatchRequest::of::<Secret>());
    let error = other.build(nothing, Arc::new(())).unwrap_err();
    assert!(text(error).contains("the request for configmaps was changed to secrets"));
    let policy = |_, _: &kube::Error, _| kube::runtime::controller::Action::await_change();
    let uniform = async |_: Arc<ConfigMap>, _: Arc<()>| Ok(kube::runtime::controller::Action::await_change());
    let two = Controller::<ConfigMap>::new("x").on_error(|_, _| mcr::Action::done());
    let error = two.build_uniform(uniform, policy, |_| ()).unwrap_err();
    assert!(matches!(error, BuildError::TwoErrorPolicies { .. }), "{error}");
    // A controller with watches needs no primary kind.
    let controller = Controller::named("x").watches(|_: mcr::Watched<Secret>| Vec::<RequestKey>::new());
    assert!(controller.build(nothing::<()>, Arc::new(())).is_ok());
}

#[tokio::test]
async fn a_manager_refuses_what_could_not_work() {
    let builder = || Manager::single(Api::default().client());
    let without = Manager::builder().controller(maps("x")).build();
    assert!(matches!(without, Err(ManagerError::NoProvider)));
    let two = || builder().controller(maps("x")).controller(maps("x"));
    let error = two().build().unwrap_err();
    assert!(error.to_string().starts_with("two controllers are named x"));
    assert!(two().allow_equal_names().build().is_ok());
    // Two controllers of one kind are fine.
    let two = builder().controller(maps("x")).controller(maps("y").unwrap());
    assert!(two.build().is_ok());
    let unnamed = builder().controller(maps("")).build();
    assert!(matches!(unnamed, Err(ManagerError::Build(BuildError::EmptyName))));
    assert!(matches!(
        builder().settings(|_| {}).build(),
        Err(ManagerError::TwoFleets)
    ));
    let election = LeaderElection::new("lock").renew_deadline(Duration::from_secs(20));
    let error = builder().leader_election(election).build().unwrap_err();
    assert!(matches!(&error, ManagerError::LeaderElection(error) if error.field == "lease_duration"));
}

#[tokio::test(start_paused = true)]
async fn the_same_controller_runs_on_one_cluster_and_ends_in_order() {
    let api = Api::default();
    api.put_map("ns/quick", "1");
    api.put_map("ns/slow", "1");
    let seen: Seen<String> = Seen::default();
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push(format!("begin {}", request.key));
        if request.name() == "slow" {
            request.token().cancelled().await;
            sleep(3_000).await;
            // The cluster is still there while the task ends.
            assert!(request.fleet.get(&request.key.cluster).is_ok() && request.cluster.state().is_ready());
            seen.push("slow end");
        }
        Ok::<_, BoxError>(())
    };
    let controller = Controller::<ConfigMap>::new("maps").build(reconcile, Arc::new(seen.clone()));
    let task_ended = Arc::new(AtomicBool::new(false));
    let manager = Manager::single(api.client())
        .controller(controller)
        .task("beside", {
            let ended = task_ended.clone();
            move |fleet, stop| async move {
                assert!(fleet.snapshot().clusters.len() <= 1);
                stop.cancelled().await;
                ended.store(true, Ordering::SeqCst);
                Ok(())
            }
        })
        .task("short", |_, _| async { Ok(()) })
        .build()
        .unwrap();
    let (fleet, handle) = (manager.fleet().clone(), manager.controllers().remove(0));
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run_until(stop.clone()));
    let mut began = seen.wait_for(2).await;
    began.sort();
    let key = |name: &str| format!("begin cluster://{SINGLE_CLUSTER}/ns/{name}");
    assert_eq!(began, [key("quick"), key("slow")]);
    stop.cancel();
    api.put_map("ns/late", "1");
    let stopped = Instant::now();
    running.await.unwrap().unwrap();
    assert_eq!(stopped.elapsed().as_secs(), 3);
    assert_eq!(seen.all()[2..], ["slow end"]);
    assert!(task_ended.load(Ordering::SeqCst));
    assert!(fleet.clusters().is_empty() && handle.status().clusters.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_or_panics_stops_the_manager_with_its_error() {
    let manager = || Manager::single(Api::default().client()).controller(maps("maps"));
    let failing = manager()
        .task("web", |_, _| async { Err("port taken".into()) })
        .build()
        .unwrap();
    let error = failing.run_until(CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "task web failed: port taken");
    let panicking = manager()
        .task("web", |_, _| async { panic!("oh") })
        .build()
        .unwrap();
    let error = panicking.run_until(CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "task web panicked: oh");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_end_is_named_and_ended() {
    let manager = Manager::single(Api::default().client())
        .task("deaf", |_, _| std::future::pending())
        .shutdown_grace(Duration::from_secs(7))
        .build()
        .unwrap();
    let stop = CancellationToken::new();
    stop.cancel();
    let began = Instant::now();
    let error = manager.run_until(stop).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "deaf did not end within 7 s after the manager began to stop"
    );
    assert_eq!(began.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_does_not_end_is_aborted_within_the_grace_and_nothing_is_kept() {
    let api = Api::default();
    api.put_map("ns/x", "1");
    let ctx: Arc<Seen<String>> = Arc::default();
    let deaf = |_: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push("began");
        std::future::pending::<Result<(), BoxError>>().await
    };
    let controller = Controller::<ConfigMap>::new("maps")
        .owns::<Secret>()
        .build(deaf, ctx.clone());
    let manager = Manager::single(api.client())
        .controller(controller)
        .build()
        .unwrap();
    let handle = manager.controllers().remove(0);
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run_until(stop.clone()));
    ctx.wait_for(1).await;
    stop.cancel();
    let stopped = Instant::now();
    running.await.unwrap().unwrap();
    assert_eq!(stopped.elapsed().as_secs(), 27);
    assert_eq!(handle.status().counts.aborted, 1);
    assert_eq!(api.watches(), 0);
    drop(handle);
    assert_eq!(Arc::strong_count(&ctx), 1, "the controller holds itself alive");
}

#[tokio::test(start_paused = true)]
async fn a_controller_whose_future_is_dropped_leaves_nothing_running() {
    let api = Api::default();
    api.put_map("ns/x", "1");
    let fleet = Fleet::single(api.client());
    let stop_fleet = CancellationToken::new();
    let fleet_task = tokio::spawn({
        let (fleet, stop) = (fleet.clone(), stop_fleet.clone());
        async move { fleet.run(stop).await }
    });
    let reconcile = |_: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push("began");
        let _dropped = Dropped(seen);
        std::future::pending::<Result<(), BoxError>>().await
    };
    let seen = Seen::default();
    let controller = Controller::<ConfigMap>::new("maps")
        .build(reconcile, Arc::new(seen.clone()))
        .unwrap();
    let running = tokio::spawn(controller.run(fleet.clone(), CancellationToken::new()));
    seen.wait_for(1).await;
    running.abort();
    let _ = running.await;
    crate::support::until_true(|| seen.all() == ["began", "dropped"] && api.watches() == 0).await;
    stop_fleet.cancel();
    fleet_task.await.unwrap();
}

const ROLE: &str = "MCR_MANAGER_TEST_ROLE";

/// The child process of the next test; not a test by itself. Runs a manager for 11 s of paused time.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match &*role {
        "subscriber" => tracing_subscriber::fmt().with_writer(std::io::stderr).init(),
        "logger" => log::set_max_level(log::LevelFilter::Error),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let seconds = if role == "early" { 9_000 } else { 60_000 };
        let manager = Manager::single(Api::default().client()).build().unwrap();
        let (running, ()) = tokio::join!(manager.run_until(stop.clone()), async {
            sleep(seconds).await;
            stop.cancel();
        });
        running.unwrap();
    });
}

#[test]
fn a_program_without_a_log_is_warned_on_stderr_once() {
    for (role, lines) in [("none", 1), ("early", 0), ("subscriber", 0), ("logger", 0)] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["manager::child", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{role}: {text}");
        let reported: Vec<&str> = text.lines().filter(|line| line.starts_with("mcr: ")).collect();
        assert_eq!(reported.len(), lines, "{role}: {text}");
        assert!(
            reported
                .iter()
                .all(|line| line.contains("tracing_subscriber::fmt::init()")),
            "{role}: {text}"
        );
    }
}
