//! `cargo xtask assets`: a real etcd, kube-apiserver, kube-controller-manager and kubectl.
//!
//! Sources of the binaries, in this order: the folder that `KUBEBUILDER_ASSETS` names, the cache of this machine, the
//! archive that envtest publishes, a build from source through the Go module proxy.

mod build;
mod cache;
mod capi;
mod download;
mod recipe;

pub(crate) use build::{build_one, go_is_installed};
use cache::missing;
pub(crate) use cache::{lock, user_cache};
pub(crate) use capi::Capi;
pub(crate) use recipe::{GO_VERSION, KUBERNETES, hex, linker_flags};

use std::path::PathBuf;

use anyhow::{Result, bail};

/// Arguments of `cargo xtask assets`.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Build from source even where envtest's archive could be downloaded
    #[arg(long)]
    pub(crate) build: bool,
    /// Also build Cluster API's managers, and print their folder
    #[arg(long)]
    capi: bool,
}

/// Prints the folder of the binaries as the last line of stdout. Progress goes to stderr.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut dir = ensure(args)?;
    if args.capi {
        match capi::ensure_capi(&dir)? {
            Capi::Ready(capi) => dir = capi,
            Capi::Missing(why) => bail!(why),
        }
    }
    println!("{}", dir.display());
    Ok(())
}

/// Returns the folder with the binaries, and what is available of Cluster API. Fills the cache first if necessary.
pub(crate) fn ensure_capi() -> Result<(PathBuf, Capi)> {
    let dir = ensure(&Args::default())?;
    let capi = capi::ensure_capi(&dir)?;
    Ok((dir, capi))
}

/// Returns the folder with the binaries. Fills the cache first if necessary.
pub(crate) fn ensure(args: &Args) -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) {
        // The user's choice has priority. If it is wrong, that must be an error, not a silent start of a long build.
        let missing = missing(&dir, recipe::REQUIRED);
        if !missing.is_empty() {
            bail!(
                "KUBEBUILDER_ASSETS is {} but {} is not there: correct it, or unset it to use the cache",
                dir.display(),
                missing.join(", "),
            );
        }
        return Ok(dir);
    }

    let root = cache::root()?;
    let dir = root.join(recipe::folder_name());
    std::fs::create_dir_all(&dir)?;
    let _lock = cache::lock(&root)?;

    let go = go_is_installed();
    if !missing(&dir, recipe::REQUIRED).is_empty() && !args.build {
        match download::fetch(&dir) {
            Ok(()) => {}
            Err(download::Failed::Unreachable(why)) => eprintln!("assets: {}", not_downloaded(&why, go)),
            Err(download::Failed::Untrusted(why)) => bail!(why),
        }
    }

    // The archive does not contain kube-controller-manager, so this step also completes a download.
    let wanted = missing(&dir, recipe::ALL);
    if !wanted.is_empty() {
        let required = missing(&dir, recipe::REQUIRED);
        if go {
            build::build(&dir, &wanted)?;
        } else if !required.is_empty() {
            bail!(
                "{} not there: install Go {} or newer (https://go.dev/doc/install) to build them and run \
                 `cargo xtask assets` again, or set KUBEBUILDER_ASSETS to a folder that has {}",
                with_verb(&required),
                recipe::GO_VERSION,
                recipe::REQUIRED.join(", "),
            );
        } else {
            eprintln!(
                "assets: without {}: envtest does not publish it and Go is not installed to build it; \
                 tests that need it will say so",
                wanted.join(", "),
            );
        }
    }

    cache::set_current(&root, &dir)?;
    Ok(dir)
}

/// Why there is no download, and what is done instead.
fn not_downloaded(why: &str, go: bool) -> String {
    let instead = if go {
        "building from source"
    } else {
        "Go, which could build from source, is not installed either"
    };
    format!("envtest's archive can not be downloaded: {why}; {instead}")
}

/// The names, with `is` or `are`.
fn with_verb(names: &[&str]) -> String {
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{not_downloaded, with_verb};

    #[test]
    fn a_build_is_announced_only_where_there_is_go() {
        let with_go = not_downloaded("no route", true);
        assert!(with_go.ends_with("no route; building from source"), "{with_go}");
        let without = not_downloaded("no route", false);
        assert!(!without.contains("building"), "{without}");
        assert!(
            without.contains("Go") && without.contains("not installed"),
            "{without}"
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(with_verb(&["etcd"]), "etcd is");
        assert_eq!(with_verb(&["etcd", "kube-apiserver"]), "etcd, kube-apiserver are");
    }
}
