//! The flags for the log.

use std::io::stderr;

use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, filter_fn},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// The log on stderr.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(about = None, long_about = None, next_help_heading = "Operation")]
#[non_exhaustive]
pub struct LogArgs {
    /// The format of the log on stderr; RUST_LOG says what is logged, for example RUST_LOG=info,mcr_core=debug
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
}

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
#[non_exhaustive]
pub enum LogFormat {
    /// One line of text for each entry
    #[default]
    Text,
    /// One JSON object for each entry, on a line of its own
    Json,
}

impl LogArgs {
    /// Logs to stderr in the format of `--log-format`. The environment variable `RUST_LOG` filters the entries; the
    /// default is `info`.
    ///
    /// kube's own client is never logged, whatever the filter is: it logs whole responses that it can't parse, which may be
    /// Secrets. If the program has a `tracing` subscriber already, that one stays. If `RUST_LOG` is not a filter, the default
    /// applies and a warning is logged.
    pub fn init_log(&self) {
        self.init_log_with("info");
    }

    /// As [`init_log`](Self::init_log), with another filter for a process without `RUST_LOG`.
    pub fn init_log_with(&self, default: &str) {
        let wanted = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
        let (filter, wrong) = match EnvFilter::try_new(wanted.as_deref().unwrap_or(default)) {
            Ok(filter) => (filter, None),
            Err(error) => (EnvFilter::new(default), Some(error)),
        };
        let without_kube = filter_fn(|metadata| !metadata.target().starts_with("kube_client"));
        // Colours are a feature of the crate that is not enabled.
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(stderr);
        let lines = match self.log_format {
            LogFormat::Text => lines.boxed(),
            LogFormat::Json => lines.json().boxed(),
        };
        let _ = tracing_subscriber::registry()
            .with(lines.with_filter(filter.and(without_kube)))
            .try_init();
        if let Some(error) = wrong {
            tracing::warn!(%error, "RUST_LOG is not a filter, so the default filter applies: {default}");
        }
    }
}
