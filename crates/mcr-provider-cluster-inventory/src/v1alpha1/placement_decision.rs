//! The kind `PlacementDecision` (KEP-5313).

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, core::TypeMeta};
use serde::{Deserialize, Serialize};

/// Clusters that a scheduler has chosen. A choice of more than 100 clusters has several such objects.
///
/// Schedulers write it, and all others read it only.
///
/// ```
/// use mcr_provider_cluster_inventory::v1alpha1::PlacementDecision;
///
/// # fn example(decision: &PlacementDecision) {
/// let chosen = decision.decisions.iter().any(|decision| decision.cluster_profile_ref.name == "eu-1");
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct PlacementDecision {
    /// `apiVersion` and `kind`.
    #[serde(flatten)]
    pub types: Option<TypeMeta>,
    /// Name, namespace and labels, such as the [`PLACEMENT_KEY_LABEL`](crate::PLACEMENT_KEY_LABEL).
    pub metadata: ObjectMeta,
    /// The chosen clusters, at most 100.
    pub decisions: Vec<ClusterDecision>,
    /// The scheduler. Empty: unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scheduler_name: String,
}

/// A chosen cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClusterDecision {
    /// The ClusterProfile of the cluster.
    pub cluster_profile_ref: ClusterProfileReference,
    /// Why the cluster was chosen. Empty: unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The name of a ClusterProfile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClusterProfileReference {
    /// The name of the ClusterProfile.
    pub name: String,
    /// Its namespace. Empty: that of the PlacementDecision.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

// The derive macro of kube needs a `spec`, which this kind does not have.
impl Resource for PlacementDecision {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "PlacementDecision".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "multicluster.x-k8s.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1alpha1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "placementdecisions".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
