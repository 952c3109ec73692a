//! The kinds `ClusterProfile` and `PlacementDecision` of `multicluster.x-k8s.io/v1alpha1`, with the fields that mean something to
//! consumers.
//!
//! The provider reads ClusterProfiles as v1alpha1 from a hub that does not serve [`v1alpha2`], and converts them.
//!
//! ```
//! use mcr_provider_cluster_inventory::{v1alpha1, v1alpha2};
//!
//! # fn example(old: v1alpha1::ClusterProfile) {
//! let profile: v1alpha2::ClusterProfile = old.into();
//! # }
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

mod placement_decision;

pub use placement_decision::{ClusterDecision, ClusterProfileReference, PlacementDecision};

use crate::v1alpha2::{self, ClusterManager, ClusterVersion, NamedExtension, Property};

/// What identifies a cluster in an inventory.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "multicluster.x-k8s.io",
    version = "v1alpha1",
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
    /// The former name of `access_providers`. Deprecated by the API: an entry counts only if `access_providers` has none of its
    /// name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credential_providers: Vec<AccessProvider>,
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
    /// The path of a file with the certificate authorities. The provider does not use it: it would be a file of this machine,
    /// chosen by whoever writes the profile.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub certificate_authority: String,
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

impl ClusterProfileStatus {
    /// The ways to reach the cluster: `access_providers`, then those `credential_providers` whose names it lacks.
    pub fn all_access_providers(&self) -> impl Iterator<Item = &AccessProvider> {
        let named = |name: &str| self.access_providers.iter().any(|access| access.name == name);
        let fallback = self
            .credential_providers
            .iter()
            .filter(move |old| !named(&old.name));
        self.access_providers.iter().chain(fallback)
    }
}

/// v1alpha2 has no `certificateAuthority` path and no `credentialProviders`: the path is left out, the rest is merged.
impl From<ClusterProfile> for v1alpha2::ClusterProfile {
    fn from(old: ClusterProfile) -> Self {
        let mut new = Self::new(
            "",
            v1alpha2::ClusterProfileSpec {
                display_name: old.spec.display_name,
                cluster_manager: old.spec.cluster_manager,
            },
        );
        new.metadata = old.metadata;
        new.status = old.status.map(|status| v1alpha2::ClusterProfileStatus {
            access_providers: status.all_access_providers().cloned().map(Into::into).collect(),
            conditions: status.conditions,
            version: status.version,
            properties: status.properties,
        });
        new
    }
}

impl From<AccessProvider> for v1alpha2::AccessProvider {
    fn from(old: AccessProvider) -> Self {
        let cluster = old.cluster;
        Self {
            name: old.name,
            cluster: v1alpha2::Cluster {
                server: cluster.server,
                tls_server_name: cluster.tls_server_name,
                insecure_skip_tls_verify: cluster.insecure_skip_tls_verify,
                certificate_authority_data: cluster.certificate_authority_data,
                proxy_url: cluster.proxy_url,
                disable_compression: cluster.disable_compression,
                extensions: cluster.extensions,
            },
        }
    }
}
