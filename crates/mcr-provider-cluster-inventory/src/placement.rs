//! The clusters that a scheduler has chosen. No I/O.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use mcr_core::{Object, ObjectKey, WatchRequest};

use crate::v1alpha1::PlacementDecision;

/// The label of a PlacementDecision with the key of its placement.
pub const PLACEMENT_KEY_LABEL: &str = "multicluster.x-k8s.io/placement-key";
/// The label that all PlacementDecisions of one decision share.
pub const DECISION_KEY_LABEL: &str = "multicluster.x-k8s.io/decision-key";

/// A choice of clusters by a scheduler, which it writes into PlacementDecisions (KEP-5313); for
/// [`ClusterInventoryProviderBuilder::placement`](crate::ClusterInventoryProviderBuilder::placement).
///
/// ```
/// use mcr_provider_cluster_inventory::PlacementDecisions;
///
/// // By the label multicluster.x-k8s.io/placement-key.
/// let web: PlacementDecisions = "web".into();
/// let elsewhere = PlacementDecisions::of_placement("web").namespace("argocd");
/// // By the label multicluster.x-k8s.io/decision-key.
/// let decision = PlacementDecisions::of_decision("web-7f9c");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementDecisions {
    label: &'static str,
    pub(crate) key: String,
    /// None: the namespaces of the inventories.
    pub(crate) namespace: Option<String>,
}

impl PlacementDecisions {
    /// The PlacementDecisions with this value of the [`PLACEMENT_KEY_LABEL`].
    pub fn of_placement(key: impl Into<String>) -> Self {
        Self {
            label: PLACEMENT_KEY_LABEL,
            key: key.into(),
            namespace: None,
        }
    }

    /// The PlacementDecisions with this value of the [`DECISION_KEY_LABEL`], for schedulers that set no placement key.
    pub fn of_decision(key: impl Into<String>) -> Self {
        Self {
            label: DECISION_KEY_LABEL,
            ..Self::of_placement(key)
        }
    }

    /// Sets the namespace of the PlacementDecisions. Default: the namespaces of the inventories.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// The PlacementDecisions in all namespaces.
    pub(crate) fn request(&self) -> WatchRequest {
        WatchRequest::of::<PlacementDecision>().labels(format!("{}={}", self.label, self.key))
    }
}

/// By the placement key.
impl From<&str> for PlacementDecisions {
    fn from(key: &str) -> Self {
        Self::of_placement(key)
    }
}

/// The ClusterProfiles that one PlacementDecision names, sorted. An error is the reason why it can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice(pub(crate) Result<Arc<[ObjectKey]>, Arc<str>>);

impl Slice {
    /// None if the object is being deleted.
    pub(crate) fn read(object: &Object) -> Option<Self> {
        let decision: PlacementDecision = match object.decode() {
            Ok(decision) => decision,
            Err(error) => return Some(Self(Err(error.to_string().into()))),
        };
        if decision.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let mut names: Vec<ObjectKey> = decision
            .decisions
            .into_iter()
            .map(|decision| decision.cluster_profile_ref)
            .map(|named| ObjectKey {
                namespace: match &*named.namespace {
                    "" => object.key().namespace.clone(),
                    namespace => Some(namespace.into()),
                },
                name: named.name.into(),
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        Some(Self(Ok(names.into())))
    }
}

/// The ClusterProfiles that all PlacementDecisions together name.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    /// None: it could never be read.
    slices: HashMap<ObjectKey, Option<Arc<[ObjectKey]>>>,
    names: HashSet<ObjectKey>,
}

impl Chosen {
    /// A PlacementDecision was created or changed. None: it was deleted. [`recompute`](Self::recompute) brings it into effect.
    pub(crate) fn decision(&mut self, key: &ObjectKey, slice: Option<&Slice>) {
        match slice {
            Some(Slice(Ok(names))) => _ = self.slices.insert(key.clone(), Some(names.clone())),
            // Its last names stay chosen.
            Some(Slice(Err(_))) => _ = self.slices.entry(key.clone()).or_default(),
            None => _ = self.slices.remove(key),
        }
    }

    pub(crate) fn recompute(&mut self) {
        self.names = self
            .slices
            .values()
            .flatten()
            .flat_map(|names| names.iter().cloned())
            .collect();
    }

    /// Whether a profile is chosen, where `announced` returns whether an earlier discovery has announced its cluster. A
    /// PlacementDecision that could never be read may name each of those.
    pub(crate) fn selects(&self, key: &ObjectKey, announced: impl FnOnce() -> bool) -> bool {
        self.names.contains(key) || (self.slices.values().any(Option::is_none) && announced())
    }
}
