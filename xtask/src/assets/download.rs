//! Downloads the archive that envtest publishes. This is faster than a build.

use std::path::Path;
use std::process::Command;

use sha2::{Digest, Sha512};

use super::recipe;

/// Why there is no download.
pub(super) enum Failed {
    /// There is no published archive for this platform, or it can't be reached. Then the binaries are built.
    Unreachable(String),
    /// The downloaded file must not be executed.
    Untrusted(String),
}

/// Downloads, checks and unpacks the archive into `dir`.
pub(super) fn fetch(dir: &Path) -> Result<(), Failed> {
    let platform = recipe::platform();
    let Some((_, sum)) = recipe::ENVTEST_SUMS.iter().find(|(name, _)| *name == platform) else {
        return Err(Failed::Unreachable(format!("no pinned archive for {platform}")));
    };
    let version = recipe::ENVTEST;
    let url = format!(
        "{}/envtest-v{version}/envtest-v{version}-{platform}.tar.gz",
        recipe::ENVTEST_URL
    );
    let scratch = dir.join(".download");
    let result = fetch_into(&url, sum, &scratch, dir);
    // Best effort, because the next attempt overwrites what is left.
    let _ = std::fs::remove_dir_all(&scratch);
    result
}

fn fetch_into(url: &str, sum: &str, scratch: &Path, dir: &Path) -> Result<(), Failed> {
    let unreachable = |error: std::io::Error| Failed::Unreachable(error.to_string());
    std::fs::create_dir_all(scratch).map_err(unreachable)?;
    let archive = scratch.join("envtest.tar.gz");
    eprintln!("assets: downloading {url}");
    // If a host does not answer, that must cost only seconds. A slow download that progresses may take long.
    let curl = Command::new("curl")
        .args([
            "--fail",
            "--silent",
            "--show-error",
            "--location",
            "--proto",
            "=https",
        ])
        .args([
            "--connect-timeout",
            "5",
            "--speed-limit",
            "10000",
            "--speed-time",
            "20",
            "--output",
        ])
        .arg(&archive)
        .arg(url)
        .output()
        .map_err(|error| Failed::Unreachable(not_run("curl", &error)))?;
    if !curl.status.success() {
        let stderr = String::from_utf8_lossy(&curl.stderr);
        let line = stderr
            .lines()
            .next()
            .unwrap_or("curl has failed without a message");
        return Err(Failed::Unreachable(line.trim_start_matches("curl: ").to_owned()));
    }

    let bytes = std::fs::read(&archive).map_err(unreachable)?;
    let found = recipe::hex(&Sha512::digest(&bytes));
    if found != sum {
        return Err(Failed::Untrusted(format!(
            "{url} has SHA-512 {found}, pinned is {sum}: refusing to run it. If the pinned sum is out of date, \
             correct xtask/src/assets/recipe.rs; `cargo xtask assets --build` builds from source instead",
        )));
    }

    let tar = Command::new("tar")
        .args(["--extract", "--gzip", "--strip-components=2", "--file"])
        .arg(&archive)
        .arg("--directory")
        .arg(scratch)
        .status()
        .map_err(|error| Failed::Unreachable(not_run("tar", &error)))?;
    if !tar.success() {
        return Err(Failed::Unreachable(
            "the archive could not be unpacked".to_owned(),
        ));
    }
    for name in recipe::ALL {
        let unpacked = scratch.join(name);
        if unpacked.is_file() {
            std::fs::rename(&unpacked, dir.join(name)).map_err(unreachable)?;
        }
    }
    Ok(())
}

/// Why a program did not run, with what to install.
fn not_run(program: &str, error: &std::io::Error) -> String {
    if error.kind() == std::io::ErrorKind::NotFound {
        format!("{program} is not installed")
    } else {
        format!("{program} can not be run: {error}")
    }
}
