//! The control plane kit against real servers. Without binaries these tests fail, they never skip:
//! the message names `cargo xtask assets`.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, ObjectMeta, PostParams, WatchParams};
use kube::{Api, Client};
use mcr_testkit::control_plane::{
    CertificateAuthority, ControlPlane, ControlPlaneError, Credentials, Etcd, KubeconfigBuilder, Program,
    policy_rule,
};
use mcr_testkit::waiting::OrFail;
use serde_json::json;

/// How long anything is waited for.
const SOON: Duration = Duration::from_secs(60);

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

async fn create(client: &Client, name: &str) {
    let map = ConfigMap {
        metadata: named(name),
        ..ConfigMap::default()
    };
    config_maps(client)
        .create(&PostParams::default(), &map)
        .await
        .or_fail();
}

fn config_maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

async fn names(client: &Client) -> Vec<String> {
    let list = config_maps(client).list(&ListParams::default()).await.or_fail();
    list.items
        .into_iter()
        .filter_map(|item| item.metadata.name)
        .filter(|name| name != "kube-root-ca.crt")
        .collect()
}

async fn client_of(kubeconfig: &str) -> Client {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(kubeconfig).or_fail();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .or_fail();
    Client::try_from(config).or_fail()
}

fn code<T>(result: Result<T, kube::Error>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("no answer: {error}"),
    }
}

#[tokio::test]
async fn starts_in_seconds_and_serves() {
    let started = Instant::now();
    let plane = ControlPlane::builder().name("berlin").start().await.or_fail();
    println!("ready after {:?}", started.elapsed());

    let client = client_of(&plane.kubeconfig()).await;
    create(&client, "a").await;
    assert_eq!(names(&plane.client()).await, ["a"]);
    let version = client.apiserver_version().await.or_fail();
    assert_eq!(version.major, "1");
    assert!(version.git_version.starts_with("v1."), "{}", version.git_version);
}

#[tokio::test]
async fn users_may_do_what_was_granted() {
    let plane = ControlPlane::start().await.or_fail();
    let list = ListParams::default();

    let user = plane.user("jane").groups(["dev", "ops"]).create().await.or_fail();
    let client = user.client().await.or_fail();
    assert_eq!(code(config_maps(&client).list(&list).await), 403);
    user.allow([policy_rule([""], ["configmaps"], ["list"])])
        .await
        .or_fail();
    assert_eq!(code(config_maps(&client).list(&list).await), 200);
    user.revoke().await.or_fail();
    assert_eq!(code(config_maps(&client).list(&list).await), 403);

    let here = plane.user("here");
    let here = here.rules_in("default", [policy_rule([""], ["configmaps"], ["list"])]);
    let here = here.create().await.or_fail().client().await.or_fail();
    assert_eq!(code(config_maps(&here).list(&list).await), 200);
    assert_eq!(code(Api::<ConfigMap>::all(here).list(&list).await), 403);

    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let request = kube::core::Request::new("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .create(&PostParams::default(), serde_json::to_vec(&review).or_fail())
        .or_fail();
    let review: serde_json::Value = client.request(request).await.or_fail();
    let info = &review["status"]["userInfo"];
    assert_eq!(info["username"], "jane");
    assert_eq!(info["groups"], json!(["dev", "ops", "system:authenticated"]));

    let error = plane
        .user("many")
        .groups(["a", "b", "c"])
        .create()
        .await
        .map(drop);
    assert!(
        matches!(error, Err(ControlPlaneError::Unsupported(_))),
        "{error:?}"
    );
}

#[tokio::test]
async fn service_accounts_have_tokens() {
    let plane = ControlPlane::start().await.or_fail();
    let account = plane
        .service_account("apps", "agent")
        .cluster_rules([policy_rule([""], ["configmaps"], ["get", "list", "watch"])])
        .create()
        .await
        .or_fail();
    let (one, two) = (account.token().await.or_fail(), account.token().await.or_fail());
    assert_ne!(one, two);
    for token in [&one, &two] {
        let client = client_of(&account.kubeconfig(token)).await;
        assert_eq!(code(config_maps(&client).list(&ListParams::default()).await), 200);
    }

    let client = client_of(&account.kubeconfig("not-a-token")).await;
    assert_eq!(code(config_maps(&client).list(&ListParams::default()).await), 401);

    account.delete().await.or_fail();
    let client = client_of(&account.kubeconfig(&one)).await;
    let started = Instant::now();
    while code(config_maps(&client).list(&ListParams::default()).await) != 401 {
        assert!(
            started.elapsed() < SOON,
            "the token of a deleted account still works"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_paused_server_is_silent_and_goes_on() {
    let plane = ControlPlane::start().await.or_fail();
    let client = plane.client();
    names(&client).await;
    // Many times: nothing may slip through the moment between the signal and its effect.
    for _ in 0..50 {
        plane.pause().or_fail();
        plane.pause().or_fail(); // twice is as good as once
        assert!(stands_still(plane.pid().unwrap()));
        let mut request = std::pin::pin!(client.apiserver_version());
        for _ in 0..20 {
            assert!(futures::poll!(request.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        plane.resume().or_fail();
        request.await.or_fail();
    }
    assert!(names(&client).await.is_empty());
}

/// Whether every thread of a process does, where the system shows it.
fn stands_still(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    let stat = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("stat")).or_fail();
    threads
        .map(|thread| stat(thread.or_fail()))
        .all(|stat| stat.contains(") T "))
}

#[tokio::test]
async fn api_servers_share_an_etcd_but_not_data() {
    let etcd = Etcd::start().await.or_fail();
    let builder = |name: &str| ControlPlane::builder().name(name).etcd(&etcd);
    let (berlin, paris) = tokio::join!(builder("berlin").start(), builder("paris").start());
    let (berlin, paris) = (berlin.or_fail(), paris.or_fail());
    create(&berlin.client(), "a").await;
    assert_eq!(names(&berlin.client()).await, ["a"]);
    assert!(names(&paris.client()).await.is_empty());

    let replica = ControlPlane::builder()
        .name("berlin-2")
        .replica_of(&berlin)
        .start()
        .await
        .or_fail();
    assert_eq!(names(&replica.client()).await, ["a"]);
    assert_ne!(replica.url(), berlin.url());
    // Users and tokens of one are users and tokens of the other.
    let account = berlin.service_account("default", "both").create().await.or_fail();
    let token = Credentials::Token(account.token().await.or_fail());
    let kubeconfig = KubeconfigBuilder::new()
        .context("berlin", berlin.url(), berlin.ca_pem(), token.clone())
        .context("berlin-2", replica.url(), replica.ca_pem(), token)
        .current("berlin-2")
        .to_yaml();
    let client = client_of(&kubeconfig).await;
    assert_eq!(code(config_maps(&client).list(&ListParams::default()).await), 403);
}

#[tokio::test]
async fn the_audit_log_counts_requests() {
    let plane = ControlPlane::builder().audit(true).start().await.or_fail();
    let user = plane
        .user("watcher")
        .rules([policy_rule([""], ["configmaps"], ["list", "watch"])])
        .create()
        .await
        .or_fail();
    let client = user.client().await.or_fail();
    names(&client).await;
    let log = plane.audit().await.or_fail();
    let lists = |event: &mcr_testkit::control_plane::AuditEvent| {
        event.is_list("configmaps")
            && event.user == "watcher"
            && event.namespace == "default"
            && event.code == 200
    };
    assert_eq!(log.count(lists), 1);

    let mark = log.mark();
    names(&client).await;
    names(&client).await;
    let _watch = config_maps(&client)
        .watch(&WatchParams::default(), "0")
        .await
        .or_fail();
    assert_eq!(plane.audit_since(mark).await.or_fail().count(lists), 2);
    let log = plane.audit().await.or_fail();
    assert_eq!((log.count(lists), log.since(mark).count(lists)), (3, 2));
    // The watch is open: it has started, not ended.
    let watches = log.since(mark).count(|event| event.is_watch_start("configmaps"));
    assert_eq!(watches, 1, "{:#?}", log.since(mark));

    let silent = ControlPlane::builder().etcd(plane.etcd()).start().await.or_fail();
    assert!(matches!(
        silent.audit().await,
        Err(ControlPlaneError::Unsupported(_))
    ));
}

const VICTIM: &str = "MCR_TESTKIT_VICTIM";

/// Not a test of its own: the child process of [`a_killed_test_leaves_no_servers`].
#[tokio::test]
async fn waits_to_be_killed() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let plane = ControlPlane::start().await.or_fail();
    println!("pids {} {}", plane.pid().unwrap(), plane.etcd().pid());
    // Not in a tight loop, and not for ever if the parent is gone.
    tokio::time::sleep(Duration::from_secs(60)).await;
}

#[cfg(target_os = "linux")]
#[test]
fn a_killed_test_leaves_no_servers() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    let mut child = Command::new(std::env::current_exe().or_fail())
        .args(["--exact", "waits_to_be_killed", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .or_fail();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines
        .map_while(Result::ok)
        .find(|line| line.contains("pids "))
        .unwrap_or_default();
    child.kill().or_fail();
    child.wait().or_fail();
    let (_, pids) = line.split_once("pids ").unwrap();
    let started = Instant::now();
    for pid in pids.split_whitespace() {
        let process = std::path::Path::new("/proc").join(pid);
        // An orphan that was killed may stay as a zombie if nobody reaps it: that is not a server.
        let runs = || std::fs::read_to_string(process.join("stat")).is_ok_and(|stat| !stat.contains(") Z "));
        while runs() {
            assert!(started.elapsed() < SOON, "server {pid} outlived its test");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn missing_binaries_fail_and_report_what_to_do() {
    let empty = tempfile::tempdir().or_fail();
    let run = |name: &str| {
        let output = std::process::Command::new(std::env::current_exe().or_fail())
            .args(["--exact", "starts_in_seconds_and_serves", "--nocapture"])
            .env_remove("KUBEBUILDER_ASSETS")
            .env(name, empty.path())
            .output()
            .or_fail();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for name in ["KUBEBUILDER_ASSETS", "MCR_ASSETS_DIR"] {
        let message = run(name);
        assert!(message.contains("run `cargo xtask assets`"), "{message}");
    }
}

#[tokio::test]
async fn a_chosen_authority_signs_the_server_and_its_users_and_the_audit_log_distinguishes_credentials() {
    let authority = CertificateAuthority::new("kubernetes").or_fail();
    let plane = ControlPlane::builder().authority(&authority).audit(true).start();
    let plane = plane.await.or_fail();
    assert_eq!(plane.ca_pem(), authority.certificate_pem());
    let mut credentials = Vec::new();
    for _ in 0..2 {
        let user = plane.user("eve").groups(["system:masters"]).create();
        let user = user.await.or_fail();
        let mark = plane.audit().await.or_fail().mark();
        names(&user.client().await.or_fail()).await;
        let log = plane.audit_since(mark).await.or_fail();
        let list = log.events().find(|event| event.is_list("configmaps"));
        credentials.push(list.map(|event| event.credential.clone()).unwrap_or_default());
    }
    assert!(
        credentials
            .iter()
            .all(|credential| credential.starts_with("X509SHA256=")),
        "{credentials:?}"
    );
    assert_ne!(credentials[0], credentials[1]);
}

#[tokio::test]
async fn a_program_shows_its_log_and_ends_with_its_owner() {
    let arguments = ["-c", "cat words; exec sleep 600"].map(str::to_owned);
    let shell = std::path::Path::new("/bin/sh");
    let program = Program::start("words", shell, &[("words", "in its folder")], &arguments).or_fail();
    let started = Instant::now();
    while program.log_tail() != "in its folder" {
        assert!(started.elapsed() < SOON, "{}", program.log_tail());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    program.check_running().or_fail();
    let alive = format!("/proc/{}", program.pid());
    drop(program);
    assert!(!std::path::Path::new(&alive).exists());

    let fails = ["-c", "echo why; exit 3"].map(str::to_owned);
    let program = Program::start("fails", shell, &[], &fails).or_fail();
    let port = Program::free_port().or_fail();
    let error = program.wait_ready(port, "/").await.unwrap_err().to_string();
    assert!(error.contains("fails") && error.contains("why"), "{error}");
}
