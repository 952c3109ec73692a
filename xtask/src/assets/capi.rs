//! Cluster API's core and KubeadmControlPlane managers with their CRDs, for `cargo xtask e2e --provider cluster-api`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use super::{build, cache, cache::missing, recipe};
use crate::workspace;

/// The release of Cluster API. Must be equal to the version in `xtask/assets/capi/go.mod`.
const VERSION: &str = "1.14.2";

/// The folder of the Go module that pins the release.
const MODULE: &str = "xtask/assets/capi";

/// The managers, and the Go packages that they are built from.
const MANAGERS: [(&str, &str); 2] = [
    ("capi-core", "sigs.k8s.io/cluster-api/core"),
    ("capi-kcp", "sigs.k8s.io/cluster-api/controlplane/kubeadm"),
];

/// The CRDs, and the kustomizations in the module that they come from. The kustomizations are needed because they add
/// labels by which the core manager finds the version of a contract. The KubeadmControlPlane manager does not start
/// without the CRDs of the bootstrap provider.
const CRDS: [(&str, &str); 3] = [
    ("core.yaml", "core/config/default"),
    ("bootstrap.yaml", "bootstrap/kubeadm/config/default"),
    ("control-plane.yaml", "controlplane/kubeadm/config/default"),
];

/// Whether Cluster API's managers can run on this machine.
pub(crate) enum Capi {
    /// The folder with the managers and their CRDs.
    Ready(PathBuf),
    /// Why they are missing.
    Missing(String),
}

/// Returns the folder with the managers and the CRDs. Fills the cache first if necessary. `assets` is the folder with
/// the other binaries.
pub(super) fn ensure_capi(assets: &Path) -> Result<Capi> {
    // The garbage collector deletes the Secrets of deleted clusters.
    if let [lacking, ..] = missing(assets, &["kube-controller-manager", "kubectl"])[..] {
        return Ok(Capi::Missing(format!(
            "{lacking} is not in {}: `cargo xtask assets` builds it where Go is installed",
            assets.display()
        )));
    }
    let root = cache::root()?;
    let dir = root.join(folder_name());
    std::fs::create_dir_all(&dir)?;
    let _lock = cache::lock(&root)?;

    let managers = missing(&dir, &MANAGERS.map(|(name, _)| name));
    let crds = missing(&dir, &CRDS.map(|(name, _)| name));
    if managers.is_empty() && crds.is_empty() {
        return Ok(Capi::Ready(dir));
    }
    if !build::go_is_installed() {
        return Ok(Capi::Missing(format!(
            "Cluster API's managers are not built yet, and Go is not installed: install Go {} or newer \
             (https://go.dev/doc/install) and run `cargo xtask assets --capi`",
            recipe::GO_VERSION,
        )));
    }
    if !managers.is_empty() {
        eprintln!(
            "assets: building {} of Cluster API {VERSION} into {} (once per machine, about 4 minutes on 2 cores)",
            managers.join(", "),
            dir.display(),
        );
    }
    for (name, package) in MANAGERS {
        if managers.contains(&name) {
            build::build_package(MODULE, &dir, name, package, &linker_flags())?;
        }
    }
    if !crds.is_empty() {
        let sources = sources()?;
        for (name, folder) in CRDS {
            write_crds(&assets.join("kubectl"), &sources.join(folder), &dir.join(name))?;
        }
    }
    Ok(Capi::Ready(dir))
}

fn linker_flags() -> String {
    format!("-s -w -X sigs.k8s.io/cluster-api/version.gitVersion=v{VERSION}")
}

/// The folder of Cluster API's module in the cache of Go.
fn sources() -> Result<PathBuf> {
    let output = Command::new("go")
        .current_dir(workspace::root().join(MODULE))
        .env("GOWORK", "off")
        .args(["mod", "download", "-json", "sigs.k8s.io/cluster-api"])
        .output()
        .context("starting `go mod download`")?;
    ensure!(
        output.status.success(),
        "`go mod download` failed:\n{}",
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    let module: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("reading what `go mod download` printed")?;
    let dir = module["Dir"]
        .as_str()
        .context("`go mod download` names no folder")?;
    Ok(dir.into())
}

/// Writes the CRDs of a kustomization to a file.
fn write_crds(kubectl: &Path, folder: &Path, file: &Path) -> Result<()> {
    let output = Command::new(kubectl)
        .arg("kustomize")
        .arg(folder)
        .output()
        .context("starting `kubectl kustomize`")?;
    if !output.status.success() {
        bail!(
            "`kubectl kustomize {}` failed:\n{}",
            folder.display(),
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    let text = only_crds(&String::from_utf8(output.stdout).context("kustomize writes UTF-8")?);
    ensure!(!text.is_empty(), "{} has no CRD", folder.display());
    // Only a complete file gets this name.
    let partial = file.with_extension("partial");
    std::fs::write(&partial, text).with_context(|| format!("writing {}", partial.display()))?;
    std::fs::rename(&partial, file).with_context(|| format!("writing {}", file.display()))
}

/// The CRDs in a stream of YAML documents.
fn only_crds(stream: &str) -> String {
    let is_crd = |document: &&str| {
        document
            .lines()
            .any(|line| line == "kind: CustomResourceDefinition")
    };
    stream
        .split("\n---\n")
        .filter(is_crd)
        .map(str::trim_end)
        .collect::<Vec<_>>()
        .join("\n---\n")
}

/// The name of the cache folder. It changes with everything that affects the contents.
fn folder_name() -> String {
    let mut hash = Sha256::new();
    for part in [
        include_str!("../../assets/capi/go.mod"),
        include_str!("../../assets/capi/go.sum"),
        &linker_flags(),
        &format!("{MANAGERS:?} {CRDS:?}"),
    ] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    format!(
        "capi-{VERSION}-{}-{}",
        recipe::platform(),
        &recipe::hex(&hash.finalize())[..10]
    )
}

#[cfg(test)]
mod tests {
    use super::only_crds;

    #[test]
    fn only_crds_are_kept() {
        let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: a";
        let other = "kind: Deployment\nspec:\n  text: |\n    kind: CustomResourceDefinition";
        assert_eq!(only_crds(&format!("{other}\n---\n{crd}\n")), crd);
        assert_eq!(
            only_crds(&format!("{crd}\n---\n{other}\n---\n{crd}")),
            format!("{crd}\n---\n{crd}")
        );
        assert_eq!(only_crds(other), "");
    }
}
