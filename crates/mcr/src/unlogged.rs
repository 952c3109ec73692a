//! Warns the user of a program that shows no log.

use std::{
    convert::Infallible,
    future::pending,
    io::{self, Write},
    sync::Once,
    time::Duration,
};

use log::LevelFilter;

const PATIENCE: Duration = Duration::from_secs(10);

/// A program may run several managers.
static WARNED: Once = Once::new();

/// Prints one line on stderr after 10 seconds if nothing receives the log of this program. Never ends.
pub(crate) async fn warn_if_unlogged() -> Infallible {
    tokio::time::sleep(PATIENCE).await;
    // kube turns on the feature `log` of tracing: without a subscriber, events go to the logger of the crate `log`, if the
    // program has set one.
    if !tracing::dispatcher::has_been_set() && log::max_level() == LevelFilter::Off {
        WARNED.call_once(|| {
            // `eprintln` panics if stderr is closed.
            let _ = io::stderr().write_all(
                b"mcr: this program shows no log, because it has set no tracing subscriber. Add the crate tracing-subscriber and \
                  call tracing_subscriber::fmt::init() at the start of main\n",
            );
        });
    }
    pending().await
}
