//! Requests: which object of which cluster to reconcile, with everything that a reconciler needs.

use std::{fmt, sync::Arc};

use kube::{
    Api, Client, Resource,
    core::NamespaceResourceScope,
    runtime::reflector::{Lookup, ObjectRef},
};
use mcr_core::{Cluster, ClusterName, Fleet, ObjectKey};
use tokio_util::sync::CancellationToken;

/// The unit of work: one object of one cluster. A controller never reconciles the same key twice at once.
///
/// ```
/// use mcr::{ClusterName, ObjectKey, RequestKey};
///
/// let key = RequestKey::new(ClusterName::new("prod-eu")?, ObjectKey::namespaced("shop", "web"));
/// assert_eq!(key.to_string(), "cluster://prod-eu/shop/web");
/// # Ok::<(), mcr::InvalidClusterName>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestKey {
    /// The cluster.
    pub cluster: ClusterName,
    /// The object in it.
    pub object: ObjectKey,
}

impl RequestKey {
    /// The key of an object in a cluster.
    pub fn new(cluster: ClusterName, object: ObjectKey) -> Self {
        Self { cluster, object }
    }

    /// The key of a typed object in the cluster of this handle. `None` if the object has no name yet.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Secret;
    /// use mcr::{Cluster, RequestKey, StoreError};
    ///
    /// /// A request for each Secret of a cluster.
    /// fn requests(cluster: &Cluster) -> Result<Vec<RequestKey>, StoreError> {
    ///     let secrets = cluster.store::<Secret>()?.list()?;
    ///     Ok(secrets.iter().filter_map(|secret| RequestKey::of(cluster, &**secret)).collect())
    /// }
    /// ```
    pub fn of<K: Resource>(cluster: &Cluster, object: &K) -> Option<Self> {
        Some(Self::new(cluster.name().clone(), ObjectKey::of(object)?))
    }

    /// The same object in another cluster.
    #[must_use]
    pub fn in_cluster(&self, cluster: ClusterName) -> Self {
        Self {
            cluster,
            object: self.object.clone(),
        }
    }
}

impl fmt::Display for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cluster://{}/{}", self.cluster, self.object)
    }
}

/// The target of a request that a mapper returns: an object of the same cluster, or of any cluster.
///
/// Converts from an [`ObjectKey`] (the same cluster), a [`RequestKey`] (the cluster that it names), and the `ObjectRef` of
/// kube (the same cluster).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// An object of the cluster that the change came from.
    Here(ObjectKey),
    /// An object of the cluster that the key names.
    There(RequestKey),
}

impl From<ObjectKey> for Target {
    fn from(key: ObjectKey) -> Self {
        Self::Here(key)
    }
}

impl From<RequestKey> for Target {
    fn from(key: RequestKey) -> Self {
        Self::There(key)
    }
}

impl<K: Lookup> From<ObjectRef<K>> for Target {
    /// Uses the name and namespace of the reference, in the same cluster. Mappers for kube return such references.
    fn from(reference: ObjectRef<K>) -> Self {
        Self::Here(match reference.namespace {
            Some(namespace) => ObjectKey::namespaced(namespace, reference.name),
            None => ObjectKey::cluster_scoped(reference.name),
        })
    }
}

/// The object of a request, as far as the controller knows it.
#[derive(Debug)]
#[non_exhaustive]
pub enum RequestObject<K> {
    /// The object exists; this is its state in the store.
    Live(Arc<K>),
    /// The object was deleted for certain: the watch has no selector, and a watch event reported the deletion, or a complete
    /// list did not contain the object any more.
    ///
    /// Requests for the object have this state until one of them has succeeded or is not retried. Deletions while the program does
    /// not run are missed. Of the objects that come and go while nothing is dispatched in their cluster, at most 1,000 have it. Use a
    /// finalizer for a clean-up that must not be missed.
    Deleted {
        /// The last known state of the object; `None` if it can't be decoded.
        last_known: Option<Arc<K>>,
    },
    /// The object left the watch: it was deleted, or it exists and the watch no longer includes it. The API server reports
    /// both in the same way.
    ///
    /// Objects leave a watch with a label or field selector when they no longer match. In a [scope](mcr_core::scope), objects
    /// can leave a watch for other reasons, unless its layout
    /// [rules them out](mcr_core::ScopeLayout::deletions_are_certain).
    ///
    /// Stop what the reconciler does for objects of this selection. Before you free what belongs to the object as long as it
    /// exists, such as a cloud resource, ask the server with [`Request::confirm_deleted`]. A later deletion of an object that
    /// has left the watch is not reported. So to free something at every deletion, use a finalizer, or watch without a
    /// selector and compare the labels in the reconciler.
    ///
    /// Requests for the object have this state until one of them has succeeded, or until the object is back in the watch.
    LeftWatch {
        /// The last known state of the object, in which it was still in the watch; `None` if it can't be decoded.
        last_known: Option<Arc<K>>,
    },
    /// The store does not contain the object, and there is neither `Deleted` nor `LeftWatch` to reconcile. A mapper, a source or a requeue
    /// added the request.
    Absent,
    /// The controller does not watch its primary kind in this cluster, or has no primary kind.
    Unwatched,
}

impl<K> RequestObject<K> {
    /// The object, if it exists.
    pub fn live(&self) -> Option<&Arc<K>> {
        match self {
            Self::Live(object) => Some(object),
            _ => None,
        }
    }

    /// The object, or its last known state before it was deleted or left the watch.
    pub fn last_known(&self) -> Option<&Arc<K>> {
        match self {
            Self::Live(object) => Some(object),
            Self::Deleted { last_known } | Self::LeftWatch { last_known } => last_known.as_ref(),
            _ => None,
        }
    }

    /// Whether the object was deleted for certain. `false` for an object that [left the watch](Self::has_left_watch).
    pub fn is_deleted(&self) -> bool {
        matches!(self, Self::Deleted { .. })
    }

    /// Whether the object left the watch and may still exist. `false` for an object that was deleted for certain.
    pub fn has_left_watch(&self) -> bool {
        matches!(self, Self::LeftWatch { .. })
    }
}

impl<K> Clone for RequestObject<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Live(object) => Self::Live(object.clone()),
            Self::Deleted { last_known } => Self::Deleted {
                last_known: last_known.clone(),
            },
            Self::LeftWatch { last_known } => Self::LeftWatch {
                last_known: last_known.clone(),
            },
            Self::Absent => Self::Absent,
            Self::Unwatched => Self::Unwatched,
        }
    }
}

/// The argument of a multi-cluster [`Reconciler`](crate::Reconciler): an object with its cluster. Cheap to clone.
#[non_exhaustive]
pub struct Request<K> {
    /// The object and its cluster, by name.
    pub key: RequestKey,
    /// The cluster.
    pub cluster: Cluster,
    /// The fleet, for access to other clusters.
    pub fleet: Fleet,
    /// The object, as far as the controller knows it.
    pub object: RequestObject<K>,
    /// How many reconciles of this key failed in a row before; 0 the first time.
    pub attempt: u32,
    pub(crate) token: CancellationToken,
}

impl<K> Request<K> {
    /// Makes a request to test a reconciler: a first attempt, with the token of the cluster.
    pub fn new(cluster: Cluster, fleet: Fleet, key: ObjectKey, object: RequestObject<K>) -> Self {
        Self {
            key: RequestKey::new(cluster.name().clone(), key),
            token: cluster.token().child_token(),
            cluster,
            fleet,
            object,
            attempt: 0,
        }
    }

    /// The name of the object.
    pub fn name(&self) -> &str {
        &self.key.object.name
    }

    /// The namespace of the object, for namespaced kinds.
    pub fn namespace(&self) -> Option<&str> {
        self.key.object.namespace.as_deref()
    }

    /// The object, if it exists.
    pub fn live(&self) -> Option<&Arc<K>> {
        self.object.live()
    }

    /// The token of the request. It is cancelled when the cluster leaves, when the controller no longer selects the cluster,
    /// and when the controller stops. The reconciler then has a grace period to end before it is aborted. The token is also
    /// cancelled when the reconcile has ended, for tasks that the reconciler left running.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// A client of the cluster.
    pub fn client(&self) -> Client {
        self.cluster.client()
    }
}

impl<K: Resource<Scope = NamespaceResourceScope>> Request<K> {
    /// An API for the objects of a kind in the cluster and the namespace of the request.
    ///
    /// Only requests for a namespaced primary kind have this method. Others take [`Cluster::namespaced`], which asks for the
    /// namespace. For kinds without a namespace, use [`Cluster::api`].
    ///
    /// If a mapper or a source has left the namespace out of the key, the API has the default namespace of the
    /// [client](Cluster::client).
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// use mcr::Request;
    ///
    /// async fn has_secret(request: Request<ConfigMap>) -> Result<bool, kube::Error> {
    ///     Ok(request.api::<Secret>().get_opt(request.name()).await?.is_some())
    /// }
    /// ```
    ///
    /// # Panics
    /// As [`Cluster::client`]: never in a reconcile.
    pub fn api<O>(&self) -> Api<O>
    where
        O: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
    {
        match self.namespace() {
            Some(namespace) => self.cluster.namespaced(namespace),
            None => Api::default_namespaced(self.client()),
        }
    }
}

impl<K> Clone for Request<K> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            cluster: self.cluster.clone(),
            fleet: self.fleet.clone(),
            object: self.object.clone(),
            attempt: self.attempt,
            token: self.token.clone(),
        }
    }
}

// Objects may be Secrets, so their content is not shown.
impl<K> fmt::Debug for Request<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = match self.object {
            RequestObject::Live(_) => "Live",
            RequestObject::Deleted { .. } => "Deleted",
            RequestObject::LeftWatch { .. } => "LeftWatch",
            RequestObject::Absent => "Absent",
            RequestObject::Unwatched => "Unwatched",
        };
        f.debug_struct("Request")
            .field("key", &format_args!("{}", self.key))
            .field("object", &object)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
