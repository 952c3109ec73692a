//! Helpers of the tests in this folder.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use mcr_testkit::{
    control_plane::{Binaries, ControlPlane, Etcd},
    sim::{SimCluster, SimServer},
    waiting::OrFail,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The limit for any wait: longer than any limit that a test gives the program.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

/// The exit code and the output of the program.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Output {
    /// It ended with this code.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "stdout:\n{}\nstderr:\n{}",
            self.out,
            self.err
        );
        self
    }

    /// This is in what it printed.
    #[track_caller]
    pub(crate) fn prints(self, part: &str) -> Self {
        assert!(
            self.out.contains(part),
            "no {part:?} in stdout:\n{}\nstderr:\n{}",
            self.out,
            self.err
        );
        self
    }

    /// This is in stderr.
    #[track_caller]
    pub(crate) fn reports(self, part: &str) -> Self {
        assert!(
            self.err.contains(part),
            "no {part:?} in stderr:\n{}\nstdout:\n{}",
            self.err,
            self.out
        );
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}:\n{}\n{}", self.out, self.err))
    }

    /// The worst finding of the doctor about a cluster for this check, from its JSON output.
    #[track_caller]
    pub(crate) fn found(&self, cluster: &str, check: &str) -> (String, String, String) {
        let json = self.json();
        let of = |finding: &&Value| {
            let named = finding["cluster"].as_str().unwrap_or_default();
            named == cluster && finding["check"] == check
        };
        let found = json["findings"]
            .as_array()
            .unwrap()
            .iter()
            .filter(of)
            .collect::<Vec<_>>();
        let worst = ["problem", "warning", "ok"]
            .iter()
            .find_map(|level| found.iter().find(|finding| finding["result"] == *level));
        let worst = worst.unwrap_or_else(|| panic!("nothing about {check} of {cluster}:\n{}", self.out));
        let text = |field: &str| worst[field].as_str().unwrap_or_default().to_owned();
        (text("result"), text("message"), text("fix"))
    }

    /// For each line `cluster | check | result | message | fix`: the finding that [`found`](Self::found) gives has these parts,
    /// and a fix if it is a problem. Without a cluster it is one about the provider.
    #[track_caller]
    pub(crate) fn finds(&self, lines: &str) {
        for line in lines.trim().lines() {
            let [cluster, check, level, message, fix] = columns(line);
            let found = if cluster.is_empty() {
                let finding = self.of_provider(check, message);
                ["result", "message", "fix"]
                    .map(|field| finding[field].as_str().unwrap_or_default().to_owned())
            } else {
                self.found(cluster, check).into()
            };
            let is_right = found[0] == level && found[1].contains(message) && found[2].contains(fix);
            assert!(
                is_right && (level != "problem" || !found[2].is_empty()),
                "{line}: {found:?}"
            );
        }
    }

    /// A finding of the doctor about the provider itself.
    #[track_caller]
    pub(crate) fn of_provider(&self, check: &str, part: &str) -> Value {
        let json = self.json();
        let of = |finding: &&Value| {
            let message = finding["message"].as_str().unwrap();
            finding["cluster"].is_null() && finding["check"] == check && message.contains(part)
        };
        let found = json["findings"].as_array().unwrap().iter().find(of);
        found
            .unwrap_or_else(|| panic!("no {check} with {part}:\n{}", self.out))
            .clone()
    }

    /// The line of a cluster in a table.
    #[track_caller]
    pub(crate) fn line(&self, name: &str) -> &str {
        let mut lines = self.out.lines();
        let line = lines.find(|line| line.split_whitespace().next() == Some(name));
        line.unwrap_or_else(|| panic!("no {name}:\n{}", self.out))
    }

    /// For each line `cluster | state | reason`: the line of the cluster has these parts.
    #[track_caller]
    pub(crate) fn shows(&self, lines: &str) {
        for wanted in lines.trim().lines() {
            let [name, state, reason] = columns(wanted);
            let line = self.line(name);
            assert!(line.contains(state) && line.contains(reason), "{wanted}: {line}");
        }
    }
}

/// The columns of a line of a table, without the spaces around them.
#[track_caller]
fn columns<const N: usize>(line: &str) -> [&str; N] {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    columns
        .try_into()
        .unwrap_or_else(|_| panic!("not {N} columns: {line}"))
}

/// A user with a home of their own.
pub(crate) struct User {
    home: TempDir,
    kubeconfig: Option<std::ffi::OsString>,
    log: Option<&'static str>,
}

impl User {
    pub(crate) fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
            kubeconfig: None,
            log: None,
        }
    }

    /// Whose KUBECONFIG names files with these.
    pub(crate) fn with(kubeconfigs: impl IntoIterator<Item = String>) -> Self {
        let mut user = Self::new();
        let files: Vec<PathBuf> = kubeconfigs
            .into_iter()
            .enumerate()
            .map(|(number, text)| user.file(&format!("{number}.kubeconfig"), text))
            .collect();
        user.kubeconfig = Some(std::env::join_paths(files).unwrap());
        user
    }

    /// Sets `RUST_LOG` so that everything is logged.
    pub(crate) fn traced(mut self) -> Self {
        self.log = Some("trace");
        self
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.home.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcr"));
        command
            .current_dir(self.home.path())
            .env("HOME", self.home.path())
            .env_remove("KUBECONFIG")
            .env_remove("RUST_LOG")
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env("COLUMNS", "100")
            .stdin(Stdio::null());
        if let Some(kubeconfig) = &self.kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        if let Some(log) = self.log {
            command.env("RUST_LOG", log);
        }
        command
    }

    /// Runs the program to its end, while what it talks to goes on.
    pub(crate) async fn mcr<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Output {
        self.mcr_with("LANG", "C", args).await
    }

    /// As [`mcr`](Self::mcr), with the words of a line.
    pub(crate) async fn run(&self, line: impl AsRef<str>) -> Output {
        self.mcr(line.as_ref().split_whitespace()).await
    }

    /// For each line `code | command | part of stdout | part of stderr`: it ends so and prints that.
    pub(crate) async fn runs(&self, lines: &str) {
        for line in lines.trim().lines() {
            let [code, command, out, err] = columns(line);
            let text_of = self.run(command).await.ended(code.parse().unwrap());
            text_of.prints(out).reports(err);
        }
    }

    /// As [`mcr`](Self::mcr), with a variable in its environment.
    pub(crate) async fn mcr_with<A: AsRef<OsStr>>(
        &self,
        variable: &str,
        value: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Output {
        let mut command = self.command();
        command.env(variable, value).args(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let id = child.id().to_string();
        let output = tokio::task::spawn_blocking(move || child.wait_with_output());
        let Ok(output) = tokio::time::timeout(PATIENCE, output).await else {
            let _ = Command::new("kill").args(["-9", &id]).status();
            panic!("it did not end in time: {command:?}")
        };
        let output = output.unwrap().unwrap();
        Output {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Types a line into a shell, with the kubectl that belongs to the API servers.
    #[track_caller]
    pub(crate) fn types(&self, line: &str) {
        let assets = Binaries::find().or_fail().folder().to_owned();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(assets).chain(std::env::split_paths(&path));
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(self.home.path());
        shell
            .env("HOME", self.home.path())
            .env("PATH", std::env::join_paths(path).unwrap());
        shell.env("KUBECONFIG", self.kubeconfig.clone().unwrap_or_default());
        let ended = shell.output().unwrap();
        let err = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{line}: {}: {err}", ended.status);
    }

    /// Starts the program and reads its lines.
    pub(crate) fn start<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Lines {
        let mut child = self
            .command()
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Lines {
            child,
            out: Some(out),
        }
    }
}

/// The lines of a program that runs. Killed when dropped.
pub(crate) struct Lines {
    child: Child,
    out: Option<BufReader<ChildStdout>>,
}

impl Lines {
    /// Reads until each of these was in a line, in whatever order, and gives the line that each was in.
    pub(crate) async fn with<const N: usize>(&mut self, parts: [&str; N]) -> [String; N] {
        let mut out = self.out.take().unwrap();
        let wanted = parts.map(str::to_owned);
        let reading = tokio::task::spawn_blocking(move || {
            let (mut found, mut before) = ([const { None }; N], String::new());
            while found.iter().any(Option::is_none) {
                let mut line = String::new();
                let read = out.read_line(&mut line).unwrap();
                assert!(read > 0, "it ended before {wanted:?}, after:\n{before}");
                for (found, part) in found.iter_mut().zip(&wanted) {
                    if found.is_none() && line.contains(part) {
                        *found = Some(line.clone());
                    }
                }
                before.push_str(&line);
            }
            (found.map(Option::unwrap), out)
        });
        let read = tokio::time::timeout(PATIENCE, reading).await;
        let Ok(read) = read else {
            // The thread that reads ends with the program.
            let _ = self.child.kill();
            panic!("not all of {parts:?} in time")
        };
        let (lines, out) = read.unwrap();
        self.out = Some(out);
        lines
    }

    /// Ends it as Ctrl-C does, and returns its code.
    pub(crate) async fn interrupt(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-INT", &pid])
                .status()
                .unwrap()
                .success()
        );
        let mut child = std::mem::replace(&mut self.child, Command::new("true").spawn().unwrap());
        tokio::task::spawn_blocking(move || child.wait().unwrap().code())
            .await
            .unwrap()
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A simulated cluster.
pub(crate) async fn sim(name: &str) -> SimServer {
    SimCluster::builder().name(name).build().serve().await.or_fail()
}

/// A CustomResourceDefinition of `plural.group` without a schema, whose first version is stored.
pub(crate) fn crd(group: &str, kind: &str, plural: &str, versions: [&str; 2]) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version =
        |name: &str| json!({"name": name, "served": true, "storage": name == versions[0], "schema": schema});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": versions.map(version),
        },
    })
}

pub(crate) fn namespace_object(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

pub(crate) async fn planes<const N: usize>(etcd: &Etcd, names: [&str; N]) -> [ControlPlane; N] {
    let starting = names
        .iter()
        .map(|name| ControlPlane::builder().name(*name).etcd(etcd).audit(true).start());
    let planes = futures::future::join_all(starting).await;
    let planes: Vec<ControlPlane> = planes.into_iter().map(OrFail::or_fail).collect();
    planes
        .try_into()
        .unwrap_or_else(|_| panic!("{N} planes were asked for"))
}

pub(crate) async fn namespace(plane: &ControlPlane, name: &str) {
    let wanted = Namespace {
        metadata: ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let all: Api<Namespace> = Api::all(plane.client());
    all.create(&PostParams::default(), &wanted).await.or_fail();
}

pub(crate) fn secrets(plane: &ControlPlane, namespace: &str) -> Api<Secret> {
    Api::namespaced(plane.client(), namespace)
}

/// A Secret that is a cluster.
pub(crate) async fn put(plane: &ControlPlane, namespace: &str, name: &str, kubeconfig: impl AsRef<[u8]>) {
    use base64::Engine;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: "true"}},
        "data": {"kubeconfig": base64::engine::general_purpose::STANDARD.encode(kubeconfig)},
    });
    let params = PatchParams::apply("test").force();
    secrets(plane, namespace)
        .patch(name, &params, &Patch::Apply(secret))
        .await
        .or_fail();
}

/// The kubeconfig in a Secret, taken apart.
pub(crate) fn kubeconfig_in(secret: &Secret) -> Value {
    let text = String::from_utf8(secret.data.as_ref().unwrap()["kubeconfig"].0.clone()).unwrap();
    serde_saphyr::from_str(&text).or_fail()
}

pub(crate) fn token_in(secret: &Secret) -> String {
    kubeconfig_in(secret)["users"][0]["user"]["token"]
        .as_str()
        .unwrap()
        .to_owned()
}
