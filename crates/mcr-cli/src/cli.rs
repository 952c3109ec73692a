//! The command line.

use std::path::PathBuf;

use clap_complete::Shell;

use crate::{clusters::ClustersArgs, doctor::DoctorArgs, secret::CreateArgs};

/// Hands clusters to mcr, shows them, and finds out why one is not there
#[derive(Debug, clap::Parser)]
#[command(
    name = "mcr",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Exit codes:\n  0  done, and the news are good\n  1  the news are bad: mcr doctor found a problem, or clusters are not \
                  ready with --fail-unless-ready\n  2  the command line is wrong\n  3  it could not be carried out\n\nRUST_LOG says what is \
                  logged on stderr, for example RUST_LOG=mcr_core=debug."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) what: Do,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Do {
    /// Hands a cluster to a controller, as a Secret that holds a kubeconfig
    #[command(subcommand)]
    KubeconfigSecret(KubeconfigSecret),
    /// Shows the clusters of providers, or of a controller that runs
    Clusters(ClustersArgs),
    /// Finds out why a cluster is not there or does not work, and says what to do
    Doctor(DoctorArgs),
    /// Prints a script that completes the command line in a shell
    Completions(CompletionsArgs),
    /// Prints the manual page
    Man(ManArgs),
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum KubeconfigSecret {
    /// Makes a ServiceAccount with few rights in a cluster, and a Secret with its kubeconfig in the hub
    #[command(after_long_help = crate::secret::AFTER_HELP)]
    Create(CreateArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Write it and those of all subcommands into this folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: Option<PathBuf>,
}
