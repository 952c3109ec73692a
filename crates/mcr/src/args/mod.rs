//! The command line flags that most programs over a fleet have: kubeconfigs, hub, HTTP address and log.
//!
//! | flags | from |
//! | --- | --- |
//! | `--kubeconfigs`, `--kubeconfig-dirs`, `--globs` | [`KubeconfigArgs`] |
//! | `--hub-kubeconfig`, `--hub-context` | [`HubArgs`] |
//! | `--serve`, `--leader-election` | [`ManagerArgs`] |
//! | `--log-format` | [`LogArgs`] |
//! | `--allow-duplicates` | [`Args`] only, for [`Args::fleet`] |
//!
//! [`Args`] has all of them. The command `mcr` has the same flags for clusters and hub, with the same meaning.
//!
//! A program without flags of its own:
//!
//! ```no_run
//! use mcr::{BoxError, BuildError, BuiltController, Fleet, args::Args};
//! use mcr_provider_file::FileProvider;
//! # fn controller(fleet: &Fleet) -> Result<BuiltController, BuildError> { unimplemented!() }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), BoxError> {
//!     let args = Args::parse();
//!     args.init_log();
//!     let from = &args.clusters;
//!     let members =
//!         FileProvider::builder().files(&from.kubeconfigs).dirs(&from.kubeconfig_dirs).globs(&from.globs).build()?;
//!     let fleet = args.fleet(members)?.build();
//!     args.manager().fleet(fleet.clone()).controller(controller(&fleet)).build()?.run().await?;
//!     Ok(())
//! }
//! ```
//!
//! A program with flags of its own flattens [`Args`], or only the parts that it needs:
//!
//! ```
//! use clap::Parser;
//! use mcr::args::{Args, LogFormat};
//!
//! /// Copies Secrets from the hub to its members.
//! #[derive(Parser)]
//! struct Program {
//!     /// Seconds between two reports
//!     #[arg(long, default_value_t = 30)]
//!     every: u64,
//!     #[command(flatten)]
//!     mcr: Args,
//! }
//!
//! let program = Program::parse_from(["program", "--kubeconfigs", "eu.yaml,us.yaml", "--log-format", "json"]);
//! assert_eq!(program.mcr.clusters.kubeconfigs.len(), 2);
//! assert_eq!(program.mcr.log.log_format, LogFormat::Json);
//! ```

mod error;
mod hub;
mod kubeconfigs;
mod log;
mod manager;

use clap::{Args as _, Command, FromArgMatches};

use crate::{Fleet, FleetBuilder, ManagerBuilder, Provider};
pub use error::ArgsError;
pub use hub::{Hub, HubArgs};
pub use kubeconfigs::KubeconfigArgs;
pub use log::{LogArgs, LogFormat};
pub use manager::ManagerArgs;

/// All flags of this module. See [`args`](self).
///
/// A program that uses only some of them flattens the parts that it uses, so that its help has no flag without an effect.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(about = None, long_about = None)]
#[non_exhaustive]
pub struct Args {
    #[command(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would print the text as a description of the program"
    )]
    pub clusters: KubeconfigArgs,
    #[command(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would print the text as a description of the program"
    )]
    pub hub: HubArgs,
    #[command(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would print the text as a description of the program"
    )]
    pub manager: ManagerArgs,
    #[command(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would print the text as a description of the program"
    )]
    pub log: LogArgs,
    /// Engage clusters that are other names of one, such as several contexts of one API server, beside each other
    ///
    /// Without it, only the hub is engaged, or else the one that answered first. A controller that copies from one name to another
    /// takes its source for a copy, and in the end deletes it
    #[arg(long, help_heading = "Clusters")]
    pub allow_duplicates: bool,
}

impl Args {
    /// Reads the command line of this process, for a program without other flags.
    ///
    /// Prints the help or an error and ends the process, if the command line asks for help or is wrong.
    pub fn parse() -> Self {
        let matches = Self::augment_args(Command::new("")).get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// The hub. See [`HubArgs::hub`].
    ///
    /// # Errors
    /// As for [`HubArgs::hub`].
    pub fn hub(&self) -> Result<Hub, ArgsError> {
        self.hub.hub()
    }

    /// Starts to build a fleet of the hub and these members. The hub has the name [`HUB`](crate::HUB), and its context is left
    /// out of the members, see [`Hub::members_of`].
    ///
    /// # Errors
    /// As for [`HubArgs::hub`].
    pub fn fleet(&self, members: impl Provider) -> Result<FleetBuilder, ArgsError> {
        let hub = self.hub()?;
        let members = hub.members_of(members);
        let allow = self.allow_duplicates;
        let fleet = Fleet::builder().settings(|settings| settings.allow_duplicates = allow);
        Ok(fleet.provider(hub).provider(members))
    }

    /// Starts the log. See [`LogArgs::init_log`].
    pub fn init_log(&self) {
        self.log.init_log();
    }

    /// Starts to build a manager. See [`ManagerArgs::manager_in`].
    pub fn manager(&self) -> ManagerBuilder {
        self.manager.manager_in(&self.hub)
    }
}
