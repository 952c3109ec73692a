//! What is watched in a cluster, and the stores of it.

use std::{
    fmt,
    sync::{Arc, MutexGuard, PoisonError, Weak},
    time::SystemTime,
};

use kube::Resource;
use mcr_watch::{
    ChangeSink, Store, StoreError, WatchRequest,
    internal::{DriverEnv, SharedWatch, drive},
};
use serde::de::DeserializeOwned;

use super::{Cluster, Inner, Standing};
use crate::fleet::Seat;

#[derive(Default)]
pub(super) struct Watches {
    /// One for each request. A cluster has few.
    entries: Vec<Entry>,
    closed: bool,
}

impl Watches {
    fn get(&mut self, request: &WatchRequest) -> Option<&mut Entry> {
        self.entries
            .iter_mut()
            .find(|entry| entry.watch.request() == request)
    }
}

struct Entry {
    watch: Arc<SharedWatch>,
    handles: usize,
}

impl Cluster {
    /// The store of a kind that is watched. Never starts a watch.
    ///
    /// # Errors
    /// [`StoreError::NotWatched`] if nobody watches the kind here, [`StoreError::Ambiguous`] if several
    /// watches with different selectors exist and none is of everything, [`StoreError::Gone`] if the cluster
    /// has left.
    pub fn store<K>(&self) -> Result<Store<K>, StoreError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.find_store(&WatchRequest::of::<K>())
    }

    /// The store of a kind known at run time; see [`store`](Self::store).
    ///
    /// # Errors
    /// As of [`store`](Self::store).
    pub fn store_with<K>(&self, dynamic: &K::DynamicType) -> Result<Store<K>, StoreError>
    where
        K: Resource + DeserializeOwned,
    {
        self.find_store(&WatchRequest::with::<K>(dynamic))
    }

    /// The store of exactly this watch.
    ///
    /// # Errors
    /// [`StoreError::NotWatched`] if there is no such watch, [`StoreError::Gone`] if the cluster has left.
    pub fn store_of<K: DeserializeOwned>(&self, request: &WatchRequest) -> Result<Store<K>, StoreError> {
        let mut watches = self.watches()?;
        let entry = watches.get(request).ok_or_else(|| self.not_watched(request))?;
        Ok(Store::new(self.0.name.clone(), entry.watch.clone()))
    }

    fn find_store<K>(&self, wanted: &WatchRequest) -> Result<Store<K>, StoreError> {
        let mut watches = self.watches()?;
        if let Some(entry) = watches.get(wanted) {
            return Ok(Store::new(self.0.name.clone(), entry.watch.clone()));
        }
        let mut of_kind = watches
            .entries
            .iter()
            .filter(|entry| entry.watch.request().same_kind(wanted));
        match (of_kind.next(), of_kind.count()) {
            (None, _) => Err(self.not_watched(wanted)),
            (Some(only), 0) => Ok(Store::new(self.0.name.clone(), only.watch.clone())),
            (Some(_), more) => Err(StoreError::Ambiguous {
                cluster: self.0.name.clone(),
                kind: wanted.kind().to_owned(),
                count: more + 1,
            }),
        }
    }

    fn not_watched(&self, wanted: &WatchRequest) -> StoreError {
        StoreError::NotWatched {
            cluster: self.0.name.clone(),
            kind: wanted.to_string(),
        }
    }

    fn watches(&self) -> Result<MutexGuard<'_, Watches>, StoreError> {
        let watches = self.0.watches.lock().unwrap_or_else(PoisonError::into_inner);
        if watches.closed {
            Err(StoreError::Gone {
                cluster: self.0.name.clone(),
            })
        } else {
            Ok(watches)
        }
    }

    /// Watches a kind for as long as the handle lives, sharing the watch with everyone who asks for the same.
    ///
    /// Returns at once; the list begins when the cluster is connected. A `sink` is first told every object
    /// that is already there, then every change.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the cluster has left.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn watch(
        &self,
        request: WatchRequest,
        sink: Option<Arc<dyn ChangeSink>>,
    ) -> Result<WatchHandle, StoreError> {
        let (watch, new) = {
            let mut watches = self.watches()?;
            match watches.get(&request) {
                Some(entry) => {
                    entry.handles += 1;
                    (entry.watch.clone(), false)
                }
                None => {
                    let watch = Arc::new(SharedWatch::new(request, self.0.token.child_token()));
                    // There are as many of these as clusters.
                    watches.entries.reserve_exact(1);
                    watches.entries.push(Entry {
                        watch: watch.clone(),
                        handles: 1,
                    });
                    (watch, true)
                }
            }
        };
        if new {
            self.start(&watch);
        }
        // Outside of the lock: telling a sink what is there takes as long as there is much.
        let sink = sink.map(|sink| watch.subscribe(sink));
        Ok(WatchHandle {
            cluster: Arc::downgrade(&self.0),
            watch,
            sink,
        })
    }

    fn start(&self, watch: &Arc<SharedWatch>) {
        if let Standing::Seated(seat) = &self.0.standing {
            return seat.join(watch);
        }
        if let Err(error) = watch.request().check() {
            return watch.refuse(error);
        }
        if let Some(env) = self.driver_env(watch.request()) {
            if let Some(fleet) = self.0.fleet.upgrade() {
                for (name, indexer) in fleet.indexers_of(watch.request()) {
                    watch.cache().store().add_index(name, indexer);
                }
            }
            self.0.tasks.spawn(drive(watch.clone(), env));
        }
    }

    /// What a watch of this cluster runs with; none if there is no fleet any more.
    pub(crate) fn driver_env(&self, request: &WatchRequest) -> Option<DriverEnv> {
        let fleet = self.0.fleet.upgrade()?;
        Some(DriverEnv {
            cluster: self.0.name.clone(),
            transport: self.transport().clone(),
            health: self.health().clone(),
            list_permits: fleet.list_permits(),
            settings: fleet.settings().watch.clone(),
            counts: fleet.counts().kind(request),
            templates: fleet.templates(request),
        })
    }

    /// Lets every watch read from where the cluster now is in its scope.
    pub(crate) fn rejoin(&self, seat: &Seat) {
        let watches: Vec<Arc<SharedWatch>> = {
            let Ok(watches) = self.watches() else { return };
            watches.entries.iter().map(|entry| entry.watch.clone()).collect()
        };
        watches.iter().for_each(|watch| seat.join(watch));
    }

    /// Ends all watches for good.
    pub(super) fn close_watches(&self) {
        let ended: Vec<Entry> = {
            let mut watches = self.0.watches.lock().unwrap_or_else(PoisonError::into_inner);
            watches.closed = true;
            std::mem::take(&mut watches.entries)
        };
        // Without the lock: it waits for sinks, which may look at their cluster.
        for entry in ended {
            entry.watch.mark_gone();
        }
    }

    /// How the cluster's watches are doing.
    pub fn kinds(&self) -> Vec<KindStatus> {
        let Ok(watches) = self.watches() else {
            return Vec::new();
        };
        let mut kinds: Vec<KindStatus> = watches
            .entries
            .iter()
            .map(|entry| {
                let status = entry.watch.status();
                KindStatus {
                    watch: entry.watch.request().to_string(),
                    kind: entry.watch.request().resource_name(),
                    blocked: status
                        .problem
                        .as_ref()
                        .is_some_and(|problem| problem.error.is_blocked()),
                    synced: status.synced,
                    objects: entry.watch.cache().store().len(),
                    bytes: entry.watch.cache().store().bytes(),
                    skipped: status.skipped,
                    lists: status.lists,
                    last_event: status.last_event,
                    problem: status.problem.map(|problem| problem.error.to_string()),
                }
            })
            .collect();
        kinds.sort_by(|a, b| a.watch.cmp(&b.watch));
        kinds
    }

    /// Adds an index to the watches of a kind that already run.
    pub(crate) fn add_index(&self, kind: &WatchRequest, name: &Arc<str>, indexer: &mcr_store::Indexer) {
        // Those of a scope are indexed where they are held.
        if self.is_seated() {
            return;
        }
        let Ok(watches) = self.watches() else { return };
        for entry in watches
            .entries
            .iter()
            .filter(|entry| entry.watch.request().same_kind(kind))
        {
            entry
                .watch
                .cache()
                .store()
                .add_index(name.clone(), indexer.clone());
        }
    }
}

/// How one watch of a cluster is doing, as data.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KindStatus {
    /// What is watched: the kind and which of its objects.
    pub watch: String,
    /// The kind: `<plural>` or `<plural>.<group>`.
    pub kind: String,
    /// Whether it has been listed completely.
    pub synced: bool,
    /// How many objects are held.
    pub objects: usize,
    /// How many bytes of JSON are held.
    pub bytes: usize,
    /// How many objects were left out because they could not be read.
    pub skipped: u64,
    /// How many complete lists have been read.
    pub lists: u64,
    /// When something was last heard.
    #[serde(serialize_with = "crate::time::rfc3339_option")]
    pub last_event: Option<SystemTime>,
    /// What stands in the way, in words.
    pub problem: Option<String>,
    /// Whether someone has to change something before it can be listed: it is forbidden, or its kind is not
    /// served.
    pub blocked: bool,
}

/// Keeps a watch alive; made by [`Cluster::watch`]. Dropping the last handle of a watch ends it and frees its
/// store.
pub struct WatchHandle {
    cluster: Weak<Inner>,
    watch: Arc<SharedWatch>,
    sink: Option<u64>,
}

impl WatchHandle {
    /// What is watched.
    pub fn request(&self) -> &WatchRequest {
        self.watch.request()
    }

    /// How the watch is doing.
    pub fn status(&self) -> crate::WatchStatus {
        self.watch.status()
    }
}

impl Drop for WatchHandle {
    fn drop(&mut self) {
        if let Some(sink) = self.sink {
            self.watch.unsubscribe(sink);
        }
        let Some(cluster) = self.cluster.upgrade() else {
            return;
        };
        let mut watches = cluster.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = watches
            .entries
            .iter()
            .position(|entry| Arc::ptr_eq(&entry.watch, &self.watch))
        else {
            return;
        };
        let entry = &mut watches.entries[at];
        entry.handles -= 1;
        if entry.handles == 0 {
            watches.entries.swap_remove(at);
            // Without the lock: it waits for sinks, which may look at their cluster.
            drop(watches);
            self.watch.stop();
        }
    }
}

impl fmt::Debug for WatchHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchHandle")
            .field("request", self.watch.request())
            .finish_non_exhaustive()
    }
}
