//! What a cluster and its watches tell each other about its health.

use mcr_client::internal::Observable;

/// Whether the cluster can be spoken to, as its supervisor knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not connected, or suspended: nothing is sent.
    Down,
    /// Connected. A new number means another endpoint, whose resource versions need not continue the old ones.
    Up {
        /// The number of the endpoint.
        endpoint: u64,
    },
}

/// How often the cluster has answered its watches and has failed to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Answers.
    pub answers: u64,
    /// Failures.
    pub failures: u64,
}

/// What a cluster's supervisor and its watches tell each other. Only the last word of each counts.
#[derive(Debug)]
pub struct Health {
    pub(crate) phase: Observable<Numbered>,
    /// What the watches of the cluster have seen of it.
    pub seen: Observable<Seen>,
}

/// A phase, and how many there were before it: going down and up again is a change too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbered {
    pub(crate) phase: Phase,
    pub(crate) number: u64,
}

impl Health {
    /// Begins in this phase.
    pub fn new(phase: Phase) -> Self {
        Self {
            phase: Observable::new(Numbered { phase, number: 0 }),
            seen: Observable::default(),
        }
    }

    /// Changes the phase, and wakes the watches if it is another one.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.change_if(|now| {
            let changed = now.phase != phase;
            now.phase = phase;
            now.number += u64::from(changed);
            changed
        });
    }

    /// A request of a watch was answered.
    pub fn answered(&self) {
        self.seen.change(|seen| seen.answers += 1);
    }

    /// A request of a watch failed.
    pub fn failed(&self) {
        self.seen.change(|seen| seen.failures += 1);
    }

    /// Resolves when the cluster can be spoken to, with the number of its endpoint.
    pub(crate) fn up(&self) -> impl Future<Output = u64> {
        self.phase.wait(|now| match now.phase {
            Phase::Up { endpoint } => Some(endpoint),
            Phase::Down => None,
        })
    }

    /// Resolves when the cluster can't be spoken to at this endpoint any more.
    pub(crate) fn left(&self, endpoint: u64) -> impl Future<Output = ()> {
        self.phase
            .wait(move |now| (now.phase != Phase::Up { endpoint }).then_some(()))
    }

    /// Resolves when there is another phase than there was at this number.
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
        assert!(same.await.is_err(), "the same again is none");
        health.set_phase(Phase::Down);
        health.set_phase(Phase::Up { endpoint: 1 });
        let changed = timeout(Duration::from_secs(60), health.changed(number));
        changed.await.unwrap();
    }
}
