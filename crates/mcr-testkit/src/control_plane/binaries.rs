use std::path::{Path, PathBuf};

use super::ControlPlaneError;

/// The folder with the binaries of etcd and the API server.
#[derive(Clone, Debug)]
pub struct Binaries {
    folder: PathBuf,
}

const REQUIRED: [&str; 2] = ["etcd", "kube-apiserver"];

impl Binaries {
    /// Finds the binaries in the folder that `KUBEBUILDER_ASSETS` names, as other controller projects do. If the
    /// variable is not set, searches the cache that `cargo xtask assets` fills (`MCR_ASSETS_DIR`, or `mcr/assets` in
    /// the user's cache).
    ///
    /// # Errors
    ///
    /// [`ControlPlaneError::AssetsIncomplete`] or [`ControlPlaneError::AssetsMissing`]. Both texts explain what to do.
    /// If `KUBEBUILDER_ASSETS` is set to a wrong folder, the cache is not searched.
    pub fn find() -> Result<Self, ControlPlaneError> {
        if let Some(folder) = path_from_env("KUBEBUILDER_ASSETS") {
            return match missing(&folder) {
                None => Ok(Self { folder }),
                Some(missing) => Err(ControlPlaneError::AssetsIncomplete { folder, missing }),
            };
        }
        let nowhere = |reason: String| ControlPlaneError::AssetsMissing { reason };
        let cache = path_from_env("MCR_ASSETS_DIR")
            .or_else(|| path_from_env("XDG_CACHE_HOME").map(|cache| cache.join("mcr/assets")))
            .or_else(|| path_from_env("HOME").map(|home| home.join(".cache/mcr/assets")))
            .ok_or_else(|| nowhere("KUBEBUILDER_ASSETS is not set and there is no home folder".to_owned()))?;
        let name = std::fs::read_to_string(cache.join("current")).map_err(|_| {
            nowhere(format!(
                "KUBEBUILDER_ASSETS is not set and {} is empty",
                cache.display()
            ))
        })?;
        let folder = cache.join(name.trim());
        match missing(&folder) {
            None => Ok(Self { folder }),
            Some(missing) => Err(nowhere(format!("{missing} is not in {}", folder.display()))),
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn etcd(&self) -> PathBuf {
        self.folder.join("etcd")
    }

    pub(super) fn api_server(&self) -> PathBuf {
        self.folder.join("kube-apiserver")
    }

    pub(super) fn controller_manager(&self) -> Result<PathBuf, ControlPlaneError> {
        let path = self.folder.join("kube-controller-manager");
        if path.is_file() {
            Ok(path)
        } else {
            Err(ControlPlaneError::ControllerManagerMissing {
                folder: self.folder.clone(),
            })
        }
    }
}

fn path_from_env(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

fn missing(folder: &Path) -> Option<String> {
    let missing: Vec<&str> = REQUIRED
        .into_iter()
        .filter(|name| !folder.join(name).is_file())
        .collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}
