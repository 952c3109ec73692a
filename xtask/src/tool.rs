//! Cargo subcommands that the tasks need.

use std::path::PathBuf;

use anyhow::Result;

use crate::{assets, workspace};

/// A cargo subcommand.
pub(crate) struct Tool {
    /// The name of the package.
    pub(crate) name: &'static str,
    /// Pinned, so that all machines use the same version.
    pub(crate) version: &'static str,
    /// Arguments of `cargo install` that choose features.
    pub(crate) features: &'static [&'static str],
    /// How long the build takes on two cores.
    pub(crate) takes: &'static str,
}

/// The program of a subcommand, which is installed on first use. It is not in `target`, so that `cargo clean` keeps
/// it.
pub(crate) fn installed(tool: &Tool) -> Result<PathBuf> {
    let Tool {
        name,
        version,
        features,
        takes,
    } = tool;
    let dir = assets::user_cache()?
        .join("mcr")
        .join("tools")
        .join(format!("{name}-{version}"));
    let binary = dir
        .join("bin")
        .join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    if !binary.is_file() {
        eprintln!(
            "installing {name} {version} into {} (once per machine, about {takes})",
            dir.display()
        );
        workspace::check(
            workspace::cargo()
                .args(["install", "--locked", name, "--version", version])
                .args(*features)
                .arg("--root")
                .arg(&dir),
        )?;
    }
    Ok(binary)
}
