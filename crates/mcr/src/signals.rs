//! SIGINT and SIGTERM.

use std::io;

use tokio_util::sync::CancellationToken;

/// Cancels `stop` at the first SIGINT or SIGTERM. The second signal ends the process at once with code 1.
///
/// The call installs the handlers and returns a future, which the caller spawns. Must be called in a tokio runtime.
pub(crate) fn listen(stop: CancellationToken) -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut signals = Signals::new()?;
    Ok(async move {
        let first = signals.next().await;
        tracing::info!(
            signal = first,
            "stopping; a second signal ends the process at once"
        );
        stop.cancel();
        let second = signals.next().await;
        tracing::warn!(signal = second, "second signal, ending at once");
        std::process::exit(1);
    })
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> &'static str {
        // After an error no signal will come.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        "Ctrl-C"
    }
}

/// Raises the soft limit of open files to the hard limit: over HTTP/1.1 every watch has a socket.
#[cfg(unix)]
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum || limit.current.is_none() {
        return;
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => tracing::debug!(
            from = limit.current,
            to = limit.maximum,
            "raised the limit of open files"
        ),
        Err(error) => tracing::warn!(
            current = limit.current, %error,
            "the limit of open files can't be raised; each watch of each cluster needs an open file. Raise the limit with ulimit -n"
        ),
    }
}

#[cfg(not(unix))]
pub(crate) fn raise_open_files() {}

#[cfg(all(test, unix))]
mod tests {
    #[test]
    fn open_files_are_allowed_up_to_the_hard_limit() {
        use rustix::process::{Resource, getrlimit};
        super::raise_open_files();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
