//! The Rust sources of the workspace, and the limit of their lengths.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// The text of each source by its path from the root of the workspace.
pub(super) type Sources = BTreeMap<PathBuf, String>;

/// The most lines a source may have. Tests don't count.
const MAX_LINES: usize = 900;

/// Reads `src` of each crate and of xtask.
pub(super) fn read() -> Result<Sources> {
    let root = workspace::root();
    let mut folders = vec![root.join("xtask/src")];
    for member in list(&root.join("crates"))? {
        folders.push(member.join("src"));
    }
    walk(folders)
}

/// Reads all sources, including those of tests and examples.
pub(super) fn read_all() -> Result<Sources> {
    let folders = ["crates", "examples", "fuzz", "xtask"];
    walk(folders.map(|name| workspace::root().join(name)).into())
}

fn walk(mut folders: Vec<PathBuf>) -> Result<Sources> {
    let root = workspace::root();
    let mut sources = Sources::new();
    while let Some(folder) = folders.pop() {
        for path in list(&folder)? {
            if path.is_dir() {
                // Cargo creates such a folder when it runs in a workspace of its own, such as `fuzz`.
                if !path.ends_with("target") {
                    folders.push(path);
                }
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

/// Fails if a source is longer than [`MAX_LINES`].
pub(super) fn check_lengths(sources: &Sources) -> Result<()> {
    let too_long: Vec<String> = sources
        .iter()
        .filter(|(path, _)| !path.iter().any(|part| part == "tests" || part == "tests.rs"))
        .map(|(path, text)| (path, lines_without_tests(text)))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(path, lines)| format!("{}: {lines} lines", path.display()))
        .collect();
    if !too_long.is_empty() {
        bail!(
            "a source may have {MAX_LINES} lines at most, tests not counted; split:\n  {}",
            too_long.join("\n  ")
        );
    }
    Ok(())
}

/// The number of lines outside of tests. Because rustfmt has formatted the code, an item ends at the indentation at
/// which it begins.
fn lines_without_tests(text: &str) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut lines = text.lines();
    let mut count = 0;
    while let Some(line) = lines.next() {
        let code = line.trim_start();
        if code.starts_with("#[cfg(test)]") || code.starts_with("#[cfg(all(test,") {
            let ends = |next: &str| indent(next) == indent(line) && next.ends_with([';', '}', ',']);
            lines.by_ref().find(|next| ends(next));
        } else {
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::{MAX_LINES, Sources, check_lengths, lines_without_tests};

    #[test]
    fn a_source_of_one_line_too_many_is_named_with_its_length() {
        let sources = |lines| Sources::from([("crates/x/src/lib.rs".into(), "\n".repeat(lines))]);
        assert!(check_lengths(&sources(MAX_LINES)).is_ok());
        let error = check_lengths(&sources(MAX_LINES + 1)).unwrap_err().to_string();
        assert!(error.contains("crates/x/src/lib.rs: 901 lines"), "{error}");
    }

    #[test]
    fn tests_are_not_counted_wherever_they_are() {
        for path in ["crates/x/src/a/tests.rs", "crates/x/src/tests/a.rs"] {
            let sources = Sources::from([(path.into(), "\n".repeat(MAX_LINES + 1))]);
            assert!(check_lengths(&sources).is_ok(), "{path}");
        }
        let code = "struct A {\n    #[cfg(test)]\n    seen: u8,\n    b: u8,\n}\n";
        let function =
            "impl A {\n    #[cfg(test)]\n    fn a(\n        b: u8,\n    ) {\n        b;\n    }\n}\n";
        let tests = "#[cfg(test)]\nmod other;\n#[cfg(all(test, unix))]\n#[path = \"a\"]\nmod tests {\n    fn f() {}\n\n}\n";
        assert_eq!(
            lines_without_tests(&[code, function, tests, "fn last() {}"].concat()),
            3 + 2 + 1
        );
    }
}
