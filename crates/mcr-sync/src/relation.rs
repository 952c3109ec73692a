//! One relation between sources and targets: the settings of the user.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
    time::Duration,
};

use kube::core::{ApiResource, ObjectMeta, Selector, SelectorExt};
use mcr::{BoxError, Cluster, ClusterName, ClusterSelector, Fleet, ObjectKey, RequestKey, WatchRequest};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    desired::Mode,
    error::SyncError,
    functions::call,
    kinds::StatusKinds,
    link::{Link, SYNC, part},
    memory::Memory,
    name::{self, NameError, NameTemplate, hashed},
    related::Rule,
    silent::Silent,
    writes::{Namespaces, Writes},
};

/// What a sync requires of the type of its sources.
pub(crate) trait SourceKind: DeserializeOwned + Send + Sync {}

impl<S: DeserializeOwned + Send + Sync> SourceKind for S {}

/// What a sync requires of the type of its targets.
pub(crate) trait TargetKind: DeserializeOwned + Serialize + Send + Sync {}

impl<T: DeserializeOwned + Serialize + Send + Sync> TargetKind for T {}

type Fallible<T> = Result<T, BoxError>;
pub(crate) type Place<S> = Arc<dyn Fn(&S, &Cluster, &Fleet) -> Vec<ClusterName> + Send + Sync>;
/// Makes the target. The cluster is the source's.
pub(crate) type Project<S, T> = Arc<dyn Fn(&S, &Cluster) -> Fallible<T> + Send + Sync>;
pub(crate) type Status<S, T> = Arc<dyn Fn(&S, &[(ClusterName, T)]) -> Fallible<Value> + Send + Sync>;
/// Changes the target for its cluster. The first cluster is the source's, the second the target's.
pub(crate) type Mutate<S, T> = Box<dyn Fn(&mut T, &S, &Cluster, &Cluster) -> Fallible<()> + Send + Sync>;
pub(crate) type Predicate<K> = Arc<dyn Fn(&K) -> bool + Send + Sync>;

/// The namespace of targets.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetNamespace {
    /// The namespace of the source.
    Same,
    /// This namespace.
    Fixed(String),
    /// No namespace: targets are cluster-scoped.
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
    /// Whether the placement may read anything that is known of clusters, not only their names.
    pub(crate) placement_sees_clusters: bool,
    pub(crate) project: Project<S, T>,
    pub(crate) mutations: Vec<Mutate<S, T>>,
    pub(crate) template: Option<NameTemplate>,
    pub(crate) namespace: TargetNamespace,
    pub(crate) status: Option<Status<S, T>>,
    pub(crate) condition: Option<String>,
    pub(crate) filter: Option<Predicate<S>>,
    pub(crate) adopt: Option<Predicate<T>>,
    pub(crate) abandon_after: Option<Duration>,
    /// The namespaces that were created recently. `None` if the sync must not create namespaces.
    pub(crate) namespaces: Option<Namespaces>,
    pub(crate) related: Vec<Rule<S, T>>,
    pub(crate) mode: Mode,
    /// Whether a target is deleted and created again if a field that must change is immutable.
    pub(crate) replaces: bool,
    /// Whether the sync writes events for sources.
    pub(crate) events: bool,
    /// The label selector of sources. `None` if sources are not selected by labels.
    pub(crate) source_labels: Option<Selector>,
    pub(crate) source_watch: OnceLock<WatchRequest>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) silent: Silent,
    pub(crate) writes: Writes,
    pub(crate) status_kinds: StatusKinds,
}

impl<S: 'static, T: 'static> Relation<S, T> {
    /// The defaults, without a placement and a projection.
    pub(crate) fn new(name: Arc<str>, source: ApiResource, target: ApiResource) -> Self {
        Self {
            name,
            owner: None,
            source,
            target,
            sources: ClusterSelector::default(),
            targets: ClusterSelector::default(),
            place: Arc::new(|_, _, _| Vec::new()),
            placement_sees_clusters: true,
            project: Arc::new(|_, _| Err("there is no projection".into())),
            mutations: Vec::new(),
            template: None,
            namespace: TargetNamespace::Same,
            status: None,
            condition: None,
            filter: None,
            adopt: None,
            abandon_after: None,
            namespaces: Some(Namespaces::default()),
            related: Vec::new(),
            mode: None,
            replaces: false,
            events: false,
            source_labels: None,
            source_watch: OnceLock::new(),
            memory: Arc::default(),
            silent: Silent::default(),
            writes: Writes::default(),
            status_kinds: StatusKinds::default(),
        }
    }
}

impl<S, T> Relation<S, T> {
    /// Whether a function of the user may read anything that is known of target clusters.
    pub(crate) fn sees_clusters(&self) -> bool {
        self.placement_sees_clusters || !self.mutations.is_empty()
    }

    /// How an object is written: a target if `rule` is `None`, otherwise a copy of that rule. Copies are written with
    /// merge patches.
    pub(crate) fn mode(&self, rule: Option<usize>) -> Mode {
        self.mode.filter(|_| rule.is_none())
    }

    /// The watch of the sources, with the limits that the user has set. `None` before the controller is built.
    pub(crate) fn source_watch(&self) -> Option<&WatchRequest> {
        self.source_watch.get()
    }

    /// Whether the label selector of sources matches an object.
    pub(crate) fn has_labels(&self, meta: &ObjectMeta) -> bool {
        let (none, selector) = (Default::default(), self.source_labels.as_ref());
        selector.is_none_or(|selector| selector.matches(meta.labels.as_ref().unwrap_or(&none)))
    }

    /// Whether the user has limited the watch of the sources, so that a source may leave the watch and still have the
    /// labels.
    pub(crate) fn is_limited(&self) -> bool {
        let (Some(selector), Some(watch)) = (&self.source_labels, self.source_watch()) else {
            return true;
        };
        watch.field_selector().is_some() || watch.label_selector() != Some(&*selector.to_string())
    }

    /// Whether the targets of a source must be deleted, whatever the contents of the source are.
    pub(crate) fn must_delete_targets(&self, meta: &ObjectMeta) -> bool {
        meta.deletion_timestamp.is_some() || !self.has_labels(meta)
    }

    /// The watch of the targets, which selects the label of the sync.
    pub(crate) fn target_watch(&self) -> WatchRequest {
        WatchRequest::resource(&self.target).labels(format!("{SYNC}={}", self.name))
    }

    pub(crate) fn link<'a>(&'a self, key: &'a RequestKey) -> Link<'a> {
        Link::of(&self.name, self.owner.as_deref(), key)
    }

    /// Forgets a source that is gone.
    pub(crate) fn forget(&self, source: &RequestKey) {
        for rule in &self.related {
            rule.index.note(source, Default::default());
        }
        self.memory.forget(source);
    }

    /// Forgets a cluster that has left.
    pub(crate) fn forget_cluster(&self, cluster: &ClusterName) {
        for rule in &self.related {
            rule.index.forget_cluster(cluster);
        }
        self.memory.forget_cluster(cluster);
        self.silent.forget_cluster(cluster);
        self.status_kinds.forget_cluster(cluster);
    }
}

impl<S: SourceKind, T: TargetKind> Relation<S, T> {
    /// Whether the object may be a source. A target of this sync is never a source, because it would be copied again
    /// and again.
    pub(crate) fn selects(&self, meta: &ObjectMeta, typed: &S) -> Result<bool, SyncError> {
        let is_target = part(&meta.labels, SYNC) == Some(&*self.name);
        match &self.filter {
            Some(filter) if !is_target => call("filter", || filter(typed)),
            _ => Ok(!is_target),
        }
    }

    /// The key of the targets of this source, which is the same in all clusters.
    pub(crate) fn target_key(&self, key: &RequestKey) -> Result<ObjectKey, NameError> {
        let source = self.link(key).source;
        let name = match &self.template {
            Some(template) => template.render(source)?,
            None => hashed(source),
        };
        let namespace = match &self.namespace {
            TargetNamespace::Same => source.namespace,
            TargetNamespace::Fixed(namespace) => Some(namespace.as_str()),
            TargetNamespace::None => None,
        };
        Ok(name::key(namespace, name))
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

    /// The projected object of a source in the cluster `from`, for the target cluster `to` if there are mutations.
    pub(crate) fn projected(
        &self,
        typed: &S,
        from: &Cluster,
        to: Option<&Cluster>,
    ) -> Result<Value, SyncError> {
        let failed = |function| move |error| SyncError::function(function, error);
        let function = "projection";
        let mut target = call(function, || (self.project)(typed, from))?.map_err(failed(function))?;
        if let Some(to) = to {
            let function = "mutation";
            for mutate in &self.mutations {
                let mutated = call(function, || mutate(&mut target, typed, from, to))?;
                mutated.map_err(failed(function))?;
            }
        }
        serde_json::to_value(target).map_err(|error| failed(function)(error.into()))
    }
}

/// The cluster of the fleet that `cluster` is another name of. `None` if `cluster` is not a second name.
pub(crate) fn cluster_in_fleet(fleet: &Fleet, cluster: &Cluster) -> Option<Cluster> {
    fleet.get(&cluster.same_as()?).ok()
}
