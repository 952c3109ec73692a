//! The watches of one cluster.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use mcr_access::ClusterName;
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::{
    request::WatchRequest,
    shared::SharedWatch,
    sink::ChangeSink,
    status::{KindStatus, WatchStatus},
    store::{Store, StoreError},
};

/// The watches of one cluster, one for each request.
pub struct Watches {
    cluster: ClusterName,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// A list, because a cluster has few watches.
    entries: Vec<Entry>,
    /// Set when the cluster leaves. No watch starts after that.
    closed: bool,
}

struct Entry {
    watch: Arc<SharedWatch>,
    /// The number of [`WatchHandle`]s. The watch ends with the last one.
    handles: usize,
}

impl Watches {
    /// Starts without watches.
    pub fn new(cluster: ClusterName) -> Self {
        Self {
            cluster,
            state: Mutex::default(),
        }
    }

    fn open(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.state.lock();
        if state.closed {
            return Err(StoreError::Gone {
                cluster: self.cluster.clone(),
            });
        }
        Ok(state)
    }

    /// Subscribes to the watch of a request. Equal requests share one watch. Gives a new watch to `start`, whose token is a
    /// child of `stop`.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the cluster has left.
    pub fn watch(
        self: &Arc<Self>,
        request: WatchRequest,
        sink: Option<Arc<dyn ChangeSink>>,
        stop: &CancellationToken,
        start: impl FnOnce(&Arc<SharedWatch>),
    ) -> Result<WatchHandle, StoreError> {
        let (watch, new) = {
            let mut state = self.open()?;
            let mut entries = state.entries.iter_mut();
            if let Some(entry) = entries.find(|entry| *entry.watch.request() == request) {
                entry.handles += 1;
                (entry.watch.clone(), false)
            } else {
                let watch = Arc::new(SharedWatch::new(request, stop.child_token()));
                // Each cluster has such a list, so spare capacity would add up.
                state.entries.reserve_exact(1);
                state.entries.push(Entry {
                    watch: watch.clone(),
                    handles: 1,
                });
                (watch, true)
            }
        };
        if new {
            start(&watch);
        }
        // Without the lock: a sink receives all objects of the store here, which may take long.
        let sink = sink.map(|sink| watch.subscribe(sink));
        Ok(WatchHandle {
            watches: Arc::downgrade(self),
            watch,
            sink,
        })
    }

    /// All watches; none if the cluster has left.
    pub fn all(&self) -> Vec<Arc<SharedWatch>> {
        let state = self.state.lock();
        state.entries.iter().map(|entry| entry.watch.clone()).collect()
    }

    /// The watches of a kind, whatever their selectors.
    pub fn of_kind(&self, kind: &WatchRequest) -> Vec<Arc<SharedWatch>> {
        let mut watches = self.all();
        watches.retain(|watch| watch.request().same_kind(kind));
        watches
    }

    /// The store of the watch with exactly this request; or else that of the only watch of the kind.
    ///
    /// # Errors
    /// [`StoreError::NotWatched`], [`StoreError::Ambiguous`], [`StoreError::Gone`].
    pub fn store<K>(&self, wanted: &WatchRequest) -> Result<Store<K>, StoreError> {
        let state = self.open()?;
        let watches = state.entries.iter().map(|entry| &entry.watch);
        let of_kind = Vec::from_iter(watches.filter(|watch| watch.request().same_kind(wanted)));
        let exact = of_kind.iter().find(|watch| watch.request() == wanted);
        match (exact, &*of_kind) {
            (Some(watch), _) | (None, [watch]) => Ok(Store::new(self.cluster.clone(), (*watch).clone())),
            (None, []) => Err(self.not_watched(wanted)),
            (None, several) => Err(StoreError::Ambiguous {
                cluster: self.cluster.clone(),
                kind: wanted.kind().to_owned(),
                count: several.len(),
            }),
        }
    }

    /// The store of the watch with exactly this request.
    ///
    /// # Errors
    /// [`StoreError::NotWatched`], [`StoreError::Gone`].
    pub fn store_of<K>(&self, request: &WatchRequest) -> Result<Store<K>, StoreError> {
        let state = self.open()?;
        let mut watches = state.entries.iter().map(|entry| &entry.watch);
        match watches.find(|watch| watch.request() == request) {
            Some(watch) => Ok(Store::new(self.cluster.clone(), watch.clone())),
            None => Err(self.not_watched(request)),
        }
    }

    fn not_watched(&self, request: &WatchRequest) -> StoreError {
        StoreError::NotWatched {
            cluster: self.cluster.clone(),
            kind: request.to_string(),
        }
    }

    /// The status of each watch, in the order of their texts.
    pub fn kinds(&self) -> Vec<KindStatus> {
        let mut kinds: Vec<KindStatus> = self.all().iter().map(|watch| watch.kind_status()).collect();
        kinds.sort_by(|a, b| a.watch.cmp(&b.watch));
        kinds
    }

    /// Ends all watches for good.
    pub fn close(&self) {
        let ended = {
            let mut state = self.state.lock();
            state.closed = true;
            std::mem::take(&mut state.entries)
        };
        // Without the lock: `mark_gone` waits for sinks, and a sink may use the cluster.
        for entry in ended {
            entry.watch.mark_gone();
        }
    }
}

/// Keeps a watch alive. `Cluster::watch` of mcr-core returns it. Dropping the last handle of a watch ends the watch and
/// frees its store.
pub struct WatchHandle {
    watches: Weak<Watches>,
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
        let Some(watches) = self.watches.upgrade() else {
            return;
        };
        let mut state = watches.state.lock();
        let mut entries = state.entries.iter();
        let Some(at) = entries.position(|entry| Arc::ptr_eq(&entry.watch, &self.watch)) else {
            return;
        };
        let entry = &mut state.entries[at];
        entry.handles -= 1;
        if entry.handles == 0 {
            state.entries.swap_remove(at);
            // Without the lock: `stop` waits for sinks, and a sink may use the cluster.
            drop(state);
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn the_watches_of_a_cluster_are_shared_until_their_last_handle() {
        let watches = Arc::new(Watches::new(ClusterName::new("eu").unwrap()));
        let stop = CancellationToken::new();
        let mut started = 0;
        let mut watch = |request: WatchRequest| {
            let watch = watches.watch(request, None, &stop, |_| started += 1);
            watch.unwrap()
        };
        let all = WatchRequest::of::<ConfigMap>();
        let (some, others) = (all.clone().labels("a=b"), all.clone().labels("a=c"));
        let store = || watches.store::<ConfigMap>(&all).map(|store| store.status().lists);
        assert!(matches!(store(), Err(StoreError::NotWatched { .. })));
        let first: WatchHandle = watch(some.clone());
        assert!(store().is_ok(), "the only watch of the kind");
        assert!(
            watches.store_of::<ConfigMap>(&all).is_err(),
            "not exactly this one"
        );
        let second = watch(some.clone());
        let third = watch(others);
        assert!(matches!(store(), Err(StoreError::Ambiguous { count: 2, .. })));
        let whole = watch(all.clone());
        assert!(store().is_ok(), "that of all objects");
        assert_eq!(started, 3, "equal requests share a watch");
        let shown: Vec<KindStatus> = watches.kinds();
        let shown: Vec<&str> = shown.iter().map(|kind| &*kind.watch).collect();
        assert_eq!(
            shown,
            [
                "configmaps",
                "configmaps with labels a=b",
                "configmaps with labels a=c"
            ]
        );
        drop((whole, third, first));
        assert_eq!(watches.all().len(), 1);
        assert_eq!(second.request(), &some);
        watches.close();
        assert!(matches!(store(), Err(StoreError::Gone { .. })));
        assert!(watches.watch(some, None, &stop, |_| ()).is_err());
        drop(second);
    }
}
