//! The program, run as an exec plugin: by itself, and by a fleet. The hub and the members are simulated.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod upstream;

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use mcr_core::{
    Access, ApiVersion, Endpoint, EndpointAccess, ExecPlugin, Fleet, KubeconfigAccess, Refresh, Trust,
    internal::claims,
};
use mcr_provider_single::SingleProvider;
use mcr_testkit::{
    sim::{SimAuditEvent, SimCluster, SimRule, SimServer, SimUser},
    waiting::{Background, OrFail, eventually},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_mcr-exec-secretreader");
const READER: &str = "reader-token";
const CANARY: &str = "QQCANARYQQ";
const LIMIT: Duration = Duration::from_secs(60);

/// A hub with a namespace `fleet`, in which the user of the kubeconfig has exactly the rights of the manifest.
struct Hub {
    server: SimServer,
    dir: TempDir,
}

impl Hub {
    async fn new() -> Self {
        let hub = SimCluster::builder()
            .name("hub")
            .user(READER, Self::reader())
            .build();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}});
        hub.create(namespace).or_fail();
        let server = hub.serve().await.or_fail();
        let dir = tempfile::tempdir().unwrap();
        let mut kubeconfig: Value = serde_saphyr::from_str(&server.kubeconfig_with_token(READER)).unwrap();
        kubeconfig["contexts"][0]["context"]["namespace"] = "fleet".into();
        std::fs::write(dir.path().join("hub"), kubeconfig.to_string()).unwrap();
        Self { server, dir }
    }

    fn reader() -> SimUser {
        let rules = SimRule::of_role(include_str!("../../deploy/rbac.yaml")).unwrap();
        let rules = rules.into_iter().map(|rule| rule.in_namespace("fleet"));
        rules.fold(SimUser::new("reader"), SimUser::rule)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("hub")
    }

    fn set(&self, name: &str, key: &str, value: &str) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "fleet"},
            "data": {key: STANDARD.encode(value)},
        });
        self.server.cluster().apply(secret).or_fail();
    }

    /// The requests of the program.
    fn requests(&self) -> Vec<SimAuditEvent> {
        let audit = self.server.cluster().audit();
        let of_reader = audit
            .events()
            .filter(|event| event.user == "reader" && event.is_start());
        of_reader.cloned().collect()
    }

    /// Runs the program with this extension of the cluster.
    async fn run(&self, config: Value) -> Output {
        run(Some(&info(ApiVersion::V1, config)), self.kubeconfig()).await
    }
}

fn version(version: ApiVersion) -> &'static str {
    match version {
        ApiVersion::V1Beta1 => "client.authentication.k8s.io/v1beta1",
        _ => "client.authentication.k8s.io/v1",
    }
}

fn info(api_version: ApiVersion, config: Value) -> String {
    json!({
        "kind": "ExecCredential", "apiVersion": version(api_version),
        "spec": {"interactive": false, "cluster": {"server": "https://member", "config": config}},
    })
    .to_string()
}

struct Output {
    code: Option<i32>,
    out: String,
    err: String,
}

async fn run(info: Option<&str>, kubeconfig: PathBuf) -> Output {
    run_program(PROGRAM.as_ref(), info, kubeconfig).await
}

async fn run_program(program: &Path, info: Option<&str>, kubeconfig: PathBuf) -> Output {
    let mut command = tokio::process::Command::new(program);
    command
        .env_remove("KUBERNETES_EXEC_INFO")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env("RUST_LOG", "trace")
        // kube would use it.
        .env("HTTPS_PROXY", format!("http://me:{CANARY}@127.0.0.1:1"))
        .env("KUBECONFIG", kubeconfig);
    if let Some(info) = info {
        command.env("KUBERNETES_EXEC_INFO", info);
    }
    let output = tokio::time::timeout(LIMIT, command.output())
        .await
        .unwrap()
        .unwrap();
    Output {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Output {
    #[track_caller]
    fn status(&self, api_version: ApiVersion) -> Value {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""));
        let mut answer: Value = serde_json::from_str(&self.out).unwrap();
        assert_eq!(answer["kind"], "ExecCredential");
        assert_eq!(answer["apiVersion"], version(api_version));
        answer["status"].take()
    }

    /// It failed with one line that has this part, and shows nothing secret.
    #[track_caller]
    fn fails(&self, part: &str) {
        assert_eq!((self.code, self.out.as_str()), (Some(1), ""), "{}", self.err);
        assert!(
            self.err.starts_with("mcr-exec-secretreader: "),
            "{part}: {}",
            self.err
        );
        assert!(self.err.contains(part), "no {part:?} in {}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(
            !self.err.contains(CANARY) && !self.err.contains(READER),
            "{}",
            self.err
        );
    }
}

/// A token that ends `after` this time. Returns the end, too.
fn token(name: &str, after: Duration) -> (String, SystemTime) {
    let end = SystemTime::now() + after;
    let seconds = end.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let payload = URL_SAFE_NO_PAD.encode(json!({"exp": seconds, "name": name}).to_string());
    let token = format!("e30.{payload}.{CANARY}");
    let end = claims::of(&token).unwrap().expires.unwrap();
    (token, end)
}

fn kubeconfig_of(token: &str) -> String {
    json!({
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"user": "a"}}, {"name": "b", "context": {"user": "b"}}],
        "users": [{"name": "a", "user": {"token": token}}, {"name": "b", "user": {"token": "of-b"}}],
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_get_of_one_secret_answers_both_versions_of_the_protocol() {
    let hub = Hub::new().await;
    hub.set("eu-1", "value", &kubeconfig_of("of-a"));
    hub.set("eu-2", "token", "plain\n");
    for api_version in [ApiVersion::V1, ApiVersion::V1Beta1] {
        for (config, token) in [
            (json!({"name": "eu-1", "key": "value"}), "of-a"),
            (
                json!({"name": "eu-1", "key": "value", "namespace": "fleet", "context": "b"}),
                "of-b",
            ),
            (json!({"clusterName": "eu-2"}), "plain"),
        ] {
            let before = hub.requests().len();
            let ran = run(Some(&info(api_version, config)), hub.kubeconfig()).await;
            assert_eq!(ran.status(api_version)["token"], token);
            let requests = hub.requests().split_off(before);
            let sent: Vec<_> = requests
                .iter()
                .map(|event| (event.verb.as_str(), event.resource.as_str(), event.code))
                .collect();
            assert_eq!(sent, [("get", "secrets", 200)]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_report_what_to_do_and_show_nothing_secret() {
    let hub = Hub::new().await;
    let name = |name: &str| json!({"name": name, "key": "value"});
    run(None, hub.kubeconfig())
        .await
        .fails("KUBERNETES_EXEC_INFO is not set");
    hub.run(json!(null)).await.fails("add the extension");
    hub.run(name("missing"))
        .await
        .fails("Secret fleet/missing: secrets \"missing\" not found (404); create it");
    hub.run(json!({"name": "eu-1", "key": "value", "namespace": "kube-system"}))
        .await
        .fails("allow this program to get Secrets in that namespace");

    hub.set("other-key", "config", CANARY);
    hub.run(name("other-key"))
        .await
        .fails("Secret fleet/other-key: it has no key \"value\"");
    for (secret, value, part) in [
        ("text", CANARY.to_owned(), "the kubeconfig can't be read"),
        (
            "cut-off",
            format!("users: [{{name: a, user: {{token: {CANARY}"),
            "the kubeconfig can't be read",
        ),
        (
            "spaces",
            kubeconfig_of(&format!("a {CANARY}")),
            "users[name=\"a\"].user.token: holds spaces",
        ),
    ] {
        hub.set(secret, "value", &value);
        hub.run(name(secret)).await.fails(part);
    }
    let (expired, _) = token("expired", Duration::ZERO);
    hub.set("expired", "value", &kubeconfig_of(&expired));
    hub.run(name("expired"))
        .await
        .fails("Secret fleet/expired: the token expired at ");

    let with = async |kubeconfig: String| {
        let file = hub.dir.path().join("broken");
        std::fs::write(&file, kubeconfig).unwrap();
        run(Some(&info(ApiVersion::V1, name("eu-1"))), file).await
    };
    with(format!("{CANARY}: ["))
        .await
        .fails("the kubeconfig can't be read");
    let whole = std::fs::read_to_string(hub.kubeconfig()).unwrap();
    with(whole.replace(READER, "unknown"))
        .await
        .fails("the hub refuses the credentials");
    let mut login: Value = serde_json::from_str(&whole).unwrap();
    login["users"][0]["user"] = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "sh", "args": ["-c", format!("echo {CANARY}; exit 1")],
    }});
    with(login.to_string())
        .await
        .fails("the credentials of the hub's kubeconfig can't be loaded");
    let mut proxied: Value = serde_json::from_str(&whole).unwrap();
    for (scheme, part) in [("http", "connection refused"), ("socks5h", "begin its URL with")] {
        proxied["clusters"][0]["cluster"]["proxy-url"] = format!("{scheme}://me:{CANARY}@127.0.0.1:1").into();
        with(proxied.to_string()).await.fails(part);
    }
    let address = hub.server.url().trim_start_matches("https://").to_owned();
    drop(hub.server);
    // The socket is closed soon after.
    let closed = async {
        while tokio::net::TcpStream::connect(&address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LIMIT, closed).await.unwrap();
    let refused = run(
        Some(&info(ApiVersion::V1, name("eu-1"))),
        hub.dir.path().join("hub"),
    )
    .await;
    refused.fails("Secret fleet/eu-1: connection refused");
}

/// The kubeconfig of a server that answers each request with this, or with nothing.
async fn strange_hub(answer: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = [0; 8192];
            let _ = connection.read(&mut request).await;
            match answer {
                Some(answer) => {
                    let length = answer.len();
                    let head = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
                    );
                    let _ = connection.write_all(format!("{head}{answer}").as_bytes()).await;
                }
                None => std::future::pending().await,
            }
        }
    });
    json!({
        "current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "a", "user": {"token": READER}}],
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_answers_nonsense_or_nothing_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let request = info(ApiVersion::V1, json!({"name": "eu-1", "key": "value"}));
    let with = async |answer| {
        let file = dir.path().join("strange");
        std::fs::write(&file, strange_hub(answer).await).unwrap();
        run(Some(&request), file).await
    };
    with(Some(
        r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": "QQCANARYQQ"}"#,
    ))
    .await
    .fails("Secret default/eu-1: the hub's answer is not a Secret");
    // Nobody writes into the pipe, and opening it blocks until then.
    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let (silent, blocked) = tokio::join!(with(None), run(Some(&request), pipe));
    for announced in [silent, blocked] {
        announced.fails("the hub did not answer within 20 s");
    }
}

/// Access to the member by a kubeconfig whose user runs the program.
fn access(hub: &Hub, member: &SimServer, api_version: ApiVersion, secret: &str) -> Access {
    let mut kubeconfig: Value = serde_saphyr::from_str(&member.kubeconfig_with_token("unused")).unwrap();
    kubeconfig["clusters"][0]["cluster"]["extensions"] = json!([{
        "name": "client.authentication.k8s.io/exec",
        "extension": {"name": secret, "key": "value"},
    }]);
    kubeconfig["users"][0]["user"] = json!({"exec": {
        "apiVersion": version(api_version), "interactiveMode": "Never", "provideClusterInfo": true,
        "command": PROGRAM, "env": [{"name": "KUBECONFIG", "value": hub.kubeconfig()}],
    }});
    KubeconfigAccess::new(kubeconfig.to_string(), Trust::Trusted).into()
}

fn start(access: Access) -> (Fleet, Background<()>) {
    let provider = SingleProvider::named("member", access).or_fail();
    let fleet = Fleet::builder().provider(provider).build();
    let running = Background::start({
        let fleet = fleet.clone();
        |stop| async move { fleet.run(stop).await }
    });
    (fleet, running)
}

/// Waits until the credential in use expires at this time.
async fn uses(fleet: &Fleet, limit: Duration, end: SystemTime) {
    eventually(limit, "the credential is in use", || {
        let snapshot = fleet.snapshot();
        let cluster = snapshot.clusters.first()?;
        (cluster.credential_expires == Some(end)).then_some(())
    })
    .await;
}

fn users(member: &SimServer) -> Vec<String> {
    let audit = member.cluster().audit();
    let mut users: Vec<String> = audit.events().map(|event| event.user.clone()).collect();
    users.dedup();
    users
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_uses_the_token_and_renews_it_by_its_exp() {
    let hub = Hub::new().await;
    let member = SimCluster::builder().name("member").build();
    let (first, first_end) = token("first", Duration::from_secs(20));
    let (second, second_end) = token("second", Duration::from_secs(3600));
    member.set_user(&first, SimUser::new("first").rule(SimRule::all()));
    member.set_user(&second, SimUser::new("second").rule(SimRule::all()));
    let member = member.serve().await.or_fail();
    hub.set("eu-1", "value", &kubeconfig_of(&first));

    let (fleet, running) = start(access(&hub, &member, ApiVersion::V1, "eu-1"));
    uses(&fleet, LIMIT, first_end).await;
    assert_eq!(users(&member), ["first"]);
    assert_eq!(
        hub.requests().len(),
        1,
        "one run, though the token was used several times"
    );

    hub.set("eu-1", "value", &kubeconfig_of(&second));
    uses(&fleet, LIMIT, second_end).await;
    assert_eq!(users(&member), ["first", "second"]);
    assert_eq!(hub.requests().len(), 2);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_uses_the_client_certificate() {
    let hub = Hub::new().await;
    let member = SimCluster::builder()
        .name("member")
        .build()
        .serve()
        .await
        .or_fail();
    let certificate = member.tls().client_certificate("robot").or_fail();
    let user = SimUser::new("robot").rule(SimRule::all());
    member.cluster().set_certificate_user(&certificate, user);
    hub.set("eu-1", "value", &member.kubeconfig_with_certificate(&certificate));

    let (fleet, running) = start(access(&hub, &member, ApiVersion::V1Beta1, "eu-1"));
    eventually(LIMIT, "the cluster is ready", || {
        let snapshot = fleet.snapshot();
        let ready = snapshot
            .clusters
            .first()
            .is_some_and(|cluster| cluster.credential_expires.is_some());
        ready && !users(&member).is_empty()
    })
    .await;
    assert_eq!(users(&member), ["robot"]);
    running.stop().await;
}

/// No program runs, and the environment of this process names no hub.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_uses_the_plugin_in_its_own_process() {
    let hub = Hub::new().await;
    let member = SimCluster::builder().name("member").build();
    let (token, end) = token("first", Duration::from_secs(3600));
    member.set_user(&token, SimUser::new("first").rule(SimRule::all()));
    let member = member.serve().await.or_fail();
    hub.set("eu-1", "value", &kubeconfig_of(&token));
    hub.set("text", "value", CANARY);
    hub.set("other", CANARY, "x");
    hub.set(
        "old",
        "value",
        &kubeconfig_of(&self::token("old", Duration::ZERO).0),
    );
    let contexts = json!({"current-context": "a", "contexts": [{"name": CANARY}]});
    hub.set("contexts", "value", &contexts.to_string());
    let service = mcr_exec_secretreader::service(hub.server.cluster().client_with_token(READER));
    let of_secret = |name: &str, namespace: &str| {
        let endpoint = Endpoint::new(member.url().parse().unwrap()).certificate_authority(member.ca_pem());
        let config = json!({"name": name, "key": "value", "namespace": namespace});
        let source = ExecPlugin::new("reader").service(service.clone());
        let source = source.cluster_info(&endpoint, Some(config), false);
        EndpointAccess::new(endpoint, source)
    };
    let (fleet, running) = start(of_secret("eu-1", "fleet").into());
    uses(&fleet, LIMIT, end).await;
    assert_eq!(
        (users(&member), hub.requests().len()),
        (vec!["first".to_owned()], 1)
    );
    running.stop().await;
    for (name, namespace, part) in [
        (
            "missing",
            "fleet",
            "Secret fleet/missing: secrets \"missing\" not found (404); create it",
        ),
        (
            "eu-1",
            "kube-system",
            "allow this program to get Secrets in that namespace",
        ),
        (
            "text",
            "fleet",
            "Secret fleet/text: the value of the key \"value\" is no kubeconfig",
        ),
        (
            "other",
            "fleet",
            "Secret fleet/other: it has no key \"value\", or the key is empty; add",
        ),
        (
            "old",
            "fleet",
            "Secret fleet/old: the token has expired; renew it",
        ),
        ("contexts", "fleet", "is no kubeconfig with a credential"),
        ("../x", "fleet", "can't be the name of a Secret"),
    ] {
        let source = of_secret(name, namespace).credentials;
        let shown = source.credential(Refresh::First).await.unwrap_err().to_string();
        assert!(
            shown.starts_with("exec plugin \"reader\" failed: ") && shown.contains(part),
            "{shown}"
        );
        assert!(!shown.contains(CANARY), "{shown}");
    }
}
