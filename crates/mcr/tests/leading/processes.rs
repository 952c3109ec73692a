//! Two processes and one Lease on a real API server. The processes write when they reconcile.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use mcr::{Action, BoxError, Controller, LeaderElection, Manager, Request};
use mcr_testkit::{
    control_plane::ControlPlane,
    faults::{Fault, FaultProxy, Upstream},
    waiting::OrFail,
};
use serde_json::json;

use crate::journal::{Journal, now};

const PROCESS: &str = "MCR_LEADING_PROCESS";

async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).or_fail();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .or_fail();
    Client::try_from(config).or_fail()
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

struct Context {
    process: String,
    journal: Journal,
    runs: AtomicU64,
}

/// `endless` runs until it is dropped, and ignores its token. Other requests end at once and come again.
async fn reconcile(request: Request<ConfigMap>, context: Arc<Context>) -> Result<Action, BoxError> {
    // Read first: the process may be stopped before the entry is in the file.
    let mut at = now();
    let run = context.runs.fetch_add(1, Ordering::SeqCst).to_string();
    context.journal.write_at(&context.process, &run, at);
    while request.name() == "endless" {
        tokio::time::sleep(Duration::from_millis(5)).await;
        at = now();
        context.journal.write_at(&context.process, &run, at);
    }
    Ok(Action::requeue(Duration::from_millis(10)))
}

/// The program of a process of the tests below. Does nothing in the process of the test.
#[tokio::test]
async fn child() {
    let Ok(process) = std::env::var(PROCESS) else {
        return;
    };
    let name = variable("MCR_LEADING_NAME");
    let journal = Journal::new(Path::new(&variable("MCR_LEADING_JOURNAL")));
    let context = Context {
        process: process.clone(),
        journal: journal.clone(),
        runs: AtomicU64::new(0),
    };
    let controller = Controller::<ConfigMap>::new("maps")
        .watch_request(|watch| watch.namespace("default"))
        .build(reconcile, Arc::new(context));
    let election = LeaderElection::new(name)
        .client(client(&variable("MCR_LEADING_HUB")).await)
        .lease_duration(Duration::from_secs(3))
        .renew_deadline(Duration::from_secs(2))
        .retry_period(Duration::from_millis(500))
        .identity(&process);
    let manager = Manager::single(client(&variable("MCR_LEADING_WORK")).await)
        .controller(controller)
        .shutdown_grace(Duration::from_millis(300))
        .leader_election(election)
        .build()
        .or_fail();
    let leadership = manager.leadership().unwrap();
    let roles = tokio::spawn(async move {
        journal.write(&process, "up");
        loop {
            leadership.acquired().await.lost().await;
            journal.write(&process, "standby");
        }
    });
    manager.run().await.or_fail();
    roles.abort();
}

struct Process(Child);

impl Process {
    fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([name, &self.0.id().to_string()])
            .status();
        assert!(status.or_fail().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One Lease and its processes.
struct Scenario {
    name: &'static str,
    folder: PathBuf,
    journal: Journal,
    leases: Api<Lease>,
}

impl Scenario {
    async fn new(name: &'static str, folder: &Path, client: &Client) -> Self {
        let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
        // As it is after a release, so that the first process leads at once.
        let released = json!({
            "metadata": {"name": name},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z"},
        });
        let released = serde_json::from_value(released).unwrap();
        leases.create(&PostParams::default(), &released).await.or_fail();
        Self {
            name,
            folder: folder.to_owned(),
            journal: Journal::new(&folder.join(name)),
            leases,
        }
    }

    /// Starts a process and waits until it runs. `hub` is the name of the kubeconfig for the cluster of the Lease.
    async fn start(&self, process: &str, hub: &str) -> Process {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["processes::child", "--exact", "--nocapture", "--test-threads=1"])
            .env(PROCESS, process)
            .env("MCR_LEADING_NAME", self.name)
            .env("MCR_LEADING_JOURNAL", self.folder.join(self.name))
            .env("MCR_LEADING_HUB", self.folder.join(hub))
            .env("MCR_LEADING_WORK", self.folder.join("direct.yaml"))
            .stdout(Stdio::null())
            .spawn()
            .or_fail();
        self.journal.wait(process, "runs", 0, |what| what == "up").await;
        Process(child)
    }

    /// Waits until a process reconciles after all that was reconciled up to now.
    async fn takeover(&self, process: &str) -> u64 {
        let end = self.journal.last();
        self.journal.reconciles(process, end).await
    }

    async fn standby(&self, process: &str, after: u64) -> u64 {
        let is_standby = |what: &str| what == "standby";
        self.journal
            .wait(process, "is a standby", after, is_standby)
            .await
    }

    /// Starts two processes, of which the first reconciles.
    async fn start_both(&self, hub_of_first: &str) -> (Process, Process) {
        let a = self.start("a", hub_of_first).await;
        self.journal.reconciles("a", 0).await;
        (a, self.start("b", "direct.yaml").await)
    }
}

async fn killed(scenario: Scenario) {
    let (a, _b) = scenario.start_both("direct.yaml").await;
    a.signal("-KILL");
    drop(a);
    scenario.takeover("b").await;
    scenario.journal.assert_never_two_at_once();
}

async fn stopped_and_continued(scenario: Scenario) {
    let (a, b) = scenario.start_both("direct.yaml").await;
    a.signal("-STOP");
    let begin = scenario.takeover("b").await;
    a.signal("-CONT");
    scenario.standby("a", begin).await;
    // The other one is stopped too: it must not go on when it continues, and the first can lead again.
    b.signal("-STOP");
    let begin = scenario.takeover("a").await;
    b.signal("-CONT");
    scenario.standby("b", begin).await;
    scenario.journal.assert_never_two_at_once();
}

async fn cut_off(scenario: Scenario, proxy: &FaultProxy) {
    let (_a, b) = scenario.start_both("proxied.yaml").await;
    proxy.set(Fault::Silent).await;
    let lost = scenario.standby("a", scenario.journal.last()).await;
    scenario.journal.reconciles("b", lost).await;
    proxy.clear().await;
    // A process that is asked to stop releases the Lease.
    b.signal("-TERM");
    scenario.takeover("a").await;
    scenario.journal.assert_never_two_at_once();
}

async fn deleted(scenario: Scenario) {
    let (_a, _b) = scenario.start_both("direct.yaml").await;
    for _ in 0..3 {
        let (leases, name) = (&scenario.leases, scenario.name);
        leases.delete(name, &DeleteParams::default()).await.or_fail();
        let deleted = scenario.journal.last();
        // Either process may create the Lease again. The holder of the new Lease reconciles.
        let holder = loop {
            let lease = leases.get_opt(name).await.or_fail();
            let holder = lease.and_then(|lease| lease.spec?.holder_identity);
            match holder.filter(|holder| !holder.is_empty()) {
                Some(holder) => break holder,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        scenario.journal.reconciles(&holder[..1], deleted).await;
    }
    scenario.journal.assert_never_two_at_once();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_never_reconcile_at_once() {
    let plane = ControlPlane::start().await.or_fail();
    let proxy = FaultProxy::start(Upstream::admin_of(&plane)).await.or_fail();
    let folder = tempfile::tempdir().or_fail();
    for (name, kubeconfig) in [
        ("direct.yaml", plane.kubeconfig()),
        ("proxied.yaml", proxy.kubeconfig_without_credentials()),
    ] {
        std::fs::write(folder.path().join(name), kubeconfig).or_fail();
    }
    let client = plane.client();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    for name in ["endless", "again"] {
        let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        maps.create(&PostParams::default(), &map).await.or_fail();
    }
    let scenario = |name| Scenario::new(name, folder.path(), &client);
    let (kill, stop, cut, delete) = tokio::join!(
        scenario("kill"),
        scenario("stop-and-continue"),
        scenario("cut-off"),
        scenario("delete")
    );
    tokio::join!(
        killed(kill),
        stopped_and_continued(stop),
        cut_off(cut, &proxy),
        deleted(delete)
    );
}
