//! Drops single items.

use super::QueueCore;
use std::hash::Hash;

impl<C: Clone + Eq + Hash, K: Clone + Eq + Hash> QueueCore<C, K> {
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
