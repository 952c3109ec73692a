//! Which changes of objects are worth a request.

use std::{collections::BTreeMap, fmt, sync::Arc};

use mcr_core::{Object, ObjectChange};
use serde::{Deserialize, de::DeserializeOwned};

/// Lets changes through, or keeps them from becoming requests.
///
/// Predicates see every change of a watch, before it is mapped. The ready-made ones (`generation_changed`, …)
/// only ever keep updates back: objects that are created, first listed or deleted pass, as in
/// controller-runtime.
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

/// The part of an object that label and annotation predicates look at.
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
    /// A predicate over changes as the store tells them.
    ///
    /// Called from the watch's own task: it must be quick and must not block. A panic lets the change pass.
    pub fn new(predicate: impl Fn(&ObjectChange) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(predicate))
    }

    /// A predicate over the object before and after. Objects that can't be decoded count as not there; a change
    /// of which nothing can be decoded passes.
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

    /// Updates pass if `metadata.generation` changed: changes of the status, labels and annotations don't.
    ///
    /// Kinds without a generation (ConfigMaps, Secrets, …) pass: they would never be reconciled otherwise.
    pub fn generation_changed() -> Self {
        Self::of_updates(|old, new| new.generation().is_none() || old.generation() != new.generation())
    }

    /// Updates pass if the labels changed.
    pub fn labels_changed() -> Self {
        Self::of_updates(|old, new| differ(old, new, |meta| &meta.labels))
    }

    /// Updates pass if the annotations changed.
    pub fn annotations_changed() -> Self {
        Self::of_updates(|old, new| differ(old, new, |meta| &meta.annotations))
    }

    /// Updates pass if the resource version changed, which keeps back what a resync or a relist repeats.
    pub fn resource_version_changed() -> Self {
        Self::of_updates(|old, new| old.resource_version() != new.resource_version())
    }

    /// What both let through.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::new(move |change| self.passes(change) && other.passes(change))
    }

    /// What either lets through.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::new(move |change| self.passes(change) || other.passes(change))
    }

    /// Whether a change passes.
    ///
    /// # Panics
    /// If the function it was made of does.
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

    /// What it keeps back, and only that: creations and deletions too are turned around.
    fn not(self) -> Self {
        Self::new(move |change| !self.passes(change))
    }
}

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate(..)")
    }
}
