use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::audit::{COMPLETE, Pending, SimAuditEvent, SimAuditLog};
use super::auth::Users;
use super::store::Store;
use crate::lock::lock;

/// The data of a simulated cluster.
pub(super) struct ClusterState {
    pub(super) name: Arc<str>,
    pub(super) settings: Settings,
    store: Mutex<Store>,
    users: Mutex<Users>,
    audit: Mutex<SimAuditLog>,
    ids: Ids,
    watches: AtomicUsize,
    watch_numbers: AtomicU64,
    /// The current epoch. Watches that started in an older one end.
    epoch: AtomicU64,
}

/// The options of a cluster that hold for its whole life.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) window: usize,
    pub(super) bookmark_interval: Duration,
    pub(super) watch_timeout: Duration,
    pub(super) audit_limit: usize,
    pub(super) managed_fields: bool,
    pub(super) finish_namespaces: bool,
}

/// Makes UIDs and suffixes of names.
#[derive(Debug)]
struct Ids {
    seed: u64,
    count: AtomicU64,
}

impl Ids {
    fn next(&self) -> u64 {
        // splitmix64: well spread, and the same again for the same seed.
        let count = self.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut mixed = self.seed.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The lock of a cluster's data. Dropping it wakes the watches that a write concerns.
pub(super) struct StoreGuard<'a>(Option<MutexGuard<'a, Store>>);

impl std::ops::Deref for StoreGuard<'_> {
    type Target = Store;
    fn deref(&self) -> &Store {
        match &self.0 {
            Some(store) => store,
            None => unreachable!("taken in drop only"),
        }
    }
}

impl std::ops::DerefMut for StoreGuard<'_> {
    fn deref_mut(&mut self) -> &mut Store {
        match &mut self.0 {
            Some(store) => store,
            None => unreachable!("taken in drop only"),
        }
    }
}

impl Drop for StoreGuard<'_> {
    fn drop(&mut self) {
        let Some(mut store) = self.0.take() else { return };
        let wakes = std::mem::take(&mut store.wakes);
        drop(store);
        for waker in wakes {
            waker.wake();
        }
    }
}

impl ClusterState {
    pub(super) fn new(name: Arc<str>, seed: u64, settings: Settings, store: Store, users: Users) -> Self {
        Self {
            name,
            settings,
            store: Mutex::new(store),
            users: Mutex::new(users),
            audit: Mutex::default(),
            ids: Ids {
                seed,
                count: AtomicU64::new(0),
            },
            watches: AtomicUsize::new(0),
            watch_numbers: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
        }
    }

    /// Locks the data. A write changes the store in one step at its end, so a panic before leaves the store intact.
    pub(super) fn store(&self) -> StoreGuard<'_> {
        StoreGuard(Some(lock(&self.store)))
    }

    pub(super) fn users(&self) -> MutexGuard<'_, Users> {
        lock(&self.users)
    }

    pub(super) fn next_watch(&self) -> u64 {
        self.watches.fetch_add(1, Ordering::Relaxed);
        self.watch_numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn watch_ended(&self) {
        self.watches.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn open_watches(&self) -> usize {
        self.watches.load(Ordering::Relaxed)
    }

    pub(super) fn end_watches(&self) {
        let mut store = self.store();
        self.epoch.fetch_add(1, Ordering::AcqRel);
        store.wake_all();
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(super) fn audit(&self) -> SimAuditLog {
        lock(&self.audit).clone()
    }

    pub(super) fn audit_push(&self, event: SimAuditEvent) {
        lock(&self.audit).push(event, self.settings.audit_limit);
    }

    pub(super) fn audit_end(&self, Pending(mut event): Pending) {
        event.stage = COMPLETE;
        self.audit_push(*event);
    }

    pub(super) fn uid(&self) -> String {
        let (high, low) = (self.ids.next(), self.ids.next());
        let low = (low & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }

    /// Five characters as `generateName` adds them.
    pub(super) fn suffix(&self) -> String {
        const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut random = self.ids.next();
        let letters = std::iter::from_fn(|| {
            let index = usize::try_from(random % 27).ok()?;
            random /= 27;
            LETTERS.get(index).map(|letter| char::from(*letter))
        });
        letters.take(5).collect()
    }
}

impl fmt::Debug for ClusterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimCluster")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
