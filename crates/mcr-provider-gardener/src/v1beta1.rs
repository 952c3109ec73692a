//! The kinds `Shoot` and `Project` of `core.gardener.cloud/v1beta1`, with the fields that are relevant for consumers.
//!
//! The types are handwritten. All fields that Gardener may leave out are optional. Other fields are ignored, so never
//! write an object back with `replace`.
//!
//! ```
//! use mcr_provider_gardener::v1beta1::Shoot;
//!
//! # fn example(shoot: &Shoot) {
//! let for_production = shoot.spec.purpose.as_deref() == Some("production");
//! let seed = shoot.status.as_ref().and_then(|status| status.seed_name.as_deref());
//! # }
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// What a Shoot should be.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "core.gardener.cloud",
    version = "v1beta1",
    kind = "Shoot",
    plural = "shoots"
)]
#[kube(
    namespaced,
    status = "ShootStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ShootSpec {
    /// The CloudProfile or NamespacedCloudProfile, in the newer form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_profile: Option<CloudProfileReference>,
    /// The name of the CloudProfile, in the older form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_profile_name: Option<String>,
    /// Whether and when the cluster is hibernated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hibernation: Option<Hibernation>,
    /// The version of Kubernetes.
    pub kubernetes: Kubernetes,
    /// The infrastructure.
    pub provider: Provider,
    /// The purpose: `evaluation`, `testing`, `development`, `production` or `infrastructure`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// The region of the infrastructure.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// The seed that should run the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed_name: Option<String>,
}

/// A reference to a CloudProfile or NamespacedCloudProfile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct CloudProfileReference {
    /// `CloudProfile` or `NamespacedCloudProfile`.
    pub kind: String,
    /// The name of the profile.
    pub name: String,
}

/// The hibernation of a Shoot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Hibernation {
    /// Whether the Shoot should be hibernated. None means no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// The Kubernetes of a Shoot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Kubernetes {
    /// The version, such as `1.34.2`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
}

/// The infrastructure of a Shoot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Provider {
    /// The type of the infrastructure, such as `aws`.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub type_: String,
}

/// What Gardener has observed of a Shoot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ShootStatus {
    /// The addresses of the API server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advertised_addresses: Vec<AdvertisedAddress>,
    /// The progress of the rotation of credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    /// Whether the Shoot is hibernated.
    pub hibernated: bool,
    /// The current or last operation of Gardener on the Shoot. `None` if no operation has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// The seed that runs the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed_name: Option<String>,
    /// The name of the control plane in the seed, such as `shoot--project--name`.
    #[serde(rename = "technicalID", skip_serializing_if = "String::is_empty")]
    pub technical_id: String,
}

/// An address of the API server of a Shoot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct AdvertisedAddress {
    /// The name of the address, such as `external`.
    pub name: String,
    /// The address.
    pub url: String,
}

/// The credentials of a Shoot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Credentials {
    /// The rotations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotation: Option<Rotation>,
}

/// The rotations of the credentials of a Shoot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Rotation {
    /// The rotation of the certificate authorities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_authorities: Option<CaRotation>,
}

/// A rotation of the certificate authorities of a Shoot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct CaRotation {
    /// When the last rotation was completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_completion_time: Option<Time>,
    /// The phase, such as `Prepared` or `Completed`.
    pub phase: String,
}

/// An operation on a Shoot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct LastOperation {
    /// The last event, as text for people.
    pub description: String,
    /// The progress, in per cent.
    pub progress: i32,
    /// `Processing`, `Succeeded`, `Error`, `Failed`, `Pending` or `Aborted`.
    pub state: String,
    /// `Create`, `Reconcile`, `Delete`, `Migrate` or `Restore`.
    #[serde(rename = "type")]
    pub type_: String,
}

/// What a Project should be.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "core.gardener.cloud",
    version = "v1beta1",
    kind = "Project",
    plural = "projects",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ProjectSpec {
    /// The namespace of the Project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}
