//! Whether this process leads: a check that needs no task and no lock, and methods that wait for a change.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::{
    clock,
    decision::{Decision, Term},
    status::{LeaseStatus, Role},
};

/// Reports whether this process leads. Cheap to clone; all clones report the same.
///
/// [`is_held`](Self::is_held) compares the deadline of the last renewal with a clock that counts suspends. So the
/// result is right even if the process was stopped or suspended and none of its tasks has run since.
#[derive(Clone)]
pub struct Leadership(Arc<Shared>);

struct Shared {
    /// The number of the current or last term, to which the deadlines belong.
    term: AtomicU64,
    /// In nanoseconds on the clock of the candidate. Zero: not held.
    held_until: AtomicU64,
    stop_by: AtomicU64,
    held: watch::Sender<bool>,
    status: Mutex<LeaseStatus>,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Shared {
    // A guard reads the deadline before the term, and `publish` stores the term before its deadlines. So a guard never
    // uses the deadline of a later term.
    fn left(&self, deadline: &AtomicU64, term: Option<u64>) -> Option<Duration> {
        let until = deadline.load(Ordering::SeqCst);
        if term.is_some_and(|term| self.term.load(Ordering::SeqCst) != term) {
            return None;
        }
        let left = until.checked_sub(nanos(clock::now()))?;
        (left > 0).then(|| Duration::from_nanos(left))
    }

    /// Waits until a deadline has passed.
    async fn passed(&self, deadline: &AtomicU64, term: Option<u64>) {
        let mut changed = self.held.subscribe();
        while let Some(left) = self.left(deadline, term) {
            tokio::select! {
                // The sender lives as long as `self`.
                _ = changed.changed() => {}
                () = tokio::time::sleep(left) => {}
            }
        }
    }

    fn status(&self) -> MutexGuard<'_, LeaseStatus> {
        self.status.lock()
    }
}

impl Leadership {
    pub(crate) fn new(identity: Arc<str>, lease: Arc<str>) -> Self {
        Self(Arc::new(Shared {
            term: AtomicU64::new(0),
            held_until: AtomicU64::new(0),
            stop_by: AtomicU64::new(0),
            held: watch::Sender::new(false),
            status: Mutex::new(LeaseStatus {
                role: Role::Standby,
                holder: None,
                identity,
                lease,
                since: SystemTime::now(),
                error: None,
            }),
        }))
    }

    /// Whether this process holds the Lease now. Takes well under a microsecond.
    pub fn is_held(&self) -> bool {
        self.0.left(&self.0.held_until, None).is_some()
    }

    /// The state of the Lease as a value to watch. It may be outdated, for example after a suspend of the machine.
    /// Work that only a leader may do must check [`is_held`](Self::is_held) or a [`LeaseGuard`].
    pub fn held(&self) -> watch::Receiver<bool> {
        self.0.held.subscribe()
    }

    /// A guard for a piece of work that only the leader may do. `None`: this process does not lead.
    pub fn guard(&self) -> Option<LeaseGuard> {
        let guard = LeaseGuard {
            term: self.0.term.load(Ordering::SeqCst),
            shared: self.0.clone(),
        };
        guard.is_held().then_some(guard)
    }

    /// Waits until this process leads.
    ///
    /// Cancel safe.
    pub async fn acquired(&self) -> LeaseGuard {
        let mut changed = self.0.held.subscribe();
        loop {
            if let Some(guard) = self.guard() {
                return guard;
            }
            // The sender lives as long as `self`.
            let _ = changed.changed().await;
        }
    }

    /// Waits until this process does not lead. Returns at once if it does not lead now.
    ///
    /// Cancel safe. For the work of one term, use [`LeaseGuard::lost`]: it also reports a loss after which this
    /// process leads again.
    pub async fn lost(&self) {
        self.0.passed(&self.0.held_until, None).await;
    }

    /// The state of the Lease and of this candidate, for people.
    pub fn status(&self) -> LeaseStatus {
        let mut status = self.0.status().clone();
        if !self.is_held() {
            status.role = Role::Standby;
        }
        status
    }

    /// Publishes the decision. Returns the role if it has changed.
    pub(crate) fn publish(&self, decision: &Decision) -> Option<Role> {
        let Term {
            number,
            held_until,
            stop_by,
        } = decision.term();
        let shared = &*self.0;
        let new_term = shared.term.load(Ordering::SeqCst) != number;
        if new_term || held_until.is_zero() {
            shared.held_until.store(0, Ordering::SeqCst);
            shared.stop_by.store(0, Ordering::SeqCst);
        }
        shared.term.store(number, Ordering::SeqCst);
        shared.stop_by.store(nanos(stop_by), Ordering::SeqCst);
        shared.held_until.store(nanos(held_until), Ordering::SeqCst);
        let role = if self.is_held() {
            Role::Leader
        } else {
            Role::Standby
        };
        let changed = {
            let mut status = shared.status();
            if status.holder.as_deref() != decision.holder() {
                status.holder = decision.holder().map(Into::into);
            }
            let changed = status.role != role || new_term;
            if changed {
                (status.role, status.since) = (role, SystemTime::now());
            }
            changed
        };
        if changed {
            // Wakes all waiting tasks, even if one term directly follows another.
            shared.held.send_replace(role == Role::Leader);
        }
        changed.then_some(role)
    }

    pub(crate) fn set_lease(&self, lease: Arc<str>) {
        self.0.status().lease = lease;
    }

    /// Stores the text of an error for the status. Returns whether it is new.
    pub(crate) fn set_error(&self, error: Option<&str>) -> bool {
        let mut status = self.0.status();
        let new = status.error.as_deref() != error;
        if new {
            status.error = error.map(Into::into);
        }
        new
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&self.status()).finish()
    }
}

/// A guard for the work of one term. It does not hold the Lease: it reports whether the work may begin and continue.
///
/// A guard of an earlier term never becomes valid again, even if this process leads again.
#[derive(Clone)]
pub struct LeaseGuard {
    term: u64,
    shared: Arc<Shared>,
}

impl LeaseGuard {
    /// Whether the process still leads in the term of this guard. If this returns `false`, no work may begin, and
    /// running work should end.
    pub fn is_held(&self) -> bool {
        self.shared
            .left(&self.shared.held_until, Some(self.term))
            .is_some()
    }

    /// Whether running work may still end in an orderly way. If this returns `false`, work must stop, because another
    /// process may lead.
    ///
    /// If renewals fail, this stays `true` for a while after the loss: until halfway between the renew deadline and
    /// the end of the lease duration. If another process has taken the Lease, it is `false` at once.
    pub fn may_finish(&self) -> bool {
        self.shared.left(&self.shared.stop_by, Some(self.term)).is_some()
    }

    /// Waits until [`is_held`](Self::is_held) is `false`. Cancel safe.
    pub async fn lost(&self) {
        self.shared.passed(&self.shared.held_until, Some(self.term)).await;
    }

    /// Waits until [`may_finish`](Self::may_finish) is `false`. Cancel safe.
    pub async fn must_stop(&self) {
        self.shared.passed(&self.shared.stop_by, Some(self.term)).await;
    }
}

impl fmt::Debug for LeaseGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseGuard")
            .field("term", &self.term)
            .field("held", &self.is_held())
            .finish()
    }
}
