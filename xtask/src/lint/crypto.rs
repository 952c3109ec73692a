//! Each program chooses its cryptography: a crate may only depend on the cryptography that its features name.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::crates;
use crate::workspace;

/// The features that choose the cryptography. The crates have the same names.
const CHOICES: [&str; 2] = ["ring", "aws-lc-rs"];

/// Checks the dependencies of each published crate that uses TLS: with each choice, and without one.
pub(super) fn check() -> Result<()> {
    let mut wrong = Vec::new();
    for package in crates::members()?
        .iter()
        .filter(|package| crates::is_published(package))
    {
        let name = package["name"].as_str().unwrap_or_default();
        let others = others(package);
        let bare = tree(name, &others)?;
        if !bare.contains("rustls") {
            continue;
        }
        defaults(package, &mut wrong);
        compare(name, None, &bare, &mut wrong);
        for choice in CHOICES {
            if package["features"][choice].is_array() {
                let features: Vec<_> = others.iter().copied().chain([choice]).collect();
                compare(name, Some(choice), &tree(name, &features)?, &mut wrong);
            } else {
                wrong.push(format!("{name} uses TLS and has no feature {choice}"));
            }
        }
    }
    if !wrong.is_empty() {
        bail!("cryptography is the program's choice:\n  {}", wrong.join("\n  "));
    }
    Ok(())
}

/// The features of a crate that do not choose the cryptography.
fn others(package: &Value) -> Vec<&str> {
    let features = package["features"].as_object().into_iter().flatten();
    features
        .map(|(name, _)| name.as_str())
        .filter(|name| !CHOICES.contains(name) && !["default", "ring-certificates"].contains(name))
        .collect()
}

/// Checks that ring is the default.
fn defaults(package: &Value, wrong: &mut Vec<String>) {
    let name = package["name"].as_str().unwrap_or_default();
    let default = package["features"]["default"].as_array().into_iter().flatten();
    if !default.into_iter().any(|feature| feature == CHOICES[0]) {
        wrong.push(format!(
            "{name} has not {} among its default features",
            CHOICES[0]
        ));
    }
}

fn compare(name: &str, choice: Option<&str>, tree: &BTreeSet<String>, wrong: &mut Vec<String>) {
    for crypto in CHOICES {
        let has = tree.contains(crypto);
        if has != (choice == Some(crypto)) {
            let has = if has { "has" } else { "has not" };
            let with = choice.unwrap_or("neither");
            wrong.push(format!("{name} with {with} {has} {crypto} in its tree"));
        }
    }
}

/// The names of all crates in a program that depends on this crate with these features.
fn tree(name: &str, features: &[&str]) -> Result<BTreeSet<String>> {
    let mut command = workspace::cargo();
    command
        .args(["tree", "--locked", "--package", name, "--no-default-features"])
        .args(["--edges", "normal,build", "--target", "all", "--prefix", "none"])
        .args(["--features", &features.join(",")])
        // Feature unification with other members would hide a missing feature.
        .env_remove("CARGO_RESOLVER_FEATURE_UNIFICATION");
    let output = command.output().context("running `cargo tree`")?;
    if !output.status.success() {
        bail!(
            "`{}` failed:\n{}",
            workspace::show(&command),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.split(' ').next());
    Ok(names.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{compare, others};

    #[test]
    fn a_crate_has_the_cryptography_that_was_chosen_and_no_other() {
        let found = |choice, tree: &[&str]| {
            let mut wrong = Vec::new();
            let tree = tree.iter().map(|name| (*name).to_owned()).collect();
            compare("x", choice, &tree, &mut wrong);
            wrong
        };
        assert!(found(None, &["rustls"]).is_empty());
        assert!(found(Some("ring"), &["ring"]).is_empty());
        assert_eq!(found(None, &["ring"]), ["x with neither has ring in its tree"]);
        assert_eq!(
            found(Some("aws-lc-rs"), &["ring"]),
            [
                "x with aws-lc-rs has ring in its tree",
                "x with aws-lc-rs has not aws-lc-rs in its tree"
            ]
        );
    }

    #[test]
    fn what_else_a_crate_can_do_is_on_in_every_tree() {
        let package = json!({"features": {"default": [], "ring": [], "aws-lc-rs": [], "server": [], "ring-certificates": []}});
        assert_eq!(others(&package), ["server"]);
    }
}
