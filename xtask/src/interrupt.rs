//! Handles Ctrl-C and SIGTERM in tasks that must clean up before they end.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, bail};

static RECEIVED: AtomicUsize = AtomicUsize::new(0);

/// The exit code that shells expect from an interrupted program.
pub(crate) const EXIT_CODE: u8 = 130;

/// Whether the user has interrupted this task.
pub(crate) fn received() -> bool {
    RECEIVED.load(Ordering::Relaxed) > 0
}

/// Returns an error if the user has interrupted this task.
pub(crate) fn check() -> Result<()> {
    if received() {
        bail!("interrupted");
    }
    Ok(())
}

/// From now on, a signal no longer ends this process. Instead, running programs are ended and `check` fails. The third
/// signal ends the process at once, after printing `if_at_once`, which names what is left behind.
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
        // The thread runs as long as the process, because further signals may come until the end.
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

/// Signals end this process as usual.
#[cfg(not(unix))]
pub(crate) fn watch(_: &'static str) -> Result<()> {
    Ok(())
}
