//! `--check` as continuous integration sees it: what it prints, and how it ends.

use std::{fs, path::Path, process::Command};

use anyhow::Result;
use serde_json::json;

fn figures(directory: &Path, name: &str, list: f64, pod: f64) -> Result<std::path::PathBuf> {
    let path = directory.join(name);
    let figures = json!({ "instructions": { "list": list, "queue": 3000.0 }, "bytes": { "pod": pod } });
    fs::write(&path, figures.to_string())?;
    Ok(path)
}

/// Whether it ended well, and what it said of what is wrong.
fn check(stored: &Path, measured: &Path) -> Result<(bool, String)> {
    let output = Command::new(env!("CARGO_BIN_EXE_mcr-bench"))
        .arg("--check")
        .arg("--figures")
        .arg(stored)
        .arg("--measured")
        .arg(measured)
        .output()?;
    Ok((output.status.success(), String::from_utf8(output.stderr)?))
}

#[test]
fn what_has_grown_by_more_than_a_tenth_fails_and_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let stored = figures(directory.path(), "stored.json", 10_000.0, 3_000.0).unwrap();
    let grown = figures(directory.path(), "grown.json", 11_100.0, 3_000.0).unwrap();
    let (well, said) = check(&stored, &grown).unwrap();
    assert!(!well);
    assert!(
        said.contains("instructions of list: 10000 before, 11100 now (+11 %)"),
        "{said}"
    );
    assert!(said.contains("cargo xtask bench --check --write"), "{said}");
    assert!(!said.contains("pod") && !said.contains("queue"), "{said}");
}

#[test]
fn what_has_shrunk_or_grown_by_less_passes() {
    let directory = tempfile::tempdir().unwrap();
    let stored = figures(directory.path(), "stored.json", 10_000.0, 3_000.0).unwrap();
    let now = figures(directory.path(), "now.json", 10_900.0, 2_000.0).unwrap();
    let (well, said) = check(&stored, &now).unwrap();
    assert!(well, "{said}");
    assert_eq!(said, "");
}
