//! What a reconciler is asked to do.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering, fence},
    },
};

use kube::{
    Client,
    runtime::reflector::{Lookup, ObjectRef},
};
use mcr_core::{Cluster, ClusterName, Fleet, ObjectKey};
use tokio_util::sync::CancellationToken;

/// The unit of work: one object of one cluster. Never worked on twice at once.
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

/// Where work is to be done: an object in the cluster something was seen in, or in any cluster.
///
/// What mappers return is turned into it: an [`ObjectKey`] means the same cluster, a [`RequestKey`] the cluster
/// it names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// An object of the same cluster.
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
    /// The reference's name and namespace, in the same cluster; mappers written for kube return it.
    fn from(reference: ObjectRef<K>) -> Self {
        Self::Here(match reference.namespace {
            Some(namespace) => ObjectKey::namespaced(namespace, reference.name),
            None => ObjectKey::cluster_scoped(reference.name),
        })
    }
}

/// What is known of the object that a request is about.
#[derive(Debug)]
#[non_exhaustive]
pub enum RequestObject<K> {
    /// The object as the store has it.
    Live(Arc<K>),
    /// The object was deleted: the API server said so, or a complete list did not have it any more. For a
    /// watch with a label or field selector this includes objects that no longer match.
    ///
    /// Requests come with it until one has succeeded. Not every deletion is seen (not those that happen while
    /// this program does not run): what must not be missed needs a finalizer.
    Deleted {
        /// The object as it was last seen; none if it can't be decoded.
        last_known: Option<Arc<K>>,
    },
    /// There is no such object, as far as the store knows: a mapper, a source or a planned requeue asked for it.
    Absent,
    /// This controller does not watch its primary kind in this cluster, or it has none.
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

    /// The object, or what was last seen of it before it was deleted.
    pub fn last_known(&self) -> Option<&Arc<K>> {
        match self {
            Self::Live(object) => Some(object),
            Self::Deleted { last_known } => last_known.as_ref(),
            _ => None,
        }
    }

    /// Whether the object was seen to be deleted.
    pub fn is_deleted(&self) -> bool {
        matches!(self, Self::Deleted { .. })
    }
}

impl<K> Clone for RequestObject<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Live(object) => Self::Live(object.clone()),
            Self::Deleted { last_known } => Self::Deleted {
                last_known: last_known.clone(),
            },
            Self::Absent => Self::Absent,
            Self::Unwatched => Self::Unwatched,
        }
    }
}

/// Tells what a reconcile left running that it has ended. Its token is made when somebody asks for it, as most don't.
#[derive(Clone)]
pub(crate) struct Ending(Arc<EndingToken>);

struct EndingToken {
    parent: Arc<CancellationToken>,
    own: OnceLock<CancellationToken>,
    has_ended: AtomicBool,
}

impl Ending {
    pub(crate) fn new(parent: Arc<CancellationToken>) -> Self {
        Self(Arc::new(EndingToken {
            parent,
            own: OnceLock::new(),
            has_ended: AtomicBool::new(false),
        }))
    }

    fn token(&self) -> &CancellationToken {
        let token = self.0.own.get_or_init(|| self.0.parent.child_token());
        // Each looks after it has made itself seen, so one of the two sees the other.
        fence(Ordering::SeqCst);
        if self.0.has_ended.load(Ordering::Relaxed) {
            token.cancel();
        }
        token
    }

    pub(crate) fn end(&self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if let Some(token) = self.0.own.get() {
            token.cancel();
        }
    }
}

/// What a multi-cluster aware reconciler gets. Cheap to clone.
#[non_exhaustive]
pub struct Request<K> {
    /// Which object of which cluster.
    pub key: RequestKey,
    /// The cluster.
    pub cluster: Cluster,
    /// The fleet, through which other clusters are reached.
    pub fleet: Fleet,
    /// What is known of the object.
    pub object: RequestObject<K>,
    /// How often this key failed in a row before; 0 the first time.
    pub attempt: u32,
    pub(crate) ending: Ending,
}

impl<K> Request<K> {
    /// Makes a request by hand, to test a reconciler: first attempt, with the cluster's token.
    pub fn new(cluster: Cluster, fleet: Fleet, key: ObjectKey, object: RequestObject<K>) -> Self {
        Self {
            key: RequestKey::new(cluster.name().clone(), key),
            ending: Ending::new(Arc::new(cluster.token().clone())),
            cluster,
            fleet,
            object,
            attempt: 0,
        }
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        &self.key.object.name
    }

    /// The object's namespace, for kinds that have one.
    pub fn namespace(&self) -> Option<&str> {
        self.key.object.namespace.as_deref()
    }

    /// The object, if it exists.
    pub fn live(&self) -> Option<&Arc<K>> {
        self.object.live()
    }

    /// Cancelled when the cluster leaves, when the controller no longer selects it, and when the program shuts
    /// down. The reconciler then has a grace period to end before it is aborted. When the reconcile has ended it
    /// is cancelled as well, for what it left running.
    pub fn token(&self) -> &CancellationToken {
        self.ending.token()
    }

    /// A client of the request's cluster.
    pub fn client(&self) -> Client {
        self.cluster.client()
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
            ending: self.ending.clone(),
        }
    }
}

// Objects may be Secrets: what they hold is not shown.
impl<K> fmt::Debug for Request<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = match self.object {
            RequestObject::Live(_) => "Live",
            RequestObject::Deleted { .. } => "Deleted",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubes_references_are_targets() {
        use k8s_openapi::api::core::v1::ConfigMap;
        let target = Target::from(ObjectRef::<ConfigMap>::new("x").within("ns"));
        assert_eq!(target, Target::Here(ObjectKey::namespaced("ns", "x")));
    }

    #[test]
    fn a_key_reads_as_in_multicluster_runtime() {
        let cluster = ClusterName::new("a/b").unwrap();
        let key = RequestKey::new(cluster, ObjectKey::cluster_scoped("node-1"));
        assert_eq!(key.to_string(), "cluster://a/b/node-1");
        let other = key.in_cluster(ClusterName::new("c").unwrap());
        assert_eq!(other.to_string(), "cluster://c/node-1");
    }

    #[test]
    fn the_token_of_a_request_is_cancelled_with_its_cluster() {
        let cluster = Arc::new(CancellationToken::new());
        let (asked, not_yet) = (Ending::new(cluster.clone()), Ending::new(cluster.clone()));
        assert!(!asked.token().is_cancelled());
        cluster.cancel();
        assert!(asked.token().is_cancelled() && not_yet.token().is_cancelled());
    }

    #[test]
    fn a_reconcile_that_ends_is_told_to_those_who_ask_before_and_after_and_to_no_other() {
        let cluster = Arc::new(CancellationToken::new());
        let (ending, other) = (Ending::new(cluster.clone()), Ending::new(cluster.clone()));
        let before = ending.token().clone();
        ending.end();
        assert!(before.is_cancelled() && ending.token().is_cancelled());
        let late = Ending::new(cluster.clone());
        late.end();
        assert!(late.token().is_cancelled());
        assert!(!other.token().is_cancelled() && !cluster.is_cancelled());
    }

    #[test]
    fn who_asks_while_a_reconcile_ends_is_told() {
        let cluster = Arc::new(CancellationToken::new());
        for _ in 0..2_000 {
            let ending = Ending::new(cluster.clone());
            let token = std::thread::scope(|scope| {
                let asks = scope.spawn(|| ending.token().clone());
                ending.end();
                asks.join().unwrap()
            });
            assert!(token.is_cancelled());
        }
    }
}
