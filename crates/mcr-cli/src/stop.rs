//! Ends commands early, by signals.

use std::process;

use tokio_util::sync::CancellationToken;

/// A token that the first SIGINT or SIGTERM cancels. The second one ends the process at once.
///
/// Starts a task that waits for the signals for the life of the process.
pub(crate) fn at_signal() -> CancellationToken {
    let stop = CancellationToken::new();
    tokio::spawn({
        let stop = stop.clone();
        async move {
            signal().await;
            stop.cancel();
            signal().await;
            process::exit(130);
        }
    });
    stop
}

#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        // Without a handler a signal ends the process.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

#[cfg(not(unix))]
async fn signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
