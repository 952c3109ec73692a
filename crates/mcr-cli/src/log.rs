//! Logs.

use std::io::stderr;

use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, filter_fn},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// Only errors by default, because the result of a command is its output, not its log.
const DEFAULT: &str = "error";

/// Logs to stderr, with the filter in `RUST_LOG`. Only the output of commands goes to stdout.
///
/// Never logs kube's client, whatever the filter is. The client logs whole bodies that it can't parse, and these may
/// be Secrets or tokens.
pub(crate) fn init() {
    let wanted = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let (filter, wrong) = match EnvFilter::try_new(wanted.as_deref().unwrap_or(DEFAULT)) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(DEFAULT), Some(error)),
    };
    let quiet = filter_fn(|metadata| !metadata.target().starts_with("kube_client"));
    let lines = tracing_subscriber::fmt::layer()
        // No colours, because this feature of the crate is not enabled.
        .with_ansi(false)
        .with_writer(stderr)
        .with_filter(filter.and(quiet));
    // Fails if the program that links this crate has set a subscriber already. Then that subscriber stays.
    let _ = tracing_subscriber::registry().with(lines).try_init();
    if let Some(error) = wrong {
        tracing::error!(%error, "RUST_LOG is not a filter, so it is ignored");
    }
}
