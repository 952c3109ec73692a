//! How clusters are laid out behind one endpoint.

use std::{borrow::Cow, sync::Arc};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;

use super::Upstream;
use crate::{AnswerBody, BoxError, ObjectMetadata, WatchRequest};

/// How clusters are laid out behind one endpoint: which object belongs to which of them, and where the requests of
/// each go.
///
/// Everything but [`send`](Self::send) is called for each object or watch and must be quick and without I/O. What
/// panics costs what it panicked on: the object is left out as one that can't be read, the kind shows as blocked, the
/// request fails.
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
    /// A short name for logs and the fleet's state. Asked for when the scope is made.
    fn name(&self) -> &str;

    /// What the API of such a cluster can do.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// The namespace that requests of a cluster's [client](crate::Cluster::client) go to that name none.
    fn default_namespace<'p>(&'p self, place: &'p str) -> Cow<'p, str> {
        let _ = place;
        Cow::Borrowed("default")
    }

    /// What stands before the path of each request that concerns all clusters of an endpoint: lists, watches and
    /// probes. Empty, or starting with a slash. Asked for when the scope is made.
    fn watch_prefix(&self) -> &str {
        ""
    }

    /// What an endpoint is asked for so that the objects of all its clusters come, for a kind that is wanted in a
    /// cluster. Asks across all namespaces unless said otherwise; objects that the placement puts into another
    /// namespace than the one wanted are left out.
    ///
    /// # Errors
    /// [`ScopeRefusal`] if there is no such kind in these clusters. The kind then shows as blocked, with the reason.
    fn watch(&self, wanted: &WatchRequest) -> Result<WatchRequest, ScopeRefusal> {
        Ok(wanted.clone().all_namespaces())
    }

    /// Which cluster an object belongs to; none if to no cluster of this scope.
    ///
    /// It must be the same for as long as an object lives.
    fn place<'o>(&self, object: &ObjectMetadata<'o>) -> Option<Placement<'o>>;

    /// Whether the objects of a kind look different in their cluster beyond their namespace, which the placement
    /// says. They are then shown to [`localize`](Self::localize), which costs parsing them as a whole.
    fn localizes(&self, wanted: &WatchRequest) -> bool {
        let _ = wanted;
        false
    }

    /// Makes an object look as it does in its cluster. `metadata.namespace` is taken from the placement afterwards.
    fn localize(&self, place: &str, object: &mut serde_json::Value) {
        let _ = (place, object);
    }

    /// Sends a request of one cluster. Its URI is a path and query, as the cluster's client made it.
    ///
    /// Cancel safe if dropping the future gives the request up.
    ///
    /// # Errors
    /// Whatever keeps the answer from coming. What the cluster is to refuse is an answer, not an error.
    fn send(
        &self,
        place: Arc<str>,
        request: Request<Body>,
        upstream: Upstream,
    ) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>>;
}

/// Where an object belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placement<'o> {
    /// The place of its cluster.
    pub place: Cow<'o, str>,
    /// The namespace it is in there, if that is not its own.
    pub namespace: Option<Arc<str>>,
}

impl<'o> Placement<'o> {
    /// In this cluster, in its own namespace.
    pub fn new(place: impl Into<Cow<'o, str>>) -> Self {
        Self {
            place: place.into(),
            namespace: None,
        }
    }

    /// In another namespace than its own.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }
}

/// Why a kind can't be watched in the clusters of a scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScopeRefusal(String);

impl ScopeRefusal {
    /// Says why, and what to do instead.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// What the API of a cluster can do that not every API can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Server-side apply removes fields that a later apply leaves out. Where it doesn't, use merge patches with
    /// explicit nulls.
    pub server_side_apply: bool,
    /// Watches may ask for the initial list (`sendInitialEvents`).
    pub streaming_lists: bool,
    /// There are cluster-scoped kinds.
    pub cluster_scoped_kinds: bool,
}

impl Default for Capabilities {
    /// Those of an ordinary API server: everything.
    fn default() -> Self {
        Self {
            server_side_apply: true,
            streaming_lists: true,
            cluster_scoped_kinds: true,
        }
    }
}

impl Capabilities {
    /// Without server-side apply.
    #[must_use]
    pub fn without_server_side_apply(mut self) -> Self {
        self.server_side_apply = false;
        self
    }

    /// Without streaming lists.
    #[must_use]
    pub fn without_streaming_lists(mut self) -> Self {
        self.streaming_lists = false;
        self
    }

    /// Without cluster-scoped kinds.
    #[must_use]
    pub fn without_cluster_scoped_kinds(mut self) -> Self {
        self.cluster_scoped_kinds = false;
        self
    }
}
