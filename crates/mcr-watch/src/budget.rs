//! The memory that the lists of a fleet may take while they are read.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use mcr_access::{ClusterName, internal::WeakCache};
use parking_lot::Mutex as SyncMutex;
use tokio::{
    sync::{Mutex, Notify, Semaphore},
    time::timeout,
};

use crate::{error::WatchError, settings::WatchSettings};

/// How long a list that grows waits for bytes that other lists hold. It holds bytes itself meanwhile, so a longer wait would
/// let lists wait for each other.
const WAIT_TO_GROW: Duration = Duration::from_secs(10);

const MIB: usize = 1 << 20;

/// The bytes that the lists of a fleet may take at once.
///
/// A list *begins* with some bytes, which are enough for most lists, and reports how many it uses as it *grows*. Lists begin first
/// come first served. Bytes that are given back go to lists that grow before others begin, because lists under way have to end.
/// A list that only waits for its server gives back all bytes but those that it uses.
///
/// # Shares
/// *Growth* is what lists hold beyond the bytes that they begin with, the first `first` bytes of each.
///
/// - All lists hold at most `fleet` bytes, at most three quarters of them as growth: large lists keep none from beginning.
/// - The growth of one cluster is at most twice what it leaves of all growth. So one cluster has at most two thirds of it, and
///   each further one leaves at least a third of the rest.
/// - The lists of one cluster hold at most half of `fleet`. A list waits for its own cluster before it waits for others.
///
/// # Invariants
/// Of a reservation, while no call of it is under way:
///
/// - `held == claimed`: it has taken these bytes from `free` and from the share of its cluster; and `grown == held - first`, if
///   that is not negative. A call takes from the growth first, then from the share, then from `free`. After one that was
///   cancelled, `grown` and `claimed` may be more, until the next call.
/// - `kept <= held`: what it holds even if it uses less. All that it begins with while it reads, nothing while it rests.
/// - `used <= held`, unless the last `use_bytes` has failed or was cancelled.
pub struct ListBudget {
    /// One permit for each byte. Only lists that grow wait for it, so they are served first.
    free: Semaphore,
    /// The bytes that lists may still grow by.
    growth: SyncMutex<usize>,
    /// Wakes all lists that wait for growth, which are few. In a queue, a large one would stop all behind it.
    growth_given_back: Notify,
    /// By cluster, as long as it has lists.
    shares: WeakCache<Share, ClusterName>,
    /// Locked by the one list that begins next.
    turn: Mutex<()>,
    given_back: Notify,
    /// The bytes that a list begins with.
    first: usize,
    /// The bytes of one list.
    list: usize,
    /// The bytes of all lists.
    fleet: usize,
}

/// What the lists of one cluster may take.
struct Share {
    /// One permit for each byte.
    free: Semaphore,
    /// What they have grown by. Changes only while [`ListBudget::growth`] is locked.
    grown: SyncMutex<usize>,
}

impl ListBudget {
    /// A budget of [`WatchSettings::fleet_list_bytes`].
    pub fn new(settings: &WatchSettings) -> Self {
        let fleet = settings.fleet_list_bytes.clamp(MIB, Semaphore::MAX_PERMITS);
        let first = (fleet / 32).clamp(MIB, 16 * MIB).min(settings.list_bytes);
        Self {
            free: Semaphore::new(fleet),
            growth: SyncMutex::new(fleet - fleet / 4),
            growth_given_back: Notify::new(),
            shares: WeakCache::default(),
            turn: Mutex::default(),
            given_back: Notify::new(),
            first,
            list: settings.list_bytes,
            fleet,
        }
    }

    /// Waits until a list of this cluster may begin. Cancel safe.
    pub async fn begin(self: &Arc<Self>, cluster: ClusterName) -> Reservation {
        self.begin_with(cluster, 0).await
    }

    /// Waits until a list may begin that is known to need so many bytes: it has failed with
    /// [`WatchError::ListBudgetSpent`] before. Otherwise lists could make each other fail again and again. Cancel safe.
    pub async fn begin_with(self: &Arc<Self>, cluster: ClusterName, bytes: usize) -> Reservation {
        let make = || {
            Ok::<_, Infallible>(Arc::new(Share {
                free: Semaphore::new(self.share()),
                grown: SyncMutex::default(),
            }))
        };
        let Ok(share) = self.shares.get_or_try_insert(cluster, make);
        let mut reservation = Reservation {
            share,
            budget: self.clone(),
            begins_with: bytes.clamp(self.first, self.limit().max(self.first)),
            held: 0,
            claimed: 0,
            grown: 0,
            kept: 0,
            used: 0,
        };
        reservation.begin_again().await;
        reservation
    }

    /// The most bytes that the lists of one cluster can get.
    fn share(&self) -> usize {
        // Two lists may begin, however small the budget is.
        (self.fleet / 2).max(2 * self.first).min(self.fleet)
    }

    /// The most bytes that one list can get.
    fn limit(&self) -> usize {
        self.list.min(self.share())
    }
}

/// The bytes that one list holds. They go back to the budget when it is dropped.
#[must_use = "a list without bytes has to wait"]
pub struct Reservation {
    budget: Arc<ListBudget>,
    share: Arc<Share>,
    /// The bytes that this list begins with.
    begins_with: usize,
    held: usize,
    /// The bytes that are taken from the share of the cluster.
    claimed: usize,
    /// The bytes that are taken from the growth.
    grown: usize,
    /// The bytes that the list keeps even if it uses fewer.
    kept: usize,
    used: usize,
}

impl Reservation {
    /// The most bytes that the list can get.
    pub fn limit(&self) -> usize {
        self.budget.limit()
    }

    /// Waits until the list may go on, if [`hold_at_most`](Self::hold_at_most) has given back all its bytes. A list that uses
    /// bytes goes on at once: if it waited here, the lists that wait could hold the whole budget. Cancel safe.
    pub async fn begin_again(&mut self) {
        if self.held == 0 {
            let budget = self.budget.clone();
            self.claim(self.begins_with).await;
            let _turn = budget.turn.lock().await;
            while !take_now(&budget.free, self.begins_with) {
                budget.given_back.notified().await;
            }
            (self.held, self.kept) = (self.begins_with, self.begins_with);
        }
    }

    /// Runs `work` to its end. If that takes longer than `limit`, gives back all bytes but those in use.
    pub async fn hold_at_most<T>(&mut self, limit: Duration, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if self.held > self.used {
            if let Ok(done) = timeout(limit, &mut work).await {
                return done;
            }
            self.rest(self.used);
        }
        work.await
    }

    /// Gives back all bytes but the `used` ones. The list does nothing for a while.
    pub fn rest(&mut self, used: usize) {
        (self.used, self.kept) = (used, 0);
        self.give_back_all_but(used);
    }

    /// Sets how many bytes the list takes now: what was read and not stored yet, and the objects that are not in the store yet.
    /// Waits for more bytes if the list needs them, and gives back what a smaller list does not need.
    ///
    /// Call it after each piece of a body: the memory of one piece for each list comes on top of the budget. Cancel safe; the
    /// bytes count as used from the call on, and stay with the list, also after an error.
    ///
    /// # Errors
    /// [`WatchError::ListTooLarge`] at once; [`WatchError::ListBudgetSpent`] if other lists hold the bytes for 10 seconds.
    pub async fn use_bytes(&mut self, used: usize) -> Result<(), WatchError> {
        self.used = used;
        let (limit, fleet) = (self.limit(), self.budget.fleet);
        if used > limit {
            return Err(WatchError::ListTooLarge { bytes: used, limit });
        }
        self.give_back_all_but(used.max(self.kept));
        let spent = WatchError::ListBudgetSpent {
            bytes: used,
            limit: fleet,
        };
        timeout(WAIT_TO_GROW, self.hold(used)).await.map_err(|_| spent)
    }

    /// Waits until the list holds so many bytes.
    async fn hold(&mut self, bytes: usize) {
        if bytes > self.held {
            self.claim(bytes).await;
            take(&self.budget.free, &mut self.held, bytes).await;
        }
    }

    /// Waits until neither the growth nor the share of the cluster is in the way of so many bytes.
    async fn claim(&mut self, bytes: usize) {
        loop {
            let mut given_back = pin!(self.budget.growth_given_back.notified());
            given_back.as_mut().enable();
            if grow_now(&self.budget, &self.share, &mut self.grown, bytes) {
                break;
            }
            given_back.await;
        }
        take(&self.share.free, &mut self.claimed, bytes).await;
    }

    fn give_back_all_but(&mut self, bytes: usize) {
        give_back(&self.budget.free, &mut self.held, bytes);
        give_back(&self.share.free, &mut self.claimed, self.held);
        let spare = self.grown - self.grown.min(self.held.saturating_sub(self.budget.first));
        if spare > 0 {
            let mut left = self.budget.growth.lock();
            *left += spare;
            *self.share.grown.lock() -= spare;
            drop(left);
            self.grown -= spare;
            self.budget.growth_given_back.notify_waiters();
        }
        self.budget.given_back.notify_one();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.give_back_all_but(0);
    }
}

/// Takes the growth of a list of so many bytes, if what its cluster then has is at most twice what is left.
fn grow_now(budget: &ListBudget, share: &Share, grown: &mut usize, bytes: usize) -> bool {
    let more = bytes.saturating_sub(budget.first + *grown);
    if more == 0 {
        return true;
    }
    let (mut left, mut of_cluster) = (budget.growth.lock(), share.grown.lock());
    match left.checked_sub(more) {
        Some(rest) if *of_cluster + more <= 2 * rest => {
            (*left, *of_cluster) = (rest, *of_cluster + more);
            *grown += more;
            true
        }
        _ => false,
    }
}

/// The semaphore takes no more at once.
fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Takes bytes if all of them are free.
fn take_now(from: &Semaphore, bytes: usize) -> bool {
    let Ok(taken) = from.try_acquire_many(permits(bytes)) else {
        return false;
    };
    taken.forget();
    true
}

/// Takes bytes until there are `wanted`. Cancel safe.
async fn take(from: &Semaphore, held: &mut usize, wanted: usize) {
    while *held < wanted {
        let more = permits(wanted - *held);
        // Nothing closes the semaphores. If one were closed, to go on without a limit is better than to stand still.
        if let Ok(permit) = from.acquire_many(more).await {
            permit.forget();
        }
        *held += more as usize;
    }
}

fn give_back(to: &Semaphore, held: &mut usize, all_but: usize) {
    let spare = held.saturating_sub(all_but);
    *held -= spare;
    to.add_permits(spare);
}

#[cfg(test)]
mod tests;
