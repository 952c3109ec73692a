//! The error of the deserializer.

use std::{cell::Cell, fmt};

use serde::de;

thread_local! {
    /// Whether the text of an error was shown since this was set to false.
    pub(super) static WAS_SHOWN: Cell<bool> = const { Cell::new(false) };
}

/// The deserializer declined the JSON. There is no reason: the caller asks serde_json, which gives one.
///
/// A type can keep the text of an error in its value. That text must be serde_json's, so a value is not used if the text of
/// this error was shown: see [`WAS_SHOWN`].
pub(super) struct Declined;

pub(super) type Result<T> = std::result::Result<T, Declined>;

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        WAS_SHOWN.set(true);
        f.write_str("declined")
    }
}

impl fmt::Debug for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Declined {}

impl de::Error for Declined {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}
