//! Reading the stores of all clusters.

use std::{fmt, sync::Arc};

use kube::Resource;
use mcr_watch::{Store, StoreError};
use serde::de::DeserializeOwned;

use super::{cluster::Cluster, handle::Fleet};

/// The objects of a kind in the clusters of a fleet, and the clusters whose objects are missing. [`Fleet::list`] and
/// [`Fleet::by_index`] return it.
///
/// Each cluster of the fleet either was read or is in [`missing`](Self::missing). Only these clusters are meant: clusters that
/// are not discovered yet are not in the fleet, nor are clusters whose description was never usable; see [`Fleet::ready`]. A
/// cluster that was listed once is not missing while it is unreachable: its objects are old. [`Cluster::state`] shows that.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::Node;
/// use mcr_core::{Fleet, HUB};
///
/// fn report(fleet: &Fleet) {
///     let nodes = fleet.list::<Node>();
///     for (cluster, node) in &nodes.objects {
///         let age = if cluster.state().is_ready() { "now" } else { "when it was last reachable" };
///         println!("{}: {:?} ({age})", cluster.name(), node.metadata.name);
///     }
///     // No controller watches Nodes in the hub.
///     for missing in nodes.missing.iter().filter(|missing| missing.cluster.name() != HUB) {
///         eprintln!("the report is incomplete: {missing}");
///     }
/// }
/// ```
#[derive(Debug)]
#[must_use = "clusters may be missing: look at `missing` as well"]
#[non_exhaustive]
pub struct FleetObjects<K> {
    /// The objects, in the order of the names of their clusters.
    pub objects: Vec<(Cluster, Arc<K>)>,
    /// The clusters whose objects are missing, in the order of their names.
    pub missing: Vec<MissingCluster>,
}

impl<K> FleetObjects<K> {
    /// Whether no cluster is missing.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

/// A cluster whose objects could not be read. Its text names the cluster and says why.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MissingCluster {
    /// The cluster.
    pub cluster: Cluster,
    /// Why: nothing watches the kind there ([`StoreError::NotWatched`]), it was never listed completely
    /// ([`StoreError::NotListed`]), it has no such index ([`StoreError::NoIndex`]), or the cluster has just left.
    pub error: StoreError,
}

impl fmt::Display for MissingCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Fleet {
    /// The stores of a kind, of all clusters in which the kind is watched.
    pub fn stores<K: Resource<DynamicType = ()> + DeserializeOwned>(&self) -> Vec<(Cluster, Store<K>)> {
        self.stores_with(&())
    }

    /// Like [`stores`](Self::stores), for a kind that is known at run time.
    pub fn stores_with<K>(&self, dynamic: &K::DynamicType) -> Vec<(Cluster, Store<K>)>
    where
        K: Resource + DeserializeOwned,
    {
        let stores = self.clusters().into_iter();
        stores
            .filter_map(|c| c.store_with(dynamic).ok().map(|store| (c, store)))
            .collect()
    }

    /// Reads the objects of a kind from all clusters, and says which clusters are [missing](FleetObjects::missing), also
    /// those in which nothing watches the kind. Never waits.
    ///
    /// Objects that can't be decoded are left out, with a warning in the log.
    pub fn list<K: Resource<DynamicType = ()> + DeserializeOwned>(&self) -> FleetObjects<K> {
        self.list_with(&())
    }

    /// Like [`list`](Self::list), for a kind that is known at run time.
    pub fn list_with<K: Resource + DeserializeOwned>(&self, dynamic: &K::DynamicType) -> FleetObjects<K> {
        self.read_all(dynamic, Store::list)
    }

    /// Reads the objects of a kind that have a value in an index, as [`list`](Self::list) does. Register the index with
    /// [`index`](Self::index); a cluster without it is missing.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # fn example(fleet: &mcr_core::Fleet) {
    /// let humans = fleet.by_index::<ConfigMap>("type", "human");
    /// println!("{} ConfigMaps, {} clusters are missing", humans.objects.len(), humans.missing.len());
    /// # }
    /// ```
    pub fn by_index<K>(&self, index: &str, value: &str) -> FleetObjects<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.by_index_with(&(), index, value)
    }

    /// Like [`by_index`](Self::by_index), for a kind that is known at run time.
    pub fn by_index_with<K>(&self, dynamic: &K::DynamicType, index: &str, value: &str) -> FleetObjects<K>
    where
        K: Resource + DeserializeOwned,
    {
        self.read_all(dynamic, |store| store.by_index(index, value))
    }

    fn read_all<K: Resource + DeserializeOwned>(
        &self,
        dynamic: &K::DynamicType,
        read: impl Fn(&Store<K>) -> Result<Vec<Arc<K>>, StoreError>,
    ) -> FleetObjects<K> {
        let (mut objects, mut missing) = (Vec::new(), Vec::new());
        for cluster in self.clusters() {
            match cluster.store_with(dynamic).and_then(|store| read(&store)) {
                Ok(read) => objects.extend(read.into_iter().map(|object| (cluster.clone(), object))),
                Err(error) => missing.push(MissingCluster { cluster, error }),
            }
        }
        FleetObjects { objects, missing }
    }
}
