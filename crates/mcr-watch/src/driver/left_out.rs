//! The places of a scope that a driver leaves out, and when it lists again to see whether it still has to. Nothing in this module
//! waits.

use std::time::Duration;

use tokio::time::Instant;

use super::progress::TOO_LARGE_PAUSE;
use crate::target::{LeftOut, PlacedObject};

/// The places that are left out since the last complete list.
#[derive(Default)]
pub(super) struct LeftOutPlaces {
    pub(super) places: LeftOut,
    list_began: Option<Instant>,
    /// Whether a list could show something else: an object of such a place has changed, or any object was deleted.
    has_changed: bool,
}

impl LeftOutPlaces {
    pub(super) fn list_started(&mut self, now: Instant) {
        self.list_began = Some(now);
    }

    /// `again`: the list has left out other places than it should.
    pub(super) fn list_completed(&mut self, again: bool) {
        self.has_changed = again;
    }

    /// Whether the object belongs to such a place.
    pub(super) fn has(&self, object: &PlacedObject) -> bool {
        let place = object.place.as_ref();
        place.is_some_and(|place| self.places.contains_key(place))
    }

    /// A list could show something else.
    pub(super) fn changed(&mut self) {
        self.has_changed = !self.places.is_empty();
    }

    /// Whether it is time for the next list. Each list transfers everything again.
    pub(super) fn is_due(&self) -> bool {
        self.wait_at_most(Duration::MAX).is_zero()
    }

    /// The time until the next list, but at most `patience`.
    pub(super) fn wait_at_most(&self, patience: Duration) -> Duration {
        let began = self.list_began.filter(|_| self.has_changed);
        began.map_or(patience, |began| {
            patience.min(TOO_LARGE_PAUSE.saturating_sub(began.elapsed()))
        })
    }
}
