//! The LogicalCluster of kcp, which controllers of initializing and terminating workspaces read.
//!
//! It is written by hand, because kcp publishes its types for Go only.

use k8s_openapi::api::authentication::v1::UserInfo;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// The spec of a LogicalCluster.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "core.kcp.io",
    version = "v1alpha1",
    kind = "LogicalCluster",
    plural = "logicalclusters",
    singular = "logicalcluster",
    status = "LogicalClusterStatus",
    derive = "PartialEq",
    schema = "disabled",
    doc = "A workspace, as it shows itself. Each workspace has one, with the name `cluster`."
)]
#[serde(rename_all = "camelCase")]
pub struct LogicalClusterSpec {
    /// Whether the object can be deleted without its owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directly_deletable: Option<bool>,
    /// The Workspace in the parent workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<LogicalClusterOwner>,
    /// The user that has created the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<UserInfo>,
    /// The initializers of the workspace's type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initializers: Vec<String>,
    /// The terminators of the workspace's type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terminators: Vec<String>,
}

/// The owner of a logical cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogicalClusterOwner {
    /// The group and version.
    pub api_version: String,
    /// The plural of the kind.
    pub resource: String,
    /// The name.
    pub name: String,
    /// The namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The id of its logical cluster.
    pub cluster: String,
    /// The UID.
    pub uid: String,
}

/// The status of a LogicalCluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogicalClusterStatus {
    /// The address.
    #[serde(rename = "URL", default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// `Scheduling`, `Initializing`, `Ready`, `Unavailable`, `Inactive`, `Terminating` or `Deleting`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The initializers that have not finished.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initializers: Vec<String>,
    /// The terminators that have not finished.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terminators: Vec<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn nothing_of_the_json_is_lost_on_the_way_through_the_type() {
        let json = include_str!("../tests/fixtures/logicalcluster.json");
        let before: Value = serde_json::from_str(json).unwrap();
        let object: LogicalCluster = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_value(&object).unwrap(), before);
        assert_eq!(object.spec.owner.unwrap().cluster, "root");
    }
}
