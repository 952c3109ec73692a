//! Predicates: decide which changes of objects lead to a request.

use std::{collections::BTreeMap, fmt, sync::Arc};

use mcr_core::{Object, ObjectChange};
use serde::{Deserialize, de::DeserializeOwned};

/// Decides whether a change of an object may lead to a request.
///
/// A watch calls its predicates for every change, before its mapper. The predicates of this type (`generation_changed`, …)
/// only ignore updates: creations, first listings and deletions pass, as in controller-runtime.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mcr::Predicate;
///
/// let worth_it = Predicate::labels_changed()
///     .or(Predicate::of::<ConfigMap>(|old, new| old.map(|o| &o.data) != new.map(|n| &n.data)));
/// let quiet = !Predicate::generation_changed();
/// # let _ = (worth_it, quiet);
/// ```
#[derive(Clone)]
pub struct Predicate(Arc<dyn Fn(&ObjectChange) -> bool + Send + Sync>);

/// The part of an object that the predicates for labels and annotations read.
#[derive(Deserialize, Default, PartialEq)]
#[serde(default)]
struct Described {
    metadata: Meta,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(default)]
struct Meta {
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
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

    /// Passes updates that change `metadata.generation`. Updates of only the status, labels or annotations do not pass.
    ///
    /// Updates of objects without a generation (ConfigMaps, Secrets, …) pass, because nothing tells whether they matter.
    pub fn generation_changed() -> Self {
        Self::of_updates(|old, new| new.generation().is_none() || old.generation() != new.generation())
    }

    /// Passes updates that change the labels.
    pub fn labels_changed() -> Self {
        Self::of_updates(|old, new| differ(old, new, |meta| &meta.labels))
    }

    /// Passes updates that change the annotations.
    pub fn annotations_changed() -> Self {
        Self::of_updates(|old, new| differ(old, new, |meta| &meta.annotations))
    }

    /// Passes updates that change the resource version. Repetitions by a resync or a new list do not pass.
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

fn differ<T: PartialEq>(old: &Object, new: &Object, part: impl Fn(&Meta) -> &Option<T>) -> bool {
    match (old.decode::<Described>(), new.decode::<Described>()) {
        (Ok(old), Ok(new)) => part(&old.metadata) != part(&new.metadata),
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
