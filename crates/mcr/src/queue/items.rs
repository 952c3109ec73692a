//! The items of one cluster: deduplication and the states of a key. Knows nothing of rings, limits and gates.

use super::Priority;
use super::delay::{DelayHeap, NEVER, Tick};
use super::lanes::Lanes;
use super::list::Links;
use hashbrown::HashTable;
use slab::Slab;
use std::hash::{BuildHasher, Hash};

/// A debounced wish is put off by further wishes for at most this many debounce times.
pub(super) const DEBOUNCE_LIMIT: u64 = 10;

/// Below this capacity there is nothing worth giving back.
const SMALL: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the lanes.
    Queued,
    /// In the delayed heap.
    Delayed,
    /// Handed out. Wishes are kept in `since`, `quiet`, `due` and `wish`.
    Running,
    /// Handed out in an epoch that is over.
    Orphaned,
}

/// One key: here while it is queued, delayed or running, gone otherwise. The back-off history needs no home of its own,
/// because a key that failed is always delayed, queued or running until it succeeds or is dropped.
#[derive(Debug)]
pub(super) struct Item<K> {
    pub(super) key: K,
    /// Queued: the earliest wish. Else: the earliest wish for "now" that is still pending, or [`NEVER`].
    pub(super) since: Tick,
    /// Running: when the wish in `since` may run (later than now only under debounce).
    quiet: Tick,
    /// Not queued: the earliest wish for a later time, or [`NEVER`].
    due: Tick,
    pub(super) lane: Links,
    pub(super) age: Links,
    pub(super) attempt: u32,
    /// Which run this is, so that a completion told twice is recognised.
    pub(super) run: u32,
    state: State,
    pub(super) priority: Priority,
    /// Running: the highest priority wished meanwhile.
    wish: Option<Priority>,
}

/// A run that begins.
pub(super) struct Started<'a, K> {
    pub(super) item: &'a Item<K>,
    pub(super) waited: Tick,
}

/// A wish to run a key.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub(super) priority: Priority,
    pub(super) now: Tick,
    /// When it may run; `now` or earlier: at once (subject to `debounce`).
    pub(super) at: Tick,
    /// Zero: none.
    pub(super) debounce: Tick,
}

/// What a completed run leaves behind.
pub(super) struct Verdict {
    pub(super) failed: bool,
    pub(super) again: Option<(Tick, Priority)>,
}

impl Verdict {
    pub(super) const FORGET: Self = Self {
        failed: false,
        again: None,
    };
}

/// What [`Items::finish`] found.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Finished {
    Current,
    Orphaned,
}

#[derive(Debug)]
pub(super) struct Items<K> {
    /// Places in `slab`, by hash of the key; so a key is stored once.
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

    /// Since when the item waits that has been ready longest.
    pub(super) fn oldest(&self) -> Option<Tick> {
        self.lanes.oldest().map(|id| self.slab[id as usize].since)
    }

    pub(super) fn next_due(&self) -> Option<Tick> {
        self.delayed.peek().map(|(at, _)| at)
    }

    fn find(&self, hash: u64, key: &K) -> Option<u32> {
        self.table
            .find(hash, |id| self.slab[*id as usize].key == *key)
            .copied()
    }

    /// Takes a wish; `false` if it was merged into one that was there.
    pub(super) fn wish(&mut self, key: K, wish: Wish, hasher: &impl BuildHasher) -> bool {
        let hash = hasher.hash_one(&key);
        let found = self.find(hash, &key);
        let merged = found.is_some_and(|id| match self.slab[id as usize].state {
            State::Queued | State::Delayed => true,
            State::Running | State::Orphaned => self.slab[id as usize].wish.is_some(),
        });
        let id = found.unwrap_or_else(|| self.insert(hash, key, wish.priority, hasher));
        let item = &mut self.slab[id as usize];
        match item.state {
            State::Queued => self.lanes.promote(&mut self.slab, id, wish.priority),
            State::Delayed => {
                item.priority = item.priority.max(wish.priority);
                let at = item.hear(wish);
                let due = item.due;
                self.place(id, at.min(due), wish.now);
            }
            State::Running | State::Orphaned => {
                item.wish = item.wish.max(Some(wish.priority));
                item.quiet = item.hear(wish);
            }
        }
        !merged
    }

    /// Puts an item that is not in the lanes where it belongs, to be run at `at`.
    fn place(&mut self, id: u32, at: Tick, now: Tick) {
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

    /// Moves what is due by `now` to the lanes, at most `budget` items. Says how many.
    pub(super) fn mature(&mut self, now: Tick, budget: usize) -> usize {
        let mut moved = 0;
        while moved < budget
            && let Some((at, id)) = self.delayed.peek()
            && at <= now
        {
            self.place(id, at, now);
            moved += 1;
        }
        moved
    }

    /// Begins the run whose turn it is.
    pub(super) fn start(&mut self, now: Tick, age_after: Tick, run: u32) -> Option<Started<'_, K>> {
        let id = self.lanes.take(&mut self.slab, now, age_after)?;
        let item = &mut self.slab[id as usize];
        let waited = now.saturating_sub(item.since);
        item.state = State::Running;
        item.run = run;
        (item.since, item.quiet, item.due, item.wish) = (NEVER, NEVER, NEVER, None);
        Some(Started { item, waited })
    }

    /// Ends a run. `verdict` is asked, with the failures before this run, unless the run was orphaned. `None`: there is no
    /// such run, nothing changed.
    pub(super) fn finish(
        &mut self,
        key: &K,
        run: u32,
        verdict: impl FnOnce(u32) -> Verdict,
        now: Tick,
        hasher: &impl BuildHasher,
    ) -> Option<Finished> {
        let hash = hasher.hash_one(key);
        let id = self.find(hash, key)?;
        let item = &mut self.slab[id as usize];
        if item.run != run {
            return None;
        }
        let (finished, verdict) = match item.state {
            State::Queued | State::Delayed => return None,
            State::Running => (Finished::Current, verdict(item.attempt)),
            State::Orphaned => (Finished::Orphaned, Verdict::FORGET),
        };
        item.attempt = if verdict.failed {
            item.attempt.saturating_add(1)
        } else {
            0
        };
        let wish = item.wish.take();
        if item.since == NEVER {
            // Only wishes for later came: the earlier time wins, the higher priority is carried.
            if let Some((at, _)) = verdict.again {
                item.due = item.due.min(at);
            }
            let again = verdict.again.map(|(_, priority)| priority);
            if let Some(priority) = wish.max(again) {
                item.priority = priority;
                let due = item.due;
                self.place(id, due, now);
            } else {
                self.remove(hash, id);
                self.give_back(hasher);
            }
        } else {
            // A wish for "now" makes any requeue superfluous: that run will ask again if it needs to.
            item.priority = wish.unwrap_or(Priority::Live);
            let at = item.quiet.min(item.due);
            self.place(id, at, now);
        }
        Some(finished)
    }

    /// Forgets all but the running items, which become orphans without wishes. Returns how many were pending, and the
    /// storage of the forgotten, to be dropped where no lock is held.
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

    /// A new item, delayed for ever; the caller places it.
    fn insert(&mut self, hash: u64, key: K, priority: Priority, hasher: &impl BuildHasher) -> u32 {
        let id = self.slab.insert(Item {
            key,
            since: NEVER,
            quiet: NEVER,
            due: NEVER,
            lane: Links::NONE,
            age: Links::NONE,
            attempt: 0,
            run: 0,
            state: State::Delayed,
            priority,
            wish: None,
        }) as u32;
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

    /// Gives memory back when a burst has passed. Costs O(1) amortised over the removals that led here.
    fn give_back(&mut self, hasher: &impl BuildHasher) {
        let room = self.slab.capacity();
        if room <= SMALL || self.slab.len() >= room / 8 {
            return;
        }
        let old = std::mem::take(&mut self.slab);
        let mut to = vec![super::list::NIL; room];
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

    /// How many keys are known at all, running ones included.
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

impl<K> Item<K> {
    /// Notes a wish; returns when the wishes for "now" may run.
    fn hear(&mut self, wish: Wish) -> Tick {
        if wish.at > wish.now {
            self.due = self.due.min(wish.at);
        } else {
            self.since = self.since.min(wish.now);
        }
        if self.since == NEVER {
            NEVER
        } else if wish.at > wish.now {
            self.quiet
        } else {
            let limit = self
                .since
                .saturating_add(wish.debounce.saturating_mul(DEBOUNCE_LIMIT));
            self.quiet = wish.now.saturating_add(wish.debounce).min(limit);
            self.quiet
        }
    }
}
