//! The kind `ClusterProperty` of `about.k8s.io/v1alpha1`.
//!
//! The type is handwritten. Fields that a server may leave out are optional.
//!
//! ```
//! use mcr_provider_about::v1alpha1::{ClusterProperty, ClusterPropertySpec};
//!
//! let id = ClusterProperty::new("cluster.clusterset.k8s.io", ClusterPropertySpec::new("berlin-1"));
//! assert_eq!(id.spec.value, "berlin-1");
//! ```

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// The value of a ClusterProperty. The name of the property is that of the object.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "about.k8s.io",
    version = "v1alpha1",
    kind = "ClusterProperty",
    plural = "clusterproperties",
    category = "multicluster",
    status = "ClusterPropertyStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(default)]
#[non_exhaustive]
pub struct ClusterPropertySpec {
    /// The value, in any form. The API server refuses an empty one.
    pub value: String,
}

impl ClusterPropertySpec {
    /// A property with this value.
    pub fn new(value: impl Into<String>) -> Self {
        Self { value: value.into() }
    }
}

/// The published schema defines no fields of the status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClusterPropertyStatus {}
