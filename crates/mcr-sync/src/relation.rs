//! One relation between sources and targets: what the user has set, without its builder.

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

/// What a sync asks of the kind of its sources.
pub(crate) trait SourceKind: DeserializeOwned + Send + Sync {}

impl<S: DeserializeOwned + Send + Sync> SourceKind for S {}

/// What a sync asks of the kind of its targets.
pub(crate) trait TargetKind: DeserializeOwned + Serialize + Send + Sync {}

impl<T: DeserializeOwned + Serialize + Send + Sync> TargetKind for T {}

type Fallible<T> = Result<T, BoxError>;
pub(crate) type Place<S> = Arc<dyn Fn(&S, &Cluster, &Fleet) -> Vec<ClusterName> + Send + Sync>;
/// The cluster is that of the source.
pub(crate) type Project<S, T> = Arc<dyn Fn(&S, &Cluster) -> Fallible<T> + Send + Sync>;
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
    /// Whether the placement may read whatever is known of clusters.
    pub(crate) placement_sees_clusters: bool,
    pub(crate) project: Project<S, T>,
    pub(crate) mutations: Vec<Mutate<S, T>>,
    pub(crate) template: Option<NameTemplate>,
    pub(crate) namespace: TargetNamespace,
    pub(crate) status: Option<Status<S, T>>,
    pub(crate) condition: Option<String>,
    pub(crate) filter: Option<Test<S>>,
    pub(crate) adopt: Option<Test<T>>,
    pub(crate) abandon_after: Option<Duration>,
    /// The namespaces that were created lately. `None` if none are to be.
    pub(crate) namespaces: Option<Namespaces>,
    pub(crate) related: Vec<Rule<S, T>>,
    pub(crate) mode: Mode,
    pub(crate) replaces: bool,
    pub(crate) events: bool,
    /// The labels of sources. `None` if all are selected.
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
    /// Whether a function of the user may read whatever is known of target clusters.
    pub(crate) fn sees_clusters(&self) -> bool {
        self.placement_sees_clusters || !self.mutations.is_empty()
    }

    /// How an object is written: a target, or the copy of a rule. Copies are written with merge patches.
    pub(crate) fn mode(&self, rule: Option<usize>) -> Mode {
        self.mode.filter(|_| rule.is_none())
    }

    /// The watch of the sources, as the user has limited it. `None` before the controller is built.
    pub(crate) fn source_watch(&self) -> Option<&WatchRequest> {
        self.source_watch.get()
    }

    /// Whether the labels of an object are those of a source.
    pub(crate) fn has_labels(&self, meta: &ObjectMeta) -> bool {
        let (none, selector) = (Default::default(), self.source_labels.as_ref());
        selector.is_none_or(|selector| selector.matches(meta.labels.as_ref().unwrap_or(&none)))
    }

    /// Whether a source may leave its watch and have the labels.
    pub(crate) fn is_limited(&self) -> bool {
        let (Some(selector), Some(watch)) = (&self.source_labels, self.source_watch()) else {
            return true;
        };
        watch.field_selector().is_some() || watch.label_selector() != Some(&*selector.to_string())
    }

    /// Whether the targets of a source are to go, whatever else is in it.
    pub(crate) fn is_over(&self, meta: &ObjectMeta) -> bool {
        meta.deletion_timestamp.is_some() || !self.has_labels(meta)
    }

    /// Targets are watched by the label of the sync.
    pub(crate) fn target_watch(&self) -> WatchRequest {
        WatchRequest::resource(&self.target).labels(format!("{SYNC}={}", self.name))
    }

    pub(crate) fn link<'a>(&'a self, key: &'a RequestKey) -> Link<'a> {
        Link::of(&self.name, self.owner.as_deref(), key)
    }

    /// Forgets what is remembered of a source that is gone.
    pub(crate) fn forget(&self, source: &RequestKey) {
        for rule in &self.related {
            rule.index.note(source, Default::default());
        }
        self.memory.forget(source);
    }

    /// Forgets what is remembered of a cluster that has left.
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
    /// Whether the object may be a source. A target of this sync never is, or it would be copied again and again.
    pub(crate) fn selects(&self, meta: &ObjectMeta, typed: &S) -> Result<bool, SyncError> {
        let is_target = part(&meta.labels, SYNC) == Some(&*self.name);
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

/// The cluster in the fleet that this one is another name of, while it waits beside that one.
pub(crate) fn first_name(fleet: &Fleet, cluster: &Cluster) -> Option<Cluster> {
    fleet.get(&cluster.same_as()?).ok()
}
