//! The objects of a watch, as users read them.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use mcr_access::ClusterName;
use mcr_store::{DecodeError, Object, ObjectKey};
use serde::de::DeserializeOwned;

use crate::{WatchStatus, cache::Cache, shared::SharedWatch};

/// Reads the objects of one watch in one cluster, each as an owned `K`.
///
/// Cheap to clone. Reading never waits for the network. The store holds compact JSON, and decodes an object when it is
/// read.
///
/// Once the cluster is gone, the store returns [`StoreError::Gone`] for ever: a cluster that comes back under the same name
/// has stores of its own.
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

/// Why a store is not available, or can't be read.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Nobody watches this kind in this cluster, so there is no store. Reading never starts a watch.
    #[error(
        "cluster {cluster}: {kind} is not watched, so there is no store of it. Declare it on a controller (for, owns, watches) or with Cluster::watch"
    )]
    NotWatched {
        /// The cluster.
        cluster: ClusterName,
        /// The kind.
        kind: String,
    },
    /// Several watches of this kind with different selectors exist, and none of all its objects. The caller must name one.
    #[error(
        "cluster {cluster}: {count} watches of {kind} with different selectors exist; name one with Cluster::store_of"
    )]
    Ambiguous {
        /// The cluster.
        cluster: ClusterName,
        /// The kind.
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
        /// The name of the index.
        index: String,
    },
    /// The kind was not listed within the limit.
    #[error("cluster {cluster}: {kind} was not listed within {} s{}", waited.as_secs_f32(), problem.as_ref().map(|p| format!(": {p}")).unwrap_or_default())]
    NotSynced {
        /// The cluster.
        cluster: ClusterName,
        /// The kind.
        kind: String,
        /// The limit.
        waited: Duration,
        /// Why the kind is not listed, if known.
        problem: Option<String>,
    },
    /// An object can't be decoded as `K`.
    #[error("cluster {cluster}: {source}")]
    Decode {
        /// The cluster.
        cluster: ClusterName,
        /// The object and the part of it that can't be decoded.
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

    /// The status of the watch that fills this store.
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
    /// [`StoreError::NotSynced`] after `limit`, with the reason if it is known; [`StoreError::Gone`] if the cluster
    /// leaves meanwhile.
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

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.watch.cache().store().len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size of the objects as JSON, in bytes.
    pub fn bytes(&self) -> usize {
        self.watch.cache().store().bytes()
    }

    /// The memory that the objects take, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.watch.cache().store().held_bytes()
    }

    /// An object in its compact form; none if the store does not have it.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the cluster has left.
    pub fn raw(&self, key: &ObjectKey) -> Result<Option<Arc<Object>>, StoreError> {
        Ok(self.cache()?.store().get(key))
    }

    /// The keys of all objects, in no particular order.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the cluster has left.
    pub fn keys(&self) -> Result<Vec<ObjectKey>, StoreError> {
        let objects = self.cache()?.store().all();
        Ok(objects.iter().map(|object| object.key().clone()).collect())
    }

    fn cache(&self) -> Result<Arc<Cache>, StoreError> {
        if self.watch.is_gone() {
            return Err(self.gone());
        }
        Ok(self.watch.cache())
    }

    fn gone(&self) -> StoreError {
        StoreError::Gone {
            cluster: self.cluster.clone(),
        }
    }
}

impl<K: DeserializeOwned> Store<K> {
    /// Reads one object; none if the store does not have it.
    ///
    /// # Errors
    /// [`StoreError::Decode`] if the object is not a `K`, [`StoreError::Gone`] if the cluster has left.
    pub fn get(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, StoreError> {
        let object = self.cache()?.store().get(key);
        object.map(|object| self.decode(&object)).transpose()
    }

    /// Reads one object of a namespace, as [`get`](Self::get) does.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Secret;
    /// use mcr_watch::{Store, StoreError};
    ///
    /// fn has_token(secrets: &Store<Secret>) -> Result<bool, StoreError> {
    ///     Ok(secrets.get_in("default", "token")?.is_some())
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn get_in(&self, namespace: &str, name: &str) -> Result<Option<Arc<K>>, StoreError> {
        self.get(&ObjectKey::namespaced(namespace, name))
    }

    /// Reads all objects, in no particular order. Leaves out objects that can't be decoded, with a warning in the log: one
    /// bad object must not hide the others.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the cluster has left.
    pub fn list(&self) -> Result<Vec<Arc<K>>, StoreError> {
        Ok(self.decode_all(self.cache()?.store().all()))
    }

    /// Reads the objects that an index has under a value, in the order of their keys. Leaves out objects that can't be
    /// decoded, as [`list`](Self::list) does.
    ///
    /// # Errors
    /// [`StoreError::NoIndex`] if no index of this name is registered for this kind, [`StoreError::Gone`] if
    /// the cluster has left.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<K>>, StoreError> {
        let objects = self.cache()?.store().by_index(index, value);
        let objects = objects.ok_or_else(|| StoreError::NoIndex {
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
        let decoded = objects.iter().map(|object| self.decode(object));
        let decoded = decoded.map(|object| {
            object.inspect_err(|error| {
                tracing::warn!(cluster = %self.cluster, %error, "an object can't be decoded and is left out");
            })
        });
        decoded.filter_map(Result::ok).collect()
    }
}
