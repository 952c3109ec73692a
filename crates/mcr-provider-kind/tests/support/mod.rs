//! A scripted engine, and a reader of a discovery with a deadline.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "each test file uses a part of it"
)]

use std::{
    fs::{self, OpenOptions, Permissions},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use futures::StreamExt;
use mcr_core::{Availability, BoxError, Change, Discovery, Provider};
use mcr_provider_kind::{KindProvider, KindProviderBuilder};
use mcr_testkit::discovery::address_and_token;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// The limit for any wait. Each takes far less.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// Longer than any test: an action with this interval does not happen by itself.
pub const NEVER: Duration = Duration::from_secs(3600);

/// An engine made of a shell script and a folder; see `engine.sh`.
pub struct ScriptedEngine(TempDir);

impl ScriptedEngine {
    /// A `docker` that runs.
    pub fn start() -> Self {
        let engine = Self(tempfile::tempdir().unwrap());
        for folder in ["containers", "confs", "hang-exec"] {
            fs::create_dir(engine.at(folder)).unwrap();
        }
        for file in ["up", "events", "calls", "following"] {
            fs::write(engine.at(file), "").unwrap();
        }
        engine.install("docker");
        engine
    }

    /// Puts a program of this name into the folder, too.
    pub fn install(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        fs::write(&path, include_str!("engine.sh")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A provider with events that does not poll, so that a test fails if events don't work.
    pub fn reported(&self) -> KindProviderBuilder {
        KindProvider::builder()
            .program(self.at("docker"))
            .poll_interval(NEVER)
            .refresh_interval(NEVER)
            .command_deadline(DEADLINE)
    }

    /// A provider that polls.
    pub fn asking(&self) -> KindProviderBuilder {
        self.reported()
            .events(false)
            .poll_interval_without_events(Duration::from_millis(50))
    }

    pub fn run(&self) {
        fs::write(self.at("up"), "").unwrap();
    }

    pub fn stop(&self) {
        fs::remove_file(self.at("up")).unwrap();
    }

    pub fn fault(&self, fault: &str) {
        fs::write(self.at("fault"), fault).unwrap();
    }

    pub fn put(&self, id: &str, container: &Value) {
        self.write("containers", id, &container.to_string());
    }

    pub fn conf(&self, id: &str, conf: &str) {
        self.write("confs", id, conf);
    }

    pub fn remove(&self, id: &str) {
        fs::remove_file(self.at("containers").join(id)).unwrap();
    }

    /// A single-node cluster that is up.
    pub fn up(&self, cluster: &str, id: &str, port: u16) {
        self.conf(id, &admin_conf(cluster, "t0ken"));
        self.put(id, &container(cluster, id, "running", port));
    }

    /// Sends an event of a container, as Docker does.
    pub fn event(&self, action: &str, cluster: &str) {
        let event = json!({
            "Type": "container", "Action": action, "status": action,
            "Actor": {"Attributes": {"io.x-k8s.kind.cluster": cluster}},
        });
        self.append("events", &format!("{event}\n"));
    }

    pub fn append(&self, file: &str, text: &str) {
        let mut file = OpenOptions::new().append(true).open(self.at(file)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// How often the program was called with this first word.
    pub fn calls(&self, word: &str) -> usize {
        let calls = fs::read_to_string(self.at("calls")).unwrap();
        calls
            .lines()
            .filter(|call| call.split(' ').next() == Some(word))
            .count()
    }

    /// How often the provider has started to follow events.
    pub fn followed(&self) -> usize {
        fs::read_to_string(self.at("following")).unwrap().lines().count()
    }

    /// Renames a new file over the old one, so that no half-written file is read.
    fn write(&self, folder: &str, name: &str, text: &str) {
        let new = self.0.path().join(format!("new-{name}"));
        fs::write(&new, text).unwrap();
        fs::rename(new, self.at(folder).join(name)).unwrap();
    }
}

/// The output of `container inspect` for a control plane.
pub fn container(cluster: &str, id: &str, status: &str, port: u16) -> Value {
    let ports = json!({"6443/tcp": [{"HostIp": "127.0.0.1", "HostPort": port.to_string()}]});
    json!({
        "Id": id,
        "Name": format!("/{cluster}-control-plane"),
        "State": {"Status": status, "Running": status == "running", "Paused": false, "Restarting": false},
        "Config": {"Labels": {"io.x-k8s.kind.cluster": cluster, "io.x-k8s.kind.role": "control-plane"}},
        "HostConfig": {"PortBindings": ports},
        "NetworkSettings": {"Ports": if status == "running" { ports.clone() } else { json!({}) }},
    })
}

pub fn admin_conf(cluster: &str, token: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: admin@{cluster}\n\
         contexts: [{{name: admin@{cluster}, context: {{cluster: {cluster}, user: admin}}}}]\n\
         clusters: [{{name: {cluster}, cluster: {{server: 'https://{cluster}-control-plane:6443'}}}}]\n\
         users: [{{name: admin, user: {{token: {token}}}}}]\n"
    )
}

/// Reads the changes of a discovery.
pub struct Received {
    discovery: Discovery,
    pub stop: CancellationToken,
}

impl Received {
    pub fn of(provider: &KindProvider) -> Self {
        let stop = CancellationToken::new();
        Self {
            discovery: provider.discover(stop.clone()),
            stop,
        }
    }

    /// The next announcement, in short form.
    pub async fn next(&mut self) -> Result<String, BoxError> {
        let next = tokio::time::timeout(DEADLINE, self.discovery.next()).await;
        let next = next.expect("nothing was announced").expect("the discovery ended");
        next.map(|change| reported(&change))
    }

    /// The announcements up to `end`.
    pub async fn until(&mut self, end: &str) -> Vec<String> {
        let mut announced = Vec::new();
        loop {
            announced.push(self.next().await.unwrap());
            if announced.last().is_some_and(|last| last.starts_with(end)) {
                return announced;
            }
        }
    }

    /// The error that the discovery ends with.
    pub async fn error(&mut self) -> String {
        loop {
            match self.next().await {
                Ok(_) => {}
                Err(error) => {
                    assert!(self.discovery.next().await.is_none(), "an error is the end");
                    return error.to_string();
                }
            }
        }
    }

    /// Listens until the condition holds, and fails on any announcement. The provider works only while its stream is
    /// polled.
    pub async fn nothing_until(&mut self, what: &str, mut so: impl FnMut() -> bool) {
        let start = Instant::now();
        while !so() {
            assert!(start.elapsed() < DEADLINE, "not so in time: {what}");
            self.nothing_for(Duration::from_millis(10)).await;
        }
    }

    /// Listens until the provider follows events, and until its second look, which it takes a moment later in case of
    /// changes in between. After that it notices changes by events only.
    pub async fn quiet(&mut self, engine: &ScriptedEngine) {
        self.nothing_until("events are followed", || engine.followed() == 1)
            .await;
        // The first and the second look.
        self.nothing_until("the second look", || engine.calls("ps") >= 2)
            .await;
        assert_eq!(engine.calls("ps"), 2);
    }

    pub async fn nothing_for(&mut self, quiet: Duration) {
        if let Ok(announced) = tokio::time::timeout(quiet, self.discovery.next()).await {
            panic!("nothing should be announced, and there was {announced:?}");
        }
    }
}

pub fn reported(change: &Change) -> String {
    match change {
        Change::Upsert(spec) => {
            let shown = address_and_token(&spec.access);
            let at = shown.split("https://").nth(1).unwrap().split('/').next().unwrap();
            let off = match &spec.availability {
                Availability::Suspended { reason } => format!(", {reason}"),
                _ => String::new(),
            };
            format!(
                "+{} is {} at {at}{off}",
                spec.name,
                spec.identity.as_deref().unwrap()
            )
        }
        Change::Broken(broken) => format!("!{} ({}): {}", broken.name, broken.object, broken.error),
        Change::Remove(name) => format!("-{name}"),
        Change::Synced => "synced".to_owned(),
        other => panic!("{other:?}"),
    }
}
