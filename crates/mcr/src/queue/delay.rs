//! A heap of ids by due time. Any id moves or leaves in O(log n), without tombstones.

/// Nanoseconds since the queue was made.
pub(super) type Tick = u64;

/// Later than every other tick.
pub(super) const NEVER: Tick = Tick::MAX;

const ABSENT: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Tick,
    /// Orders equal times by the order of the calls, so that the queue is deterministic.
    seq: u64,
    id: u32,
}

impl Entry {
    fn before(&self, other: &Self) -> bool {
        (self.at, self.seq) < (other.at, other.seq)
    }
}

/// A binary heap with an index from ids to positions. Ids are small integers (slab keys).
#[derive(Debug, Default)]
pub(super) struct DelayHeap {
    heap: Vec<Entry>,
    /// By id: its position in `heap`, or [`ABSENT`].
    positions: Vec<u32>,
    seq: u64,
}

impl DelayHeap {
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// The id with the earliest due time, and that time.
    pub(super) fn peek(&self) -> Option<(Tick, u32)> {
        self.heap.first().map(|entry| (entry.at, entry.id))
    }

    pub(super) fn get(&self, id: u32) -> Option<Tick> {
        self.position(id).map(|position| self.heap[position].at)
    }

    /// Sets the due time of `id`, which may be new.
    pub(super) fn set(&mut self, id: u32, at: Tick) {
        let seq = self.seq;
        self.seq += 1;
        let entry = Entry { at, seq, id };
        match self.position(id) {
            Some(position) => {
                self.heap[position] = entry;
                let position = self.sift_up(position);
                self.sift_down(position);
            }
            None => {
                if self.positions.len() <= id as usize {
                    self.positions.resize(id as usize + 1, ABSENT);
                }
                self.heap.push(entry);
                let last = self.heap.len() - 1;
                self.positions[id as usize] = last as u32;
                self.sift_up(last);
            }
        }
    }

    /// Removes `id` and returns its due time.
    pub(super) fn remove(&mut self, id: u32) -> Option<Tick> {
        let position = self.position(id)?;
        let entry = self.heap.swap_remove(position);
        self.positions[id as usize] = ABSENT;
        if let Some(moved) = self.heap.get(position) {
            self.positions[moved.id as usize] = position as u32;
            let position = self.sift_up(position);
            self.sift_down(position);
        }
        if self.heap.is_empty() {
            // Frees the memory of a burst.
            if self.positions.capacity() > 64 {
                self.heap = Vec::new();
                self.positions = Vec::new();
            } else {
                self.positions.clear();
            }
        }
        Some(entry.at)
    }

    /// Renames every id: `i` becomes `to[i]`.
    pub(super) fn renumber(&mut self, to: &[u32]) {
        let ids = self
            .heap
            .iter()
            .map(|entry| to[entry.id as usize] + 1)
            .max()
            .unwrap_or(0);
        self.positions = vec![ABSENT; ids as usize];
        self.heap.shrink_to_fit();
        for (position, entry) in self.heap.iter_mut().enumerate() {
            entry.id = to[entry.id as usize];
            self.positions[entry.id as usize] = position as u32;
        }
    }

    fn position(&self, id: u32) -> Option<usize> {
        self.positions
            .get(id as usize)
            .filter(|position| **position != ABSENT)
            .map(|position| *position as usize)
    }

    fn sift_up(&mut self, mut at: usize) -> usize {
        while at > 0 {
            let parent = (at - 1) / 2;
            if !self.heap[at].before(&self.heap[parent]) {
                break;
            }
            self.swap(at, parent);
            at = parent;
        }
        at
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            let right = left + 1;
            let mut first = at;
            for child in [left, right] {
                if child < self.heap.len() && self.heap[child].before(&self.heap[first]) {
                    first = child;
                }
            }
            if first == at {
                return;
            }
            self.swap(at, first);
            at = first;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.positions[self.heap[a].id as usize] = a as u32;
        self.positions[self.heap[b].id as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn equal_times_keep_the_order_of_the_calls() {
        let mut heap = DelayHeap::default();
        for id in [7, 3, 5] {
            heap.set(id, 10);
        }
        let mut order = Vec::new();
        while let Some((_, id)) = heap.peek() {
            heap.remove(id);
            order.push(id);
        }
        assert_eq!(order, [7, 3, 5]);
    }

    #[test]
    fn an_emptied_heap_gives_its_memory_back() {
        let mut heap = DelayHeap::default();
        (0..1000).for_each(|id| heap.set(id, u64::from(id)));
        (0..1000).for_each(|id| assert_eq!(heap.remove(id), Some(u64::from(id))));
        assert_eq!(heap.heap.capacity() + heap.positions.capacity(), 0);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_sorted_map(ops in prop::collection::vec((0u32..20, prop::option::of(0u64..50)), 0..200)) {
            let mut heap = DelayHeap::default();
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            for (id, at) in ops {
                match at {
                    Some(at) => {
                        heap.set(id, at);
                        model.insert(id, at);
                    }
                    None => prop_assert_eq!(heap.remove(id), model.remove(&id)),
                }
                prop_assert_eq!(heap.len(), model.len());
                prop_assert_eq!(heap.peek().map(|(at, _)| at), model.values().min().copied());
                prop_assert_eq!(heap.get(id), model.get(&id).copied());
            }
        }
    }
}
