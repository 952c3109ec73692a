//! One relation between sources and targets: what the user has set, without its builder.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock},
    time::Duration,
};

use kube::core::{ApiResource, DynamicObject};
use mcr::{BoxError, Cluster, ClusterName, ClusterSelector, Fleet, ObjectKey, RequestKey, WatchRequest};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    affected::Waiting,
    apply::Mode,
    away::Away,
    claims::Claims,
    error::SyncError,
    kinds::StatusKinds,
    link::{Link, SYNC},
    name::{NameError, NameTemplate, hashed},
    related::Rule,
    silent::Silent,
    told::Told,
    writes::Writes,
};

type Fallible<T> = Result<T, BoxError>;
pub(crate) type Place<S> = Arc<dyn Fn(&S, &Cluster, &Fleet) -> Vec<ClusterName> + Send + Sync>;
pub(crate) type Project<S, T> = Arc<dyn Fn(&S) -> Fallible<T> + Send + Sync>;
pub(crate) type Status<S, T> = Arc<dyn Fn(&S, &[(ClusterName, T)]) -> Fallible<Value> + Send + Sync>;
/// Changes the target for its cluster. The clusters are that of the source and that of the target.
pub(crate) type Mutate<S, T> = Box<dyn Fn(&mut T, &S, &Cluster, &Cluster) -> Fallible<()> + Send + Sync>;
pub(crate) type Test<K> = Arc<dyn Fn(&K) -> bool + Send + Sync>;

/// The namespace of targets.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetNamespace {
    /// That of the source.
    Same,
    /// This one.
    Fixed(String),
    /// None: targets are cluster-scoped.
    None,
}

pub(crate) struct Relation<S, T> {
    pub(crate) name: Arc<str>,
    pub(crate) owner: Option<String>,
    pub(crate) source: ApiResource,
    pub(crate) target: ApiResource,
    pub(crate) sources: ClusterSelector,
    pub(crate) targets: ClusterSelector,
    pub(crate) place: Place<S>,
    /// Whether a placement or a mutation may look at whatever is known of clusters.
    pub(crate) sees_clusters: bool,
    pub(crate) project: Project<S, T>,
    pub(crate) mutations: Vec<Mutate<S, T>>,
    pub(crate) template: Option<NameTemplate>,
    pub(crate) namespace: TargetNamespace,
    pub(crate) status: Option<Status<S, T>>,
    pub(crate) condition: Option<String>,
    pub(crate) filter: Option<Test<S>>,
    pub(crate) adopt: Option<Test<T>>,
    pub(crate) abandon_after: Option<Duration>,
    pub(crate) create_namespaces: bool,
    pub(crate) related: Vec<Rule<S, T>>,
    pub(crate) mode: Mode,
    pub(crate) replaces: bool,
    pub(crate) events: bool,
    pub(crate) source_watch: OnceLock<WatchRequest>,
    pub(crate) claims: Claims,
    pub(crate) away: Away,
    pub(crate) silent: Silent,
    pub(crate) waiting: Waiting,
    pub(crate) told: Told,
    pub(crate) writes: Writes,
    pub(crate) status_kinds: StatusKinds,
}

impl<S, T> Relation<S, T>
where
    S: DeserializeOwned,
    T: DeserializeOwned + Serialize,
{
    /// The watch of the sources, as the user has limited it. `None` before the controller is built.
    pub(crate) fn source_watch(&self) -> Option<&WatchRequest> {
        self.source_watch.get()
    }

    /// Targets are watched by the label of the sync.
    pub(crate) fn target_watch(&self) -> WatchRequest {
        WatchRequest::resource(&self.target).labels(format!("{SYNC}={}", self.name))
    }

    pub(crate) fn link<'a>(&'a self, key: &'a RequestKey) -> Link<'a> {
        Link::of(&self.name, self.owner.as_deref(), key)
    }

    /// Whether the object may be a source. A target of this sync never is, or it would be copied again and again.
    pub(crate) fn selects(&self, object: &DynamicObject, typed: &S) -> Result<bool, SyncError> {
        let labels = object.metadata.labels.as_ref();
        let is_target =
            labels.is_some_and(|labels| labels.get(SYNC).is_some_and(|sync| **sync == *self.name));
        match &self.filter {
            Some(filter) if !is_target => call("filter", || filter(typed)),
            _ => Ok(!is_target),
        }
    }

    /// The name of the targets of this source, in whichever cluster.
    pub(crate) fn target_key(&self, key: &RequestKey) -> Result<ObjectKey, NameError> {
        let source = self.link(key).source;
        let name = match &self.template {
            Some(template) => template.render(source)?,
            None => hashed(source),
        };
        Ok(match (&self.namespace, source.namespace) {
            (TargetNamespace::Same, Some(namespace)) => ObjectKey::namespaced(namespace, name),
            (TargetNamespace::Fixed(namespace), _) => ObjectKey::namespaced(namespace.clone(), name),
            (TargetNamespace::Same, None) | (TargetNamespace::None, _) => ObjectKey::cluster_scoped(name),
        })
    }

    /// The places where targets of this source shall be.
    pub(crate) fn wanted(
        &self,
        key: &RequestKey,
        typed: &S,
        cluster: &Cluster,
        fleet: &Fleet,
    ) -> Result<BTreeSet<RequestKey>, SyncError> {
        let object = self.target_key(key)?;
        let clusters = call("placement", || (self.place)(typed, cluster, fleet))?.into_iter();
        Ok(clusters
            .map(|cluster| RequestKey::new(cluster, object.clone()))
            .collect())
    }

    /// The projected object, for a target cluster if there are mutations.
    pub(crate) fn projected(
        &self,
        typed: &S,
        clusters: Option<(&Cluster, &Cluster)>,
    ) -> Result<Value, SyncError> {
        let failed = |function| move |error| SyncError::function(function, error);
        let function = "projection";
        let mut target = call(function, || (self.project)(typed))?.map_err(failed(function))?;
        if let Some((from, to)) = clusters {
            let function = "mutation";
            for mutate in &self.mutations {
                let mutated = call(function, || mutate(&mut target, typed, from, to))?;
                mutated.map_err(failed(function))?;
            }
        }
        serde_json::to_value(target).map_err(|error| failed(function)(error.into()))
    }
}

/// The cluster in the fleet that this one is another name of, while it waits beside that one.
pub(crate) fn first_name(fleet: &Fleet, cluster: &Cluster) -> Option<Cluster> {
    fleet.get(&cluster.same_as()?).ok()
}

/// Calls a function of the user. A panic in it is an error of this source, as if the function had returned one. The message of the
/// panic is left out, because it may have values of a Secret.
pub(crate) fn call<A>(function: &'static str, call: impl FnOnce() -> A) -> Result<A, SyncError> {
    // Unwind safe in effect: what the function was to return is dropped, and it has got nothing that it could change.
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| SyncError::Function {
        function,
        source: "it panicked, which is a fault in its code; the standard error of this program says where"
            .into(),
    })
}

/// Decodes an object as its type.
pub(crate) fn decode<K: DeserializeOwned>(function: &'static str, value: Value) -> Result<K, SyncError> {
    typed(&value).map_err(|error| SyncError::function(function, error.into()))
}

/// Decodes an object as its type. The error of the decoder is left out: it quotes values, which may be those of a Secret.
pub(crate) fn typed<K: DeserializeOwned>(object: &Value) -> Result<K, String> {
    K::deserialize(object).map_err(|_| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        format!("the object {name} is not valid for its type")
    })
}
