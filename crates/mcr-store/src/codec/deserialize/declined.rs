//! The error of the deserializer.

use std::{cell::Cell, fmt};

use serde::de;

thread_local! {
    /// Whether the text of a [`Declined`] was formatted since this flag was last set to false.
    pub(super) static WAS_SHOWN: Cell<bool> = const { Cell::new(false) };
}

/// The deserializer has declined the JSON. There is no reason: the caller uses serde_json, which gives one.
///
/// A type can store the text of an error in its value. That text must be the one of serde_json. So the decoded value
/// is discarded if the text of this error was formatted: see [`WAS_SHOWN`].
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
