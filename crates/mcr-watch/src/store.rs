//! Reading a store.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use mcr_access::ClusterName;
use mcr_store::{DecodeError, Object, ObjectKey};
use serde::de::DeserializeOwned;

use crate::{WatchStatus, shared::SharedWatch};

/// Reads the objects of one watch in one cluster, each as an owned `K`.
///
/// Cheap to clone. Reading never waits for the network: what is there is there. An object is decoded when it
/// is read; the store itself holds compact JSON.
///
/// After its cluster is gone a store reads as [`StoreError::Gone`], for ever: a cluster that comes back under
/// the same name has stores of its own.
pub struct Store<K> {
    cluster: ClusterName,
    watch: Arc<SharedWatch>,
    _kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            cluster: self.cluster.clone(),
            watch: self.watch.clone(),
            _kind: PhantomData,
        }
    }
}

impl<K> std::fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("cluster", &self.cluster)
            .field("watch", &self.watch.request())
            .field("objects", &self.watch.cache().store().len())
            .finish()
    }
}

/// Why a store can't be had or read.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No controller watches this kind in this cluster, so there is no store of it; reading never starts a
    /// watch.
    #[error(
        "cluster {cluster}: {kind} is not watched, so there is no store of it. Declare it on a controller (for, owns, watches) or with Cluster::watch"
    )]
    NotWatched {
        /// The cluster.
        cluster: ClusterName,
        /// The kind asked for.
        kind: String,
    },
    /// Several watches of this kind with different selectors exist; say which one.
    #[error(
        "cluster {cluster}: {count} watches of {kind} with different selectors exist; name one with Cluster::store_of"
    )]
    Ambiguous {
        /// The cluster.
        cluster: ClusterName,
        /// The kind asked for.
        kind: String,
        /// How many watches there are.
        count: usize,
    },
    /// The cluster has left the fleet, or was replaced by another one of the same name.
    #[error("cluster {cluster} is gone, and its stores with it")]
    Gone {
        /// The cluster.
        cluster: ClusterName,
    },
    /// No index of this name is registered for this kind.
    #[error(
        "cluster {cluster}: no index {index:?} over {kind}. Register it with Fleet::index before reading"
    )]
    NoIndex {
        /// The cluster.
        cluster: ClusterName,
        /// The kind.
        kind: String,
        /// The index asked for.
        index: String,
    },
    /// The kind was not listed in time.
    #[error("cluster {cluster}: {kind} was not listed within {} s{}", waited.as_secs_f32(), problem.as_ref().map(|p| format!(": {p}")).unwrap_or_default())]
    NotSynced {
        /// The cluster.
        cluster: ClusterName,
        /// The kind.
        kind: String,
        /// How long was waited.
        waited: Duration,
        /// What stands in the way, if known.
        problem: Option<String>,
    },
    /// An object is not what its type says.
    #[error("cluster {cluster}: {source}")]
    Decode {
        /// The cluster.
        cluster: ClusterName,
        /// Which object, and where in it.
        source: DecodeError,
    },
}

impl<K> Store<K> {
    #[doc(hidden)]
    pub fn new(cluster: ClusterName, watch: Arc<SharedWatch>) -> Self {
        Self {
            cluster,
            watch,
            _kind: PhantomData,
        }
    }

    /// The cluster.
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// How the watch behind this store is doing.
    pub fn status(&self) -> WatchStatus {
        self.watch.status()
    }

    /// Whether a complete list has been read. Before that the store may lack objects that exist.
    pub fn is_synced(&self) -> bool {
        self.watch.status().synced
    }

    /// Waits until a complete list has been read.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// [`StoreError::NotSynced`] after `limit`, saying what stands in the way; [`StoreError::Gone`] if the
    /// cluster leaves meanwhile.
    pub async fn wait_synced(&self, limit: Duration) -> Result<(), StoreError> {
        let synced = tokio::select! {
            () = self.watch.stopped() => return Err(self.gone()),
            synced = tokio::time::timeout(limit, self.watch.synced()) => synced,
        };
        match synced {
            Ok(()) => Ok(()),
            Err(_) => Err(StoreError::NotSynced {
                cluster: self.cluster.clone(),
                kind: self.watch.request().to_string(),
                waited: limit,
                problem: self.watch.status().problem.map(|p| p.error.to_string()),
            }),
        }
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.watch.cache().store().len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes of JSON the objects have.
    pub fn bytes(&self) -> usize {
        self.watch.cache().store().bytes()
    }

    /// How many bytes of memory the objects take.
    pub fn held_bytes(&self) -> usize {
        self.watch.cache().store().held_bytes()
    }

    /// The object as it is held.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the cluster has left.
    pub fn raw(&self, key: &ObjectKey) -> Result<Option<Arc<Object>>, StoreError> {
        self.alive()?;
        Ok(self.watch.cache().store().get(key))
    }

    /// The keys of all objects, in no particular order.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the cluster has left.
    pub fn keys(&self) -> Result<Vec<ObjectKey>, StoreError> {
        self.alive()?;
        Ok(self
            .watch
            .cache()
            .store()
            .all()
            .iter()
            .map(|object| object.key().clone())
            .collect())
    }

    fn alive(&self) -> Result<(), StoreError> {
        if self.watch.is_gone() {
            Err(self.gone())
        } else {
            Ok(())
        }
    }

    fn gone(&self) -> StoreError {
        StoreError::Gone {
            cluster: self.cluster.clone(),
        }
    }
}

impl<K: DeserializeOwned> Store<K> {
    /// Reads one object; none if it is not there.
    ///
    /// # Errors
    /// [`StoreError::Decode`] if the object is not a `K`, [`StoreError::Gone`] if the cluster has left.
    pub fn get(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, StoreError> {
        self.alive()?;
        self.watch
            .cache()
            .store()
            .get(key)
            .map(|object| self.decode(&object))
            .transpose()
    }

    /// Reads all objects, in no particular order. Objects that can't be decoded are left out with a warning
    /// in the log: one bad object must not hide the others.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the cluster has left.
    pub fn list(&self) -> Result<Vec<Arc<K>>, StoreError> {
        self.alive()?;
        Ok(self.decode_all(self.watch.cache().store().all()))
    }

    /// Reads the objects found under a value of an index, in the order of their keys.
    ///
    /// # Errors
    /// [`StoreError::NoIndex`] if no index of this name is registered for this kind, [`StoreError::Gone`] if
    /// the cluster has left.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<K>>, StoreError> {
        self.alive()?;
        let objects =
            self.watch
                .cache()
                .store()
                .by_index(index, value)
                .ok_or_else(|| StoreError::NoIndex {
                    cluster: self.cluster.clone(),
                    kind: self.watch.request().kind().to_owned(),
                    index: index.to_owned(),
                })?;
        Ok(self.decode_all(objects))
    }

    fn decode(&self, object: &Object) -> Result<Arc<K>, StoreError> {
        object
            .decode()
            .map(Arc::new)
            .map_err(|source| StoreError::Decode {
                cluster: self.cluster.clone(),
                source,
            })
    }

    fn decode_all(&self, objects: Vec<Arc<Object>>) -> Vec<Arc<K>> {
        objects
            .iter()
            .filter_map(|object| {
                self.decode(object)
                    .inspect_err(|error| tracing::warn!(cluster = %self.cluster, %error, "object left out"))
                    .ok()
            })
            .collect()
    }
}
