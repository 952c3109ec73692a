//! Namespaces as places of a scope.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    fmt,
    sync::Arc,
};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use mcr_core::{
    AnswerBody, BoxError, Capabilities, ObjectMetadata, Placement, ScopeLayout, ScopeRefusal, Upstream,
    WatchRequest,
};
use parking_lot::Mutex;

use crate::shared::send;

type Filter = dyn Fn(&str) -> bool + Send + Sync;

/// Selects the namespaces that are clusters, by their names.
#[derive(Clone, Default)]
pub(crate) struct Choice {
    pub(crate) excluded: BTreeSet<String>,
    pub(crate) filter: Option<Arc<Filter>>,
}

impl Choice {
    pub(crate) fn selects(&self, name: &str) -> bool {
        !self.excluded.contains(name) && self.filter.as_ref().is_none_or(|filter| filter(name))
    }

    /// The conditions on names, for the log.
    pub(crate) fn in_words(&self) -> String {
        let mut words = String::new();
        if !self.excluded.is_empty() {
            let names: Vec<&str> = self.excluded.iter().map(String::as_str).collect();
            words = format!(", without {}", names.join(", "));
        }
        if self.filter.is_some() {
            words += ", whose names pass the filter function";
        }
        words
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Choice")
            .field("excluded", &self.excluded)
            .field("filter", &self.filter.is_some())
            .finish()
    }
}

/// The cluster-scoped kinds of the host, by group and plural. This list is needed because the path of a watch does not
/// show whether the kind is cluster-scoped.
pub(crate) type ClusterScoped = Arc<Mutex<HashSet<(String, String)>>>;

/// The layout of the clusters in their host.
pub(crate) struct Layout {
    pub(crate) name: Arc<str>,
    pub(crate) choice: Arc<Choice>,
    pub(crate) cluster_scoped: ClusterScoped,
}

impl ScopeLayout for Layout {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default().without_cluster_scoped_kinds()
    }

    // An object stays in its namespace until it is deleted.
    fn deletions_are_certain(&self) -> bool {
        true
    }

    fn default_namespace<'p>(&'p self, place: &'p str) -> Cow<'p, str> {
        Cow::Borrowed(place)
    }

    fn watch(&self, wanted: &WatchRequest) -> Result<WatchRequest, ScopeRefusal> {
        let (group, plural) = (wanted.group().to_owned(), wanted.plural().to_owned());
        let kind = (group, plural);
        if self.cluster_scoped.lock().contains(&kind) {
            return Err(ScopeRefusal::new(format!(
                "the cluster is a namespace of another cluster: it has no cluster-scoped kinds such as {}; watch them in the host \
                 cluster",
                kind.1
            )));
        }
        Ok(wanted.clone().all_namespaces())
    }

    fn place<'o>(&self, object: &ObjectMetadata<'o>) -> Option<Placement<'o>> {
        // Objects of namespaces that are not clusters are not stored.
        let place = object.namespace().filter(|name| self.choice.selects(name))?;
        Some(Placement::new(place))
    }

    fn send(
        &self,
        place: Arc<str>,
        request: Request<Body>,
        upstream: Upstream,
    ) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>> {
        Box::pin(send(place, request, async move |request| {
            upstream.send(request).await
        }))
    }
}
