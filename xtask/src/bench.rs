//! `cargo xtask bench`: compares mcr with kube-rs and with Go's controller-runtime.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{assets, workspace};

/// Arguments of `cargo xtask bench`. All are passed on to the benchmarks.
#[derive(clap::Args, Default)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Passed on to the benchmarks: suites, --runs N, --subjects LIST, --format json, --write, --check, --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
}

/// Builds the benchmarks and the measured programs, and runs the benchmarks.
pub(crate) fn run(args: &Args) -> Result<()> {
    let wanted = Wanted::of(&args.args);
    let profile = profile(&args.args);
    workspace::check(workspace::cargo().args(["build", "--profile", profile, "-p", "mcr-bench"]))?;
    let target = workspace::target()?;
    let mut bench = Command::new(target.join(profile).join("mcr-bench"));
    bench.args(&args.args).current_dir(workspace::root());
    if let Wanted::Everything = wanted {
        bench.env("KUBEBUILDER_ASSETS", assets::ensure(&assets::Args::default())?);
    }
    if wanted != Wanted::Nothing {
        match go_program(&target)? {
            Some(go) => {
                bench.arg("--go").arg(go);
            }
            None => eprintln!(
                "bench: SKIPPED all rows of Go: no Go toolchain here (https://go.dev/doc/install puts that right)"
            ),
        }
    }
    let status = bench.status().context("starting mcr-bench")?;
    if !status.success() {
        bail!("the benchmarks failed ({status})");
    }
    Ok(())
}

/// The profile to build with. The published page is about programs as they are deployed, with fat LTO, which take a
/// quarter of an hour to build on two cores. Checks compare counts of another profile, which takes a fraction of that
/// time.
fn profile(args: &[OsString]) -> &'static str {
    let has = |wanted: &str| args.iter().any(|arg| arg == wanted);
    if has("--write") && !has("--check") {
        "deployed"
    } else {
        "release"
    }
}

/// What the benchmarks need.
#[derive(Debug, PartialEq)]
enum Wanted {
    /// API servers and the Go program.
    Everything,
    /// The Go program only, because the servers are simulated or given.
    Go,
    /// Neither.
    Nothing,
}

impl Wanted {
    fn of(args: &[OsString]) -> Self {
        let args: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
        let has = |wanted: &str| args.contains(&wanted);
        let follows = |option: &str, value: &str| args.windows(2).any(|pair| pair == [option, value]);
        if has("--help") || has("-h") || has("--check") {
            Self::Nothing
        } else if has("--backend=sim")
            || follows("--backend", "sim")
            || args.iter().any(|arg| arg.starts_with("--kubeconfig"))
        {
            Self::Go
        } else {
            Self::Everything
        }
    }
}

/// The Go program, after building it. `None` if Go is not installed.
fn go_program(target: &Path) -> Result<Option<PathBuf>> {
    if !assets::go_is_installed() {
        return Ok(None);
    }
    let program = target.join("bench").join("mcr-bench-go");
    let sources = workspace::root().join("crates/mcr-bench/go");
    let mut build = Command::new("go");
    build
        .args(["build", "-trimpath", "-ldflags=-s -w", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(sources)
        .env("CGO_ENABLED", "0");
    workspace::check(&mut build)
        .context("building the Go program (its modules come from the Go module proxy)")?;
    Ok(Some(program))
}

#[cfg(test)]
mod tests {
    use super::{Wanted, profile};

    #[test]
    fn only_the_page_costs_fat_lto() {
        let of = |line: &str| {
            let args: Vec<_> = line.split_whitespace().map(Into::into).collect();
            profile(&args)
        };
        assert_eq!([of("--write"), of("fleet --write --runs 1")], ["deployed"; 2]);
        assert_eq!([of(""), of("fleet"), of("--check --write")], ["release"; 3]);
    }

    #[test]
    fn api_servers_are_got_only_for_what_runs_on_them() {
        let wanted = |line: &str| {
            let args: Vec<_> = line.split_whitespace().map(Into::into).collect();
            Wanted::of(&args)
        };
        for line in ["", "fleet --runs 3", "fleet --backend real"] {
            assert_eq!(wanted(line), Wanted::Everything, "{line}");
        }
        for line in [
            "fleet --backend sim",
            "--backend=sim queue",
            "fleet --kubeconfig a",
            "fleet --kubeconfig=a",
        ] {
            assert_eq!(wanted(line), Wanted::Go, "{line}");
        }
        for line in ["--help", "fleet -h", "--check"] {
            assert_eq!(wanted(line), Wanted::Nothing, "{line}");
        }
    }
}
