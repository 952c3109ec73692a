//! Logs.

use std::io::stderr;

use tracing_subscriber::EnvFilter;

/// What is logged unless `RUST_LOG` says otherwise.
///
/// kube's client logs whole response bodies when they can't be parsed, and those may be Secrets: it is off.
pub const DEFAULT_FILTER: &str = "info,kube_client=off";

/// Logs to stderr, as `RUST_LOG` says; stdout is for data.
pub fn log() {
    log_with(DEFAULT_FILTER);
}

/// As [`log`], with another filter where `RUST_LOG` is not set.
pub fn log_with(default: &str) {
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => filter,
        _ => default.to_owned(),
    };
    let (filter, wrong) = match EnvFilter::try_new(&filter) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(default), Some(error)),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        // Colours are a feature of that crate which is not enabled.
        .with_ansi(false)
        .with_writer(stderr)
        .init();
    if let Some(error) = wrong {
        tracing::warn!(%error, "RUST_LOG is not a filter, so it is ignored");
    }
}
