//! The fair work queue of a controller. It decides which request of which cluster runs next.
//!
//! The queue is generic over the name `C` of a cluster, the key `K` of an object inside a cluster, and the epoch `E` of a
//! cluster. The unit of work is the pair (cluster, key). [`QueueCore`] is a plain data structure without clock or lock.
//! [`FairQueue`] puts it behind a
//! lock and adds an async [`next`](FairQueue::next).
//!
//! # States of a key
//! A key is queued, delayed, running or unknown. The queue merges adds of the same pair, and **a pair never runs twice at
//! once**.
//! - The earlier time wins: [`add`](QueueCore::add) makes a delayed key ready now, and
//!   [`add_after`](QueueCore::add_after) never postpones a key. One run answers all adds that came before it began.
//! - An add for a running key waits until the run is done. Then the key is queued at once, with the priority of that add,
//!   whatever the run returned. A failed run still counts: [`Work::attempt`] and the back-off continue from it.
//! - A run has the highest priority of its adds. [`Work::queued_for`] counts from the earliest add; for a delayed key, it
//!   counts from the time when the delay ended.
//! - [`Outcome::Retry`] delays the key by its [`Backoff`], in the class [`Retry`](Priority::Retry). A planned requeue
//!   ([`Outcome::Success`] with a time) is a resync, in the class [`Initial`](Priority::Initial).
//! - With [debounce](QueueConfig::debounce), an added key becomes ready when the debounce time has passed without another
//!   add of the same key, but at the latest 10 debounce times after the first add. So a key that changes all the time
//!   still runs. Debounce does not apply to keys that are ready already, to delays and to retries.
//!
//! # Order inside a cluster
//! The classes share the dispatches of a cluster 8 : 2 : 1 ([`Live`](Priority::Live), [`Initial`](Priority::Initial),
//! [`Retry`](Priority::Retry)). Each class is first in, first out, and the other classes get an unused share. An add with a
//! higher priority moves an item to the end of the higher class. In addition, every 4th dispatch goes to the item that has
//! been ready longest, if it has been ready for [`QueueConfig::age_after`]. So nothing waits for ever:
//! - The first item of a class is among the next 28 dispatches of its cluster (two rounds of 11, and the aged items).
//! - Take an item that has been ready for `age_after`, and `m` items still queued that became ready before it. The item is
//!   among the next `4 (m + 1)` dispatches of its cluster, whatever arrives or changes its class meanwhile.
//!
//! # Order among clusters
//! Weighted round robin. A cluster takes part only while it can dispatch: it is engaged, its gate is open, it is not
//! parked, it is below its limit, and it has a ready item. The queue never visits other clusters. A cluster that
//! joins goes to the end of the round. So among active clusters with the weights `w1..wc`, each cluster is served within
//! `w1 + .. + wc` dispatches, however many items the others have.
//!
//! # Epochs
//! [`engage`](QueueCore::engage) admits a cluster under an epoch: a number of this engagement, or whatever else is equal to
//! no other one. [`Work::epoch`] carries it, so a caller that needs more of the cluster makes that the epoch.
//! [`disengage`](QueueCore::disengage) drops the waiting items of the cluster and orphans its runs: the queue ignores the
//! outcome of an orphan. While an orphan is not done, its key does not run in the next epoch either, and adds for the key
//! wait. Orphans count in the global limit, because they still use its resources. They do not count in the limit of their
//! cluster, because hung runs of an earlier epoch would then block the current one.
//!
//! # Costs
//! A call takes well under a microsecond at 100,000 items, whatever the number of clusters. A waiting item takes 80 to 160
//! bytes (vectors double), a delayed one about 50 more, and the key its own heap memory. An engaged cluster takes 376 bytes. A
//! key that neither waits nor runs takes no memory, and neither does a cluster that is not engaged. Delays are kept up to
//! [`MAX_DELAY`]; longer ones are shortened to it.

mod backoff;
mod config;
mod core;
mod delay;
mod handle;
mod item;
mod items;
mod lanes;
mod list;
mod priority;
mod stats;
mod work;

pub use self::backoff::Backoff;
pub use self::config::QueueConfig;
pub(crate) use self::core::Added;
pub use self::core::{MAX_DELAY, QueueCore};
pub use self::handle::FairQueue;
pub use self::priority::Priority;
pub use self::stats::{Counters, Depth};
pub use self::work::{Outcome, Work};
