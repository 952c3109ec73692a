//! The kind `Cluster` of `cluster.x-k8s.io/v1beta2`, with the fields that mean something to consumers.
//!
//! Written by hand. All fields that Cluster API may leave out are optional here. Fields that are missing here are ignored, so a
//! [`Cluster`] must not be written back with `replace`.
//!
//! ```
//! use mcr_provider_cluster_api::v1beta2::Cluster;
//!
//! # fn example(cluster: &Cluster) {
//! let region = cluster.metadata.labels.as_ref().and_then(|labels| labels.get("region"));
//! let on_aws = cluster.spec.infrastructure_ref.as_ref().is_some_and(|infra| infra.kind == "AWSCluster");
//! let available = cluster.condition("Available").is_some_and(|condition| condition.status == "True");
//! # }
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// What a Cluster should be.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// The address of the API server, once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<ApiEndpoint>,
    /// The object that manages the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_ref: Option<ContractVersionedObjectReference>,
    /// The object that describes the infrastructure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_ref: Option<ContractVersionedObjectReference>,
    /// The ClusterClass and version, if Cluster API manages the topology.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
}

/// The address of an API server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ApiEndpoint {
    /// The host name or IP address. Empty if it is not known yet.
    pub host: String,
    /// The port. 0 if it is not known yet.
    pub port: i32,
}

/// A reference to an object of a provider of Cluster API, in the namespace of the Cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ContractVersionedObjectReference {
    /// The API group of the object, such as `infrastructure.cluster.x-k8s.io`.
    pub api_group: String,
    /// The kind of the object, such as `AWSCluster`.
    pub kind: String,
    /// The name of the object.
    pub name: String,
}

/// The topology of a Cluster with a ClusterClass.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Topology {
    /// The ClusterClass.
    pub class_ref: ClusterClassRef,
    /// The version of Kubernetes that the Cluster should have.
    pub version: String,
}

/// A reference to a ClusterClass.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClusterClassRef {
    /// The name of the ClusterClass.
    pub name: String,
    /// Its namespace. Empty: the namespace of the Cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// What Cluster API has observed of a Cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClusterStatus {
    /// The conditions, such as `Available`, `ControlPlaneInitialized`, `RemoteConnectionProbe` and `Paused`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// How far the first provisioning is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<ClusterInitializationStatus>,
    /// The state of the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<ClusterControlPlaneStatus>,
    /// The phase for people: `Pending`, `Provisioning`, `Provisioned`, `Deleting`, `Failed` or `Unknown`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// The last generation that Cluster API has seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The fields of v1beta1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<ClusterDeprecatedStatus>,
}

/// How far the first provisioning of a Cluster is. What is true here stays true.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClusterInitializationStatus {
    /// Whether the infrastructure is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_provisioned: Option<bool>,
    /// Whether the API server has answered for the first time. Never set for Clusters without a `controlPlaneRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_initialized: Option<bool>,
}

/// The state of the control plane of a Cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClusterControlPlaneStatus {
    /// How many replicas there should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// How many replicas there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// How many replicas have the wanted spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to_date_replicas: Option<i32>,
    /// How many replicas are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// How many replicas are available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// The versions of Kubernetes that run. Several during an upgrade.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<StatusVersion>,
}

/// A version of Kubernetes that replicas of a control plane run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct StatusVersion {
    /// The version, such as `v1.36.1`.
    pub version: String,
    /// How many replicas run it.
    pub replicas: i32,
}

/// The fields of older versions of the API.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClusterDeprecatedStatus {
    /// The fields of v1beta1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1beta1: Option<ClusterV1Beta1DeprecatedStatus>,
}

/// The fields of v1beta1 that v1beta2 replaces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClusterV1Beta1DeprecatedStatus {
    /// The conditions of v1beta1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<crate::old_condition::Condition>,
    /// Why the Cluster has failed for good, as one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Why the Cluster has failed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
}

impl Cluster {
    /// The condition of this type, if the Cluster has it.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        let status = self.status.as_ref()?;
        status
            .conditions
            .iter()
            .find(|condition| condition.type_ == type_)
    }

    /// Whether the API server of the cluster has answered for the first time, as Cluster API reports. Once true it stays true,
    /// also while the cluster does not answer.
    ///
    /// By `status.initialization.controlPlaneInitialized`, or by the condition `ControlPlaneInitialized`: the field is never set
    /// for Clusters without a `controlPlaneRef`.
    pub fn is_control_plane_initialized(&self) -> bool {
        const CONDITION: &str = "ControlPlaneInitialized";
        let Some(status) = &self.status else { return false };
        let field = status
            .initialization
            .as_ref()
            .and_then(|initialization| initialization.control_plane_initialized);
        let old = status
            .deprecated
            .as_ref()
            .and_then(|deprecated| deprecated.v1beta1.as_ref());
        field == Some(true)
            || self
                .condition(CONDITION)
                .is_some_and(|condition| condition.status == "True")
            || old.is_some_and(|old| {
                old.conditions
                    .iter()
                    .any(|old| old.type_ == CONDITION && old.status == "True")
            })
    }
}
