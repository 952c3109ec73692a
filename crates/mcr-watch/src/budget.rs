//! The memory that the lists of a fleet may take while they are read.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, Notify, Semaphore},
    time::timeout,
};

use crate::{WatchError, WatchSettings};

/// How long a list that grows waits for bytes that other lists hold. It holds bytes itself meanwhile, so a longer wait would
/// let lists wait for each other.
const WAIT_TO_GROW: Duration = Duration::from_secs(10);

const MIB: usize = 1 << 20;

/// The bytes that the lists of a fleet may take at once.
///
/// A list *begins* with some bytes, which are enough for most lists, and says how many it uses as it *grows*. Lists begin first
/// come first served. Bytes that are given back go to lists that grow before others begin, because lists under way have to end.
/// But a quarter of the budget is only for the bytes that lists begin with: a few large lists that never end do not keep the
/// others from being listed. A list that only waits for its server gives back all bytes but those that it uses.
pub struct ListBudget {
    /// One permit for each byte. Only lists that grow wait for it, so they are served first.
    free: Semaphore,
    /// One permit for each byte that lists may take beyond those that they begin with.
    growth: Semaphore,
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

impl ListBudget {
    /// A budget of [`WatchSettings::fleet_list_bytes`].
    pub fn new(settings: &WatchSettings) -> Self {
        let fleet = settings.fleet_list_bytes.clamp(MIB, Semaphore::MAX_PERMITS);
        let first = (fleet / 32).clamp(MIB, 16 * MIB);
        Self {
            free: Semaphore::new(fleet),
            growth: Semaphore::new(fleet - fleet / 4),
            turn: Mutex::default(),
            given_back: Notify::new(),
            first: first.min(settings.list_bytes),
            list: settings.list_bytes,
            fleet,
        }
    }

    /// Waits until a list may begin. Cancel safe.
    pub async fn begin(self: &Arc<Self>) -> Reservation {
        self.begin_with(0).await
    }

    /// Waits until a list may begin that is known to need so many bytes: it has failed with
    /// [`WatchError::ListBudgetSpent`] before. Otherwise lists could make each other fail again and again. Cancel safe.
    pub async fn begin_with(self: &Arc<Self>, bytes: usize) -> Reservation {
        let mut reservation = Reservation {
            budget: self.clone(),
            first: bytes.clamp(self.first, self.list.min(self.most()).max(self.first)),
            held: 0,
            grown: 0,
            kept: 0,
            used: 0,
        };
        reservation.begin_again().await;
        reservation
    }

    /// The most bytes that one list can get.
    fn most(&self) -> usize {
        self.fleet.min(self.first + self.fleet - self.fleet / 4)
    }
}

/// The bytes that one list holds. They go back to the budget when it is dropped.
#[must_use = "a list without bytes has to wait"]
pub struct Reservation {
    budget: Arc<ListBudget>,
    /// The bytes that this list begins with.
    first: usize,
    held: usize,
    /// How many of them are growth.
    grown: usize,
    /// The bytes that the list keeps even if it uses fewer.
    kept: usize,
    used: usize,
}

impl Reservation {
    /// Waits until the list may go on, if [`hold_at_most`](Self::hold_at_most) has given back all its bytes. A list that uses
    /// bytes goes on at once: if it waited here, the lists that wait could hold the whole budget. Cancel safe.
    pub async fn begin_again(&mut self) {
        if self.held == 0 {
            let budget = self.budget.clone();
            self.grow(self.first).await;
            let _turn = budget.turn.lock().await;
            while !take_now(&budget.free, self.first) {
                budget.given_back.notified().await;
            }
            (self.held, self.kept) = (self.first, self.first);
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
        let ListBudget { list, fleet, .. } = *self.budget;
        if used > list {
            return Err(WatchError::ListTooLarge {
                bytes: used,
                limit: list,
            });
        }
        self.give_back_all_but(used.max(self.kept));
        let spent = WatchError::ListBudgetSpent {
            bytes: used,
            limit: fleet,
        };
        if used > self.budget.most() {
            return Err(spent);
        }
        timeout(WAIT_TO_GROW, self.hold(used)).await.map_err(|_| spent)
    }

    /// Waits until the list holds so many bytes.
    async fn hold(&mut self, bytes: usize) {
        self.grow(bytes).await;
        take(&self.budget.free, &mut self.held, bytes).await;
    }

    /// Waits until the list may grow to so many bytes.
    async fn grow(&mut self, bytes: usize) {
        let growth = bytes.saturating_sub(self.budget.first);
        take(&self.budget.growth, &mut self.grown, growth).await;
    }

    fn give_back_all_but(&mut self, bytes: usize) {
        give_back(&self.budget.free, &mut self.held, bytes);
        let growth = self.held.saturating_sub(self.budget.first);
        give_back(&self.budget.growth, &mut self.grown, growth);
        self.budget.given_back.notify_one();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.give_back_all_but(0);
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
