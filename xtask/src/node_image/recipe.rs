//! The contents and the name of the image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::assets::{KUBERNETES, hex, linker_flags};

/// The version of kind for which this image is made. Other versions may require something else of a node image.
pub(super) const KIND: &str = "v0.33.0";

/// The commands from `cargo xtask assets` that are copied into /usr/bin.
const COMMANDS: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"];

const ENTRYPOINT: &str = include_str!("entrypoint.sh");
const KUBEADM: &str = include_str!("kubeadm.sh");
const PLACEHOLDER: &str = include_str!("placeholder.yaml");

/// The parts of an image.
pub(super) struct Parts {
    /// The programs, with their paths in the image.
    pub(super) programs: Vec<(PathBuf, String)>,
    /// The commands that busybox provides.
    pub(super) applets: Vec<String>,
}

impl Parts {
    /// Finds all parts. The error names what is missing and how to install it.
    pub(super) fn find(assets: &Path, kubeadm: &Path) -> Result<Self> {
        let mut programs = vec![(kubeadm.to_path_buf(), "kind/bin/kubeadm".to_owned())];
        for command in COMMANDS {
            let path = assets.join(command);
            if !path.is_file() {
                bail!(
                    "{command} is not in {}: `cargo xtask assets` builds it where Go is installed",
                    assets.display()
                );
            }
            programs.push((path, format!("usr/bin/{command}")));
        }
        let busybox = busybox()?;
        let output = Command::new(&busybox)
            .arg("--list")
            .output()
            .with_context(|| format!("starting {}", busybox.display()))?;
        let list = String::from_utf8(output.stdout).context("busybox lists its commands")?;
        let applets: Vec<String> = list.lines().map(str::to_owned).collect();
        for wanted in [
            "sh", "cat", "cp", "date", "mkdir", "sed", "hostname", "killall", "ps", "tail",
        ] {
            if !applets.iter().any(|applet| applet == wanted) {
                bail!(
                    "{} has no {wanted}: install a busybox with all its commands",
                    busybox.display()
                );
            }
        }
        programs.push((busybox, "bin/busybox".to_owned()));
        Ok(Self { programs, applets })
    }

    /// The name of the image. It changes with everything that the image contains.
    pub(super) fn image(&self) -> Result<String> {
        let mut hash = Sha256::new();
        let mut add = |part: &str| {
            hash.update(part.as_bytes());
            hash.update([0]);
        };
        for text in [ENTRYPOINT, KUBEADM, PLACEHOLDER, include_str!("recipe.rs")] {
            add(text);
        }
        for (path, _) in &self.programs {
            // Uses the metadata, because reading 360 MB each time would take longer than everything else.
            let metadata = fs::metadata(path).with_context(|| format!("looking at {}", path.display()))?;
            let modified = metadata
                .modified()?
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            add(&format!(
                "{} {} {}",
                path.display(),
                metadata.len(),
                modified.as_nanos()
            ));
        }
        Ok(format!("mcr-node:{KUBERNETES}-{}", &hex(&hash.finalize())[..10]))
    }

    /// The text files in the image, with their paths, and whether they are executable.
    pub(super) fn texts() -> Vec<(&'static str, bool, String)> {
        vec![
            ("kind/entrypoint", true, ENTRYPOINT.to_owned()),
            ("usr/bin/kubeadm", true, KUBEADM.to_owned()),
            ("kind/version", false, format!("v{KUBERNETES}\n")),
            (
                "kind/manifests/default-cni.yaml",
                false,
                PLACEHOLDER.replace("NAME", "no-cni"),
            ),
            (
                "kind/manifests/default-storage.yaml",
                false,
                PLACEHOLDER.replace("NAME", "no-storage"),
            ),
        ]
    }

    /// The folders that exist in the image. The engine mounts more.
    pub(super) const FOLDERS: [&'static str; 16] = [
        "bin/",
        "usr/",
        "usr/bin/",
        "kind/",
        "kind/bin/",
        "kind/manifests/",
        "etc/",
        "etc/kubernetes/",
        "var/",
        "var/log/",
        "run/",
        "tmp/",
        "proc/",
        "sys/",
        "dev/",
        "lib/",
    ];

    /// The settings of the image for the engine.
    pub(super) const CHANGES: [&'static str; 2] =
        [r#"ENTRYPOINT ["/kind/entrypoint"]"#, "ENV PATH=/usr/bin:/bin"];
}

/// The name of kubeadm's folder in the cache.
pub(super) fn kubeadm_folder() -> String {
    let mut hash = Sha256::new();
    for part in [
        include_str!("../../assets/node-image/go.mod"),
        include_str!("../../assets/node-image/go.sum"),
        &linker_flags(),
    ] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    format!("kubeadm-{KUBERNETES}-{}", &hex(&hash.finalize())[..10])
}

/// A busybox that is statically linked, because the image contains no libraries.
fn busybox() -> Result<PathBuf> {
    let wanted = std::env::var_os("MCR_BUSYBOX").map(PathBuf::from);
    let places = match wanted {
        Some(path) => vec![path],
        None => ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from).to_vec(),
    };
    let Some(path) = places.iter().find(|path| path.is_file()) else {
        bail!(
            "no busybox at {}: install busybox-static (Debian: apt-get install busybox-static), or name one with MCR_BUSYBOX",
            places
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
                .join(" or "),
        );
    };
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    if is_dynamic(&bytes) {
        bail!(
            "{} needs libraries: install busybox-static (Debian: apt-get install busybox-static), or name a static one with \
             MCR_BUSYBOX",
            path.display()
        );
    }
    Ok(path.clone())
}

/// Whether an ELF program (64 bits, little endian) requests an interpreter, as programs with shared libraries do.
fn is_dynamic(elf: &[u8]) -> bool {
    const INTERPRETER: u64 = 3;
    let number = |at: usize, length: usize| -> Option<u64> {
        let bytes = elf.get(at..at.checked_add(length)?)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        )
    };
    let headers = || {
        let (start, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        Some((0..count).map(move |nth| start + nth * size))
    };
    let types = headers()
        .into_iter()
        .flatten()
        .filter_map(|at| number(usize::try_from(at).ok()?, 4));
    types.into_iter().any(|kind| kind == INTERPRETER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_need_libraries_are_distinguished_from_those_that_do_not() {
        let this = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(is_dynamic(&this), "tests are linked to libc");
        assert!(!is_dynamic(b"\x7fELF"));
        assert!(!is_dynamic(b""));
    }

    #[test]
    fn scripts_are_fit_for_busybox() {
        for text in [ENTRYPOINT, KUBEADM] {
            assert!(text.starts_with("#!/bin/sh\n"));
        }
        assert!(
            ENTRYPOINT.contains("Reached target Multi-User System."),
            "kind waits for these words"
        );
    }

    #[test]
    fn every_file_has_its_folder() {
        for (path, _, _) in Parts::texts() {
            let folder = format!("{}/", Path::new(path).parent().unwrap().display());
            assert!(Parts::FOLDERS.contains(&folder.as_str()), "{folder}");
        }
    }
}
