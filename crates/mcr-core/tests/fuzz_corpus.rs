//! What fuzzing found, and what it began with, is read again by every run of the tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{fs, panic, path::Path};

#[path = "../../../fuzz/rules.rs"]
mod rules;

fn replay(target: &str, read: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("the corpus {} is missing: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "the corpus {} is empty", folder.display());
    let broken: Vec<_> = files
        .iter()
        .filter(|file| {
            let bytes = fs::read(file).unwrap();
            panic::catch_unwind(|| read(&bytes)).is_err()
        })
        .collect();
    assert!(broken.is_empty(), "these files break a rule: {broken:#?}");
}

#[test]
fn kubeconfigs_break_no_rule() {
    replay("kubeconfig", rules::kubeconfig);
}

#[test]
fn lists_break_no_rule() {
    replay("list", rules::list);
}

#[test]
fn watches_break_no_rule() {
    replay("watch", rules::watch);
}

#[test]
fn plugins_break_no_rule() {
    replay("exec_output", rules::exec_output);
}

#[test]
fn responses_break_no_rule() {
    replay("response", rules::response);
}
