//! Runs cargo-deny. Bans, licences and sources are always checked, advisories only if their database can be reached.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::stage::Done;
use crate::tool::{self, Tool};
use crate::workspace;

const DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    features: &[],
    takes: "3 minutes",
};

/// Runs the checks that only need the lock file and the crates.
pub(super) fn offline() -> Result<()> {
    // The graphs of crates that need a duplicate would hide the findings. `cargo tree -i` prints such a graph.
    workspace::check(deny()?.args(["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]))
}

/// Checks the crates against the advisory database, which is a Git repository on the network.
pub(super) fn advisories() -> Result<Done> {
    let mut command = deny()?;
    let output = command
        .args(["check", "advisories"])
        .output()
        .context("running cargo-deny")?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        if let Some(why) = unreachable(&text) {
            return Ok(Done::Skipped(format!("the database can't be reached: {why}")));
        }
        eprint!("{text}");
        bail!("advisories against crates of the lock file, see above");
    }
    eprint!("{text}");
    Ok(Done::Passed)
}

/// The line with the reason why cargo-deny could not fetch the database. Any other failure is a finding.
fn unreachable(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| {
        line.contains("failed to fetch advisory database")
            || line.contains("failed to load advisory database")
    })?;
    // Git's own message is the shortest line.
    Some(
        text.lines()
            .find_map(|line| line.strip_prefix("fatal: "))
            .unwrap_or(line)
            .trim(),
    )
}

fn deny() -> Result<Command> {
    let mut command = Command::new(tool::installed(&DENY)?);
    command.current_dir(workspace::root());
    Ok(command)
}
