use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value};

use super::auth::Users;
use super::error::SimError;
use super::kinds::{Kind, Kinds};
use super::object;
use super::store::Store;
use crate::audit::{AuditEvent, AuditLog, COMPLETE};

/// A simulated cluster as requests see it: all data of a server, or one of the logical clusters in it.
pub struct ClusterState {
    pub name: Arc<str>,
    /// The logical cluster. Empty for all objects of the server.
    pub part: Arc<str>,
    /// The kinds that are served, if they differ from those of the store.
    kinds: Option<Kinds>,
    /// Whether lists and watches show only objects that are being deleted.
    pub only_deleting: bool,
    /// Checks updates in this view before the server compares versions.
    guard: Option<Arc<dyn Admission>>,
    server: Arc<ServerState>,
}

/// The data of a server.
pub struct ServerState {
    pub settings: Settings,
    admission: Option<Arc<dyn Admission>>,
    store: Mutex<Store>,
    users: Mutex<Users>,
    audit: Mutex<AuditLog>,
    ids: Ids,
    watches: AtomicUsize,
    watch_numbers: AtomicU64,
    /// The current epoch. A watch ends if it was started in an older epoch.
    epoch: AtomicU64,
}

/// Checks objects before they are stored. Called while the store is locked.
pub trait Admission: Send + Sync {
    /// Changes an object that is about to be stored, or refuses it. Both objects are in the storage version.
    fn admit(
        &self,
        cluster: &str,
        kind: &Kind,
        subresource: &str,
        before: Option<&Value>,
        object: &mut Value,
    ) -> Result<(), SimError>;
}

/// The options of a cluster, which never change.
#[derive(Clone, Debug)]
pub struct Settings {
    pub window: usize,
    pub bookmark_interval: Duration,
    pub watch_timeout: Duration,
    pub audit_limit: usize,
    pub managed_fields: bool,
    pub finish_namespaces: bool,
}

/// Makes UIDs and suffixes of names.
#[derive(Debug)]
struct Ids {
    seed: u64,
    count: AtomicU64,
}

impl Ids {
    fn next(&self) -> u64 {
        // splitmix64: well distributed, and reproducible with the same seed.
        let count = self.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut mixed = self.seed.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The lock of a cluster's data. When it is dropped, it wakes the watches that a write concerns.
pub struct StoreGuard<'a>(Option<MutexGuard<'a, Store>>);

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
    pub fn new(name: Arc<str>, seed: u64, settings: Settings, store: Store, users: Users) -> Self {
        let server = ServerState::new(seed, settings, store, users, None);
        Self::part_of(Arc::new(server), name, "".into(), None)
    }

    /// One logical cluster of a server, or all of them if `part` is empty.
    pub fn part_of(server: Arc<ServerState>, name: Arc<str>, part: Arc<str>, kinds: Option<Kinds>) -> Self {
        Self {
            name,
            part,
            kinds,
            only_deleting: false,
            guard: None,
            server,
        }
    }

    /// Hides objects that are not being deleted from lists and watches.
    pub fn only_deleting(mut self) -> Self {
        self.only_deleting = true;
        self
    }

    /// Calls `guard` for each update in this view.
    pub fn guarded(mut self, guard: Arc<dyn Admission>) -> Self {
        self.guard = Some(guard);
        self
    }

    pub fn kinds(&self, store: &Store) -> Kinds {
        let own = self.kinds.as_ref();
        own.unwrap_or_else(|| store.kinds(&self.part)).clone()
    }

    pub fn key(&self, namespace: &str, name: &str) -> String {
        object::key(&self.part, namespace, name)
    }

    pub fn prefix(&self, namespace: &str) -> String {
        object::prefix(&self.part, namespace)
    }

    /// Adds the annotation with the logical cluster to an object.
    pub fn mark(&self, object: &mut Value) {
        if self.part.is_empty() {
            return;
        }
        let annotations = object::metadata_mut(object)
            .entry("annotations")
            .or_insert_with(|| Value::Object(Map::new()));
        if !annotations.is_object() {
            *annotations = Value::Object(Map::new());
        }
        annotations[CLUSTER_ANNOTATION] = (*self.part).into();
    }

    /// Lets the guard of this view check an update.
    pub fn ask_guard(
        &self,
        kind: &Kind,
        subresource: &str,
        before: &Value,
        object: &mut Value,
    ) -> Result<(), SimError> {
        match &self.guard {
            Some(guard) => guard.admit(&self.part, kind, subresource, Some(before), object),
            None => Ok(()),
        }
    }

    pub fn admit(
        &self,
        kind: &Kind,
        subresource: &str,
        before: Option<&Value>,
        object: &mut Value,
    ) -> Result<(), SimError> {
        match &self.admission {
            Some(admission) => admission.admit(&self.part, kind, subresource, before, object),
            None => Ok(()),
        }
    }
}

/// The annotation with the logical cluster of an object.
pub const CLUSTER_ANNOTATION: &str = "kcp.io/cluster";

impl std::ops::Deref for ClusterState {
    type Target = ServerState;
    fn deref(&self) -> &ServerState {
        &self.server
    }
}

impl ServerState {
    pub fn new(
        seed: u64,
        settings: Settings,
        store: Store,
        users: Users,
        admission: Option<Arc<dyn Admission>>,
    ) -> Self {
        Self {
            settings,
            admission,
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

    /// Locks the data. A write changes the store in one step at its end, so an earlier panic leaves the store intact.
    pub fn store(&self) -> StoreGuard<'_> {
        StoreGuard(Some(self.store.lock()))
    }

    pub fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock()
    }

    pub fn next_watch(&self) -> u64 {
        self.watches.fetch_add(1, Ordering::Relaxed);
        self.watch_numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub fn watch_ended(&self) {
        self.watches.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn open_watches(&self) -> usize {
        self.watches.load(Ordering::Relaxed)
    }

    pub fn end_watches(&self) {
        let mut store = self.store();
        self.epoch.fetch_add(1, Ordering::AcqRel);
        store.wake_all();
    }

    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub fn audit(&self) -> AuditLog {
        self.audit.lock().clone()
    }

    pub fn audit_push(&self, event: AuditEvent) {
        self.audit.lock().push(event, self.settings.audit_limit);
    }

    pub(crate) fn audit_end(&self, mut event: AuditEvent) {
        event.stage = COMPLETE;
        self.audit_push(event);
    }

    pub fn uid(&self) -> String {
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

    /// Five characters, as `generateName` appends them.
    pub fn suffix(&self) -> String {
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

impl fmt::Debug for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerState").finish_non_exhaustive()
    }
}

impl fmt::Debug for ClusterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimCluster")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
