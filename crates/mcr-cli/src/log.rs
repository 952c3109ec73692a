//! Logs.

use std::io::stderr;

use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, filter_fn},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// What a command finds out is its output; the log is for what went wrong on the way.
const DEFAULT: &str = "error";

/// Logs to stderr, as `RUST_LOG` says; stdout is for answers.
///
/// Whatever `RUST_LOG` says, kube's client is left out: it logs whole bodies of answers that it can't parse, and those
/// may be Secrets or tokens.
pub(crate) fn log() {
    let wanted = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let (filter, wrong) = match EnvFilter::try_new(wanted.as_deref().unwrap_or(DEFAULT)) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(DEFAULT), Some(error)),
    };
    let quiet = filter_fn(|metadata| !metadata.target().starts_with("kube_client"));
    let lines = tracing_subscriber::fmt::layer()
        // Colours are a feature of that crate which is not enabled.
        .with_ansi(false)
        .with_writer(stderr)
        .with_filter(filter.and(quiet));
    // A program that links this crate may have its own already.
    let _ = tracing_subscriber::registry().with(lines).try_init();
    if let Some(error) = wrong {
        tracing::error!(%error, "RUST_LOG is not a filter, so it is ignored");
    }
}
