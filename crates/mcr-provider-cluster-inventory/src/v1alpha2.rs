//! The kind `ClusterProfile` of `multicluster.x-k8s.io/v1alpha2`, with the fields that mean something to consumers.
//!
//! Written by hand. All fields that a cluster manager may leave out are optional here. Fields that are missing here are ignored,
//! so a [`ClusterProfile`] must not be written back with `replace`.
//!
//! ```
//! use mcr_provider_cluster_inventory::v1alpha2::ClusterProfile;
//!
//! # fn example(profile: &ClusterProfile) {
//! let by_ocm = profile.spec.cluster_manager.name == "open-cluster-management";
//! let joined = profile.condition("Joined").is_some_and(|condition| condition.status == "True");
//! let region = profile.property("region");
//! # }
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What identifies a cluster in an inventory.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "multicluster.x-k8s.io",
    version = "v1alpha2",
    kind = "ClusterProfile",
    plural = "clusterprofiles"
)]
#[kube(
    namespaced,
    status = "ClusterProfileStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClusterProfileSpec {
    /// A name for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// The cluster manager that owns the profile. The API server refuses to change it.
    pub cluster_manager: ClusterManager,
}

/// A cluster manager, such as Open Cluster Management.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClusterManager {
    /// The name of the cluster manager.
    pub name: String,
}

/// What the cluster manager has observed of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClusterProfileStatus {
    /// The conditions, such as `ControlPlaneHealthy` and `Joined`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The versions of the cluster.
    pub version: ClusterVersion,
    /// Facts about the cluster, such as cluster properties of KEP-2149.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<Property>,
    /// The ways to reach the cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access_providers: Vec<AccessProvider>,
}

/// The versions of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClusterVersion {
    /// The version of Kubernetes. Empty if it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kubernetes: String,
}

/// A fact about a cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Property {
    /// The name of the property.
    pub name: String,
    /// Its value.
    pub value: String,
    /// When the cluster manager has seen the value last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_observed_time: Option<Time>,
}

/// A way to reach a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct AccessProvider {
    /// The name by which consumers find the plugin to run.
    pub name: String,
    /// Where the API server is.
    pub cluster: Cluster,
}

/// Where the API server of a cluster is, and how to verify its certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct Cluster {
    /// The URL of the API server.
    pub server: String,
    /// The name that the certificate of the API server must have. Empty: the host of `server`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tls_server_name: String,
    /// Whether any certificate is accepted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure_skip_tls_verify: bool,
    /// The certificate authorities, in base64 of PEM. Empty: those of the system.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub certificate_authority_data: String,
    /// The proxy to connect through: http, https or socks5. Empty: none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub proxy_url: String,
    /// Whether the API server should not compress its answers.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disable_compression: bool,
    /// More for the plugin, such as its [configuration](crate::EXEC_EXTENSION).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<NamedExtension>,
}

/// Something more, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct NamedExtension {
    /// The name of the extension.
    pub name: String,
    /// Its value. The published schema allows only objects.
    pub extension: Value,
}

impl ClusterProfile {
    /// The condition of this type, if the profile has it.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        let status = self.status.as_ref()?;
        status
            .conditions
            .iter()
            .find(|condition| condition.type_ == type_)
    }

    /// The value of the property of this name, if the profile has it.
    pub fn property(&self, name: &str) -> Option<&str> {
        let status = self.status.as_ref()?;
        let property = status.properties.iter().find(|property| property.name == name)?;
        Some(&property.value)
    }
}
