//! Checks packages for problems that `cargo publish` would refuse, before a release.

use anyhow::{Context, Result, bail};

use super::crates;
use crate::stage::Done;
use crate::workspace;

/// The first version of Cargo that can package unpublished crates that depend on each other.
const CARGO: (u32, u32) = (1, 90);

/// Packages all published crates with one command.
///
/// Nothing is compiled, because other stages do that. The network is not used: versions come from the local copy of
/// the index.
pub(super) fn check() -> Result<Done> {
    if let Some(skipped) = skipped_for_age()? {
        return Ok(skipped);
    }
    let mut command = workspace::cargo();
    command.args(["package", "--no-verify", "--allow-dirty", "--offline", "--quiet"]);
    let ours = crates::published()?;
    for name in &ours {
        command.args(["--package", name]);
    }
    let output = command.output().context("running `cargo package`")?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        if let Some(why) = unknown_registry(&text, &ours) {
            return Ok(Done::Skipped(format!(
                "there is no local copy of the registry's index, run `cargo fetch`: {why}"
            )));
        }
        eprint!("{text}");
        bail!("a crate can't be packaged, see above");
    }
    eprint!("{text}");
    Ok(Done::Passed)
}

/// A reason to skip the stage if this version of Cargo is too old.
fn skipped_for_age() -> Result<Option<Done>> {
    let output = workspace::cargo()
        .arg("--version")
        .output()
        .context("running `cargo --version`")?;
    let version = String::from_utf8_lossy(&output.stdout);
    if let Some(older) = too_old(&version) {
        return Ok(Some(Done::Skipped(format!(
            "packaging needs Cargo {}.{} or newer, and this is {older}",
            CARGO.0, CARGO.1
        ))));
    }
    Ok(None)
}

/// Asks the registry whether it would accept the crates, in the order in which a release publishes them.
///
/// The packages are not built, because other stages build the same sources. A release builds them.
pub(super) fn publish_dry_run() -> Result<Done> {
    if let Some(skipped) = skipped_for_age()? {
        return Ok(skipped);
    }
    let mut command = workspace::cargo();
    command.args([
        "publish",
        "--workspace",
        "--dry-run",
        "--no-verify",
        "--allow-dirty",
        "--quiet",
    ]);
    let output = command.output().context("running `cargo publish --dry-run`")?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        if let Some(why) = unreachable_registry(&text) {
            return Ok(Done::Skipped(format!("the registry can't be reached: {why}")));
        }
        eprint!("{text}");
        bail!("the crates can't be published as they are, see above");
    }
    Ok(Done::Passed)
}

/// The line that shows that Cargo could not reach the registry. Any other failure is a finding.
fn unreachable_registry(text: &str) -> Option<&str> {
    const MESSAGES: [&str; 7] = [
        "--offline was specified",
        "net.offline",
        "Could not resolve host",
        "Couldn't connect to server",
        "Connection refused",
        "Timeout was reached",
        "spurious network error",
    ];
    text.lines()
        .find(|line| MESSAGES.iter().any(|message| line.contains(message)))
        .map(str::trim)
}

/// Returns the version if it is too old. A version that can't be parsed counts as new enough.
fn too_old(text: &str) -> Option<&str> {
    let version = text.split_whitespace().nth(1)?;
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let known = (parts.next()?, parts.next()?);
    (known < CARGO).then_some(version)
}

/// The line that shows that Cargo needs the network. Any other failure is a finding, and so is a search for a crate of
/// this workspace in the registry.
fn unknown_registry<'a>(text: &'a str, ours: &[String]) -> Option<&'a str> {
    let fetched = text
        .lines()
        .find(|line| line.contains("but --offline was specified"));
    let missing = || {
        text.lines().find(|line| {
            let name = line
                .split_once("no matching package named `")
                .and_then(|(_, rest)| rest.split_once('`'));
            name.is_some_and(|(name, _)| ours.iter().all(|our| our != name))
        })
    };
    fetched.or_else(missing).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::{too_old, unknown_registry, unreachable_registry};

    #[test]
    fn only_known_older_versions_are_too_old() {
        assert_eq!(too_old("cargo 1.89.0 (c24e10642 2025-06-23)"), Some("1.89.0"));
        assert_eq!(too_old("cargo 1.90.0 (840b83a10 2025-07-30)"), None);
        assert_eq!(too_old("cargo 1.100.0-nightly (0 2026-12-01)"), None);
        assert_eq!(too_old("cargo 2.0.0"), None);
        assert_eq!(too_old("something else"), None);
    }

    #[test]
    fn only_a_registry_that_is_not_reached_is_a_reason_not_to_ask_it() {
        let text = "error: download of config.json failed\n\nCaused by:\n  [6] Could not resolve hostname (Could not resolve host: index.example)\n";
        assert!(unreachable_registry(text).is_some());
        assert_eq!(
            unreachable_registry("error: crate mcr-core@0.1.0 already exists on crates.io index\n"),
            None
        );
    }

    #[test]
    fn what_is_wrong_with_a_crate_is_no_reason_to_skip() {
        let ours = ["mcr-core".to_owned()];
        let skipped = |text| unknown_registry(text, &ours).is_some();
        assert!(skipped(
            "error: attempting to make an HTTP request, but --offline was specified\n"
        ));
        assert!(skipped("error: no matching package named `bytes` found\n"));
        // A dev-dependency with a version on a crate that is not published before.
        assert!(!skipped(
            "Caused by:\n  no matching package named `mcr-core` found\n"
        ));
        assert!(!skipped(
            "all dependencies must have a version requirement specified when packaging."
        ));
    }
}
