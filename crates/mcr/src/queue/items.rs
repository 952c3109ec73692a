//! The items of one cluster: their states, and the merging of adds. The core has the rings, limits and gates.

use super::delay::{DelayHeap, NEVER, Tick};
use super::item::{Add, Item, State};
use super::lanes::Lanes;
use super::list::NIL;
use super::priority::Priority;
use hashbrown::HashTable;
use slab::Slab;
use std::hash::{BuildHasher, Hash};

/// Storage of at most this capacity is never shrunk.
const SMALL: usize = 8;

/// When a completed run asks for another run, if it does. It has failed if the class is [`Priority::Retry`].
pub(super) type Requeue = Option<(Tick, Priority)>;

/// Whether a completed run belongs to the current epoch.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Finished {
    Current,
    Orphaned,
}

#[derive(Debug)]
pub(super) struct Items<K> {
    /// Indexes into `slab`, by hash of the key. So each key is stored once.
    table: HashTable<u32>,
    slab: Slab<Item<K>>,
    lanes: Lanes,
    delayed: DelayHeap,
}

impl<K: Clone + Eq + Hash> Items<K> {
    pub(super) fn new() -> Self {
        Self {
            table: HashTable::new(),
            slab: Slab::new(),
            lanes: Lanes::new(),
            delayed: DelayHeap::default(),
        }
    }

    pub(super) fn ready(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// When the item that has been ready longest became ready.
    pub(super) fn oldest(&self) -> Option<Tick> {
        self.lanes.oldest().map(|id| self.slab[id as usize].since)
    }

    pub(super) fn next_due(&self) -> Option<Tick> {
        self.delayed.peek().map(|(at, _)| at)
    }

    /// When a key may run next; zero if it is ready or running. `None` for unknown keys.
    pub(super) fn due(&self, key: &K, hasher: &impl BuildHasher) -> Option<Tick> {
        let id = self.find(hasher.hash_one(key), key)?;
        let orphaned = self.slab[id as usize].state == State::Orphaned;
        (!orphaned).then(|| self.delayed.get(id).unwrap_or_default())
    }

    fn find(&self, hash: u64, key: &K) -> Option<u32> {
        self.table
            .find(hash, |id| self.slab[*id as usize].key == *key)
            .copied()
    }

    /// Adds a key. Returns `false` if the add was merged into a pending one.
    pub(super) fn add(&mut self, key: K, add: Add, hasher: &impl BuildHasher) -> bool {
        let hash = hasher.hash_one(&key);
        let found = self.find(hash, &key);
        let merged = found.is_some_and(|id| match self.slab[id as usize].state {
            State::Queued | State::Delayed => true,
            State::Running | State::Orphaned => self.slab[id as usize].added.is_some(),
        });
        let id = found.unwrap_or_else(|| self.insert(hash, key, add.priority, hasher));
        let item = &mut self.slab[id as usize];
        match item.state {
            State::Queued => self.lanes.promote(&mut self.slab, id, add.priority),
            State::Delayed => {
                item.priority = item.priority.max(add.priority);
                let at = item.merge(add);
                let due = item.due;
                self.schedule(id, at.min(due), add.now);
            }
            State::Running | State::Orphaned => {
                item.added = item.added.max(Some(add.priority));
                item.quiet = item.merge(add);
            }
        }
        !merged
    }

    /// Puts an item that is not in the lanes there, or into the heap of delayed items if `at` is later than `now`.
    fn schedule(&mut self, id: u32, at: Tick, now: Tick) {
        let item = &mut self.slab[id as usize];
        if at > now {
            item.state = State::Delayed;
            self.delayed.set(id, at);
        } else {
            item.state = State::Queued;
            item.since = item.since.min(at);
            item.due = NEVER;
            self.delayed.remove(id);
            self.lanes.push(&mut self.slab, id);
        }
    }

    /// Moves at most `budget` items that are due by `now` to the lanes. Returns how many it moved.
    pub(super) fn move_due(&mut self, now: Tick, budget: usize) -> usize {
        let mut moved = 0;
        while moved < budget
            && let Some((at, id)) = self.delayed.peek()
            && at <= now
        {
            self.schedule(id, at, now);
            moved += 1;
        }
        moved
    }

    /// Takes the next item from the lanes and begins its run. Returns it with the time for which it was ready.
    pub(super) fn start(&mut self, now: Tick, age_after: Tick, run: u32) -> Option<(&Item<K>, Tick)> {
        let id = self.lanes.take(&mut self.slab, now, age_after)?;
        let item = &mut self.slab[id as usize];
        let waited = now.saturating_sub(item.since);
        item.state = State::Running;
        item.run = run;
        (item.since, item.quiet, item.due, item.added) = (NEVER, NEVER, NEVER, None);
        Some((item, waited))
    }

    /// Ends a run. Calls `requeue` with the number of failures before this run, unless the run was orphaned. Returns
    /// `None`, and changes nothing, if there is no such run.
    pub(super) fn finish(
        &mut self,
        key: &K,
        run: u32,
        requeue: impl FnOnce(u32) -> Requeue,
        now: Tick,
        hasher: &impl BuildHasher,
    ) -> Option<Finished> {
        let hash = hasher.hash_one(key);
        let id = self.find(hash, key)?;
        let item = &mut self.slab[id as usize];
        if item.run != run {
            return None;
        }
        let (finished, requeue) = match item.state {
            State::Queued | State::Delayed => return None,
            State::Running => (Finished::Current, requeue(item.attempt)),
            State::Orphaned => (Finished::Orphaned, None),
        };
        item.attempt = if matches!(requeue, Some((_, Priority::Retry))) {
            item.attempt.saturating_add(1)
        } else {
            0
        };
        let added = item.added.take();
        if item.since == NEVER {
            // Only adds with a delay came: the earliest time and the highest priority win.
            if let Some((at, _)) = requeue {
                item.due = item.due.min(at);
            }
            let again = requeue.map(|(_, priority)| priority);
            if let Some(priority) = added.max(again) {
                item.priority = priority;
                let due = item.due;
                self.schedule(id, due, now);
            } else {
                self.remove(hash, id);
                self.shrink(hasher);
            }
        } else {
            // An add without delay replaces the requeue: the next run asks for its own.
            item.priority = added.unwrap_or(Priority::Live);
            let at = item.quiet.min(item.due);
            self.schedule(id, at, now);
        }
        Some(finished)
    }

    /// Makes all items due that wait after failures, and forgets how often they failed.
    pub(super) fn retry_now(&mut self, now: Tick) {
        for (id, item) in &mut self.slab {
            if item.state == State::Delayed && item.attempt > 0 {
                (item.attempt, item.due) = (0, now);
                self.delayed.set(id as u32, now);
            }
        }
    }

    /// Drops a key that is not running, with its back-off history. Returns whether it was pending.
    pub(super) fn forget(&mut self, key: &K, hasher: &impl BuildHasher) -> bool {
        let hash = hasher.hash_one(key);
        let Some(id) = self.find(hash, key) else {
            return false;
        };
        match self.slab[id as usize].state {
            State::Queued => self.lanes.remove(&mut self.slab, id),
            State::Delayed => self.delayed.remove(id),
            State::Running | State::Orphaned => return false,
        }
        self.remove(hash, id);
        self.shrink(hasher);
        true
    }

    /// Drops the pending items. The running items become orphans and lose the adds that wait for them. Returns the number of
    /// pending items, and the old storage, which the caller drops after it has released its lock.
    pub(super) fn disown(&mut self, hasher: &impl BuildHasher) -> (usize, Items<K>) {
        let pending = self.ready() + self.delayed();
        let mut old = std::mem::replace(self, Self::new());
        if old.slab.len() == pending {
            return (pending, old);
        }
        for (_, item) in &mut old.slab {
            if matches!(item.state, State::Running | State::Orphaned) {
                let hash = hasher.hash_one(&item.key);
                let id = self.insert(hash, item.key.clone(), item.priority, hasher);
                let kept = &mut self.slab[id as usize];
                (kept.state, kept.run) = (State::Orphaned, item.run);
            }
        }
        (pending, old)
    }

    /// Stores a new item. The caller sets its state.
    fn insert(&mut self, hash: u64, key: K, priority: Priority, hasher: &impl BuildHasher) -> u32 {
        let id = self.slab.insert(Item::new(key, priority)) as u32;
        let slab = &self.slab;
        self.table
            .insert_unique(hash, id, |id| hasher.hash_one(&slab[*id as usize].key));
        id
    }

    fn remove(&mut self, hash: u64, id: u32) {
        if let Ok(entry) = self.table.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
        self.slab.remove(id as usize);
    }

    /// Frees memory after a burst. Costs O(1) amortised over the removals since the last time.
    fn shrink(&mut self, hasher: &impl BuildHasher) {
        let room = self.slab.capacity();
        if room <= SMALL || self.slab.len() >= room / 8 {
            return;
        }
        let old = std::mem::take(&mut self.slab);
        let mut to = vec![NIL; room];
        self.slab.reserve_exact(old.len() * 2);
        self.table = HashTable::with_capacity(old.len() * 2);
        for (id, item) in old {
            to[id] = self.slab.insert(item) as u32;
        }
        let slab = &self.slab;
        for (id, item) in slab {
            let hash = hasher.hash_one(&item.key);
            self.table
                .insert_unique(hash, id as u32, |id| hasher.hash_one(&slab[*id as usize].key));
        }
        for (_, item) in &mut self.slab {
            item.lane.renumber(&to);
            item.age.renumber(&to);
        }
        self.lanes.renumber(&to);
        self.delayed.renumber(&to);
    }

    /// The number of keys, running ones included.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        assert_eq!(self.table.len(), self.slab.len());
        self.slab.len()
    }

    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.slab.capacity()
    }
}
