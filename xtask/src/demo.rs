//! `cargo xtask demo` and `cargo xtask clusters`: examples that start API servers themselves.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{assets, workspace};

/// Arguments of `cargo xtask demo`: all of them are the demo's own.
#[derive(clap::Args, Default)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// --kcp for the database service on kcp; all others are passed on to the demo: --once, --backend auto|real|sim,
    /// --format json, --serve ADDRESS, --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
}

/// Arguments of `cargo xtask clusters`.
#[derive(clap::Args)]
pub(crate) struct Clusters {
    /// The number of clusters: at most 100 real ones or 5000 simulated ones
    #[arg(value_name = "N", value_parser = clap::value_parser!(u16).range(1..=5_000))]
    count: u16,
    /// Whether the API servers are real or simulated; auto: real, or simulated if the binaries are missing and can't be
    /// downloaded or built
    #[arg(long, value_parser = ["auto", "real", "sim"], default_value = "auto")]
    backend: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match of_kcp(&args.args) {
        Some(args) => become_example("kcp-mongodb-demo", "demo,kcp", &args, Wanted::of_kcp(&args)),
        None => become_example("demo", "demo", &args.args, Wanted::of(&args.args)),
    }
}

/// The arguments of the demo on kcp, if `--kcp` is given.
fn of_kcp(args: &[OsString]) -> Option<Vec<OsString>> {
    let rest: Vec<_> = args.iter().filter(|arg| *arg != "--kcp").cloned().collect();
    (rest.len() < args.len()).then_some(rest)
}

pub(crate) fn clusters(args: &Clusters) -> Result<()> {
    let count = args.count.to_string();
    let args = [&count, "--backend", &args.backend].map(OsString::from);
    become_example("clusters", "demo", &args, Wanted::of(&args))
}

/// Replaces this process by the program, so that the exit code and the reaction to Ctrl-C are the program's own.
fn become_example(name: &str, features: &str, args: &[OsString], wanted: Wanted) -> Result<()> {
    let example = ["-p", "examples", "--example", name, "--features", features];
    let mut run = workspace::cargo();
    run.args(["run", "--quiet"]).args(example).arg("--").args(args);
    let mut report = None;
    match wanted {
        Wanted::Auto => match real_if_possible()? {
            Some(folder) => {
                run.env("KUBEBUILDER_ASSETS", folder);
            }
            None => {
                // Appended, because the program uses the last of several values.
                run.args(["--backend", "sim"]);
                report = Some(
                    "no kube-apiserver binaries here and no Go to build them: running on the simulator; \
                     `cargo xtask assets` gets real ones",
                );
            }
        },
        Wanted::Real => {
            run.env("KUBEBUILDER_ASSETS", assets::ensure(&assets::Args::default())?);
        }
        Wanted::NoAssets => {}
    }
    // Built separately, because the first build takes minutes, and cargo's progress should be visible.
    workspace::check(workspace::cargo().arg("build").args(example))?;
    // Printed now, because otherwise it would be far above the progress.
    if let Some(text) = report {
        eprintln!("{text}");
    }
    become_it(&mut run).context("starting cargo")
}

/// What to do about the binaries of Kubernetes.
#[derive(Debug, PartialEq)]
enum Wanted {
    /// Get them if possible.
    Auto,
    /// Get them.
    Real,
    /// Do nothing, because the simulator, the help and invalid arguments need no binaries.
    NoAssets,
}

impl Wanted {
    fn of(args: &[OsString]) -> Self {
        let mut wanted = Self::Auto;
        let mut args = args.iter().map(OsString::as_os_str);
        while let Some(arg) = args.next() {
            let value = match arg.to_str() {
                Some("--help" | "-h") => return Self::NoAssets,
                Some("--backend") => args.next().and_then(OsStr::to_str),
                Some(arg) => match arg.strip_prefix("--backend=") {
                    Some(value) => Some(value),
                    None => continue,
                },
                None => continue,
            };
            wanted = match value {
                Some("auto") => Self::Auto,
                Some("real") => Self::Real,
                _ => Self::NoAssets,
            };
        }
        wanted
    }

    /// The demo on kcp starts a kube-apiserver, unless a cluster is given.
    fn of_kcp(args: &[OsString]) -> Self {
        let needs_none = |arg: &OsString| {
            let arg = arg.to_string_lossy();
            ["--help", "-h"].contains(&&*arg) || arg.starts_with("--service-kubeconfig")
        };
        if args.iter().any(needs_none) {
            Self::NoAssets
        } else {
            Self::Real
        }
    }
}

/// The binaries, after finding, downloading or building them. `None` without an error if that is impossible.
fn real_if_possible() -> Result<Option<PathBuf>> {
    match assets::ensure(&assets::Args::default()) {
        Ok(folder) => Ok(Some(folder)),
        // If the named folder is wrong, or a build has failed, the user must correct something.
        Err(error) if std::env::var_os("KUBEBUILDER_ASSETS").is_some() || assets::go_is_installed() => {
            Err(error.context("no kube-apiserver (`--backend sim` needs none)"))
        }
        Err(error) => {
            eprintln!("assets: {error:#}");
            Ok(None)
        }
    }
}

#[cfg(unix)]
fn become_it(command: &mut Command) -> std::io::Result<()> {
    use std::os::unix::process::CommandExt;
    // Only returns if it has failed.
    Err(command.exec())
}

#[cfg(not(unix))]
fn become_it(command: &mut Command) -> std::io::Result<()> {
    let status = command.status()?;
    std::process::exit(status.code().unwrap_or(1));
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::Parser;

    use super::{Clusters, Wanted, of_kcp};

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        clusters: Clusters,
    }

    #[test]
    fn a_wrong_number_of_clusters_is_refused_before_anything_is_fetched_or_built() {
        let parse = |count: &str| Cli::try_parse_from(["clusters", count, "--backend", "sim"]);
        for count in ["1", "3", "5000"] {
            assert_eq!(parse(count).unwrap().clusters.count.to_string(), count);
        }
        for count in ["0", "5001", "70000", "three"] {
            let error = parse(count).err().unwrap().to_string();
            assert!(error.contains(count) && error.contains("<N>"), "{error}");
        }
    }

    fn args(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(Into::into).collect()
    }

    fn wanted(line: &str) -> Wanted {
        Wanted::of(&args(line))
    }

    #[test]
    fn the_demo_on_kcp_is_chosen_by_its_flag_and_needs_binaries_unless_it_is_given_a_cluster() {
        assert_eq!(of_kcp(&args("--once --format json")), None);
        let rest = of_kcp(&args("--kcp --format json"));
        assert_eq!(rest, Some(args("--format json")));
        for (line, wanted) in [
            ("--format json", Wanted::Real),
            ("--help", Wanted::NoAssets),
            ("--service-kubeconfig kind.yaml", Wanted::NoAssets),
            ("--service-kubeconfig=kind.yaml", Wanted::NoAssets),
        ] {
            assert_eq!(Wanted::of_kcp(&args(line)), wanted, "{line}");
        }
    }

    #[test]
    fn only_the_backends_that_run_kubernetes_need_its_binaries() {
        for line in [
            "",
            "--once --format json",
            "--backend auto",
            "--backend sim --backend=auto",
        ] {
            assert_eq!(wanted(line), Wanted::Auto, "{line}");
        }
        for line in [
            "--backend real",
            "--once --backend=real",
            "--backend sim --backend real",
        ] {
            assert_eq!(wanted(line), Wanted::Real, "{line}");
        }
        for line in [
            "--backend sim",
            "--backend=sim --once",
            "--help",
            "--backend real -h",
            "--backend",
            "--backend=x",
        ] {
            assert_eq!(wanted(line), Wanted::NoAssets, "{line}");
        }
    }
}
