//! `cargo xtask demo`: one controller, several clusters that come, change, fail and go.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{assets, workspace};

/// Arguments of `cargo xtask demo`: all of them are the demo's own.
#[derive(clap::Args, Default)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Passed on to the demo: --once, --backend auto|real|sim, --format json, --serve ADDRESS, --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
}

const DEMO: [&str; 6] = ["-p", "examples", "--example", "demo", "--features", "demo"];

/// Becomes the demo, so that its exit code and what Ctrl-C does are its own.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut run = workspace::cargo();
    run.args(["run", "--quiet"]).args(DEMO).arg("--").args(&args.args);
    let mut say = None;
    match Wanted::of(&args.args) {
        Wanted::Auto => match real_if_possible()? {
            Some(folder) => {
                run.env("KUBEBUILDER_ASSETS", folder);
            }
            None => {
                // Given last; the demo takes the last of several.
                run.args(["--backend", "sim"]);
                say = Some(
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
    // By itself, for the first time takes minutes and cargo's progress should be seen.
    workspace::check(workspace::cargo().arg("build").args(DEMO))?;
    // Here, for it would be far above the progress otherwise.
    if let Some(text) = say {
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
    /// Nothing: the simulator, the help, and what the demo will refuse need none.
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
}

/// The binaries, found, downloaded or built; none if there is no way to get any, which is no error.
fn real_if_possible() -> Result<Option<PathBuf>> {
    match assets::ensure(&assets::Args::default()) {
        Ok(folder) => Ok(Some(folder)),
        // A folder that was named and is wrong, or a build that failed, is something to put right.
        Err(error) if std::env::var_os("KUBEBUILDER_ASSETS").is_some() || assets::go_is_installed() => {
            Err(error.context("no kube-apiserver (`cargo xtask demo --backend sim` needs none)"))
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
    // Returns only if it failed.
    Err(command.exec())
}

#[cfg(not(unix))]
fn become_it(command: &mut Command) -> std::io::Result<()> {
    let status = command.status()?;
    std::process::exit(status.code().unwrap_or(1));
}

#[cfg(test)]
mod tests {
    use super::Wanted;

    fn wanted(line: &str) -> Wanted {
        let args: Vec<_> = line.split_whitespace().map(Into::into).collect();
        Wanted::of(&args)
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
