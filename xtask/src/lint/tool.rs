//! Subcommands of cargo that the lint stages need.

use std::path::PathBuf;

use anyhow::Result;

use crate::{assets, workspace};

/// A subcommand's program in this version, installed on first use. Outside `target`, so that `cargo clean` keeps it.
pub(super) fn installed(name: &str, version: &str, takes: &str) -> Result<PathBuf> {
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
                .args(["install", "--locked", name, "--version", version, "--root"])
                .arg(&dir),
        )?;
    }
    Ok(binary)
}
