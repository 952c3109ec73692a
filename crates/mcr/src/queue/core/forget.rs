//! Drops single items.

use super::QueueCore;
use std::hash::Hash;

impl<C: Clone + Eq + Hash, K: Clone + Eq + Hash, E: Clone + PartialEq> QueueCore<C, K, E> {
    /// Drops `key` of `cluster`, with its back-off history, unless it is running. Returns whether it was pending.
    pub fn forget(&mut self, cluster: &C, key: &K) -> bool {
        let Some(at) = self.engaged(cluster) else {
            return false;
        };
        let forgotten = self.slots[at as usize].items.forget(key, &self.hasher);
        self.counters.dropped += u64::from(forgotten);
        self.settle(at);
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use crate::queue::{Outcome, Priority, QueueConfig, QueueCore};

    #[test]
    fn a_forgotten_key_does_not_run_and_a_running_one_is_left_alone() {
        let now = Instant::now();
        let mut queue = QueueCore::new(QueueConfig::default(), now);
        queue.engage("eu", 1);
        queue.add(&"eu", "ready", Priority::Live, now);
        queue.add_after(&"eu", "delayed", Priority::Live, Duration::from_secs(1), now);
        assert!(queue.forget(&"eu", &"ready") && queue.forget(&"eu", &"delayed"));
        assert!(!queue.forget(&"eu", &"ready") && !queue.forget(&"us", &"ready"));
        assert_eq!(
            (queue.len(), queue.next_deadline(), queue.counters().dropped),
            (0, None, 2)
        );
        assert_eq!(queue.pop(now + Duration::from_secs(2)), None);

        queue.add(&"eu", "running", Priority::Live, now);
        let work = queue.pop(now).unwrap();
        queue.add(&"eu", "running", Priority::Live, now);
        assert!(!queue.forget(&"eu", &"running"));
        assert!(queue.done(&work, Outcome::Drop, now));
        assert_eq!(queue.pop(now).map(|work| work.key), Some("running"));
    }
}
