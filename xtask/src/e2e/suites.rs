//! Finds the suites. By convention, a suite is a test target named `e2e`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::capi;
use super::case::{self, Case};
use crate::process::{self, Rules};
use crate::workspace::{self, TestProgram};

/// The first build takes minutes on two cores.
const BUILD: Rules = Rules::within(Duration::from_secs(3600));
const LIST: Rules = Rules::within(Duration::from_secs(60));

/// The suite of the examples runs the programs as a user would.
const EXAMPLES: &str = "examples";

/// This suite may restart the engine, so it runs after all others.
const LAST: &str = "kind";

/// The tests of one package over real clusters.
#[derive(Debug, Clone)]
pub(super) struct Suite {
    /// The name of the provider, or of the package.
    pub(super) name: String,
    package: String,
    folder: PathBuf,
    /// The path of the test program.
    program: PathBuf,
}

impl Suite {
    /// All suites of the workspace, or the named ones.
    pub(super) fn chosen(names: &[String]) -> Result<Vec<Self>> {
        let output = workspace::cargo()
            .args(["metadata", "--format-version", "1", "--no-deps"])
            .output()
            .context("running `cargo metadata`")?;
        ensure!(
            output.status.success(),
            "`cargo metadata` failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        choose(all(&serde_json::from_slice(&output.stdout)?), names)
    }

    /// The names of the cases.
    pub(super) fn cases(&self, describe: impl Fn(&mut Command)) -> Result<Vec<String>> {
        let list = |more: &[&str]| {
            let mut command = self.command();
            describe(&mut command);
            let listed = process::run_checked(command.args(["--list", "--format", "terse"]).args(more), LIST);
            listed.map(|listed| case::names(&listed))
        };
        let ignored = list(&["--ignored"])?;
        let mut cases = list(&[])?;
        cases.retain(|name| !ignored.contains(name));
        Ok(cases)
    }

    /// Runs one case.
    pub(super) fn run(&self, name: &str, rules: Rules, describe: impl Fn(&mut Command)) -> Result<Case> {
        eprintln!("e2e: {}: {name}", self.name);
        let mut command = self.command();
        describe(&mut command);
        command.args([name, "--exact", "--nocapture", "--test-threads", "1"]);
        let ended = process::run(&mut command, rules)?;
        Ok(Case::of(&self.name, name, &ended))
    }

    /// A command that runs the program as cargo would.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Builds the suites as `cargo test` would, and stores the paths of the programs.
pub(super) fn build(suites: &mut [Suite], all: bool) -> Result<()> {
    let mut packages = Vec::new();
    if all {
        // So that dependencies have the same features as in all other builds.
        packages.push("--workspace");
    } else {
        for suite in &*suites {
            packages.extend(["--package", &suite.package]);
        }
    }
    if suites.iter().any(|suite| suite.package == EXAMPLES) {
        let mut command = workspace::cargo();
        command.arg("build").args(&packages);
        command.args(["--all-features", "--examples"]);
        run(&mut command, |_| {})?;
    }
    let mut command = workspace::cargo();
    command.arg("test").args(&packages).args([
        "--all-features",
        "--no-run",
        "--test",
        "e2e",
        "--message-format=json-render-diagnostics",
    ]);
    let mut built = Vec::new();
    run(&mut command, |line| built.extend(TestProgram::read(line)))?;
    for suite in suites {
        let program = built
            .iter()
            .find(|program| program.target == "e2e" && program.package == suite.folder);
        let program = program.with_context(|| format!("cargo built no e2e of {}", suite.package))?;
        suite.program.clone_from(&program.path);
    }
    Ok(())
}

fn run(command: &mut Command, line: impl FnMut(&str)) -> Result<()> {
    let shown = workspace::show(command);
    eprintln!("+ {shown}");
    let ended = process::listen_to_stdout(command, BUILD, line)?;
    if !ended.is_success() {
        bail!("`{shown}`: {}", ended.why());
    }
    Ok(())
}

/// The suites in the output of `cargo metadata`.
fn all(metadata: &Value) -> Vec<Suite> {
    let mut suites = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let is_suite = |target: &Value| {
            target["name"] == "e2e"
                && target["kind"]
                    .as_array()
                    .is_some_and(|kinds| kinds.iter().any(|kind| kind == "test"))
        };
        let mut targets = package["targets"].as_array().into_iter().flatten();
        let (Some(name), Some(manifest)) = (package["name"].as_str(), package["manifest_path"].as_str())
        else {
            continue;
        };
        if targets.any(is_suite) {
            suites.push(Suite {
                name: name.strip_prefix("mcr-provider-").unwrap_or(name).to_owned(),
                package: name.to_owned(),
                folder: PathBuf::from(manifest)
                    .parent()
                    .map(Into::into)
                    .unwrap_or_default(),
                program: PathBuf::new(),
            });
        }
    }
    suites.sort_by_key(|suite| (suite.name == LAST, suite.name.clone()));
    suites
}

fn choose(suites: Vec<Suite>, names: &[String]) -> Result<Vec<Suite>> {
    let known = suites.iter().map(|suite| suite.name.as_str()).chain([capi::NAME]);
    let known = known.collect::<Vec<_>>().join(", ");
    for name in names {
        if !suites.iter().any(|suite| suite.name == *name) {
            bail!("no suite {name}; there are {known}");
        }
    }
    let wanted = |suite: &Suite| names.is_empty() || names.contains(&suite.name);
    Ok(suites.into_iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn some() -> Vec<Suite> {
        let package = |name: &str, target: &str, kind: &str| {
            json!({"name": name, "manifest_path": format!("/w/{name}/Cargo.toml"), "targets": [
                {"name": name, "kind": ["lib"]}, {"name": target, "kind": [kind]},
            ]})
        };
        all(&json!({"packages": [
            package("mcr-provider-kind", "e2e", "test"),
            package("examples", "e2e", "test"),
            package("mcr-provider-file", "e2e", "test"),
            package("mcr-provider-nop", "conformance", "test"),
            package("mcr", "e2e", "bench"),
        ]}))
    }

    #[test]
    fn a_suite_is_a_test_named_e2e_and_the_one_of_kind_comes_last() {
        let suites = some();
        let names: Vec<_> = suites.iter().map(|suite| suite.name.as_str()).collect();
        assert_eq!(names, ["examples", "file", "kind"]);
        assert_eq!(suites[1].folder, PathBuf::from("/w/mcr-provider-file"));
    }

    #[test]
    fn an_unknown_name_gets_the_known_ones() {
        assert_eq!(choose(some(), &[]).unwrap().len(), 3);
        assert_eq!(choose(some(), &["kind".to_owned()]).unwrap().len(), 1);
        let error = choose(some(), &["kinf".to_owned()]).unwrap_err().to_string();
        assert_eq!(
            error,
            "no suite kinf; there are examples, file, kind, cluster-api"
        );
    }
}
