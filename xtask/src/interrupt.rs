//! Ctrl-C and SIGTERM, where what was begun has to be taken back first.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, bail};

static RECEIVED: AtomicUsize = AtomicUsize::new(0);

/// What a shell expects of a program that was interrupted.
pub(crate) const EXIT_CODE: u8 = 130;

/// Whether somebody wants this to end.
pub(crate) fn received() -> bool {
    RECEIVED.load(Ordering::Relaxed) > 0
}

/// An error if somebody wants this to end.
pub(crate) fn check() -> Result<()> {
    if received() {
        bail!("interrupted");
    }
    Ok(())
}

/// From now on a signal no longer ends this process: what runs is ended, and `check` fails. Who is asked a third time
/// goes at once, and `if_at_once` tells what stays.
#[cfg(unix)]
pub(crate) fn watch(if_at_once: &'static str) -> Result<()> {
    use std::sync::Once;

    use anyhow::Context;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

    static ONCE: Once = Once::new();
    if ONCE.is_completed() {
        return Ok(());
    }
    let mut signals =
        signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM]).context("listening for signals")?;
    ONCE.call_once(|| {
        // It lives as long as the process: there is always somebody who may lose patience.
        std::thread::spawn(move || {
            for _ in signals.forever() {
                match RECEIVED.fetch_add(1, Ordering::Relaxed) {
                    0 => eprintln!("\ninterrupted: ending what runs and cleaning up"),
                    1 => eprintln!("\nstill cleaning up. Once more ends it at once: {if_at_once}"),
                    _ => {
                        eprintln!("\nended at once: {if_at_once}");
                        std::process::exit(EXIT_CODE.into());
                    }
                }
            }
        });
    });
    Ok(())
}

/// A signal ends this process, as ever.
#[cfg(not(unix))]
pub(crate) fn watch(_: &'static str) -> Result<()> {
    Ok(())
}
