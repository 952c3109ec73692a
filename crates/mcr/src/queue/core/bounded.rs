//! Adds that a cluster without dispatches limits, and the end of its back-offs.

use super::QueueCore;
use crate::queue::priority::Priority;
use std::hash::Hash;
use std::time::Duration;
use tokio::time::Instant;

/// What became of an add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    Yes,
    /// The cluster is not engaged, or is engaged with another epoch.
    NotEngaged,
    /// The key is new, and the cluster has as many waiting items as it may have.
    Full,
}

impl<C: Clone + Eq + Hash, K: Clone + Eq + Hash, E: Clone + PartialEq> QueueCore<C, K, E> {
    /// As [`add_after`](Self::add_after), but adds no new key if `most` items of the cluster wait. `epoch`: only while the
    /// cluster is engaged with it.
    pub(in crate::queue) fn add_within(
        &mut self,
        cluster: &C,
        epoch: Option<&E>,
        (key, most): (K, usize),
        priority: Priority,
        delay: Duration,
        now: Instant,
    ) -> Added {
        let engaged = self.engaged(cluster);
        let is_this =
            |at: &u32| epoch.is_none_or(|epoch| self.slots[*at as usize].epoch.as_ref() == Some(epoch));
        let Some(at) = engaged.filter(is_this) else {
            self.counters.refused += u64::from(epoch.is_none());
            return Added::NotEngaged;
        };
        let slot = &self.slots[at as usize];
        if slot.counted >= most && slot.items.due(&key, &self.hasher).is_none() {
            return Added::Full;
        }
        self.add_to_slot(at, key, priority, delay, now);
        Added::Yes
    }

    /// Lets the items of a cluster that wait for their next attempt run now, and forgets their failures.
    pub(in crate::queue) fn retry_now(&mut self, cluster: &C, now: Instant) {
        let now = self.tick(now);
        if let Some(at) = self.engaged(cluster) {
            self.slots[at as usize].items.retry_now(now);
            self.settle(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Added::*, *};
    use crate::queue::{Outcome, QueueConfig};

    #[test]
    fn a_full_cluster_takes_known_keys_and_what_fails_runs_at_once_without_its_failures() {
        let (now, zero) = (Instant::now(), Duration::ZERO);
        let mut queue = QueueCore::new(QueueConfig::default(), now);
        queue.engage("eu", 1);
        for (epoch, key, added) in [
            (None, 1, Yes),
            (Some(&1), 2, Yes),
            (Some(&1), 3, Full),
            (None, 1, Yes),
            (Some(&2), 1, NotEngaged),
        ] {
            assert_eq!(
                queue.add_within(&"eu", epoch, (key, 2), Priority::Live, zero, now),
                added
            );
        }
        let requeue_after = Some(Duration::from_secs(9));
        for outcome in [Outcome::Retry, Outcome::Success { requeue_after }] {
            let work = queue.pop(now).unwrap();
            queue.done(&work, outcome, now);
        }
        assert_eq!(queue.pop(now), None);
        queue.retry_now(&"eu", now);
        let work = queue.pop(now).unwrap();
        assert_eq!(
            (work.key, work.attempt, queue.pop(now)),
            (1, 0, None),
            "the other one has not failed"
        );
    }
}
