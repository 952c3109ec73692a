//! A person's machine: the programs a page names, terminals to type in, and a screen.

use std::{
    env,
    fs::{self, Permissions},
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use mcr_testkit::e2e::{DEADLINE, E2eKind};

use super::page;
use crate::{image, program};

/// kind takes minutes where a node runs more than a control plane.
const COMMAND: Duration = Duration::from_secs(240);

/// Begins what a person typed.
const PROMPT: &str = "$ ";

/// As kind is told by a person, with the node image that the tests use.
const KIND: &str = r#"#!/bin/bash
set -eu
if [[ "$1 $2" = "create cluster" && -n ${MCR_NODE_IMAGE:-} ]]; then set -- "$@" --image "$MCR_NODE_IMAGE"; fi
exec "$MCR_KIND" "$@"
"#;

/// What was built already. A provider that the program would be compiled without is refused.
const CARGO: &str = r#"#!/bin/bash
set -eu
whole="cargo $*"
case "$1 $2 $3" in
"run -p examples")
    shift 3
    features=file
    if [[ $1 = --features ]]; then features="$features,$2"; shift 2; fi
    [[ $1 = --example ]]
    program=$EXAMPLES/$2
    shift 2
    if [[ "$*" =~ --provider\ ([a-z]+) && ",$features," != *",${BASH_REMATCH[1]},"* ]]; then
        echo "$whole: compiled without the provider ${BASH_REMATCH[1]}" >&2
        exit 64
    fi
    ;;
"run -p mcr-cli")
    shift 3
    program=$MCR
    ;;
*)
    echo "$whole: nobody knows what this is in a test" >&2
    exit 64
    ;;
esac
[[ $1 = -- ]]
shift
exec "$program" "$@"
"#;

pub(super) struct Machine {
    pub(super) screen: Arc<Screen>,
    kind: E2eKind,
    prefix: String,
    /// Has the kubeconfig, and the programs that are not on this machine's `PATH`.
    folder: tempfile::TempDir,
    mcr: PathBuf,
}

impl Machine {
    pub(super) fn new(kind: &E2eKind, kubectl: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        for (name, script) in [("kind", KIND), ("cargo", CARGO)] {
            fs::write(bin.join(name), script).unwrap();
            fs::set_permissions(bin.join(name), Permissions::from_mode(0o755)).unwrap();
        }
        if kubectl.is_absolute() {
            std::os::unix::fs::symlink(kubectl, bin.join("kubectl")).unwrap();
        }
        Self {
            screen: Arc::default(),
            prefix: format!("{}quickstart-", kind.prefix),
            kind: kind.clone(),
            folder,
            mcr: build(),
        }
    }

    /// With what the names of its clusters begin.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether it has the engine whose program the lines use.
    pub(super) fn has_programs_of(&self, lines: &str) -> bool {
        self.kind.engine == "docker" || !lines.lines().any(|line| line.starts_with("docker "))
    }

    /// Types lines and waits for their end. The first that fails is the last.
    pub(super) fn run(&self, lines: &str, code: i32) {
        let status = self.spawn(lines, lines).end(COMMAND);
        assert_eq!(status.code(), Some(code), "{lines}\n{}", self.screen.text());
    }

    /// Starts a program that goes on running.
    pub(super) fn start(&self, line: &str) -> Running {
        // In place of the shell, so that it is the one to interrupt.
        self.spawn(line, &format!("exec {line}"))
    }

    fn spawn(&self, shown: &str, lines: &str) -> Running {
        self.screen.add(&format!("{PROMPT}{shown}"));
        let path = format!("{}:{}", self.file("bin"), env::var("PATH").unwrap());
        let mut child = Command::new("bash")
            .args(["-euc", lines])
            .current_dir(root())
            .env_remove("RUST_LOG")
            .env("PATH", path)
            .env("KUBECONFIG", self.file("kubeconfig"))
            .env("KUBECACHEDIR", self.file("cache"))
            .env("EXAMPLES", program::path("configmaps").parent().unwrap())
            .env("MCR", &self.mcr)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let readers = vec![
            self.screen.read(child.stdout.take().unwrap()),
            self.screen.read(child.stderr.take().unwrap()),
        ];
        Running {
            lines: shown.to_owned(),
            child,
            readers,
            screen: self.screen.clone(),
        }
    }

    /// Those that are left of its clusters, by name.
    pub(super) fn clusters(&self) -> String {
        let clusters = image::run(Command::new(&self.kind.program).args(["get", "clusters", "--quiet"]));
        let ours = clusters
            .split_whitespace()
            .filter(|name| name.starts_with(&self.prefix));
        ours.collect::<Vec<_>>().join(" ")
    }

    /// Those that are left in its kubeconfig.
    pub(super) fn contexts(&self) -> String {
        fs::read_to_string(self.file("kubeconfig"))
            .unwrap()
            .lines()
            .filter(|line| line.contains(&self.prefix))
            .collect()
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let kind = |args: &[&str]| {
            let mut command = Command::new(&self.kind.program);
            command
                .args(args)
                .env("KUBECONFIG", self.file("kubeconfig"))
                .output()
        };
        let Ok(clusters) = kind(&["get", "clusters", "--quiet"]) else {
            return;
        };
        for name in String::from_utf8_lossy(&clusters.stdout).split_whitespace() {
            if name.starts_with(&self.prefix) {
                let _ = kind(&["delete", "cluster", "--quiet", "--name", name]);
            }
        }
    }
}

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The command `mcr`, which belongs to another package: built where this test was.
fn build() -> PathBuf {
    let examples = program::path("configmaps");
    let profile = examples.ancestors().nth(2).unwrap();
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "-p", "mcr-cli", "--bin", "mcr", "--target-dir"]);
    image::run(build.arg(profile.parent().unwrap()).current_dir(root()));
    profile.join("mcr")
}

/// Lines in a terminal. Killed when dropped.
pub(super) struct Running {
    lines: String,
    child: Child,
    readers: Vec<JoinHandle<()>>,
    screen: Arc<Screen>,
}

impl Running {
    /// Ctrl-C, after which it has to end by itself and without an error.
    pub(super) fn interrupt(mut self) {
        assert_eq!(
            self.child.try_wait().unwrap(),
            None,
            "it has ended:\n{}",
            self.screen.text()
        );
        image::run(Command::new("kill").args(["-INT", &self.child.id().to_string()]));
        let (lines, screen) = (self.lines.clone(), self.screen.clone());
        let status = self.end(DEADLINE);
        assert!(
            status.success(),
            "{lines}: {status} after Ctrl-C\n{}",
            screen.text()
        );
    }

    fn end(mut self, deadline: Duration) -> ExitStatus {
        let deadline = Instant::now() + deadline;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "{} does not end\n{}",
                self.lines,
                self.screen.text()
            );
            std::thread::sleep(Duration::from_millis(20));
        };
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        status
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What all terminals show, line by line.
#[derive(Default)]
pub(super) struct Screen {
    lines: Mutex<Vec<String>>,
    more: Condvar,
}

impl Screen {
    /// Waits until all of this has come since something was typed, in any order.
    pub(super) fn shows(&self, wanted: &[String]) {
        let deadline = Instant::now() + DEADLINE;
        let mut lines = self.lines.lock().unwrap();
        loop {
            let typed = lines.iter().rposition(|line| line.starts_with(PROMPT));
            let new = &lines[typed.map_or(0, |typed| typed + 1)..];
            let there = |wanted: &str| new.iter().any(|line| page::has(line, wanted));
            let Some(missing) = wanted.iter().find(|wanted| !there(wanted)) else {
                return;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "not seen: {missing}\n{}", lines.join("\n"));
            lines = self.more.wait_timeout(lines, left).unwrap().0;
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    fn text(&self) -> String {
        self.lines().join("\n")
    }

    fn add(&self, line: &str) {
        self.lines.lock().unwrap().push(page::squeezed(line));
        self.more.notify_all();
    }

    /// Adds what is read, as it comes.
    fn read(self: &Arc<Self>, from: impl Read + Send + 'static) -> JoinHandle<()> {
        let screen = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(from).split(b'\n') {
                screen.add(&String::from_utf8_lossy(&line.unwrap()));
            }
        })
    }
}
