//! The kind `Cluster` of `cluster.x-k8s.io/v1beta1`, for hubs that serve nothing newer.
//!
//! The provider converts it to [`v1beta2`] as Cluster API itself does, so predicates see one type only.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as NewCondition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

pub use crate::old_condition::Condition;
use crate::v1beta2;

/// What a Cluster should be.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta1",
    kind = "Cluster",
    plural = "clusters"
)]
#[kube(
    namespaced,
    status = "ClusterStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClusterSpec {
    /// Whether Cluster API's controllers leave the Cluster alone. The annotation `cluster.x-k8s.io/paused` means the same.
    pub paused: bool,
    /// The address of the API server. Empty until it is known.
    pub control_plane_endpoint: v1beta2::ApiEndpoint,
    /// The object that manages the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_ref: Option<ObjectReference>,
    /// The object that describes the infrastructure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_ref: Option<ObjectReference>,
    /// The ClusterClass and version, if Cluster API manages the topology.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
}

/// A reference to an object of a provider of Cluster API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ObjectReference {
    /// The API group and version of the object, such as `infrastructure.cluster.x-k8s.io/v1beta1`.
    pub api_version: String,
    /// The kind of the object, such as `AWSCluster`.
    pub kind: String,
    /// The name of the object.
    pub name: String,
    /// The namespace of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// The topology of a Cluster with a ClusterClass.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Topology {
    /// The name of the ClusterClass.
    pub class: String,
    /// The namespace of the ClusterClass. Empty: the namespace of the Cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class_namespace: String,
    /// The version of Kubernetes that the Cluster should have.
    pub version: String,
}

/// What Cluster API has observed of a Cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClusterStatus {
    /// Whether the infrastructure is there.
    pub infrastructure_ready: bool,
    /// Whether the API server has answered for the first time.
    pub control_plane_ready: bool,
    /// The conditions, such as `Ready` and `ControlPlaneInitialized`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The phase for people: `Pending`, `Provisioning`, `Provisioned`, `Deleting`, `Failed` or `Unknown`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Why the Cluster has failed for good, as one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Why the Cluster has failed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// The last generation that Cluster API has seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The fields of v1beta2 that v1beta1 does not have, from Cluster API 1.9 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1beta2: Option<ClusterV1Beta2Status>,
}

/// The fields of v1beta2 that v1beta1 does not have.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClusterV1Beta2Status {
    /// The conditions of v1beta2.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<NewCondition>,
    /// The state of the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<v1beta2::ClusterControlPlaneStatus>,
}

impl From<Cluster> for v1beta2::Cluster {
    fn from(old: Cluster) -> Self {
        let mut new = Self::new("", old.spec.into());
        new.metadata = old.metadata;
        new.status = old.status.map(Into::into);
        new
    }
}

impl From<ClusterSpec> for v1beta2::ClusterSpec {
    fn from(old: ClusterSpec) -> Self {
        let endpoint = old.control_plane_endpoint;
        Self {
            paused: old.paused.then_some(true),
            control_plane_endpoint: (endpoint != v1beta2::ApiEndpoint::default()).then_some(endpoint),
            control_plane_ref: old.control_plane_ref.map(Into::into),
            infrastructure_ref: old.infrastructure_ref.map(Into::into),
            topology: old.topology.map(Into::into),
        }
    }
}

impl From<ObjectReference> for v1beta2::ContractVersionedObjectReference {
    fn from(old: ObjectReference) -> Self {
        let group = old.api_version.split_once('/').map_or("", |(group, _)| group);
        Self {
            api_group: group.to_owned(),
            kind: old.kind,
            name: old.name,
        }
    }
}

impl From<Topology> for v1beta2::Topology {
    fn from(old: Topology) -> Self {
        Self {
            class_ref: v1beta2::ClusterClassRef {
                name: old.class,
                namespace: old.class_namespace,
            },
            version: old.version,
        }
    }
}

impl From<ClusterStatus> for v1beta2::ClusterStatus {
    fn from(old: ClusterStatus) -> Self {
        let new = old.v1beta2.unwrap_or_default();
        // A bool that is false may never have been set.
        let initialization = v1beta2::ClusterInitializationStatus {
            infrastructure_provisioned: old.infrastructure_ready.then_some(true),
            control_plane_initialized: old.control_plane_ready.then_some(true),
        };
        let deprecated = v1beta2::ClusterV1Beta1DeprecatedStatus {
            conditions: old.conditions,
            failure_reason: old.failure_reason,
            failure_message: old.failure_message,
        };
        Self {
            conditions: new.conditions,
            initialization: (initialization != v1beta2::ClusterInitializationStatus::default())
                .then_some(initialization),
            control_plane: new.control_plane,
            phase: old.phase,
            observed_generation: old.observed_generation,
            deprecated: (deprecated != v1beta2::ClusterV1Beta1DeprecatedStatus::default()).then_some(
                v1beta2::ClusterDeprecatedStatus {
                    v1beta1: Some(deprecated),
                },
            ),
        }
    }
}
