//! The command as a whole.

use std::{ffi::OsString, future::Future, process::ExitCode};

use clap::{Command, CommandFactory, FromArgMatches, builder::PossibleValue};
use mcr_core::{BoxError, Provider};

use crate::{
    cli::{Cli, CliCommand, KubeconfigSecret},
    clusters, doctor, log, man,
    output::printable,
    providers::{LinkedProvider, ProviderOptions, builtin},
    secret, why,
};

/// The exit code of a command that failed.
const FAILED: u8 = 3;

/// The command `mcr` with its providers.
///
/// A program that links its own provider gets the same command for it:
///
/// ```no_run
/// use std::process::ExitCode;
///
/// use mcr_cli::Mcr;
/// use mcr_core::{AccessPolicy, ClusterName};
/// # mod mcr_provider_shop {
/// #     use mcr_core::*;
/// #     pub struct ShopProvider;
/// #     impl ShopProvider {
/// #         pub fn new(_: Option<&str>) -> Result<Self, InvalidClusterName> { Ok(Self) }
/// #     }
/// #     impl Provider for ShopProvider {
/// #         fn name(&self) -> &str { "shop" }
/// #         fn discover(&self, _: tokio_util::sync::CancellationToken) -> Discovery { unimplemented!() }
/// #     }
/// # }
/// use mcr_provider_shop::ShopProvider;
///
/// #[tokio::main]
/// async fn main() -> ExitCode {
///     let shop = async |options: mcr_cli::ProviderOptions| Ok(ShopProvider::new(options.option("region"))?);
///     Mcr::new().provider("shop", "Each shop of the chain", shop).run().await
/// }
/// ```
///
/// `mcr clusters --provider shop --provider-option region=eu` and `mcr doctor --provider shop` then work as with the
/// built-in providers.
#[derive(Debug, Clone)]
#[must_use]
pub struct Mcr {
    linked: Vec<LinkedProvider>,
}

impl Default for Mcr {
    fn default() -> Self {
        Self::new()
    }
}

impl Mcr {
    /// The command with the providers that were compiled into this crate.
    pub fn new() -> Self {
        Self { linked: builtin() }
    }

    /// Adds a provider, which users choose with `--provider NAME`. Replaces a provider of the same name. `about` is
    /// the provider's line in the help.
    pub fn provider<M, F, P>(mut self, name: impl Into<String>, about: impl Into<String>, make: M) -> Self
    where
        M: Fn(ProviderOptions) -> F + Send + Sync + 'static,
        F: Future<Output = Result<P, BoxError>> + Send + 'static,
        P: Provider,
    {
        let linked = LinkedProvider::new(name, about, false, make);
        self.linked.retain(|known| known.name != linked.name);
        self.linked.push(linked);
        self
    }

    /// Runs the command with the arguments of the process. Must be called in a tokio runtime with all drivers.
    pub async fn run(self) -> ExitCode {
        self.run_from(std::env::args_os()).await
    }

    /// Runs the command with these arguments. The first argument is the name of the program.
    pub async fn run_from(self, args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
        let cli = self
            .command()
            .try_get_matches_from(args)
            .and_then(|matches| Cli::from_arg_matches(&matches));
        let cli = match cli {
            Ok(cli) => cli,
            Err(error) => {
                let _ = error.print();
                // clap returns the texts of `--help` and `--version` as errors with exit code 0.
                return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
            }
        };
        log::init();
        match self.run_command(cli.command).await {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("error: {}", printable(&format!("{error:#}")));
                ExitCode::from(FAILED)
            }
        }
    }

    /// Runs a command. Returns whether it has found no problem, which decides the exit code.
    async fn run_command(&self, command: CliCommand) -> anyhow::Result<bool> {
        match command {
            CliCommand::KubeconfigSecret(KubeconfigSecret::Create(args)) => {
                secret::create(args).await.map(|()| true)
            }
            CliCommand::Clusters(args) => clusters::run(args, &self.linked).await,
            CliCommand::Doctor(args) => doctor::run(args, &self.linked).await,
            CliCommand::Why(args) => why::run(args).await,
            CliCommand::Completions(args) => man::completions(self.command(), args.shell).map(|()| true),
            CliCommand::Man(args) => man::man(self.command(), args.dir.as_deref()).map(|()| true),
        }
    }

    /// The description of the command line, with the names of the providers.
    pub(crate) fn command(&self) -> Command {
        let mut command = Cli::command();
        for part in ["clusters", "doctor"] {
            let names: Vec<PossibleValue> = self
                .linked
                .iter()
                .map(|linked| PossibleValue::new(linked.name.clone()).help(linked.about.clone()))
                .collect();
            let default = self
                .linked
                .first()
                .map_or("file", |linked| linked.name.as_str())
                .to_owned();
            command = command.mut_subcommand(part, |command| {
                command.mut_arg("provider", |arg| arg.value_parser(names).default_value(default))
            });
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Mcr::new().command().debug_assert();
    }
}
