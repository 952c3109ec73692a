//! Predicates: decide which changes of objects lead to a request.

use std::{collections::BTreeMap, fmt, sync::Arc};

use mcr_core::{Object, ObjectChange};
use serde::{Deserialize, de::DeserializeOwned};

/// Decides whether a change of an object may lead to a request.
///
/// A watch calls its predicates for every change, before its mapper. The predicates of this type (`spec_changed`, …) only
/// ignore updates: creations, first listings and deletions pass, as in controller-runtime. An object that no longer matches the
/// selector of its watch is deleted for a predicate.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mcr::Predicate;
///
/// let worth_it = Predicate::labels_changed()
///     .or(Predicate::of::<ConfigMap>(|old, new| old.map(|o| &o.data) != new.map(|n| &n.data)));
/// let quiet = !Predicate::spec_changed();
/// # let _ = (worth_it, quiet);
/// ```
#[derive(Clone)]
pub struct Predicate(Arc<dyn Fn(&ObjectChange) -> bool + Send + Sync>);

/// An object of any kind, of whose metadata only the fields of `M` are read.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Described<M> {
    metadata: M,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(default)]
struct Labels {
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(default)]
struct Annotations {
    annotations: Option<BTreeMap<String, String>>,
}

/// The fields that decide when an object goes away. An update of the finalizers does not change the generation.
#[derive(Deserialize, Default, PartialEq)]
#[serde(default, rename_all = "camelCase")]
struct Deletion {
    finalizers: Option<Vec<String>>,
    deletion_timestamp: Option<String>,
}

impl Predicate {
    /// A predicate over the changes of the store.
    ///
    /// The function runs in the task of the watch. It must return quickly and must not block. After a panic in it, the change
    /// passes.
    pub fn new(predicate: impl Fn(&ObjectChange) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(predicate))
    }

    /// A predicate over the object before and after the change. A state that can't be decoded is `None`. If neither state can
    /// be decoded, the change passes.
    pub fn of<K: DeserializeOwned>(
        predicate: impl Fn(Option<&K>, Option<&K>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::new(move |change| {
            let decode =
                |object: &Option<Arc<Object>>| object.as_ref().and_then(|object| object.decode::<K>().ok());
            let (old, new) = (decode(&change.old), decode(&change.new));
            (old.is_none() && new.is_none()) || predicate(old.as_ref(), new.as_ref())
        })
    }

    fn of_updates(differs: impl Fn(&Object, &Object) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |change| match (&change.old, &change.new) {
            (Some(old), Some(new)) => differs(old, new),
            _ => true,
        })
    }

    /// Passes updates that change `metadata.generation`, `metadata.finalizers` or `metadata.deletionTimestamp`. Updates of only
    /// the status, labels or annotations do not pass.
    ///
    /// Use this predicate to ignore updates of the status, with or without a finalizer. It reads the two metadata
    /// fields from the stored JSON and does not decode the object as its Rust type. An update whose fields can't be read
    /// passes. Updates of objects without a generation (ConfigMaps, Secrets, …) pass, because nothing shows whether they matter.
    ///
    /// ```
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use mcr::{Controller, Predicate};
    ///
    /// let controller = Controller::<Deployment>::new("web").predicate(Predicate::spec_changed());
    /// # let _ = controller;
    /// ```
    pub fn spec_changed() -> Self {
        Self::generation_changed().or(Self::of_updates(differ::<Deletion>))
    }

    /// Passes updates that change `metadata.generation`, and no others. Updates of only the status, labels, annotations,
    /// owners or **finalizers** do not pass.
    ///
    /// Do not use it in a controller that sets a finalizer, for example with `kube::runtime::finalizer`: a new finalizer does
    /// not change the generation, so the controller gets no request after it has added its finalizer, and never applies
    /// anything. Use [`spec_changed`](Self::spec_changed) there.
    ///
    /// Updates of objects without a generation (ConfigMaps, Secrets, …) pass, because nothing shows whether they matter.
    ///
    /// ```
    /// use mcr::{Predicate, WatchOptions};
    ///
    /// let of_owned = WatchOptions::new().predicate(Predicate::generation_changed());
    /// # let _ = of_owned;
    /// ```
    pub fn generation_changed() -> Self {
        Self::of_updates(|old, new| new.generation().is_none() || old.generation() != new.generation())
    }

    /// Passes updates that change the labels.
    pub fn labels_changed() -> Self {
        Self::of_updates(differ::<Labels>)
    }

    /// Passes updates that change the annotations.
    pub fn annotations_changed() -> Self {
        Self::of_updates(differ::<Annotations>)
    }

    /// Passes updates that change the resource version. Repetitions by a resync do not pass, nor does a list that shows an
    /// object in another way since an upgrade of the API server.
    pub fn resource_version_changed() -> Self {
        Self::of_updates(|old, new| old.resource_version() != new.resource_version())
    }

    /// Passes the changes that both predicates pass.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::new(move |change| self.passes(change) && other.passes(change))
    }

    /// Passes the changes that at least one of the two predicates passes.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::new(move |change| self.passes(change) || other.passes(change))
    }

    /// Whether a change passes.
    ///
    /// # Panics
    /// If the function of the predicate panics.
    pub fn passes(&self, change: &ObjectChange) -> bool {
        (self.0)(change)
    }
}

/// Whether the fields of `M` differ. True if the metadata of one of the objects can't be read.
fn differ<M: DeserializeOwned + Default + PartialEq>(old: &Object, new: &Object) -> bool {
    match (old.decode::<Described<M>>(), new.decode::<Described<M>>()) {
        (Ok(old), Ok(new)) => old.metadata != new.metadata,
        _ => true,
    }
}

impl std::ops::Not for Predicate {
    type Output = Self;

    /// Passes exactly the changes that the predicate does not pass. This inverts the result for creations and deletions too.
    fn not(self) -> Self {
        Self::new(move |change| !self.passes(change))
    }
}

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate(..)")
    }
}
