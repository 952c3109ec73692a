//! A fleet on scripted API servers, and what the tests of this folder share.

use std::{future::ready as at_once, io, sync::Arc, time::Duration};

use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, client::Body};
use mcr_core::{Access, Cluster, ClusterSpec, FleetSettings, Trust, WatchHandle, WatchRequest};
use mcr_testkit::waiting;

pub(crate) use crate::common::{Log, Running, follow, gone, name, next, ready, silent, unreachable};
use mcr_doubles::scripted::Server;

use crate::common::pause_at_most;

pub(crate) use mcr_doubles::scripted::{MAPS, SECRETS, event, list, list_object, map, quiet, serves_one_map};

/// How to reach a server.
pub(crate) trait Reached {
    fn access(&self) -> Access;
}

impl Reached for Server {
    fn access(&self) -> Access {
        if self.address.port() != 0 {
            return Access::kubeconfig(self.kubeconfig(), Trust::Trusted);
        }
        Access::from(self.client())
    }
}

/// Refuses every request, in memory. `seen` is told of each.
pub(crate) fn refuses(seen: impl Fn() + Send + 'static) -> Access {
    let service = tower::service_fn(move |_: Request<Body>| {
        seen();
        at_once(Err::<Response<Body>, _>(io::Error::from(
            io::ErrorKind::ConnectionRefused,
        )))
    });
    Access::from(Client::new(service, "default"))
}

pub(crate) fn short_pauses(settings: &mut FleetSettings) {
    pause_at_most(settings, Duration::from_millis(100));
    // Many tests of this folder have one server under several names.
    settings.allow_duplicates = true;
}

impl Running {
    pub(crate) async fn join(&self, cluster: &str, kubeconfig: &str) -> Cluster {
        let access = Access::kubeconfig(kubeconfig, Trust::Trusted);
        self.join_by(cluster, access).await
    }

    pub(crate) async fn join_by(&self, cluster: &str, access: Access) -> Cluster {
        self.announce(ClusterSpec::new(name(cluster), access)).await
    }
}

/// A fleet with one cluster, whose ConfigMaps are watched.
pub(crate) struct One {
    pub(crate) running: Running,
    pub(crate) cluster: Cluster,
    pub(crate) watch: WatchHandle,
    pub(crate) log: Arc<Log>,
}

impl One {
    pub(crate) async fn of(server: &Server) -> Self {
        Self::with(server, Running::start()).await
    }

    pub(crate) async fn with(server: &Server, running: Running) -> Self {
        let cluster = running.join_by("a", server.access()).await;
        let (watch, log) = follow(&cluster, WatchRequest::of::<ConfigMap>());
        Self {
            running,
            cluster,
            watch,
            log,
        }
    }

    pub(crate) async fn synced(&self) {
        synced(&self.watch).await;
    }
}

pub(crate) async fn synced(watch: &WatchHandle) {
    eventually("it is listed", || watch.status().synced).await;
}

/// What is waited for comes at once, unless the machine is busy; where a bug is planted it may never come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again and again until there is an answer.
#[track_caller]
pub(crate) fn eventually<A: waiting::Answer>(
    what: &str,
    ask: impl FnMut() -> A,
) -> impl Future<Output = A::Value> {
    waiting::eventually(PATIENCE, what, ask)
}

/// For what this folder shares with others.
pub(crate) const SOON: Duration = PATIENCE;

pub(crate) async fn for_millis(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// A server that has the ConfigMap `a` at version 10 and says nothing more.
pub(crate) async fn quiet_server() -> Server {
    Server::start(serves_one_map).await
}

const MARK: &str = "MCR_TRAPS_CHILD";

/// Runs the calling test in a network namespace of its own, where it may filter packets. Returns as
/// [`in_a_process_of_its_own`]. Where that is not possible, it prints so, and the test is skipped.
#[cfg(target_os = "linux")]
pub(crate) fn in_a_network_of_its_own(test: &str) -> bool {
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let run = "ip link set lo up && iptables -L INPUT && exec \"$0\" --exact \"$1\" --nocapture";
    let mut command = std::process::Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", run]);
    command
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(MARK, "1");
    match command.output() {
        Ok(output) if matches!(output.status.code(), Some(0 | 101)) => check(test, &output),
        _ => println!("skipped: it needs unshare, ip and iptables, and the right to use them"),
    }
    false
}

/// Changes the packet filter of this network namespace.
#[cfg(target_os = "linux")]
pub(crate) fn packet_filter(change: &str) {
    let changed = std::process::Command::new("iptables")
        .args(change.split(' '))
        .status();
    assert!(changed.unwrap().success(), "{change}");
}

/// Runs the calling test in a process of its own, for tests that look at what belongs to a whole process.
/// True in that process; in the other one it returns when that has passed.
pub(crate) fn in_a_process_of_its_own(test: &str, environment: &[(&str, &str)]) -> bool {
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    // The very program that runs, even if its file has been replaced since.
    let program = if cfg!(target_os = "linux") {
        "/proc/self/exe".into()
    } else {
        std::env::current_exe().unwrap()
    };
    let output = std::process::Command::new(program)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .envs(environment.iter().copied())
        .env(MARK, "1")
        .output()
        .unwrap();
    check(test, &output);
    false
}

/// Checks that this one test has passed.
fn check(test: &str, output: &std::process::Output) {
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "no test of the name {test}: {text}");
}
