//! Mappers: from a changed object to the objects to reconcile.

use std::sync::Arc;

use kube::Resource;
use mcr_core::{Cluster, DecodeError, Fleet, Object, ObjectChange, ObjectKey};
use serde::{Deserialize, de::DeserializeOwned};

use crate::request::Target;

/// A changed object of a secondary watch: the argument of a mapper, which returns the keys to reconcile.
///
/// An update calls the mapper twice, with the old and the new state of the object, as in controller-runtime. So keys that
/// only the old state maps to are reconciled too.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use mcr::{ClusterSelector, Controller, ObjectKey, RequestKey, WatchOptions, Watched};
///
/// /// A Secret of the hub concerns the ConfigMap of its name in every cluster.
/// fn in_every_cluster(secret: Watched<Secret>) -> Vec<RequestKey> {
///     let Some(key) = ObjectKey::of(&*secret.object) else { return Vec::new() };
///     let clusters = secret.fleet.clusters();
///     clusters.iter().map(|cluster| RequestKey::new(cluster.name().clone(), key.clone())).collect()
/// }
///
/// let of_hub = WatchOptions::new().clusters(ClusterSelector::hub());
/// let controller = Controller::<ConfigMap>::new("settings").watches_with(&(), in_every_cluster, of_hub);
/// # let _ = controller;
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Watched<W> {
    /// The cluster of the object.
    pub cluster: Cluster,
    /// The fleet of the controller, to find other clusters.
    pub fleet: Fleet,
    /// The object.
    pub object: Arc<W>,
    /// Whether the object left the watch: it was deleted, or it no longer matches the label or field selector of the watch.
    ///
    /// A mapper only chooses keys, so it does not need to know which. A reconciler that does, reads the object from the API
    /// server.
    pub deleted: bool,
    /// Whether the change comes from a list and not from a live event.
    pub initial: bool,
}

impl<W> Clone for Watched<W> {
    fn clone(&self) -> Self {
        Self {
            cluster: self.cluster.clone(),
            fleet: self.fleet.clone(),
            object: self.object.clone(),
            deleted: self.deleted,
            initial: self.initial,
        }
    }
}

/// The keys that a mapper returns: an `Option`, a `Vec`, an array or another iterator of [`ObjectKey`]s,
/// [`RequestKey`](crate::RequestKey)s, [`Target`]s or `ObjectRef`s of kube.
#[diagnostic::on_unimplemented(
    message = "a mapper can't return `{Self}`",
    label = "this mapper returns no keys to reconcile",
    note = "return an `Option`, a `Vec`, an array or another iterator of `ObjectKey` (the same cluster), `RequestKey` (any cluster) or kube's `ObjectRef`"
)]
pub trait IntoTargets {
    /// The targets, one for each key.
    fn into_targets(self) -> impl Iterator<Item = Target>;
}

// Without the attribute, rustc reports that the type is no iterator, or that its items are no targets.
#[diagnostic::do_not_recommend]
impl<I: IntoIterator<Item: Into<Target>>> IntoTargets for I {
    fn into_targets(self) -> impl Iterator<Item = Target> {
        self.into_iter().map(Into::into)
    }
}

/// A mapper without its types.
pub(crate) type MapChange =
    Arc<dyn Fn(&Fleet, &Cluster, &ObjectChange) -> Result<Vec<Target>, DecodeError> + Send + Sync>;

/// Makes a mapper that decodes each state of the object and calls `map`.
pub(crate) fn typed<W, I>(map: impl Fn(Watched<W>) -> I + Send + Sync + 'static) -> MapChange
where
    W: DeserializeOwned,
    I: IntoTargets,
{
    Arc::new(move |fleet, cluster, change| {
        let mut targets = Vec::new();
        let mut failed = None;
        for object in [&change.old, &change.new].into_iter().flatten() {
            // If one state can't be decoded, the other one is still mapped.
            match object.decode::<W>() {
                Ok(decoded) => targets.extend(
                    map(Watched {
                        cluster: cluster.clone(),
                        fleet: fleet.clone(),
                        object: Arc::new(decoded),
                        deleted: change.is_delete(),
                        initial: change.initial,
                    })
                    .into_targets(),
                ),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if targets.is_empty() => Err(error),
            _ => Ok(targets),
        }
    })
}

/// The primary kind, as owner references name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerKind {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) cluster_scoped: bool,
}

impl OwnerKind {
    pub(crate) fn of<K: Resource + 'static>(dynamic: &K::DynamicType) -> Self {
        use std::any::TypeId;
        Self {
            group: K::group(dynamic).into_owned(),
            kind: K::kind(dynamic).into_owned(),
            cluster_scoped: TypeId::of::<K::Scope>() == TypeId::of::<kube::core::ClusterResourceScope>(),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Owned {
    metadata: OwnedMeta,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct OwnedMeta {
    owner_references: Option<Vec<Owner>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    api_version: String,
    kind: String,
    name: String,
    #[serde(default)]
    controller: Option<bool>,
}

/// Maps an object to its owners of a kind: to the controlling owner, or to every owner.
pub(crate) fn owners(kind: OwnerKind, every: bool) -> MapChange {
    Arc::new(move |_, _, change| {
        let mut targets = Vec::new();
        for object in [&change.old, &change.new].into_iter().flatten() {
            targets.extend(owners_of(object, &kind, every)?.into_iter().map(Target::Here));
        }
        Ok(targets)
    })
}

fn owners_of(object: &Object, wanted: &OwnerKind, every: bool) -> Result<Vec<ObjectKey>, DecodeError> {
    let owned: Owned = object.decode()?;
    let owners = owned.metadata.owner_references.unwrap_or_default().into_iter();
    // The version is not compared: an owner is the same object in every version of its API.
    let group =
        |owner: &Owner| owner.api_version.split_once('/').map_or("", |(group, _)| group) == wanted.group;
    let owners = owners
        .filter(|owner| every || owner.controller == Some(true))
        .filter(|owner| group(owner) && owner.kind == wanted.kind)
        .map(|owner| match &object.key().namespace {
            // The owner of a namespaced object is in the same namespace or in none.
            Some(namespace) if !wanted.cluster_scoped => ObjectKey::namespaced(namespace.clone(), owner.name),
            _ => ObjectKey::cluster_scoped(owner.name),
        });
    Ok(owners.collect())
}
