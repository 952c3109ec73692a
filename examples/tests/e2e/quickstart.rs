//! Follows `docs/quickstart-kind.md` as a person would: types its commands in the order they stand there and waits for what it shows.

use std::{
    env,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use mcr_testkit::e2e::{DEADLINE, E2e, E2eKind, skipped_in_part};

use crate::{
    image,
    program::{self, Program},
};

/// The prefix of names on the page.
const PREFIX: &str = "fleet-";

/// kind with the node image that the tests use.
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
    echo "$whole: no such command in a test" >&2
    exit 64
    ;;
esac
[[ $1 = -- ]]
shift
exec "$program" "$@"
"#;

/// A person's machine: the programs that the page names, and what its terminals show.
struct Machine {
    kind: E2eKind,
    prefix: String,
    /// Has the kubeconfig, and the programs that are not on this machine's `PATH`.
    folder: tempfile::TempDir,
    mcr: PathBuf,
    /// What the last commands printed.
    typed: String,
    /// The program that goes on running. How many lines and how much log it had before the last commands.
    running: Option<(Program, usize, usize)>,
    /// The lines of all programs that have ended.
    seen: Vec<String>,
}

impl Machine {
    fn new(e2e: &E2e) -> Self {
        let (kind, kubectl) = (e2e.kind(), e2e.kubectl());
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
        // The command `mcr` belongs to another package: built where this test was.
        let profile = program::path("configmaps").ancestors().nth(2).unwrap().to_owned();
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "-p", "mcr-cli", "--bin", "mcr", "--target-dir"]);
        image::run(build.arg(profile.parent().unwrap()).current_dir(root()));
        Self {
            prefix: format!("{}quickstart-", kind.prefix),
            kind,
            folder,
            mcr: profile.join("mcr"),
            typed: String::new(),
            running: None,
            seen: Vec::new(),
        }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// A shell, which ends after some time: kind takes minutes where a node runs more than a control plane.
    fn shell(&self, lines: &str) -> Command {
        let mut shell = Command::new("timeout");
        shell
            .args(["--foreground", "240", "bash", "-euc", lines])
            .current_dir(root())
            .env_remove("RUST_LOG")
            .env(
                "PATH",
                format!("{}:{}", self.file("bin"), env::var("PATH").unwrap()),
            )
            .env("KUBECONFIG", self.file("kubeconfig"))
            .env("KUBECACHEDIR", self.file("cache"))
            .env("EXAMPLES", program::path("configmaps").parent().unwrap())
            .env("MCR", &self.mcr);
        shell
    }

    /// Types lines and waits for their end. What finds a problem reports it with its exit code as well.
    fn type_in(&mut self, lines: &str, code: i32) {
        if let Some((program, shown, logged)) = &mut self.running {
            (*shown, *logged) = (program.mark(), program.log().len());
        }
        let output = self.shell(lines).output().unwrap();
        self.typed = [output.stdout, output.stderr]
            .map(|text| String::from_utf8(text).unwrap())
            .concat();
        assert_eq!(output.status.code(), Some(code), "{lines}\n{}", self.typed);
    }

    /// Starts a program that goes on running, in place of the one before.
    fn start(&mut self, line: &str) {
        self.interrupt();
        // `exec`: the program is the process to interrupt.
        let mut shell = Command::new("bash");
        let command = self.shell("");
        shell
            .args(["-euc", &format!("exec {line}")])
            .current_dir(root())
            .env_remove("RUST_LOG");
        shell.envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        self.typed.clear();
        self.running = Some((Program::spawn(shell), 0, 0));
    }

    /// Ctrl-C, after which the program has to end by itself and without an error.
    fn interrupt(&mut self) {
        if let Some((program, ..)) = self.running.take() {
            let lines = program.interrupt_text();
            self.seen
                .extend(lines.iter().map(|line| squeezed(line.as_str().unwrap())));
        }
    }

    /// Waits until all of this has come since something was typed, in any order.
    fn shows(&self, wanted: &str) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let mut lines: Vec<String> = self.typed.lines().map(squeezed).collect();
            if let Some((program, shown, logged)) = &self.running {
                let new = program.lines().into_iter().skip(*shown);
                lines.extend(new.map(|line| squeezed(line.as_str().unwrap())));
                lines.extend(program.log()[*logged..].lines().map(squeezed));
            }
            let is_there = |wanted: &&str| lines.iter().any(|line| has(line, &squeezed(wanted)));
            let Some(missing) = wanted.lines().find(|wanted| !is_there(wanted)) else {
                return;
            };
            assert!(
                Instant::now() < deadline,
                "not seen: {missing}\n{}",
                lines.join("\n")
            );
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    fn clusters(&self) -> Vec<String> {
        let clusters = image::run(Command::new(&self.kind.program).args(["get", "clusters", "--quiet"]));
        let clusters = clusters
            .split_whitespace()
            .filter(|name| name.starts_with(&self.prefix));
        clusters.map(str::to_owned).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for name in self.clusters() {
            let delete = format!("kind delete cluster --quiet --name {name}");
            let _ = self.shell(&delete).output();
        }
    }
}

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A line without its alignment.
fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a line has what the page shows, in which `…` stands for whatever is of no interest.
fn has(line: &str, shown: &str) -> bool {
    let mut rest = line;
    shown.split('…').map(str::trim).all(|piece| {
        let found = rest.split_once(piece);
        found.inspect(|(_, after)| rest = after).is_some()
    })
}

/// The fenced blocks of the page with their languages, with another prefix for the names in it.
fn blocks(prefix: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("docs/quickstart-kind.md")).unwrap();
    let text = text.replace(PREFIX, prefix);
    let fenced = text.split("\n```").skip(1).step_by(2);
    let blocks = fenced.map(|block| block.split_once('\n').unwrap());
    blocks
        .map(|(language, block)| (language.to_owned(), block.to_owned()))
        .collect()
}

#[test]
fn the_quickstart_on_kind_does_what_it_reports() {
    let Some(e2e) = E2e::from_env() else { return };
    let mut machine = Machine::new(&e2e);
    let blocks = blocks(&machine.prefix);
    let mut left_out = false;
    for (at, (language, block)) in blocks.iter().enumerate() {
        let next = blocks.get(at + 1).map_or("", |(_, next)| next);
        match language.as_str() {
            "sh" if machine.kind.engine != "docker" && block.contains("docker ") => {
                skipped_in_part(block, "the engine is not Docker");
                left_out = true;
                continue;
            }
            "sh" if block.contains(" --example ") => machine.start(block),
            "sh" => machine.type_in(block, i32::from(next.contains("PROBLEM "))),
            "text" if left_out => continue,
            "text" => machine.shows(block),
            other => panic!("nobody knows how to follow a block of {other:?}:\n{block}"),
        }
        left_out = false;
    }
    assert!(
        machine.running.is_some(),
        "the page has a program that goes on running"
    );
    machine.interrupt();

    assert!(
        machine.clusters().is_empty(),
        "the page promises that nothing is left"
    );
    let kubeconfig = fs::read_to_string(machine.file("kubeconfig")).unwrap();
    assert!(
        !kubeconfig.contains(&machine.prefix),
        "the page promises that nothing is left"
    );
    // What it shows of an object was seen as often as it shows it, and no other deletion.
    let of_text = blocks.iter().filter(|(language, _)| language == "text");
    let shown: Vec<String> = of_text
        .flat_map(|(_, block)| block.lines().map(squeezed))
        .collect();
    let objects = shown.iter().filter(|line| line.starts_with("live "));
    for line in objects.chain(machine.seen.iter().filter(|line| line.starts_with("deleted "))) {
        let times = |of: &[String]| of.iter().filter(|other| *other == line).count();
        assert_eq!(times(&shown), times(&machine.seen), "{line}: {:#?}", machine.seen);
    }
}

#[test]
fn a_block_is_read_as_it_is_meant() {
    assert!(has("12:00 cluster=a from=b to=c", "cluster=a … to=c"));
    assert!(!has("to=c cluster=a", "cluster=a … to=c"));
    let blocks = blocks("mine-");
    let (language, first) = &blocks[0];
    assert_eq!((language.as_str(), first.lines().count()), ("sh", 2));
    assert!(first.starts_with("kind create cluster --name mine-"), "{first}");
    assert!(
        blocks
            .iter()
            .any(|(language, block)| language == "text" && block.contains("PROBLEM "))
    );
}
