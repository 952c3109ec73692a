//! The builder of a sync.

mod build;

use std::{fmt, sync::Arc, time::Duration};

use kube::{Resource, core::ApiResource};
use mcr::{BoxError, Cluster, ClusterName, ClusterSelector, Fleet};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    desired::Conflicts,
    functions::typed,
    mirror,
    name::NameTemplate,
    related::Related,
    relation::{Relation, TargetNamespace, cluster_in_fleet},
    writes::Namespaces,
};

/// Copies the desired state of sources to target clusters, keeps it there, and brings status back.
///
/// `S` is the kind of the sources, `T` that of the targets; both may be `DynamicObject`.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mcr::ClusterSelector;
/// use mcr_sync::ObjectSync;
///
/// let controller = ObjectSync::<ConfigMap, ConfigMap>::new("settings")
///     .from(ClusterSelector::hub())
///     .to_each(!ClusterSelector::hub())
///     .filter(|map| map.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("copy")))
///     .mirror()
///     .build()?;
/// assert_eq!(controller.name(), "settings");
/// # Ok::<(), mcr_sync::BuildError>(())
/// ```
#[must_use = "a sync does nothing until it is built and run"]
pub struct ObjectSync<S, T> {
    pub(crate) relation: Relation<S, T>,
    pub(crate) is_placed: bool,
    makes: Makes,
}

/// How targets are made.
#[derive(PartialEq)]
enum Makes {
    /// It is not chosen yet.
    Nothing,
    Projections,
    Mirrors,
}

impl<S, T> ObjectSync<S, T>
where
    S: Resource + DeserializeOwned + Send + Sync + 'static,
    T: Resource + DeserializeOwned + Serialize + Send + Sync + 'static,
{
    /// Starts a sync of kinds that are known at compile time. The name becomes a label of targets and a part of the
    /// finalizer of sources, so a sync with another name is another sync.
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
    /// use mcr_sync::ObjectSync;
    ///
    /// let widgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    /// let sync = ObjectSync::<DynamicObject, DynamicObject>::with("widgets", &widgets, &widgets);
    /// # let _ = sync;
    /// ```
    pub fn with(name: impl Into<String>, source: &S::DynamicType, target: &T::DynamicType) -> Self {
        let (source, target) = (ApiResource::erase::<S>(source), ApiResource::erase::<T>(target));
        Self {
            relation: Relation::new(name.into().into(), source, target),
            is_placed: false,
            makes: Makes::Nothing,
        }
    }

    /// Sets an id of the installation that this sync belongs to, such as `prod-eu`: 1 to 63 lower case letters, digits
    /// and '-'. It is a part of the link from each target to its source. Default: none.
    ///
    /// Programs with separate fleets need different owners if they share a target cluster and their syncs have the
    /// same name. Otherwise each would treat the targets of the other as its own. With another owner, a sync is
    /// another sync: it treats existing targets of the former owner as foreign. A sync that gets its first owner keeps
    /// its targets.
    pub fn owner(mut self, id: impl Into<String>) -> Self {
        self.relation.owner = Some(id.into());
        self
    }

    /// Selects the clusters of the sources. Default: all but the one named `hub`.
    ///
    /// A source cluster that leaves the fleet deletes nothing: its targets stay as they are.
    pub fn from(mut self, clusters: ClusterSelector) -> Self {
        self.relation.sources = clusters;
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
    /// A cluster that joins gets its targets. A cluster that no longer matches loses them. A cluster that leaves the
    /// fleet keeps them. A cluster that waits because it is another name of a cluster in the fleet gets none.
    pub fn to_each(self, clusters: ClusterSelector) -> Self {
        let selector = clusters.clone();
        self.place(clusters, move |_, own: &Cluster, fleet: &Fleet| {
            let is_place = |cluster: &Cluster| {
                cluster.name() != own.name() && cluster_in_fleet(fleet, cluster).is_none()
            };
            let all = fleet.clusters().into_iter();
            all.filter(|cluster| is_place(cluster) && selector.matches(cluster))
                .map(|cluster| cluster.name().clone())
                .collect()
        })
        .by_selector()
    }

    /// Notes that a selector of target clusters decides the placement.
    fn by_selector(mut self) -> Self {
        self.relation.placement_sees_clusters = false;
        self
    }

    /// Places targets by a function of the source, its cluster and the fleet. `clusters` selects the clusters that the
    /// function may return: targets are watched there.
    ///
    /// If the function returns other clusters than before, the new targets are created first. The former targets are
    /// deleted when the new ones are up to date. The function runs often and must not block. It is called again when a
    /// cluster that `clusters` selects joins or leaves, becomes Ready or stops being Ready, or has other labels or
    /// properties. No other cluster causes a call, except the cluster of the source.
    pub fn place(
        mut self,
        clusters: ClusterSelector,
        place: impl Fn(&S, &Cluster, &Fleet) -> Vec<ClusterName> + Send + Sync + 'static,
    ) -> Self {
        (self.relation.targets, self.relation.place) = (clusters, Arc::new(place));
        (self.relation.placement_sees_clusters, self.is_placed) = (true, true);
        self
    }

    /// Makes the target from the source. The name, the namespace and the status of the returned object are ignored. Of
    /// its metadata, only labels and annotations are synced, without those of kcp, of kubectl and of controllers.
    ///
    /// The function gets the source and its cluster. The sync owns the fields that the function sets: changes of them
    /// are reverted, and a field that the function no longer sets is removed. Other fields of the target are not
    /// touched. A panic counts as an error. Its message is left out, because it may contain secret values.
    pub fn project(self, project: impl Fn(&S, &Cluster) -> T + Send + Sync + 'static) -> Self {
        self.try_project(move |source, from| Ok::<T, BoxError>(project(source, from)))
    }

    /// As [`project`](Self::project), with a function that may fail. An error is reported, and the function is called
    /// again when the source changes.
    pub fn try_project<E>(
        mut self,
        project: impl Fn(&S, &Cluster) -> Result<T, E> + Send + Sync + 'static,
    ) -> Self
    where
        E: Into<BoxError>,
    {
        self.relation.project = Arc::new(move |source, from| project(source, from).map_err(Into::into));
        self.makes = Makes::Projections;
        self
    }

    /// Makes the target equal to the source, without what belongs to the server or to a controller of the source's
    /// cluster: addresses and node ports of Services, the selector and labels that a Job gets, the volume of a
    /// PersistentVolumeClaim, the token Secrets of a ServiceAccount, annotations such as
    /// `deployment.kubernetes.io/revision`, finalizers and owner references.
    ///
    /// Pods, Nodes, Events and Leases can't be mirrored, and neither can Secrets with the token of a ServiceAccount.
    pub fn mirror(self) -> Self
    where
        S: Clone + Into<T>,
    {
        let kind = self.relation.target.clone();
        let mut mirror = self.try_project(move |source: &S, _| {
            let target: T = source.clone().into();
            if !mirror::has_strip_rules(&kind) {
                return Ok::<T, BoxError>(target);
            }
            let mut target = serde_json::to_value(target)?;
            mirror::strip(&kind, &mut target)?;
            Ok(typed(&target)?)
        });
        mirror.makes = Makes::Mirrors;
        mirror
    }

    /// Changes each projected target for its target cluster, for example its address or size. The function gets the
    /// target, its source, the cluster of the source and the cluster of the target. Several functions run in the order
    /// of these calls.
    ///
    /// The sync owns what the function sets, as with [`project`](Self::project). The function runs while the target
    /// cluster is in the fleet. It runs again when the source changes, or the labels or properties of the target
    /// cluster.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use mcr::ClusterSelector;
    /// use mcr_sync::ObjectSync;
    ///
    /// let sync = ObjectSync::<ConfigMap, ConfigMap>::new("settings").to_each(ClusterSelector::all()).mirror().mutate(
    ///     |target, _source, _from, to| {
    ///         let region = to.label("region").unwrap_or_else(|| "none".to_owned());
    ///         target.data.get_or_insert_default().insert("region".to_owned(), region);
    ///     },
    /// );
    /// # let _ = sync;
    /// ```
    pub fn mutate(self, mutate: impl Fn(&mut T, &S, &Cluster, &Cluster) + Send + Sync + 'static) -> Self {
        self.try_mutate(move |target, source, from, to| {
            mutate(target, source, from, to);
            Ok::<(), BoxError>(())
        })
    }

    /// As [`mutate`](Self::mutate), with a function that may fail. An error is reported, and stops only the target in
    /// that cluster.
    pub fn try_mutate<E>(
        mut self,
        mutate: impl Fn(&mut T, &S, &Cluster, &Cluster) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self
    where
        E: Into<BoxError>,
    {
        self.relation
            .mutations
            .push(Box::new(move |target, source, from, to| {
                mutate(target, source, from, to).map_err(Into::into)
            }));
        self
    }

    /// Names targets by a template. Default: [`hashed`](crate::hashed).
    pub fn name_by(mut self, template: NameTemplate) -> Self {
        self.relation.template = Some(template);
        self
    }

    /// Sets the namespace of targets. Default: [`TargetNamespace::Same`].
    pub fn namespace(mut self, namespace: TargetNamespace) -> Self {
        self.relation.namespace = namespace;
        self
    }

    /// Sets whether a missing namespace of a target is created. Default `true`. Such a namespace is never deleted.
    pub fn create_namespaces(mut self, create: bool) -> Self {
        self.relation.namespaces = create.then(Namespaces::default);
        self
    }

    /// Brings status up: the function makes the chosen fields of the source's status from the targets that are known,
    /// even while another target cluster is away or refuses requests. A null removes a field. Only differences are
    /// written, as a merge patch of the status subresource.
    ///
    /// A list is written as a whole. The `conditions` of the function replace those in the source, and the
    /// [`condition`](Self::condition) of the sync is added to them. To keep the conditions of other controllers, the
    /// function copies them from the source.
    pub fn status<V: Serialize>(
        self,
        status: impl Fn(&S, &[(ClusterName, T)]) -> V + Send + Sync + 'static,
    ) -> Self {
        self.try_status(move |source, targets| Ok::<V, BoxError>(status(source, targets)))
    }

    /// As [`status`](Self::status), with a function that may fail. An error is reported, and the function is called
    /// again when the source or a target changes.
    pub fn try_status<V, E>(
        mut self,
        status: impl Fn(&S, &[(ClusterName, T)]) -> Result<V, E> + Send + Sync + 'static,
    ) -> Self
    where
        V: Serialize,
        E: Into<BoxError>,
    {
        self.relation.status = Some(Arc::new(move |source, targets| {
            let status = status(source, targets).map_err(Into::into)?;
            Ok(serde_json::to_value(status)?)
        }));
        self
    }

    /// Writes a condition of this type to the source: `True` if all targets are up to date, otherwise `False` with a
    /// reason and a message. Other conditions are not touched. While the filter of a source fails, the source gets no
    /// condition, because it is unknown whether the source is selected. The kind needs the status subresource and
    /// `status.conditions`: do not set a condition for a kind without them, such as ConfigMap.
    ///
    /// The condition may be the first field of the status. So `S` must not require other fields of the status: a
    /// source whose status has only the condition could not be decoded.
    pub fn condition(mut self, kind: impl Into<String>) -> Self {
        self.relation.condition = Some(kind.into());
        self
    }

    /// Sets whether the sync publishes Kubernetes events on its sources. The events report what the sync creates,
    /// takes over and deletes, targets that it has given up, and problems, in the words of the
    /// [`condition`](Self::condition). Default `false`.
    ///
    /// The program then needs the right to create and patch `events` of `events.k8s.io` in the source clusters. If a
    /// cluster refuses events, the sync goes on without them, and logs the first refusal. A source with a name of more
    /// than about 230 characters gets no events, because kube makes the name of an event from it.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use mcr_sync::ObjectSync;
    ///
    /// let sync = ObjectSync::<ConfigMap, ConfigMap>::new("settings").publish_events(true);
    /// # let _ = sync;
    /// ```
    pub fn publish_events(mut self, publish: bool) -> Self {
        self.relation.events = publish;
        self
    }

    /// Syncs only the sources for which the function returns true. The targets of a source that is no longer selected
    /// are deleted.
    ///
    /// The function runs in this process, so the program watches all objects of the kind in the source clusters and
    /// keeps them in memory.
    pub fn filter(mut self, filter: impl Fn(&S) -> bool + Send + Sync + 'static) -> Self {
        self.relation.filter = Some(Arc::new(filter));
        self
    }

    /// Syncs only the sources with these labels. Others are not watched, so they use no memory. The targets of a
    /// source that loses the labels are deleted, even if that happened while the program was stopped.
    ///
    /// As long as a source may have targets, it has a label of the sync, `sync.mcr.dev/placed.NAME` with the name of
    /// the sync. A second watch selects that label, and finds a source that has lost the selected labels. When a sync
    /// gets its first selector, it sets that label on the sources that match, with one write each. Sources that do not
    /// match are found by their targets. Such a source without targets keeps its finalizer.
    ///
    /// If several programs divide the sources of one sync by a label, they limit their watches with
    /// [`build_with`](Self::build_with) and use the same selector here. With different selectors, a program would
    /// treat the sources of another program as sources that have lost their labels.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use mcr::kube::core::Expression;
    /// use mcr_sync::ObjectSync;
    ///
    /// let sync = ObjectSync::<ConfigMap, ConfigMap>::new("settings").source_labels(Expression::Exists("copy".into()));
    /// # let _ = sync;
    /// ```
    pub fn source_labels(mut self, selector: impl Into<kube::core::Selector>) -> Self {
        self.relation.source_labels = Some(selector.into()).filter(|selector| !selector.selects_all());
        self
    }

    /// The metrics of this sync, to be registered with those of the program.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use mcr::metrics::{Metrics, MetricsOptions};
    /// use mcr_sync::ObjectSync;
    ///
    /// # fn example(fleet: &mcr::Fleet) {
    /// let sync = ObjectSync::<ConfigMap, ConfigMap>::new("settings");
    /// let mut metrics = Metrics::new(fleet, [], MetricsOptions::default());
    /// metrics.registry_mut().register_collector(Box::new(sync.metrics()));
    /// # }
    /// ```
    #[cfg(feature = "metrics")]
    pub fn metrics(&self) -> crate::metrics::SyncMetrics {
        let (sync, memory) = (self.relation.name.clone(), self.relation.memory.clone());
        crate::metrics::SyncMetrics { sync, memory }
    }

    /// Takes over a foreign object that has the name of a target, if the function returns true. Default: never; the
    /// object is reported and not touched. The function is not called for targets of other sources.
    pub fn adopt(mut self, rule: impl Fn(&T) -> bool + Send + Sync + 'static) -> Self {
        self.relation.adopt = Some(Arc::new(rule));
        self
    }

    /// Releases a source that is being deleted once a target cluster has been away for this time. Objects that are
    /// left in that cluster stay. Default: never; the annotation [`ABANDON`](crate::ABANDON) releases the source.
    ///
    /// The time begins when the deletion first waits for the cluster. It begins again after the cluster was back, and
    /// when the program starts. A cluster that answers is not away, even if it refuses the deletion.
    pub fn abandon_after(mut self, limit: Duration) -> Self {
        self.relation.abandon_after = Some(limit);
        self
    }

    /// Copies related objects along with each source and its targets. See [`Related`].
    pub fn related<K>(mut self, related: Related<S, T, K>) -> Self
    where
        K: Resource + DeserializeOwned + Serialize,
    {
        self.relation.related.push(related.into_rule());
        self
    }

    /// Updates targets with server-side apply, under the field manager `sync.mcr.dev/NAME` with the name of the sync.
    /// Default: merge patches.
    ///
    /// The server then merges lists by the keys of their schema, so that others may add elements. It also keeps the
    /// list of owned fields, so the target needs no annotation for that. Targets that were written with merge patches
    /// are taken over. A sync that goes back to merge patches does not remove fields that it stops projecting at that
    /// moment.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Service;
    /// use mcr_sync::{Conflicts, ObjectSync};
    ///
    /// let sync = ObjectSync::<Service, Service>::new("services").server_side_apply(Conflicts::Report);
    /// # let _ = sync;
    /// ```
    pub fn server_side_apply(mut self, conflicts: Conflicts) -> Self {
        self.relation.mode = Some(conflicts);
        self
    }

    /// Sets whether a target is deleted and created again if its server refuses an update as invalid, as it does for
    /// immutable fields. Default `false`; the refusal is reported.
    ///
    /// The sync first asks the server whether it would accept the new object. If not, the target stays. Between the
    /// deletion and the creation there is no target, and its status and the fields of other owners are lost.
    pub fn replace_when_immutable(mut self, replace: bool) -> Self {
        self.relation.replaces = replace;
        self
    }
}

impl<S, T> fmt::Debug for ObjectSync<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sync")
            .field("name", &self.relation.name)
            .field("source", &self.relation.source.kind)
            .field("target", &self.relation.target.kind)
            .finish_non_exhaustive()
    }
}
