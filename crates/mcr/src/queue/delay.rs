//! The due times of ids. Any id moves or leaves in O(log n).

use std::collections::BTreeSet;

/// Nanoseconds since the queue was made.
pub(super) type Tick = u64;

/// Later than every other tick.
pub(super) const NEVER: Tick = Tick::MAX;

/// A due time, and a number that orders equal times by the order of the calls, so that the queue is deterministic.
type Due = (Tick, u64);

/// The time of an id that is absent. Times that are set are earlier.
const ABSENT: Due = (NEVER, u64::MAX);

/// Ids in the order of their due times. Ids are small integers (slab keys).
#[derive(Debug, Default)]
pub(super) struct DelayHeap {
    order: BTreeSet<(Due, u32)>,
    /// By id.
    due: Vec<Due>,
    seq: u64,
}

impl DelayHeap {
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// The id with the earliest due time, and that time.
    pub(super) fn peek(&self) -> Option<(Tick, u32)> {
        self.order.first().map(|((at, _), id)| (*at, *id))
    }

    pub(super) fn get(&self, id: u32) -> Option<Tick> {
        self.entry(id).map(|(at, _)| at)
    }

    fn entry(&self, id: u32) -> Option<Due> {
        self.due.get(id as usize).copied().filter(|due| *due != ABSENT)
    }

    /// Sets the due time of `id`, which may be new.
    pub(super) fn set(&mut self, id: u32, at: Tick) {
        if let Some(due) = self.entry(id) {
            self.order.remove(&(due, id));
        } else if self.due.len() <= id as usize {
            self.due.resize(id as usize + 1, ABSENT);
        }
        let due = (at, self.seq);
        self.seq += 1;
        self.due[id as usize] = due;
        self.order.insert((due, id));
    }

    /// Removes `id`, if it is there.
    pub(super) fn remove(&mut self, id: u32) {
        let Some(due) = self.entry(id) else {
            return;
        };
        self.order.remove(&(due, id));
        self.due[id as usize] = ABSENT;
        if self.order.is_empty() {
            // Frees the memory of a burst.
            if self.due.capacity() > 64 {
                self.due = Vec::new();
            } else {
                self.due.clear();
            }
        }
    }

    /// Renames every id: `i` becomes `to[i]`.
    pub(super) fn renumber(&mut self, to: &[u32]) {
        let old = std::mem::take(&mut self.order);
        self.order = old.into_iter().map(|(due, id)| (due, to[id as usize])).collect();
        let ids = self.order.iter().map(|(_, id)| *id as usize + 1).max();
        self.due = vec![ABSENT; ids.unwrap_or(0)];
        for (due, id) in &self.order {
            self.due[*id as usize] = *due;
        }
    }
}
