//! The objects of a watch, as users read them.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use mcr_access::ClusterName;
use mcr_store::{DecodeError, Object, ObjectKey};
use serde::de::DeserializeOwned;

use crate::{cache::Cache, shared::SharedWatch, status::WatchStatus};

/// Reads the objects of one watch in one cluster, each as an owned `K`.
///
/// Cheap to clone. Reading never waits for the network. The store holds compact JSON, and decodes an object when it is
/// read.
///
/// Before the first complete list, objects that exist are missing in the store. Reading is an error until then:
/// [`StoreError::NotListed`]. A reconciler can return the error, and is called again after a while. After the first complete
/// list the store stays readable, also while the cluster is unreachable or is listed again. The objects are old then; see
/// [`status`](Self::status).
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
    /// The kind was never listed completely, so the store lacks objects that exist.
    #[error(
        "cluster {cluster}: {kind} is not listed yet{}. Return the error to try again, or wait with Store::wait_synced. For an optional kind, Store::get_unsynced reads what is there",
        because(problem.as_deref())
    )]
    NotListed {
        /// The cluster.
        cluster: ClusterName,
        /// The kind.
        kind: String,
        /// Why the kind is not listed, if known.
        problem: Option<String>,
    },
    /// The kind was not listed within the limit.
    #[error("cluster {cluster}: {kind} was not listed within {} s{}", waited.as_secs_f32(), because(problem.as_deref()))]
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

fn because(problem: Option<&str>) -> String {
    problem.map(|problem| format!(": {problem}")).unwrap_or_default()
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

    /// Whether a complete list has been read. Before that, reading is an error. Never becomes false again.
    pub fn is_synced(&self) -> bool {
        self.watch.is_synced()
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
            () = self.watch.stopped().cancelled() => return Err(self.gone()),
            synced = tokio::time::timeout(limit, self.watch.synced()) => synced,
        };
        match synced {
            Ok(()) => Ok(()),
            Err(_) => Err(StoreError::NotSynced {
                cluster: self.cluster.clone(),
                kind: self.watch.request().to_string(),
                waited: limit,
                problem: self.problem(),
            }),
        }
    }

    /// The number of objects.
    ///
    /// # Errors
    /// [`StoreError::NotListed`] before the first complete list, [`StoreError::Gone`] if the cluster has left.
    pub fn len(&self) -> Result<usize, StoreError> {
        Ok(self.listed()?.store().len())
    }

    /// Whether there are no objects.
    ///
    /// # Errors
    /// Those of [`len`](Self::len).
    pub fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.len()? == 0)
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
    /// [`StoreError::NotListed`] before the first complete list, [`StoreError::Gone`] if the cluster has left.
    pub fn raw(&self, key: &ObjectKey) -> Result<Option<Arc<Object>>, StoreError> {
        Ok(self.listed()?.store().get(key))
    }

    #[doc(hidden)]
    pub fn raw_unsynced(&self, key: &ObjectKey) -> Result<Option<Arc<Object>>, StoreError> {
        Ok(self.cache()?.store().get(key))
    }

    /// The keys of all objects, in no particular order.
    ///
    /// # Errors
    /// [`StoreError::NotListed`] before the first complete list, [`StoreError::Gone`] if the cluster has left.
    pub fn keys(&self) -> Result<Vec<ObjectKey>, StoreError> {
        self.listed().map(|cache| keys(&cache))
    }

    /// The keys of the objects that the store has so far, in no particular order.
    ///
    /// A mapper of fleet events reads these keys for a cluster that joins. The cluster may join while the objects of the first
    /// list are put into the store. [`keys`](Self::keys) is an error then, although the mapper of the watch has already been
    /// called for some of the objects, without that cluster. The mapper of the watch is called for the other objects later.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Secret;
    /// use mcr_store::ObjectKey;
    /// use mcr_watch::{Store, StoreError};
    ///
    /// fn copies_in_a_cluster_that_joins(originals: &Store<Secret>) -> Result<Vec<ObjectKey>, StoreError> {
    ///     originals.keys_unsynced()
    /// }
    /// ```
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the cluster has left.
    pub fn keys_unsynced(&self) -> Result<Vec<ObjectKey>, StoreError> {
        self.cache().map(|cache| keys(&cache))
    }

    fn cache(&self) -> Result<Arc<Cache>, StoreError> {
        if self.watch.is_gone() {
            return Err(self.gone());
        }
        Ok(self.watch.cache())
    }

    /// The objects, once a complete list has been read.
    fn listed(&self) -> Result<Arc<Cache>, StoreError> {
        // The cache is read last: a watch is synced only after its cache is complete.
        if self.watch.is_synced() {
            return self.cache();
        }
        self.cache()?;
        Err(StoreError::NotListed {
            cluster: self.cluster.clone(),
            kind: self.watch.request().to_string(),
            problem: self.problem(),
        })
    }

    fn problem(&self) -> Option<String> {
        self.watch
            .status()
            .problem
            .map(|problem| problem.error.to_string())
    }

    fn gone(&self) -> StoreError {
        StoreError::Gone {
            cluster: self.cluster.clone(),
        }
    }
}

fn keys(cache: &Cache) -> Vec<ObjectKey> {
    let objects = cache.store().all();
    objects.iter().map(|object| object.key().clone()).collect()
}

impl<K: DeserializeOwned> Store<K> {
    /// Reads one object; none if the cluster does not have it.
    ///
    /// # Errors
    /// [`StoreError::NotListed`] before the first complete list, [`StoreError::Decode`] if the object is not a `K`,
    /// [`StoreError::Gone`] if the cluster has left.
    pub fn get(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, StoreError> {
        let object = self.raw(key)?;
        object.map(|object| self.decode(&object)).transpose()
    }

    /// Reads one object of an optional kind, which some clusters may never list: none if the store does not have it. Before
    /// the first complete list this does not mean that the cluster does not have it.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use mcr_store::ObjectKey;
    /// use mcr_watch::{Store, StoreError};
    ///
    /// /// A hint that is used if it is there.
    /// fn hint(hints: &Store<ConfigMap>) -> Result<Option<String>, StoreError> {
    ///     let found = hints.get_unsynced(&ObjectKey::namespaced("default", "hint"))?;
    ///     Ok(found.and_then(|map| map.data.as_ref()?.get("hint").cloned()))
    /// }
    /// ```
    ///
    /// # Errors
    /// [`StoreError::Decode`] if the object is not a `K`, [`StoreError::Gone`] if the cluster has left.
    pub fn get_unsynced(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, StoreError> {
        let object = self.raw_unsynced(key)?;
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
    /// [`StoreError::NotListed`] before the first complete list, [`StoreError::Gone`] if the cluster has left.
    pub fn list(&self) -> Result<Vec<Arc<K>>, StoreError> {
        Ok(self.decode_all(self.listed()?.store().all()))
    }

    /// Reads the objects that are there so far, as [`get_unsynced`](Self::get_unsynced) does.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the cluster has left.
    pub fn list_unsynced(&self) -> Result<Vec<Arc<K>>, StoreError> {
        Ok(self.decode_all(self.cache()?.store().all()))
    }

    /// Reads the objects that an index has under a value, in the order of their keys. Leaves out objects that can't be
    /// decoded, as [`list`](Self::list) does.
    ///
    /// # Errors
    /// [`StoreError::NotListed`] before the first complete list, [`StoreError::NoIndex`] if no index of this name is
    /// registered for this kind, [`StoreError::Gone`] if the cluster has left.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<K>>, StoreError> {
        let objects = self.listed()?.store().by_index(index, value);
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

#[cfg(test)]
mod tests;
