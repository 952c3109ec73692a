//! The places of a scope that a driver leaves out, and when it lists again to see whether it still has to. Nothing in this module
//! waits.

use std::time::Duration;

use tokio::time::Instant;

use super::{Driver, progress::TOO_LARGE_PAUSE};
use crate::{
    WatchError, WatchProblem,
    target::{LeftOut, PlacedObject},
};

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

impl Driver {
    /// Checks that the target holds no more than it may where this object belongs.
    pub(super) fn check_held(&mut self, PlacedObject { place, .. }: &PlacedObject) -> Result<(), WatchError> {
        let Some(limit) = self.env.settings.held_bytes else {
            return Ok(());
        };
        let bytes = self.target.held_bytes(place.as_deref());
        match place {
            _ if bytes <= limit => {}
            None => return Err(WatchError::HoldsTooMuch { bytes, limit }),
            Some(place) if !self.left_out.places.contains_key(place) => {
                let setting = "WatchSettings::held_bytes";
                let error = WatchError::PlaceTooLarge {
                    bytes,
                    limit,
                    setting,
                };
                let mut places = self.left_out.places.clone();
                places.insert(place.clone(), WatchProblem::new(error));
                self.leave_out_places(places);
                self.left_out.changed();
                self.target.status_changed();
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Leaves these places out, and no others.
    pub(super) fn leave_out_places(&mut self, mut places: LeftOut) {
        let before = &self.left_out.places;
        if places.is_empty() && before.is_empty() {
            return;
        }
        let (cluster, kind) = (&self.env.cluster, &self.kind);
        for (place, problem) in &mut places {
            if let Some(known) = before.get(place) {
                problem.since = known.since;
                continue;
            }
            let error = &problem.error;
            self.env.counts.failure(error);
            tracing::warn!(%cluster, %kind, %place, %error, "the objects of a place are left out; the others go on");
        }
        for place in before.keys().filter(|place| !places.contains_key(*place)) {
            tracing::info!(%cluster, %kind, %place, "the objects of a place are no longer left out");
        }
        self.target.leave_out(&places);
        self.left_out.places = places;
    }
}
