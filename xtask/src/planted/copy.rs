//! Makes a copy of the workspace that contains all bugs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::bugs::BUGS;
use crate::workspace;

/// The patch with all bugs. Each bug checks in `MCR_PLANTED` whether it is active.
const PATCH: &str = "xtask/src/planted/bugs.patch";

/// Makes the copy, or updates it. Unchanged files are not touched, so that cargo builds only changed crates.
pub(super) fn make() -> Result<PathBuf> {
    let copy = workspace::target()?.join("planted").join("workspace");
    let patched = patched()?;
    let files = files()?;
    for file in &files {
        let with_bugs = patched.path().join(file);
        let from = if with_bugs.exists() {
            with_bugs
        } else {
            workspace::root().join(file)
        };
        // The file was deleted, but the deletion is not committed yet.
        if from.exists() {
            copy_if_changed(&from, &copy.join(file))?;
        }
    }
    remove_others(&copy, &copy, &files)?;
    Ok(copy)
}

/// Checks that the patch applies, and contains the bugs in the table.
pub(super) fn check() -> Result<()> {
    let text = std::fs::read_to_string(workspace::root().join(PATCH)).context(PATCH)?;
    let planted: BTreeSet<&str> = text
        .lines()
        .filter(|line| line.starts_with('+'))
        .filter_map(|line| Some(line.split_once("|bug| bug == \"")?.1.split_once('"')?.0))
        .collect();
    let listed: BTreeSet<&str> = BUGS.iter().map(|bug| bug.name).collect();
    let differ: Vec<_> = planted.symmetric_difference(&listed).collect();
    ensure!(
        differ.is_empty(),
        "only in one of xtask/src/planted/bugs.rs and {PATCH}: {differ:?}"
    );
    patched().map(drop)
}

/// Applies the patch to copies of the files that it changes, in a temporary folder.
fn patched() -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir().context("making a folder")?;
    let patch = workspace::root().join(PATCH);
    let text = std::fs::read_to_string(&patch).context(PATCH)?;
    for file in text.lines().filter_map(|line| line.strip_prefix("--- a/")) {
        let from = workspace::root().join(file);
        ensure!(from.exists(), "{PATCH} changes {file}, which does not exist");
        copy_if_changed(&from, &folder.path().join(file))?;
    }
    let output = Command::new("git")
        .arg("apply")
        .arg(&patch)
        .current_dir(folder.path())
        // Otherwise git would interpret the paths relative to a repository that contains the folder.
        .env(
            "GIT_CEILING_DIRECTORIES",
            folder.path().parent().unwrap_or(folder.path()),
        )
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .output()
        .context("starting git")?;
    if !output.status.success() {
        bail!(
            "{PATCH} does not apply; CONTRIBUTING.md says how to renew it:\n{}",
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    Ok(folder)
}

/// The files of the workspace: those that are committed or not ignored.
fn files() -> Result<BTreeSet<PathBuf>> {
    let mut command = Command::new("git");
    let output = workspace::in_root(&mut command)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("starting git")?;
    ensure!(
        output.status.success(),
        "git does not list the workspace's files: {}",
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    let text = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    Ok(text.split_terminator('\0').map(PathBuf::from).collect())
}

/// Copies a file if its content differs.
fn copy_if_changed(from: &Path, to: &Path) -> Result<()> {
    let wanted = std::fs::read(from).with_context(|| from.display().to_string())?;
    if std::fs::read(to).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    let folder = to.parent().unwrap_or(to);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::copy(from, to))
        .with_context(|| format!("copying to {}", to.display()))?;
    Ok(())
}

/// Removes files that are no longer in the workspace.
fn remove_others(root: &Path, folder: &Path, files: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(root, &path, files)?;
            continue;
        }
        let wanted = path.strip_prefix(root).is_ok_and(|file| files.contains(file));
        let original = path.strip_prefix(root).map(|file| workspace::root().join(file));
        if !wanted || original.is_ok_and(|file| !file.exists()) {
            std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}
