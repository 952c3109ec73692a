//! The kind `Cluster` of `extensions.gardener.cloud/v1alpha1`, with the fields that are relevant for consumers.
//!
//! A seed has one for each Shoot whose control plane it runs. The type is handwritten and incomplete, like
//! [`v1beta1`](crate::v1beta1), so never write an object back with `replace`.
//!
//! ```
//! use mcr_provider_gardener::v1alpha1::Cluster;
//!
//! # fn example(cluster: &Cluster) {
//! let version = cluster.spec.shoot.as_ref().map(|shoot| &shoot.spec.kubernetes.version);
//! # }
//! ```

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::v1beta1::Shoot;

/// What Gardener passes to the extensions in a seed.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "extensions.gardener.cloud",
    version = "v1alpha1",
    kind = "Cluster",
    plural = "clusters",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClusterSpec {
    /// The Shoot, as Gardener has copied it from the garden.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shoot: Option<Shoot>,
}
