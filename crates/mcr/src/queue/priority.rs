//! The priority classes of items.

/// Why an item is in the queue, and so how urgent it is. Ordered: `Live` is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// The last run failed or asked for a retry. Weight 1.
    Retry = 0,
    /// A first listing or a resync added the item; probably nothing changed. Weight 2.
    Initial = 1,
    /// The object changed just now. Weight 8.
    Live = 2,
}

impl Priority {
    /// Every class, the most urgent first.
    pub const ALL: [Self; 3] = [Self::Live, Self::Initial, Self::Retry];

    pub(super) const WEIGHTS: [u8; 3] = [1, 2, 8];

    /// The share of this class in the dispatches of a cluster, relative to the other classes.
    pub fn weight(self) -> u8 {
        Self::WEIGHTS[self as usize]
    }
}
