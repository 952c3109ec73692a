//! The stores and watches of a cluster, as users get them.

use std::{
    fmt,
    sync::{Arc, MutexGuard, Weak},
    time::SystemTime,
};

use kube::Resource;
use mcr_access::internal::lock;
use mcr_store::Indexer;
use mcr_watch::{
    ChangeSink, Store, StoreError, WatchRequest, WatchStatus,
    internal::{DriverEnv, SharedWatch, drive},
};
use serde::de::DeserializeOwned;

use super::{
    attachment::ScopePlacement,
    handle::{Cluster, Inner},
    watches::{Entry, Watches},
};

impl Cluster {
    /// The store of a kind that is watched. Never starts a watch.
    ///
    /// # Errors
    /// - [`StoreError::NotWatched`] if the kind is not watched in this cluster.
    /// - [`StoreError::Ambiguous`] if several watches of the kind exist, and none of them is of all its objects.
    /// - [`StoreError::Gone`] if the cluster has left the fleet.
    pub fn store<K>(&self) -> Result<Store<K>, StoreError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.find_store(&WatchRequest::of::<K>())
    }

    /// The store of a kind whose type is known at run time only; see [`store`](Self::store).
    ///
    /// # Errors
    /// Like [`store`](Self::store).
    pub fn store_with<K>(&self, dynamic: &K::DynamicType) -> Result<Store<K>, StoreError>
    where
        K: Resource + DeserializeOwned,
    {
        self.find_store(&WatchRequest::with::<K>(dynamic))
    }

    /// The store of the watch with exactly this request.
    ///
    /// # Errors
    /// [`StoreError::NotWatched`] if there is no such watch, [`StoreError::Gone`] if the cluster has left the fleet.
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
        let watches = lock(&self.0.watches);
        if watches.closed {
            Err(StoreError::Gone {
                cluster: self.0.name.clone(),
            })
        } else {
            Ok(watches)
        }
    }

    /// Watches a kind for as long as the handle lives. Equal requests share one watch.
    ///
    /// Returns at once; the list begins when the cluster is connected. The `sink` receives every object of the store
    /// first, then every change.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the cluster has left the fleet.
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
                    // Each cluster has such a list, so spare capacity would add up.
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
        // Without the lock: a sink receives all objects of the store here, which may take long.
        let sink = sink.map(|sink| watch.subscribe(sink));
        Ok(WatchHandle {
            cluster: Arc::downgrade(&self.0),
            watch,
            sink,
        })
    }

    fn start(&self, watch: &Arc<SharedWatch>) {
        if let Some(placement) = self.placement() {
            return placement.join(watch);
        }
        if let Err(error) = watch.request().check() {
            return watch.refuse(error);
        }
        for (name, indexer) in self.0.resources.kinds.indexers(watch.request()) {
            watch.cache().store().add_index(name, indexer);
        }
        let env = self.driver_env(watch.request());
        self.0.tasks.spawn(drive(watch.clone(), env));
    }

    /// The environment of the driver of a watch of this cluster.
    pub(crate) fn driver_env(&self, request: &WatchRequest) -> DriverEnv {
        let resources = &self.0.resources;
        DriverEnv {
            cluster: self.0.name.clone(),
            transport: self.transport().clone(),
            health: self.health().clone(),
            list_permits: resources.list_permits.clone(),
            settings: resources.settings.watch.clone(),
            counts: resources.observers.counts.kinds.of(request),
            templates: resources.kinds.templates(request),
        }
    }

    /// Makes every watch read from the place to which the cluster has moved.
    pub(crate) fn rejoin(&self, placement: &dyn ScopePlacement) {
        let watches: Vec<Arc<SharedWatch>> = {
            let Ok(watches) = self.watches() else { return };
            watches.entries.iter().map(|entry| entry.watch.clone()).collect()
        };
        watches.iter().for_each(|watch| placement.join(watch));
    }

    /// The status of each watch of the cluster.
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

    /// Adds an index to the running watches of a kind.
    pub(crate) fn add_index(&self, kind: &WatchRequest, name: &Arc<str>, indexer: &Indexer) {
        // The objects of a scope are indexed by the watches of its endpoints.
        if self.placement().is_some() {
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

/// The status of one watch of a cluster.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KindStatus {
    /// The request of the watch, as text: the kind and its selectors.
    pub watch: String,
    /// The kind: `<plural>` or `<plural>.<group>`.
    pub kind: String,
    /// Whether a complete list has been read.
    pub synced: bool,
    /// The number of objects in the store.
    pub objects: usize,
    /// The number of bytes of JSON in the store.
    pub bytes: usize,
    /// The number of objects that are missing in the store because they could not be read.
    pub skipped: u64,
    /// The number of complete lists that have been read.
    pub lists: u64,
    /// When anything was last received on this watch.
    #[serde(serialize_with = "crate::time::rfc3339_option")]
    pub last_event: Option<SystemTime>,
    /// The current problem of the watch, as text.
    pub problem: Option<String>,
    /// Whether a change in the cluster is needed before the kind can be listed: it is forbidden, or not served.
    pub blocked: bool,
}

/// Keeps a watch alive. [`Cluster::watch`] returns it. Dropping the last handle of a watch ends the watch and frees
/// its store.
pub struct WatchHandle {
    cluster: Weak<Inner>,
    watch: Arc<SharedWatch>,
    sink: Option<u64>,
}

impl WatchHandle {
    /// The request of the watch.
    pub fn request(&self) -> &WatchRequest {
        self.watch.request()
    }

    /// The status of the watch.
    pub fn status(&self) -> WatchStatus {
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
        let mut watches = lock(&cluster.watches);
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
            // Without the lock: `stop` waits for sinks, and a sink may use the cluster.
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
