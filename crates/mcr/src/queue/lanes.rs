//! The ready items of one cluster: a lane per priority, weighted, with ageing.
//!
//! Two lists run through the ready items: each lane in the order of arrival in that lane, and all of them in the order
//! they became ready. The first gives every class its share, the second gives the bound that holds whatever is promoted
//! past an item.

use super::Priority;
use super::delay::Tick;
use super::items::Item;
use super::list::{Links, List};
use slab::Slab;

/// One dispatch in this many may go to the item that has been ready longest, once that one is old enough.
pub(super) const AGED_EVERY: u8 = 4;

#[derive(Debug)]
pub(super) struct Lanes {
    /// Indexed by `Priority as usize`.
    lanes: [List; 3],
    credit: [u8; 3],
    /// Every ready item, in the order they became ready.
    ages: List,
    since_aged: u8,
}

fn lane<K>(item: &mut Item<K>) -> &mut Links {
    &mut item.lane
}

fn age<K>(item: &mut Item<K>) -> &mut Links {
    &mut item.age
}

impl Lanes {
    pub(super) fn new() -> Self {
        Self {
            lanes: [List::new(), List::new(), List::new()],
            credit: Priority::WEIGHTS,
            ages: List::new(),
            since_aged: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ages.len()
    }

    /// The item that has been ready longest.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.ages.head()
    }

    pub(super) fn push<K>(&mut self, items: &mut Slab<Item<K>>, id: u32) {
        let at = items[id as usize].priority as usize;
        self.lanes[at].push_back(items, id, lane);
        self.ages.push_back(items, id, age);
    }

    /// Moves a ready item to a lane above. Its place in the order of ages stays.
    pub(super) fn promote<K>(&mut self, items: &mut Slab<Item<K>>, id: u32, to: Priority) {
        let from = items[id as usize].priority;
        if from < to {
            self.lanes[from as usize].unlink(items, id, lane);
            items[id as usize].priority = to;
            self.lanes[to as usize].push_back(items, id, lane);
        }
    }

    /// Takes the item whose turn it is.
    pub(super) fn take<K>(&mut self, items: &mut Slab<Item<K>>, now: Tick, age_after: Tick) -> Option<u32> {
        let oldest = self.oldest()?;
        self.since_aged = self.since_aged.saturating_add(1);
        let aged = now.saturating_sub(items[oldest as usize].since) >= age_after;
        let id = if aged && self.since_aged >= AGED_EVERY {
            // Not charged to its class: the oldest need not be the first of its lane, whose turn must not go to others.
            self.since_aged = 0;
            oldest
        } else {
            self.by_weight()?
        };
        let at = items[id as usize].priority as usize;
        self.lanes[at].unlink(items, id, lane);
        self.ages.unlink(items, id, age);
        Some(id)
    }

    fn by_weight(&mut self) -> Option<u32> {
        for _ in 0..2 {
            for at in (0..self.lanes.len()).rev() {
                if self.credit[at] > 0
                    && let Some(id) = self.lanes[at].head()
                {
                    self.credit[at] -= 1;
                    return Some(id);
                }
            }
            self.credit = Priority::WEIGHTS;
        }
        None
    }

    pub(super) fn renumber(&mut self, to: &[u32]) {
        self.ages.renumber(to);
        self.lanes.iter_mut().for_each(|lane| lane.renumber(to));
    }
}
