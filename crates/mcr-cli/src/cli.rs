//! The command line.

use std::path::PathBuf;

use clap_complete::Shell;

use crate::{clusters::ClustersArgs, doctor::DoctorArgs, secret::CreateArgs, why::WhyArgs};

const AFTER_HELP: &str = "\
Exit codes:
  0  success, no problems found
  1  problems found
  2  wrong command line
  3  the command failed

The environment variable RUST_LOG sets the log level on stderr, for example RUST_LOG=mcr_core=debug. NO_COLOR=1 switches colours off.";

/// Adds clusters to a fleet, shows them, and finds out why one is missing
#[derive(Debug, clap::Parser)]
#[command(
    name = "mcr",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = AFTER_HELP
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum CliCommand {
    /// Manage Secrets with kubeconfigs, by which controllers reach clusters
    #[command(subcommand)]
    KubeconfigSecret(KubeconfigSecret),
    /// Show the clusters of providers or of a running controller
    Clusters(ClustersArgs),
    /// Find out why a cluster is missing or does not work, and how to correct it
    Doctor(DoctorArgs),
    /// Explain why a running controller does not reconcile an object
    #[command(
        after_help = "Exit codes: 0 nothing wrong was found, 1 problems found, 2 wrong command line, 3 the command failed."
    )]
    Why(WhyArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum KubeconfigSecret {
    /// Create a ServiceAccount with few rights in a cluster, and a Secret with its kubeconfig in the hub
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
    /// Write the manual pages of the command and of all subcommands into this folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: Option<PathBuf>,
}
