//! The cache of this machine, shared by all checkouts.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The folder of the cache: `MCR_ASSETS_DIR`, otherwise `mcr/assets` in the user's cache folder. mcr-testkit searches
/// there too.
pub(super) fn root() -> Result<PathBuf> {
    if let Some(dir) = non_empty("MCR_ASSETS_DIR") {
        return Ok(dir);
    }
    Ok(user_cache()?.join("mcr").join("assets"))
}

/// The user's cache folder.
pub(crate) fn user_cache() -> Result<PathBuf> {
    if let Some(dir) = non_empty("XDG_CACHE_HOME") {
        return Ok(dir);
    }
    match non_empty("HOME") {
        Some(home) => Ok(home.join(".cache")),
        None => bail!(
            "neither XDG_CACHE_HOME nor HOME is set: set MCR_ASSETS_DIR to a folder to cache binaries in"
        ),
    }
}

fn non_empty(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// Waits until no other process fills the cache, so that nothing is built twice. The lock is released when the file is
/// closed, even if this process is killed.
pub(crate) fn lock(root: &Path) -> Result<File> {
    let path = root.join(".lock");
    let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            eprintln!("waiting for another `cargo xtask` that fills {}", root.display());
            file.lock()?;
        }
        Err(TryLockError::Error(error)) => return Err(error).context("locking the cache"),
    }
    Ok(file)
}

/// Sets the folder that tests use if `KUBEBUILDER_ASSETS` is not set, as in a plain `cargo test`.
pub(super) fn set_current(root: &Path, dir: &Path) -> Result<()> {
    let name = dir
        .file_name()
        .context("the cache folder has a name")?
        .to_string_lossy();
    let path = root.join("current");
    if std::fs::read_to_string(&path).is_ok_and(|text| text.trim() == name) {
        return Ok(());
    }
    // Renamed atomically, so that a test that starts now reads the old name or the new one.
    let partial = root.join(format!(".current.{}", std::process::id()));
    std::fs::write(&partial, format!("{name}\n"))?;
    std::fs::rename(&partial, &path).with_context(|| format!("writing {}", path.display()))
}

/// The `names` that are not in `dir`.
pub(super) fn missing(dir: &Path, names: &[&'static str]) -> Vec<&'static str> {
    names
        .iter()
        .copied()
        .filter(|name| !dir.join(name).is_file())
        .collect()
}
