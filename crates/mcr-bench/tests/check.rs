//! `--check` as continuous integration sees it: what it prints, and how it ends.

use std::{fs, path::PathBuf, process::Command};

use anyhow::Result;
use serde_json::json;

/// Whether it ended well, and its stderr. Stored and measured: instructions of `list`, bytes of `pod`.
fn check(stored: (f64, f64), measured: (f64, f64)) -> Result<(bool, String)> {
    let directory = tempfile::tempdir()?;
    let write = |name, (list, pod): (f64, f64)| -> Result<PathBuf> {
        let path = directory.path().join(name);
        let figures = json!({ "instructions": { "list": list, "queue": 3000.0 }, "bytes": { "pod": pod } });
        fs::write(&path, figures.to_string())?;
        Ok(path)
    };
    let output = Command::new(env!("CARGO_BIN_EXE_mcr-bench"))
        .arg("--check")
        .arg("--figures")
        .arg(write("stored.json", stored)?)
        .arg("--measured")
        .arg(write("measured.json", measured)?)
        .output()?;
    Ok((output.status.success(), String::from_utf8(output.stderr)?))
}

#[test]
fn what_has_grown_by_more_than_a_tenth_fails_and_is_named() {
    let (well, output) = check((10_000.0, 3_000.0), (11_100.0, 3_000.0)).unwrap();
    assert!(!well);
    assert!(
        output.contains("instructions of list: 10000 before, 11100 now (+11 %)"),
        "{output}"
    );
    assert!(output.contains("cargo xtask bench --check --write"), "{output}");
    assert!(!output.contains("pod") && !output.contains("queue"), "{output}");
}

#[test]
fn what_has_shrunk_or_grown_by_less_passes() {
    let (well, output) = check((10_000.0, 3_000.0), (10_900.0, 2_000.0)).unwrap();
    assert!(well, "{output}");
    assert_eq!(output, "");
}
