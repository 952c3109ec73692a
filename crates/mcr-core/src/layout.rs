//! How clusters are laid out behind one endpoint.

use std::{borrow::Cow, sync::Arc};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;

use crate::{scope::Placement, upstream::Upstream};
use mcr_access::BoxError;
use mcr_client::AnswerBody;
use mcr_store::ObjectMetadata;
use mcr_watch::WatchRequest;

/// How clusters are laid out behind one endpoint: which cluster an object belongs to, and how to send a request of a cluster.
///
/// The fleet calls [`send`](Self::send) for each request, and the other functions for each object or watch. The other
/// functions must be quick and do no I/O.
///
/// # Panics in an implementation
/// The fleet catches a panic of a function. Its effect is limited to the object, kind or request: the object counts as
/// unreadable, the kind shows as blocked, or the request fails.
///
/// ```
/// use std::sync::Arc;
///
/// use futures::future::BoxFuture;
/// use http::{Request, Response};
/// use kube::client::Body;
/// use mcr_core::{AnswerBody, BoxError, ObjectMetadata, scope::{Placement, ScopeLayout, Upstream}};
///
/// /// Workspaces, each below a path of its own, all of them below `/clusters/*`.
/// struct Workspaces;
///
/// impl ScopeLayout for Workspaces {
///     fn name(&self) -> &str {
///         "workspaces"
///     }
///     fn watch_prefix(&self) -> &str {
///         "/clusters/*"
///     }
///     fn place<'o>(&self, object: &ObjectMetadata<'o>) -> Option<Placement<'o>> {
///         object.annotation("kcp.io/cluster").map(Placement::new)
///     }
///     fn send(
///         &self,
///         place: Arc<str>,
///         request: Request<Body>,
///         upstream: Upstream,
///     ) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>> {
///         Box::pin(async move { upstream.send_below(&format!("/clusters/{place}"), request).await })
///     }
/// }
/// ```
pub trait ScopeLayout: Send + Sync + 'static {
    /// A short name for logs and for the state of the fleet. [`Scope::new`](crate::Scope::new) calls it once.
    fn name(&self) -> &str;

    /// The features that the API of such a cluster supports. All features by default.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Whether every object that leaves a watch without selectors was deleted. `false` by default: requests for such objects
    /// then have the state `LeftWatch`, not `Deleted`. Between several endpoints they also come later, by
    /// [`FleetSettings::uncertain_deletion_delay`](crate::FleetSettings::uncertain_deletion_delay).
    ///
    /// Return `true` only if the endpoint has no other reason to remove objects. kcp has one: a revoked permission claim.
    fn deletions_are_certain(&self) -> bool {
        false
    }

    /// The default namespace of the [client](crate::Cluster::client) of the cluster at `place`. `default` by default.
    fn default_namespace<'p>(&'p self, place: &'p str) -> Cow<'p, str> {
        let _ = place;
        Cow::Borrowed("default")
    }

    /// The path prefix of requests that concern all clusters of an endpoint: lists, watches and probes.
    ///
    /// Empty, or a path that starts with a slash. Empty by default. [`Scope::new`](crate::Scope::new) calls it once.
    fn watch_prefix(&self) -> &str {
        ""
    }

    /// Translates a watch in one cluster into a watch at the endpoint that receives the objects of all its clusters.
    ///
    /// By default the watch at the endpoint covers all namespaces. If `wanted` names a namespace, each cluster still receives
    /// only the objects that [`place`](Self::place) puts into that namespace.
    ///
    /// # Errors
    /// [`ScopeRefusal`] if these clusters do not have the kind. The kind then shows as blocked, with the reason.
    fn watch(&self, wanted: &WatchRequest) -> Result<WatchRequest, ScopeRefusal> {
        Ok(wanted.clone().all_namespaces())
    }

    /// The cluster that an object belongs to. `None` if the object belongs to no cluster of this scope.
    ///
    /// The result must not change during the life of an object.
    fn place<'o>(&self, object: &ObjectMetadata<'o>) -> Option<Placement<'o>>;

    /// Whether the fleet has to call [`localize`](Self::localize) for the objects of a kind. `false` by default.
    ///
    /// Return `true` if an object of the kind differs at the endpoint and in its cluster by more than its namespace. The fleet
    /// then parses each object of the kind as a whole, which costs time.
    fn localizes(&self, wanted: &WatchRequest) -> bool {
        let _ = wanted;
        false
    }

    /// Changes an object from its form at the endpoint to its form in its cluster.
    ///
    /// Does not have to change `metadata.namespace`: the fleet sets it afterwards, from the [`Placement`] of the object.
    fn localize(&self, place: &str, object: &mut serde_json::Value) {
        let _ = (place, object);
    }

    /// Sends a request of the cluster at `place`. The URI of the request is a path and query, as the client of the cluster
    /// has built it.
    ///
    /// # Errors
    /// If no response comes. To refuse a request in the name of the API server, return a response with an error status, not an
    /// error.
    ///
    /// # Cancellation
    /// Dropping the future must cancel the request.
    fn send(
        &self,
        place: Arc<str>,
        request: Request<Body>,
        upstream: Upstream,
    ) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>>;
}

/// The reason why the clusters of a scope can't watch a kind. [`ScopeLayout::watch`] returns it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScopeRefusal(String);

impl ScopeRefusal {
    /// A refusal. Users see `reason`, so it should say what they can do instead.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// Features of Kubernetes that the API of a cluster supports.
///
/// ```
/// use mcr_core::Capabilities;
///
/// let capabilities = Capabilities::default().without_cluster_scoped_kinds();
/// assert!(capabilities.server_side_apply());
/// assert!(!capabilities.cluster_scoped_kinds());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    server_side_apply: bool,
    streaming_lists: bool,
    cluster_scoped_kinds: bool,
}

impl Default for Capabilities {
    /// The capabilities of an ordinary API server: all of them.
    fn default() -> Self {
        Self {
            server_side_apply: true,
            streaming_lists: true,
            cluster_scoped_kinds: true,
        }
    }
}

impl Capabilities {
    /// Removes server-side apply.
    #[must_use]
    pub fn without_server_side_apply(mut self) -> Self {
        self.server_side_apply = false;
        self
    }

    /// Removes streaming lists.
    #[must_use]
    pub fn without_streaming_lists(mut self) -> Self {
        self.streaming_lists = false;
        self
    }

    /// Removes cluster-scoped kinds.
    #[must_use]
    pub fn without_cluster_scoped_kinds(mut self) -> Self {
        self.cluster_scoped_kinds = false;
        self
    }

    /// Whether server-side apply removes the fields that a later apply leaves out. If not, use merge patches with explicit
    /// nulls.
    pub fn server_side_apply(&self) -> bool {
        self.server_side_apply
    }

    /// Whether a watch may request the initial list (`sendInitialEvents`).
    pub fn streaming_lists(&self) -> bool {
        self.streaming_lists
    }

    /// Whether there are cluster-scoped kinds.
    pub fn cluster_scoped_kinds(&self) -> bool {
        self.cluster_scoped_kinds
    }
}
