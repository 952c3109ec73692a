//! The fleet events that a mapper failed with, until it is asked again.

use std::{
    collections::HashMap,
    mem::{Discriminant, discriminant},
    time::Duration,
};

use mcr_core::{ClusterName, FleetEvent};
use tokio::time::Instant;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The most events that are kept. Of a cluster in the fleet there are two for each mapper, of those that have left one.
const MOST: usize = 100_000;

/// The newest event of each kind, since a mapper may answer only to one kind, by cluster and number of the mapper.
#[derive(Default)]
pub(super) struct FailedMaps {
    events: HashMap<(usize, ClusterName, Discriminant<FleetEvent>), FleetEvent>,
    pause: Duration,
    /// When the mappers are asked again.
    pub(super) due: Option<Instant>,
}

impl FailedMaps {
    /// A cluster that has left has no other event any more.
    pub(super) fn left(&mut self, cluster: &ClusterName) {
        self.events
            .retain(|(_, name, _), event| name != cluster || matches!(event, FleetEvent::Disengaged { .. }));
    }

    /// A mapper has failed. Returns the pause until it is asked again, unless that is due already.
    pub(super) fn add(
        &mut self,
        mapper: usize,
        cluster: &ClusterName,
        event: &FleetEvent,
    ) -> Option<Duration> {
        if self.events.len() < MOST {
            let key = (mapper, cluster.clone(), discriminant(event));
            self.events.insert(key, event.clone());
        }
        let pause = self.pause.clamp(FIRST_PAUSE, LONGEST_PAUSE);
        let is_first = self.due.is_none();
        self.due.get_or_insert_with(|| Instant::now() + pause);
        is_first.then_some(pause)
    }

    /// The events to ask the mappers of these numbers about again.
    pub(super) fn take(&mut self) -> Vec<(usize, FleetEvent)> {
        self.due = None;
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE * 2, LONGEST_PAUSE);
        let events = self.events.drain();
        events.map(|((mapper, ..), event)| (mapper, event)).collect()
    }

    /// Starts with the first pause again, if none has failed again.
    pub(super) fn reset(&mut self) {
        if self.due.is_none() {
            self.pause = FIRST_PAUSE;
        }
    }
}
