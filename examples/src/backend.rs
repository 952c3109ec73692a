//! What a program that starts API servers itself starts: real ones, or simulated ones.

use clap::ValueEnum;
use mcr_testkit::control_plane::{Binaries, ControlPlaneError};
use serde::Serialize;

/// The value of `--backend`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Choice {
    /// Real ones where there are binaries to run, else simulated ones
    #[default]
    Auto,
    /// An etcd and kube-apiservers
    Real,
    /// API servers simulated in this process
    Sim,
}

/// What the clusters are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// An etcd and kube-apiservers.
    Real,
    /// API servers simulated in this process.
    Sim,
}

impl Choice {
    /// Decides by the binaries on this machine. `cargo xtask` has decided already, and got the binaries.
    ///
    /// # Errors
    /// If real servers are wanted and there are no binaries, or `KUBEBUILDER_ASSETS` names a folder without them.
    pub fn decide(self) -> anyhow::Result<Backend> {
        if self == Self::Sim {
            return Ok(Backend::Sim);
        }
        match Binaries::find() {
            Ok(_) => Ok(Backend::Real),
            // A folder that was named and is wrong is something to correct, not to go around.
            Err(ControlPlaneError::AssetsMissing { .. }) if self == Self::Auto => {
                eprintln!(
                    "no kube-apiserver binaries here: running on the simulator; `cargo xtask assets` gets real ones"
                );
                Ok(Backend::Sim)
            }
            Err(error) => Err(error.into()),
        }
    }
}
