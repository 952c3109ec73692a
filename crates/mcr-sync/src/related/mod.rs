//! Related objects: objects that a service makes beside a target, or that a consumer adds beside a source.

pub(crate) mod copy;
pub(crate) mod index;
pub(crate) mod notes;
pub(crate) mod rule;

use std::{fmt, marker::PhantomData, sync::Arc};

use kube::{Resource, core::ApiResource};
use mcr::BoxError;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub(crate) use self::{
    copy::is_copy,
    index::{Scope, Selected},
    notes::{Note, Problem},
    rule::{Rule, Way},
};
use self::{index::Index, rule::Selection};
use crate::{functions::typed, values::without_quoted_json};

/// Related objects of a sync: objects of the kind `K` that are copied along with each source `S` and its targets `T`.
///
/// - [`up`](Self::up): objects in the namespace of the target are copied to the namespace of the source. An example is
///   the Secret with a password that a service makes.
/// - [`down`](Self::down): objects in the namespace of the source are copied to the namespace of the target. An
///   example is a ConfigMap with the settings of a consumer.
///
/// Choose the objects with [`named`](Self::named), [`labelled`](Self::labelled) or [`select`](Self::select). A copy
/// follows its origin. It is deleted when its origin is deleted or no longer chosen, and before its target is deleted.
/// It stays while the cluster of its origin is away. If an object of somebody else has the name of a copy, that object
/// is reported and not touched.
///
/// The kind `K` must be namespaced if source and target are namespaced, and cluster-scoped if they are cluster-scoped.
///
/// **If targets of several consumers share a namespace, choose objects of `up` by fields of the target, not by fields
/// of the source.** Otherwise the author of a source could name an object of somebody else, and would get a copy of
/// it.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use mcr::ClusterName;
/// use mcr_sync::{Related, ObjectSync};
///
/// let controller = ObjectSync::<ConfigMap, ConfigMap>::new("dbs")
///     .to(ClusterName::new("service")?)
///     .mirror()
///     // The Secret that the service makes and names in its own object is copied beside the source.
///     .related(
///         Related::<_, _, Secret>::up("connection")
///             .named(|_: &ConfigMap, target: Option<&ConfigMap>| target?.data.as_ref()?.get("secret").cloned())
///             .name_by(|source, _| format!("{}-connection", source.metadata.name.as_deref().unwrap_or_default())),
///     )
///     // The settings that the consumer gives are copied beside the target.
///     .related(Related::<_, _, ConfigMap>::down("settings").labelled(|source: &ConfigMap, _| {
///         source.metadata.name.clone().map(|name| ("settings-of", name))
///     }))
///     .build()?;
/// # let _ = controller;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "it does nothing until it is given to ObjectSync::related"]
pub struct Related<S, T, K> {
    rule: Rule<S, T>,
    kind: PhantomData<fn() -> K>,
}

impl<S, T, K> Related<S, T, K>
where
    K: Resource + DeserializeOwned + Serialize,
{
    /// Copies objects from beside the target to beside the source. The id becomes a label of the copies: 1 to 50 lower
    /// case letters, digits and '-'. A new id is a new relation, to which copies with the former id do not belong.
    pub fn up(id: impl Into<String>) -> Self
    where
        K: Resource<DynamicType = ()>,
    {
        Self::up_with(id, &())
    }

    /// As [`up`](Self::up), for a kind that is known at run time.
    ///
    /// ```
    /// use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
    /// use mcr_sync::Related;
    ///
    /// let bindings = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Binding"));
    /// let related = Related::<DynamicObject, DynamicObject, DynamicObject>::up_with("binding", &bindings)
    ///     .named(|_, target| target?.data["status"]["binding"].as_str().map(str::to_owned));
    /// # let _ = related;
    /// ```
    pub fn up_with(id: impl Into<String>, kind: &K::DynamicType) -> Self {
        Self::new(Way::Up, id.into(), kind)
    }

    /// Copies objects from beside the source to beside the target. They are copied before the target is made, so that
    /// the service finds them. The same rules apply to the id as in [`up`](Self::up).
    pub fn down(id: impl Into<String>) -> Self
    where
        K: Resource<DynamicType = ()>,
    {
        Self::down_with(id, &())
    }

    /// As [`down`](Self::down), for a kind that is known at run time.
    pub fn down_with(id: impl Into<String>, kind: &K::DynamicType) -> Self {
        Self::new(Way::Down, id.into(), kind)
    }

    fn new(way: Way, id: String, kind: &K::DynamicType) -> Self {
        let rule = Rule {
            id,
            way,
            resource: ApiResource::erase::<K>(kind),
            selection: None,
            project: None,
            name: None,
            watch_labels: None,
            index: Arc::new(Index::default()),
        };
        let kind = PhantomData;
        Self { rule, kind }
    }

    /// Chooses objects by name. The function gets the source and its target, and returns an `Option`, a `Vec`, or
    /// another iterator of names. The target is `None` while there is none.
    ///
    /// A named object that does not exist is reported in the condition of the source. Until it exists, a target that
    /// moves also stays in its former place. The function must not block.
    pub fn named<I>(mut self, names: impl Fn(&S, Option<&T>) -> I + Send + Sync + 'static) -> Self
    where
        I: IntoIterator<Item: Into<String>>,
    {
        let names =
            move |source: &S, target: Option<&T>| names(source, target).into_iter().map(Into::into).collect();
        self.rule.selection = Some(Selection::Names(Arc::new(names)));
        self
    }

    /// Chooses the objects that have all these labels. No labels choose no objects.
    ///
    /// Each reconcile goes over the keys of all watched objects in the origin's cluster.
    /// [`watch_labels`](Self::watch_labels) limits which objects are watched.
    pub fn labelled<I, A, B>(mut self, labels: impl Fn(&S, Option<&T>) -> I + Send + Sync + 'static) -> Self
    where
        I: IntoIterator<Item = (A, B)>,
        A: Into<String>,
        B: Into<String>,
    {
        let labels = move |source: &S, target: Option<&T>| {
            let labels = labels(source, target).into_iter();
            labels.map(|(key, value)| (key.into(), value.into())).collect()
        };
        self.rule.selection = Some(Selection::Labels(Arc::new(labels)));
        self
    }

    /// Chooses the objects of the namespace for which the function returns true. The cost of a reconcile is that of
    /// [`labelled`](Self::labelled), and a change of any object in the namespace leads to a reconcile.
    pub fn select(mut self, select: impl Fn(&S, Option<&T>, &K) -> bool + Send + Sync + 'static) -> Self {
        let choose =
            move |source: &S, target: Option<&T>, object: &Value| Ok(select(source, target, &typed(object)?));
        self.rule.selection = Some(Selection::Choose(Arc::new(choose)));
        self
    }

    /// Makes the copy from its origin. Name, namespace and status of the returned object are ignored. Default: the
    /// whole origin, with labels and annotations as its only metadata. Labels and annotations of kcp and kubectl are
    /// left out, and so is the `immutable` of Secrets and ConfigMaps.
    ///
    /// The copy stays as it is until the source or the origin changes.
    pub fn project(self, project: impl Fn(&S, &K) -> K + Send + Sync + 'static) -> Self {
        self.try_project(move |source, origin| Ok::<K, BoxError>(project(source, origin)))
    }

    /// As [`project`](Self::project), with a function that may fail. The error is reported in the condition of the
    /// source, so its text must not contain secret values.
    pub fn try_project<E>(mut self, project: impl Fn(&S, &K) -> Result<K, E> + Send + Sync + 'static) -> Self
    where
        E: Into<BoxError>,
    {
        let make = move |source: &S, object: &Value| {
            let made = project(source, &typed(object)?)
                .map_err(|error| without_quoted_json(error.into()).to_string())?;
            serde_json::to_value(made).map_err(|_| "the projected object can't be written as JSON".to_owned())
        };
        self.rule.project = Some(Arc::new(make));
        self
    }

    /// Names the copy. Default: the readable part of the origin's name, and a hash of sync, relation, source and
    /// origin.
    ///
    /// If two origins of a source get the same name, the first one is copied, and the condition of the source reports
    /// the other one.
    pub fn name_by(mut self, name: impl Fn(&S, &K) -> String + Send + Sync + 'static) -> Self {
        let name = move |source: &S, object: &Value| Ok(name(source, &typed(object)?));
        self.rule.name = Some(Arc::new(name));
        self
    }

    /// Limits the watch of origins by a label selector, as in `app=db,tier!=test`. Default: all objects of the kind are
    /// watched. Objects that do not match are not copied.
    pub fn watch_labels(mut self, selector: impl Into<String>) -> Self {
        self.rule.watch_labels = Some(selector.into());
        self
    }

    pub(crate) fn into_rule(self) -> Rule<S, T> {
        self.rule
    }
}

impl<S, T, K> fmt::Debug for Related<S, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Related")
            .field("id", &self.rule.id)
            .field("way", &self.rule.way)
            .field("kind", &self.rule.resource.kind)
            .finish_non_exhaustive()
    }
}
