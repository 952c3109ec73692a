//! The ready items of one cluster: a weighted lane for each priority, with ageing.
//!
//! Each ready item is in two lists. Its lane has the items of its priority in the order of arrival, and gives each class
//! its share. The list of ages has all ready items in the order in which they became ready, and bounds the waiting time of
//! an item that others overtake by promotion.

use super::delay::Tick;
use super::item::Item;
use super::list::{Links, List};
use super::priority::Priority;
use slab::Slab;

/// One dispatch in this many may go to the item that has been ready longest, if it is old enough.
const AGED_EVERY: u8 = 4;

#[derive(Debug)]
pub(super) struct Lanes {
    /// Indexed by `Priority as usize`.
    lanes: [List; 3],
    credit: [u8; 3],
    /// Every ready item, in the order in which they became ready.
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

    /// Moves a ready item to the lane of `to`, if that is higher. Its position in the list of ages stays.
    pub(super) fn promote<K>(&mut self, items: &mut Slab<Item<K>>, id: u32, to: Priority) {
        let from = items[id as usize].priority;
        if from < to {
            self.lanes[from as usize].unlink(items, id, lane);
            items[id as usize].priority = to;
            self.lanes[to as usize].push_back(items, id, lane);
        }
    }

    /// Removes a ready item.
    pub(super) fn remove<K>(&mut self, items: &mut Slab<Item<K>>, id: u32) {
        let at = items[id as usize].priority as usize;
        self.lanes[at].unlink(items, id, lane);
        self.ages.unlink(items, id, age);
    }

    /// Removes and returns the next item to dispatch.
    pub(super) fn take<K>(&mut self, items: &mut Slab<Item<K>>, now: Tick, age_after: Tick) -> Option<u32> {
        let oldest = self.oldest()?;
        self.since_aged = self.since_aged.saturating_add(1);
        let aged = now.saturating_sub(items[oldest as usize].since) >= age_after;
        let id = if aged && self.since_aged >= AGED_EVERY {
            // Does not use up the credit of its class: the first item of that lane keeps its turn.
            self.since_aged = 0;
            oldest
        } else {
            self.by_weight()?
        };
        self.remove(items, id);
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
