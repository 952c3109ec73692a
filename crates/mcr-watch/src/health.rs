//! The health of a cluster, between its supervisor and its watches.

use mcr_client::internal::Observable;

/// Whether the cluster is connected, as its supervisor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not connected, or suspended: the watches send nothing.
    Down,
    /// Connected.
    Up {
        /// The number of the endpoint. Another number means another endpoint, which may not know the resource versions
        /// of the old one.
        endpoint: u64,
    },
}

/// A record that the supervisor of a cluster shares with the cluster's watches: the supervisor sets the phase, the watches
/// count their failures.
#[derive(Debug)]
pub struct Health {
    pub(crate) phase: Observable<NumberedPhase>,
    /// How many requests of the watches have failed: without a response, with 401, or with the response of something else
    /// than an API server that knows the user. Each is a reason to probe.
    pub failures: Observable<u64>,
    /// Whether a supervisor probes the cluster when it is silent.
    pub(crate) is_supervised: bool,
}

/// A phase, and the number of phases before it: down and up again is a change, too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumberedPhase {
    pub(crate) phase: Phase,
    pub(crate) number: u64,
}

impl Health {
    /// A record that starts in this phase.
    pub fn new(phase: Phase) -> Self {
        Self {
            phase: Observable::new(NumberedPhase { phase, number: 0 }),
            failures: Observable::default(),
            is_supervised: true,
        }
    }

    /// The record of a cluster without a supervisor. It counts as connected for ever.
    pub(crate) fn unsupervised() -> Self {
        Self {
            is_supervised: false,
            ..Self::new(Phase::Up { endpoint: 1 })
        }
    }

    /// Sets the phase. Wakes the watches if it is another one.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.change_if(|now| {
            let changed = now.phase != phase;
            now.phase = phase;
            now.number += u64::from(changed);
            changed
        });
    }

    /// Counts a request that failed.
    pub fn failed(&self) {
        self.failures.change(|failures| *failures += 1);
    }

    /// Waits until the cluster is connected. Returns the number of its endpoint.
    pub fn up(&self) -> impl Future<Output = u64> {
        self.phase.wait(|now| match now.phase {
            Phase::Up { endpoint } => Some(endpoint),
            Phase::Down => None,
        })
    }

    /// Waits until the cluster is not connected at this endpoint any more.
    pub fn left(&self, endpoint: u64) -> impl Future<Output = ()> {
        self.phase
            .wait(move |now| (now.phase != Phase::Up { endpoint }).then_some(()))
    }

    /// Waits until there is another phase than the one with this number.
    pub(crate) fn changed(&self, number: u64) -> impl Future<Output = ()> {
        self.phase.wait(move |now| (now.number != number).then_some(()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn down_and_up_again_is_a_change_also_for_whoever_looks_late() {
        let health = Health::new(Phase::Up { endpoint: 1 });
        let number = health.phase.read(|now| now.number);
        health.set_phase(Phase::Up { endpoint: 1 });
        let same = timeout(Duration::from_millis(20), health.changed(number));
        assert!(same.await.is_err(), "the same phase again is no change");
        health.set_phase(Phase::Down);
        health.set_phase(Phase::Up { endpoint: 1 });
        let changed = timeout(Duration::from_secs(60), health.changed(number));
        changed.await.unwrap();
    }
}
