//! The builder of a sync.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use kube::{
    Resource,
    core::{ApiResource, DynamicObject},
};
use mcr::{
    BoxError, BuiltController, Cluster, ClusterName, ClusterSelector, Controller, Fleet, FleetEvent,
    RequestKey, WatchOptions, Watched,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    affected::Clusters,
    apply::{Conflicts, Mode},
    copies,
    error::BuildError,
    link::Link,
    name::{MAX_NAME, NameTemplate},
    reconcile::reconcile,
    related::{Related, Rule},
    relation::{Place, Project, Relation, Status, TargetNamespace, Test},
};

/// The longest name of a sync: it is a part of the name of an annotation.
const MAX_SYNC_NAME: usize = 50;

/// Copies the desired state of sources to target clusters, keeps it there, and brings status back.
///
/// `S` is the kind of the sources, `T` that of the targets; both may be `DynamicObject`.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mcr::ClusterSelector;
/// use mcr_sync::Sync;
///
/// let controller = Sync::<ConfigMap, ConfigMap>::new("settings")
///     .from(ClusterSelector::hub())
///     .to_each(!ClusterSelector::hub())
///     .filter(|map| map.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("copy")))
///     .mirror()
///     .build()?;
/// assert_eq!(controller.name(), "settings");
/// # Ok::<(), mcr_sync::BuildError>(())
/// ```
#[must_use = "a sync does nothing until it is built and run"]
pub struct Sync<S, T> {
    name: String,
    source: ApiResource,
    target: ApiResource,
    sources: ClusterSelector,
    place: Option<(ClusterSelector, Place<S>)>,
    placement_sees_clusters: bool,
    project: Option<Project<S, T>>,
    template: Option<NameTemplate>,
    namespace: TargetNamespace,
    status: Option<Status<S, T>>,
    condition: Option<String>,
    filter: Option<Test<S>>,
    adopt: Option<Test<T>>,
    abandon_after: Option<Duration>,
    create_namespaces: bool,
    related: Vec<Rule<S, T>>,
    mode: Mode,
    replaces: bool,
    kinds: PhantomData<fn() -> (S, T)>,
}

impl<S, T> Sync<S, T>
where
    S: Resource + DeserializeOwned + Send + std::marker::Sync + 'static,
    T: Resource + DeserializeOwned + Serialize + Send + std::marker::Sync + 'static,
{
    /// Starts a sync of kinds that are known at compile time. The name becomes a label of targets and a part of the finalizer
    /// of sources: another name is another sync.
    pub fn new(name: impl Into<String>) -> Self
    where
        S: Resource<DynamicType = ()>,
        T: Resource<DynamicType = ()>,
    {
        Self::with(name, &(), &())
    }

    /// Starts a sync of kinds that are known at run time, such as `DynamicObject` with its `ApiResource`.
    ///
    /// ```
    /// use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
    /// use mcr_sync::Sync;
    ///
    /// let widgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    /// let sync = Sync::<DynamicObject, DynamicObject>::with("widgets", &widgets, &widgets);
    /// # let _ = sync;
    /// ```
    pub fn with(name: impl Into<String>, source: &S::DynamicType, target: &T::DynamicType) -> Self {
        Self {
            name: name.into(),
            source: ApiResource::erase::<S>(source),
            target: ApiResource::erase::<T>(target),
            sources: ClusterSelector::default(),
            place: None,
            placement_sees_clusters: true,
            project: None,
            template: None,
            namespace: TargetNamespace::Same,
            status: None,
            condition: None,
            filter: None,
            adopt: None,
            abandon_after: None,
            create_namespaces: true,
            related: Vec::new(),
            mode: None,
            replaces: false,
            kinds: PhantomData,
        }
    }

    /// Selects the clusters of the sources. Default: all but the one named `hub`.
    ///
    /// A source cluster that leaves the fleet deletes nothing: its targets stay as they are.
    pub fn from(mut self, clusters: ClusterSelector) -> Self {
        self.sources = clusters;
        self
    }

    /// Places the target of each source in this cluster.
    pub fn to(self, cluster: ClusterName) -> Self {
        let selector = ClusterSelector::name(&*cluster);
        self.place(selector, move |_, _, _| vec![cluster.clone()])
            .by_selector()
    }

    /// Places a target of each source in each of these clusters, except in the cluster of the source.
    ///
    /// A cluster that joins gets its targets. A cluster that no longer matches loses them. A cluster that leaves the fleet
    /// keeps them.
    pub fn to_each(self, clusters: ClusterSelector) -> Self {
        let selector = clusters.clone();
        self.place(clusters, move |_, own: &Cluster, fleet: &Fleet| {
            let all = fleet.clusters().into_iter();
            all.filter(|cluster| cluster.name() != own.name() && selector.matches(cluster))
                .map(|cluster| cluster.name().clone())
                .collect()
        })
        .by_selector()
    }

    /// The placement follows from the selector of the target clusters.
    fn by_selector(mut self) -> Self {
        self.placement_sees_clusters = false;
        self
    }

    /// Places targets by a function of the source, its cluster and the fleet. `clusters` selects the clusters that the
    /// function may return: targets are watched there.
    ///
    /// If the function returns other clusters than before, the new targets are made first, and the former ones are deleted
    /// when the new ones are as they should be. The function runs often and must not block. It is called again if a cluster that
    /// `clusters` selects joins, leaves, becomes Ready or is no longer so, or has other labels or properties. Other clusters lead to no
    /// call, except that of the source.
    pub fn place(
        mut self,
        clusters: ClusterSelector,
        place: impl Fn(&S, &Cluster, &Fleet) -> Vec<ClusterName> + Send + std::marker::Sync + 'static,
    ) -> Self {
        self.place = Some((clusters, Arc::new(place)));
        self.placement_sees_clusters = true;
        self
    }

    /// Makes the target from the source. The name, the namespace and the status of the returned object are ignored. Of its
    /// metadata, labels and annotations are synced, except those of kcp and kubectl.
    ///
    /// The fields that the function sets are owned by the sync: changes of them are reverted, and a field that the function
    /// no longer sets is removed. Other fields of the target are not touched. An error is reported, and the function is called
    /// again when the source changes. A panic counts as an error; its message is not told, because it may have secret values.
    pub fn project<E>(
        mut self,
        project: impl Fn(&S) -> Result<T, E> + Send + std::marker::Sync + 'static,
    ) -> Self
    where
        E: Into<BoxError>,
    {
        self.project = Some(Arc::new(move |source| project(source).map_err(Into::into)));
        self
    }

    /// Makes the target equal to the source.
    pub fn mirror(self) -> Self
    where
        S: Clone + Into<T>,
    {
        self.project(|source: &S| Ok::<T, BoxError>(source.clone().into()))
    }

    /// Names targets by a template. Default: [`hashed`](crate::hashed).
    pub fn name_by(mut self, template: NameTemplate) -> Self {
        self.template = Some(template);
        self
    }

    /// Sets the namespace of targets. Default: [`TargetNamespace::Same`].
    pub fn namespace(mut self, namespace: TargetNamespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// Sets whether a missing namespace of a target is created. Default `true`. Such a namespace is never deleted.
    pub fn create_namespaces(mut self, create: bool) -> Self {
        self.create_namespaces = create;
        self
    }

    /// Brings status up: the function makes the chosen fields of the source's status from the targets that exist. A null
    /// removes a field. Only differences are written, as a merge patch of the status subresource.
    pub fn status<E>(
        mut self,
        status: impl Fn(&S, &[(ClusterName, T)]) -> Result<Value, E> + Send + std::marker::Sync + 'static,
    ) -> Self
    where
        E: Into<BoxError>,
    {
        self.status = Some(Arc::new(move |source, targets| {
            status(source, targets).map_err(Into::into)
        }));
        self
    }

    /// Writes a condition of this type to the source: `True` if all targets are as they should be, otherwise `False` with the
    /// reason in words. A source of which nobody knows whether it is selected, because its filter has failed, gets none. The kind needs the status subresource and `status.conditions`. Without them, as for a ConfigMap, leave it
    /// out.
    ///
    /// The condition may be the first field of the status. So a status type with required fields must not be a part of `S`: a
    /// source that has only the condition could not be decoded.
    pub fn condition(mut self, kind: impl Into<String>) -> Self {
        self.condition = Some(kind.into());
        self
    }

    /// Syncs only the sources for which the function returns true. The targets of a source that is no longer selected are
    /// deleted.
    ///
    /// The function runs in this process: all objects of the kind are watched in the source clusters, and kept in memory.
    pub fn filter(mut self, filter: impl Fn(&S) -> bool + Send + std::marker::Sync + 'static) -> Self {
        self.filter = Some(Arc::new(filter));
        self
    }

    /// Takes over an object of somebody else that has the name of a target, if the function returns true. Default: never; the
    /// object is reported and not touched. The function is not asked about targets of other sources.
    pub fn adopt(mut self, rule: impl Fn(&T) -> bool + Send + std::marker::Sync + 'static) -> Self {
        self.adopt = Some(Arc::new(rule));
        self
    }

    /// Releases a source that has been waiting for its deletion for this time although a target cluster is away. What is left
    /// there stays. Default: never; the annotation [`ABANDON`](crate::ABANDON) releases it.
    pub fn abandon_after(mut self, limit: Duration) -> Self {
        self.abandon_after = Some(limit);
        self
    }

    /// Copies related objects along with each source and its targets. See [`Related`].
    pub fn related<K>(mut self, related: Related<S, T, K>) -> Self
    where
        K: Resource + DeserializeOwned + Serialize,
    {
        self.related.push(related.into_rule());
        self
    }

    /// Updates targets with server-side apply, under the field manager `sync.mcr.dev/NAME` with the name of the sync. Default:
    /// merge patches.
    ///
    /// The server then merges lists by the keys of their schema, so that others may add elements. It keeps the owned fields, so
    /// the target has no annotation with their paths. Targets that were made with merge patches are taken over. A sync that goes
    /// back to merge patches does not remove fields that it no longer projects at that moment.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Service;
    /// use mcr_sync::{Conflicts, Sync};
    ///
    /// let sync = Sync::<Service, Service>::new("services").server_side_apply(Conflicts::Tell);
    /// # let _ = sync;
    /// ```
    pub fn server_side_apply(mut self, conflicts: Conflicts) -> Self {
        self.mode = Some(conflicts);
        self
    }

    /// Sets whether a target is deleted and made anew if its server refuses an update as invalid, as it does for immutable
    /// fields. Default `false`; the refusal is told.
    ///
    /// The server is first asked whether it would accept the new object. If it would not, the target stays. Between the deletion
    /// and the creation there is no target, and its status and the fields of others are lost.
    pub fn replace_when_immutable(mut self, replace: bool) -> Self {
        self.replaces = replace;
        self
    }

    /// Makes the controller.
    ///
    /// # Errors
    /// [`BuildError`] if a setting is missing or makes no sense.
    pub fn build(self) -> Result<BuiltController, BuildError> {
        self.build_with(|controller| controller)
    }

    /// As [`build`](Self::build), with a change of the controller's settings, such as its concurrency.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_with(
        self,
        change: impl FnOnce(Controller<DynamicObject>) -> Controller<DynamicObject>,
    ) -> Result<BuiltController, BuildError> {
        let name = self.name;
        if !is_label(&name, MAX_SYNC_NAME) {
            return Err(BuildError::Name(name));
        }
        if let TargetNamespace::Fixed(namespace) = &self.namespace
            && !is_label(namespace, MAX_NAME)
        {
            return Err(BuildError::Namespace(namespace.clone()));
        }
        for (at, rule) in self.related.iter().enumerate() {
            let is_taken = self.related[..at].iter().any(|other| other.id == rule.id);
            if is_taken || !is_label(&rule.id, MAX_SYNC_NAME) {
                return Err(BuildError::RelatedId(rule.id.clone()));
            }
            if rule.selection.is_none() {
                return Err(BuildError::NoSelection(rule.id.clone()));
            }
        }
        let Some((targets, place)) = self.place else {
            return Err(BuildError::NoPlacement(name));
        };
        let Some(project) = self.project else {
            return Err(BuildError::NoProjection(name));
        };
        let relation = Arc::new(Relation {
            name: name.into(),
            source: self.source,
            target: self.target,
            sources: self.sources,
            targets,
            place,
            placement_sees_clusters: self.placement_sees_clusters,
            project,
            template: self.template,
            namespace: self.namespace,
            status: self.status,
            condition: self.condition,
            filter: self.filter,
            adopt: self.adopt,
            abandon_after: self.abandon_after,
            create_namespaces: self.create_namespaces,
            related: self.related,
            mode: self.mode,
            replaces: self.replaces,
        });
        Ok(change(controller(&relation)).build(reconcile::<S, T>, relation)?)
    }
}

/// Whether a name of at most so many characters is usable as the value of a label, as a part of the name of an annotation, and as
/// that of a namespace.
fn is_label(name: &str, most: usize) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= most
        && name.starts_with(is_word)
        && name.ends_with(is_word)
        && name.chars().all(|c| is_word(c) || c == '-')
}

fn controller<S, T>(relation: &Arc<Relation<S, T>>) -> Controller<DynamicObject>
where
    S: DeserializeOwned + Send + std::marker::Sync + 'static,
    T: DeserializeOwned + Serialize + Send + std::marker::Sync + 'static,
{
    let watch = relation.target_watch();
    let targets = WatchOptions::new()
        .clusters(relation.targets.clone())
        .request(move |_| watch)
        .optional();
    let of_fleet = relation.clone();
    let clusters = Clusters::default();
    let controller = Controller::<DynamicObject>::with(relation.name.clone(), &relation.source)
        .clusters(relation.sources.clone())
        .watches_with(&relation.target, |target| source_of(&target), targets)
        // A change of the fleet may change a placement, or end the wait for a cluster.
        .watches_fleet(move |event, fleet| {
            // The event may come after another cluster has taken the name.
            if let FleetEvent::Disengaged { name, .. } = event
                && fleet.get(name).is_err()
            {
                copies::forget_cluster(&of_fleet, name);
            }
            clusters.affected(&of_fleet, event, fleet)
        });
    copies::watches(controller, relation, source_of)
}

/// The source that a target names.
fn source_of(target: &Watched<DynamicObject>) -> Option<RequestKey> {
    let meta = &target.object.metadata;
    let source = Link::read(meta.labels.as_ref()?, meta.annotations.as_ref()?)?.source;
    let object = match source.namespace {
        Some(namespace) => mcr::ObjectKey::namespaced(namespace, source.name),
        None => mcr::ObjectKey::cluster_scoped(source.name),
    };
    Some(RequestKey::new(ClusterName::new(source.cluster).ok()?, object))
}

impl<S, T> fmt::Debug for Sync<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sync")
            .field("name", &self.name)
            .field("source", &self.source.kind)
            .field("target", &self.target.kind)
            .finish_non_exhaustive()
    }
}
