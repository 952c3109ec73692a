//! How an example ends.

use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled by SIGINT, SIGTERM, or after a while. A second signal ends the process at once.
///
/// `Manager::run` does the same by itself; the examples also stop after a number of lines, and when nobody
/// reads them any more.
///
/// # Errors
/// If signals can't be listened to.
pub fn stop_at_signal(after: Option<Duration>) -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut interrupt = signal(SignalKind::interrupt()).context("can't listen to SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("can't listen to SIGTERM")?;
    tokio::spawn({
        let stop = stop.clone();
        async move {
            let mut asked = false;
            loop {
                let limit = after.filter(|_| !stop.is_cancelled());
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    () = tokio::time::sleep(limit.unwrap_or_default()), if limit.is_some() => {
                        stop.cancel();
                        continue;
                    }
                }
                if asked {
                    std::process::exit(1);
                }
                asked = true;
                stop.cancel();
            }
        }
    });
    Ok(stop)
}
