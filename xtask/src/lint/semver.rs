//! Runs cargo-semver-checks: finds breaking changes since the last release that the new version number does not
//! announce.

use std::process::Command;

use anyhow::{Context, Result, bail};

use super::crates;
use crate::stage::Done;
use crate::tool::{self, Tool};
use crate::workspace;

/// Each version supports the rustdoc JSON of only a few compilers.
const SEMVER_CHECKS: Tool = Tool {
    name: "cargo-semver-checks",
    version: "0.51.0",
    features: &[],
    takes: "5 minutes",
};

/// Compares the API with the tag of the last release, which needs no registry.
pub(super) fn check() -> Result<Done> {
    let Some(released) = last_release()? else {
        return Ok(Done::Skipped(
            "nothing is released yet: there is no tag v<version> to compare with".into(),
        ));
    };
    let mut command = Command::new(tool::installed(&SEMVER_CHECKS)?);
    command.current_dir(workspace::root()).args([
        "semver-checks",
        "--all-features",
        "--baseline-rev",
        &released,
    ]);
    for name in crates::published()? {
        // A crate that did not exist in the release has no API to compare with.
        if existed(&released, &name)? {
            command.args(["--package", &name]);
        }
    }
    workspace::check(&mut command)?;
    Ok(Done::Passed)
}

/// The newest tag `v<version>` that is an ancestor of this commit.
fn last_release() -> Result<Option<String>> {
    let output = git(&[
        "tag",
        "--list",
        "v*",
        "--merged",
        "HEAD",
        "--sort",
        "-version:refname",
    ])?;
    Ok(newest(&output))
}

fn newest(tags: &str) -> Option<String> {
    tags.lines()
        .find(|tag| tag.strip_prefix('v').is_some_and(is_version))
        .map(str::to_owned)
}

/// Whether this is the version of a release, and not of a release candidate.
fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    let number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.len() == 3 && parts.iter().all(number)
}

/// Whether the crate existed in the tagged commit.
fn existed(tag: &str, name: &str) -> Result<bool> {
    let files = git(&[
        "ls-tree",
        "--name-only",
        tag,
        &format!("crates/{name}/Cargo.toml"),
    ])?;
    Ok(!files.trim().is_empty())
}

fn git(args: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .current_dir(workspace::root())
        .args(args)
        .output()
        .context("starting git")?;
    if !output.status.success() {
        bail!(
            "`git {}` failed: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::newest;

    #[test]
    fn the_newest_release_is_no_candidate_and_no_other_tag() {
        let tags = "v0.3.0-rc.1\nvendored\nv0.2.1\nv0.2.0\n";
        assert_eq!(newest(tags).as_deref(), Some("v0.2.1"));
        assert_eq!(newest("v1\nv1.2\nvx.y.z\nv1..2\n"), None);
        assert_eq!(newest(""), None);
    }
}
