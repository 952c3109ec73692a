//! Namespaces as places of a scope.

use std::{borrow::Cow, collections::BTreeSet, fmt, sync::Arc};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use mcr_core::{
    AnswerBody, BoxError, Capabilities, ObjectMetadata, Placement, ScopeLayout, ScopeRefusal, Upstream,
    WatchRequest,
};
use serde_json::Value;

use crate::{
    kinds::Host,
    mapping::{
        field_rules::{self, Rule},
        names::{DEFAULT, Names},
        query,
    },
    shared::NamespaceMapping,
};

type Filter = dyn Fn(&str) -> bool + Send + Sync;

/// Selects the namespaces that are clusters, by their names.
#[derive(Clone, Default)]
pub(crate) struct Choice {
    pub(crate) excluded: BTreeSet<String>,
    pub(crate) filter: Option<Arc<Filter>>,
}

impl Choice {
    pub(crate) fn takes(&self, name: &str) -> bool {
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

/// The layout of the clusters in their host.
pub(crate) struct Layout {
    name: Arc<str>,
    mapping: NamespaceMapping,
    choice: Arc<Choice>,
    /// The name of a namespace inside its cluster. `None`: it keeps its real name.
    inside: Option<Arc<str>>,
}

impl Layout {
    pub(crate) fn new(name: Arc<str>, mapping: NamespaceMapping, choice: Arc<Choice>) -> Self {
        Self {
            name,
            inside: (!mapping.keep).then(|| DEFAULT.into()),
            mapping,
            choice,
        }
    }
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
        Cow::Borrowed(self.inside.as_deref().unwrap_or(place))
    }

    fn watch(&self, wanted: &WatchRequest) -> Result<WatchRequest, ScopeRefusal> {
        let (group, plural) = (wanted.group(), wanted.plural());
        if self.mapping.kinds.is_namespaced(group, plural) == Some(false) {
            return Err(ScopeRefusal::new(format!(
                "the cluster is a namespace of another cluster: it has no cluster-scoped kinds such as {plural}; watch them in \
                 the host cluster"
            )));
        }
        let everywhere = wanted.clone().all_namespaces();
        let Some(fields) = wanted.field_selector() else {
            return Ok(everywhere);
        };
        // One watch serves all clusters, so it can't have a selector that selects by namespace.
        match query::of_all(fields, field_rules::of(group, plural), self.inside.as_deref()) {
            Some(rest) if rest.is_empty() => Ok(everywhere.without_fields()),
            Some(rest) => Ok(everywhere.fields(rest)),
            None => Err(ScopeRefusal::new(format!(
                "one watch serves all clusters that are namespaces, and the field selector {fields:?} chooses some of them by \
                 name; choose clusters in place of namespaces"
            ))),
        }
    }

    fn place<'o>(&self, object: &ObjectMetadata<'o>) -> Option<Placement<'o>> {
        // Objects of namespaces that are no clusters are not stored.
        let place = object.namespace().filter(|name| self.choice.takes(name))?;
        let placement = Placement::new(place);
        Some(match &self.inside {
            Some(inside) => placement.in_namespace(inside.clone()),
            None => placement,
        })
    }

    fn localizes(&self, wanted: &WatchRequest) -> bool {
        let references = field_rules::of(wanted.group(), wanted.plural());
        self.inside.is_some() && references.iter().any(|(_, rule)| *rule == Rule::Reference)
    }

    fn localize(&self, place: &str, object: &mut Value) {
        let Some(names) = Names::of(&place.into(), self.mapping.keep) else {
            return;
        };
        // Events are the only watchable kind whose objects refer to namespaces in other fields.
        let references = field_rules::of("", "events")
            .iter()
            .filter(|(_, rule)| *rule == Rule::Reference);
        for (field_path, _) in references {
            if let Some(Value::String(name)) = field_path
                .iter()
                .try_fold(&mut *object, |at, field| at.get_mut(*field))
            {
                *name = names.swap(name).to_owned();
            }
        }
    }

    fn send(
        &self,
        place: Arc<str>,
        request: Request<Body>,
        upstream: Upstream,
    ) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>> {
        let host: Host = Arc::new(move |request| {
            let upstream = upstream.clone();
            Box::pin(async move { upstream.send(request).await })
        });
        self.mapping.send(place, request, host)
    }
}
