//! How a provider fails the suite.

use std::fmt;

/// Fails the test of a provider.
#[track_caller]
pub(super) fn fail(message: impl fmt::Display) -> ! {
    panic!("{message}")
}
