//! The command line flags that most programs over a fleet have: kubeconfigs, hub, HTTP address and log.
//!
//! | flags | from |
//! | --- | --- |
//! | `--kubeconfigs`, `--kubeconfig-dirs`, `--globs` | [`KubeconfigArgs`] |
//! | `--hub-kubeconfig`, `--hub-context` | [`HubArgs`] |
//! | `--serve` and `--serve-…`, `--leader-election` | [`ManagerArgs`] |
//! | `--log-format` | [`LogArgs`] |
//! | `--allow-duplicates`, `--proxy-from-env` | [`Args`] only, for [`Args::fleet`] |
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
//!     let from = args.clusters();
//!     let members =
//!         FileProvider::builder().files(&from.kubeconfigs).dirs(&from.kubeconfig_dirs).globs(&from.globs).build()?;
//!     let fleet = args.fleet(members)?.build();
//!     args.manager().fleet(fleet.clone()).controller(controller(&fleet)).build()?.run().await?;
//!     Ok(())
//! }
//! ```
//!
//! A provider that reads in the hub takes a client of it: `args.hub()?.client().await?`. Such a program flattens [`HubArgs`], [`ManagerArgs`] and
//! [`LogArgs`] in place of [`Args`], because it has no use for kubeconfig files.
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
//! assert_eq!(program.mcr.clusters().kubeconfigs.len(), 2);
//! assert_eq!(program.mcr.log.log_format, LogFormat::Json);
//! ```

mod error;
mod hub;
mod kubeconfigs;
mod log;
mod manager;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use clap::{Args as _, Command, FromArgMatches};

use crate::manager::ManagerBuilder;
pub use error::ArgsError;
pub use hub::{Hub, HubArgs};
pub use kubeconfigs::KubeconfigArgs;
pub use log::{LogArgs, LogFormat};
pub use manager::ManagerArgs;
use mcr_core::{Fleet, FleetBuilder, Provider, ProxyEnvironment};

/// All flags of this module. See [`args`](self).
///
/// A program that uses only some of them flattens the parts that it uses, so that its help has no flag without an effect. A flag that is given
/// and that the program never reads ends the manager of [`manager`](Self::manager) with an error.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(about = None, long_about = None)]
#[non_exhaustive]
pub struct Args {
    #[command(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would print the text as a description of the program"
    )]
    clusters: KubeconfigArgs,
    #[command(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would print the text as a description of the program"
    )]
    hub: HubArgs,
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
    /// Connect to clusters through the proxies of the environment: HTTPS_PROXY and HTTP_PROXY, with the exceptions of NO_PROXY
    ///
    /// The proxy-url of a cluster comes first. Without this flag, clusters and a hub without one are connected to directly
    #[arg(long, help_heading = "Clusters")]
    pub proxy_from_env: bool,
    /// Let API servers compress large lists with gzip, which costs CPU time and is faster where the network is slow
    ///
    /// A kubeconfig with disable-compression keeps its cluster out of it
    #[arg(long, help_heading = "Clusters")]
    pub gzip_lists: bool,
    /// Whether the program has read the flags of the clusters, and those of the hub.
    #[arg(skip)]
    read: Arc<[AtomicBool; 2]>,
}

impl Args {
    /// Reads the command line of this process, for a program without other flags.
    ///
    /// Prints the help or an error and ends the process, if the command line asks for help or is wrong.
    pub fn parse() -> Self {
        let matches = Self::augment_args(Command::new("")).get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// The flags for kubeconfig files.
    pub fn clusters(&self) -> &KubeconfigArgs {
        self.read[0].store(true, Ordering::Relaxed);
        &self.clusters
    }

    /// The hub. See [`HubArgs::hub`]. With `--proxy-from-env` its client goes through the proxies of the environment.
    ///
    /// # Errors
    /// As for [`HubArgs::hub`], and if a variable of the environment has no proxy and `--proxy-from-env` is given.
    pub fn hub(&self) -> Result<Hub, ArgsError> {
        self.read[1].store(true, Ordering::Relaxed);
        self.hub.hub_through(proxies(self.proxy_from_env)?)
    }

    /// Starts to build a fleet of the hub and these members. The hub has the name [`HUB`](crate::HUB), and its context is left
    /// out of the members, see [`Hub::members_of`].
    ///
    /// # Errors
    /// As for [`hub`](Self::hub).
    pub fn fleet(&self, members: impl Provider) -> Result<FleetBuilder, ArgsError> {
        let hub = self.hub()?;
        let members = hub.members_of(members);
        let allow = self.allow_duplicates;
        let mut fleet = Fleet::builder()
            .settings(|settings| settings.allow_duplicates = allow)
            .transport(|transport| transport.gzip_lists = self.gzip_lists);
        if let Some(proxies) = proxies(self.proxy_from_env)? {
            fleet = fleet.transport(|transport| transport.proxies = Some(proxies));
        }
        Ok(fleet.provider(hub).provider(members))
    }

    /// Starts the log. See [`LogArgs::init_log`].
    pub fn init_log(&self) {
        self.log.init_log();
    }

    /// Starts to build a manager. See [`ManagerArgs::manager_in`].
    pub fn manager(&self) -> ManagerBuilder {
        let (hub, from_env) = (self.hub.clone(), self.proxy_from_env);
        let manager = self
            .manager
            .manager_of(move || hub.hub_through(proxies(from_env)?));
        let of_hub = self.hub.hub_kubeconfig.is_some() || self.hub.hub_context.is_some();
        let given = [
            !self.clusters.is_empty() || !self.clusters.globs.is_empty(),
            of_hub && !self.manager.needs_hub(),
        ];
        let read = self.read.clone();
        // A task, because the program may read them after this.
        manager.task("flags", move |_, _| async move {
            let names = [
                "--kubeconfigs, --kubeconfig-dirs or --globs",
                "--hub-kubeconfig or --hub-context",
            ];
            match (0..2).find(|part| given[*part] && !read[*part].load(Ordering::Relaxed)) {
                Some(part) => Err(format!(
                    "{} is given, and this program does not use it; leave it out",
                    names[part]
                )
                .into()),
                None => Ok(()),
            }
        })
    }
}

/// The proxies of the environment, if they are wanted.
fn proxies(wanted: bool) -> Result<Option<Arc<ProxyEnvironment>>, ArgsError> {
    let proxies = wanted.then(ProxyEnvironment::from_env).transpose();
    Ok(proxies.map_err(ArgsError::Proxy)?.map(Arc::new))
}
