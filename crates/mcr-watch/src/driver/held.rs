//! The limit of what the objects of one watch may take.

use mcr_store::Object;

use crate::{WatchError, target::WatchTarget};

/// Counts what the objects of a watch take, as far as the limit needs it.
///
/// The count may be too high, because nobody counts what replaced and deleted objects took. So a count above the limit is
/// replaced by that of the target, which takes longer: a scope endpoint has many stores.
pub(super) struct HeldBytes {
    /// [`WatchSettings::held_bytes`](crate::WatchSettings::held_bytes).
    limit: Option<usize>,
    at_most: usize,
}

impl HeldBytes {
    pub(super) fn new(limit: Option<usize>) -> Self {
        Self { limit, at_most: 0 }
    }

    /// Sets what the objects of a list take so far. The list replaces all objects.
    ///
    /// # Errors
    /// [`WatchError::HoldsTooMuch`] if they take more than the limit.
    pub(super) fn list(&mut self, bytes: usize) -> Result<(), WatchError> {
        self.at_most = bytes;
        self.check()
    }

    /// Counts an object that an event has put into the target.
    ///
    /// # Errors
    /// [`WatchError::HoldsTooMuch`] if the target holds more than the limit.
    pub(super) fn put(&mut self, object: &Object, target: &dyn WatchTarget) -> Result<(), WatchError> {
        self.at_most += object.held_bytes();
        if self.check().is_err() {
            self.at_most = target.held_bytes();
        }
        self.check()
    }

    fn check(&self) -> Result<(), WatchError> {
        match self.limit {
            Some(limit) if self.at_most > limit => Err(WatchError::HoldsTooMuch {
                bytes: self.at_most,
                limit,
            }),
            _ => Ok(()),
        }
    }
}
