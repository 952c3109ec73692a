//! The folder of the workspace, and helpers to run cargo in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The workspace's root folder.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// The target folder of cargo.
pub(crate) fn target() -> Result<PathBuf> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .output()
        .context("starting `cargo metadata`")?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("reading `cargo metadata`")?;
    let target = metadata["target_directory"]
        .as_str()
        .context("`cargo metadata` names no target folder")?;
    Ok(target.into())
}

/// A command for the cargo that runs this task, in the root folder, so that toolchains do not mix.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    in_root(&mut command);
    command
}

/// Sets the folder and the environment for a command that runs cargo.
pub(crate) fn in_root(command: &mut Command) -> &mut Command {
    command.current_dir(root());
    // `cargo xtask` sets these variables to describe xtask. Some build scripts depend on them, such as that of ring.
    // They would run again after each switch between cargo started by xtask and cargo started by hand, which takes 20
    // s each time.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    command
}

/// A test program that cargo has built.
#[derive(Debug, PartialEq)]
pub(crate) struct TestProgram {
    /// The folder of the package.
    pub(crate) package: PathBuf,
    /// The name of the target.
    pub(crate) target: String,
    pub(crate) path: PathBuf,
}

impl TestProgram {
    /// Parses a line of cargo's output with `--message-format=json`. Most lines are about something else.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(Self {
            path: message["executable"].as_str()?.into(),
            package: Path::new(message["manifest_path"].as_str()?)
                .parent()?
                .to_path_buf(),
            target: message["target"]["name"].as_str()?.to_owned(),
        })
    }

    /// The name of the package's folder.
    pub(crate) fn folder(&self) -> String {
        let name = self.package.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// Runs a command and shows its output. Fails if the command fails.
pub(crate) fn check(command: &mut Command) -> Result<()> {
    let shown = show(command);
    eprintln!("+ {shown}");
    let status = command.status().with_context(|| format!("starting `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// A command in the form in which a user would type it.
pub(crate) fn show(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let args = command.get_args().map(|arg| arg.to_string_lossy());
    std::iter::once(program).chain(args).collect::<Vec<_>>().join(" ")
}
