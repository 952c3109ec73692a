//! The failure of a provider in the suite.

use std::fmt;

/// Fails the test of a provider.
#[track_caller]
pub(super) fn fail(message: impl fmt::Display) -> ! {
    panic!("{message}")
}
