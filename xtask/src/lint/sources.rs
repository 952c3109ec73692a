//! The Rust sources of the workspace, and how long each may be.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// The text of each source by its path from the root of the workspace.
pub(super) type Sources = BTreeMap<PathBuf, String>;

/// The most lines a source may have, tests included.
const MAX_LINES: usize = 500;

/// Reads `src` of each crate and of xtask.
pub(super) fn read() -> Result<Sources> {
    let root = workspace::root();
    let mut folders = vec![root.join("xtask/src")];
    for member in list(&root.join("crates"))? {
        folders.push(member.join("src"));
    }
    let mut sources = Sources::new();
    while let Some(folder) = folders.pop() {
        for path in list(&folder)? {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                sources.insert(path.strip_prefix(&root)?.to_owned(), text);
            }
        }
    }
    Ok(sources)
}

fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// Fails if a source is too long to read in one sitting.
pub(super) fn check_lengths(sources: &Sources) -> Result<()> {
    let too_long: Vec<String> = sources
        .iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(path, lines)| format!("{}: {lines} lines", path.display()))
        .collect();
    if !too_long.is_empty() {
        bail!(
            "a source may have {MAX_LINES} lines at most, tests included; split:\n  {}",
            too_long.join("\n  ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{MAX_LINES, Sources, check_lengths};

    #[test]
    fn a_source_of_one_line_too_many_is_named_with_its_length() {
        let sources = |lines| Sources::from([("crates/x/src/lib.rs".into(), "\n".repeat(lines))]);
        assert!(check_lengths(&sources(MAX_LINES)).is_ok());
        let error = check_lengths(&sources(MAX_LINES + 1)).unwrap_err().to_string();
        assert!(error.contains("crates/x/src/lib.rs: 501 lines"), "{error}");
    }
}
