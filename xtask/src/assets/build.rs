//! Builds the commands from their published Go modules. Needs nothing but Go.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::recipe;
use crate::workspace;

/// Whether `go` can be run.
pub(crate) fn go_is_installed() -> bool {
    Command::new("go")
        .arg("version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Builds `commands` into `dir`, one after the other, because each build uses all cores.
pub(super) fn build(dir: &Path, commands: &[&str]) -> Result<()> {
    eprintln!(
        "assets: building {} of Kubernetes {} into {} (once per machine, about 5 minutes on 2 cores)",
        commands.join(", "),
        recipe::KUBERNETES,
        dir.display(),
    );
    for command in commands {
        build_one("xtask/assets/go", dir, command)?;
    }
    Ok(())
}

/// Builds one command of Kubernetes, of the Go module in the folder `module` of the workspace, into `dir`.
pub(crate) fn build_one(module: &str, dir: &Path, command: &str) -> Result<()> {
    build_package(
        module,
        dir,
        command,
        &recipe::package(command),
        &recipe::linker_flags(),
    )
}

/// Builds one package of the Go module in the folder `module` of the workspace into `dir`, as `command`.
pub(super) fn build_package(
    module: &str,
    dir: &Path,
    command: &str,
    package: &str,
    linker_flags: &str,
) -> Result<()> {
    let partial = dir.join(format!(".{command}.partial"));
    let started = Instant::now();
    let mut child = Command::new("go")
        .current_dir(workspace::root().join(module))
        // The caller's Go configuration must not affect the binaries: no workspace file, no cgo, no VCS stamps.
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .args([
            "build",
            "-trimpath",
            "-buildvcs=false",
            "-mod=readonly",
            "-ldflags",
        ])
        .arg(linker_flags)
        .arg("-o")
        .arg(&partial)
        .arg(package)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting `go build`")?;

    // Read in a thread, because a full pipe would block the compiler.
    let stderr = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut stderr) = stderr {
            let _ = stderr.read_to_string(&mut text);
        }
        text
    });

    let mut next_line = Duration::from_secs(15);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if started.elapsed() >= next_line {
            eprintln!("assets: {command} … {} s", started.elapsed().as_secs());
            next_line += Duration::from_secs(15);
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let output = reader.join().unwrap_or_default();
    if !status.success() {
        bail!(
            "`go build` of {command} failed ({status}):\n{}",
            output.trim_end()
        );
    }
    // Only a complete binary gets this name, so an interrupted build can't be mistaken for one.
    std::fs::rename(&partial, dir.join(command))
        .with_context(|| format!("moving {} into place", partial.display()))?;
    eprintln!("assets: {command} built in {} s", started.elapsed().as_secs());
    Ok(())
}
