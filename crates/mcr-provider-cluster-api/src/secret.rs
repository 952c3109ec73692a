//! The Secret with the kubeconfig of a Cluster. No I/O.

use std::{collections::HashMap, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use mcr_core::{
    AccessPolicy, EndpointAccess, KubeconfigAccess, Object, Trust,
    internal::{KubeconfigProblem, describe_json_error, parse_announced},
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::served::GROUP;

/// The label that a Secret needs, with the name of its Cluster. Cluster API and its providers set it. A Secret without it is
/// invisible to this provider, as it is to Cluster API itself.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";

/// The key of the kubeconfig in the Secret of a Cluster, in the contract of Cluster API.
pub const KUBECONFIG_KEY: &str = "value";

/// The end of the names of Secrets with a kubeconfig.
pub(crate) const SUFFIX: &str = "-kubeconfig";
/// More than an API server takes.
const LARGEST: usize = 1 << 20;

/// The name of a Secret in the namespace of a Cluster, and the key in it.
///
/// ```
/// use mcr_provider_cluster_api::{ClusterApiProvider, SecretKeyRef};
///
/// // The kubeconfig that Cluster API Provider AWS makes for people.
/// let builder = ClusterApiProvider::builder().kubeconfig_secret(|cluster| {
///     let name = cluster.metadata.name.as_deref().unwrap_or_default();
///     SecretKeyRef::new(format!("{name}-user-kubeconfig"), "value")
/// });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SecretKeyRef {
    /// The name of the Secret.
    pub name: String,
    /// The key of the kubeconfig in the Secret.
    pub key: String,
}

impl SecretKeyRef {
    /// A Secret and a key.
    pub fn new(name: impl Into<String>, key: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            key: key.into(),
        }
    }
}

/// What the metadata of a Secret say of its content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) uid: Option<Arc<str>>,
    pub(crate) version: Box<str>,
    /// The UID of the Cluster that owns the Secret. None if another object owns it, or none.
    pub(crate) owner: Option<Box<str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<HashMap<String, String>>,
    owner_references: Option<Vec<Owner>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Owner {
    api_version: String,
    kind: String,
    uid: String,
}

#[derive(Deserialize)]
struct MetadataOnly {
    #[serde(default)]
    metadata: Metadata,
}

/// No Debug: it holds secrets.
#[derive(Deserialize)]
struct Secret<'a> {
    #[serde(default)]
    metadata: Metadata,
    #[serde(borrow, default)]
    data: Option<HashMap<String, &'a RawValue>>,
}

impl Stamp {
    /// None if the metadata can't be read, which no API server sends.
    pub(crate) fn read(object: &Object) -> Option<Arc<Self>> {
        let object: MetadataOnly = object.decode().ok()?;
        Some(Arc::new(Self::of(object.metadata)))
    }

    fn of(metadata: Metadata) -> Self {
        let of_cluster = |owner: &Owner| {
            owner.kind == "Cluster"
                && owner
                    .api_version
                    .split_once('/')
                    .is_some_and(|(group, _)| group == GROUP)
        };
        let owner = metadata.owner_references.into_iter().flatten().find(of_cluster);
        Self {
            uid: metadata.uid.filter(|uid| !uid.is_empty()).map(Arc::from),
            version: metadata.resource_version.unwrap_or_default().into(),
            owner: owner.map(|owner| owner.uid.into()),
        }
    }

    /// Whether the Secret may be that of the Cluster with this UID.
    pub(crate) fn may_be_of(&self, uid: Option<&str>) -> bool {
        match (&self.owner, uid) {
            (Some(owner), Some(uid)) => **owner == *uid,
            _ => true,
        }
    }
}

/// How the kubeconfigs of a provider are judged.
#[derive(Debug, Clone)]
pub(crate) struct Checks {
    pub(crate) trust: Trust,
    /// None if the policy of the fleet applies.
    pub(crate) policy: Option<AccessPolicy>,
    pub(crate) fleet_policy: AccessPolicy,
}

/// A Secret that was read.
#[derive(Debug, Clone)]
pub(crate) struct ReadSecret {
    pub(crate) stamp: Stamp,
    /// Whether it has the label, without which it does not count.
    pub(crate) labelled: bool,
    pub(crate) content: Result<EndpointAccess, KubeconfigProblem>,
}

impl ReadSecret {
    /// Whether this may be the Secret of the Cluster with this UID.
    pub(crate) fn is_of(&self, uid: Option<&str>) -> bool {
        self.labelled && self.stamp.may_be_of(uid)
    }
}

impl Checks {
    /// Reads a Secret from its JSON. Blocks while the kubeconfig is parsed.
    ///
    /// # Errors
    /// If this is no Secret. The text has nothing of it.
    pub(crate) fn read(&self, body: &[u8], key: &str) -> Result<ReadSecret, String> {
        let secret: Secret<'_> = serde_json::from_slice(body)
            .map_err(|error| format!("the hub's answer is no Secret: {}", describe_json_error(&error)))?;
        let value = secret.data.as_ref().and_then(|data| data.get(key)).copied();
        Ok(ReadSecret {
            labelled: secret
                .metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels.contains_key(CLUSTER_NAME_LABEL)),
            content: self.kubeconfig(value, key),
            stamp: Stamp::of(secret.metadata),
        })
    }

    fn kubeconfig(&self, value: Option<&RawValue>, key: &str) -> Result<EndpointAccess, KubeconfigProblem> {
        let missing = || {
            KubeconfigProblem::new(format!(
                "the Secret has no key {key:?}; put the kubeconfig under it"
            ))
        };
        let encoded: String = value
            .and_then(|value| serde_json::from_str(value.get()).ok())
            .ok_or_else(missing)?;
        let yaml = STANDARD.decode(&encoded).map_err(|_| {
            KubeconfigProblem::new("the value is not base64, as the API server would have it")
        })?;
        drop(encoded);
        if yaml.is_empty() {
            return Err(KubeconfigProblem::new(format!(
                "the Secret's key {key:?} is empty; put the kubeconfig there"
            )));
        }
        if yaml.len() > LARGEST {
            return Err(KubeconfigProblem::new(format!(
                "the kubeconfig has {} bytes, more than 1 MiB; make it smaller",
                yaml.len()
            )));
        }
        let kubeconfig = KubeconfigAccess::new(&yaml, self.trust);
        parse_announced(&kubeconfig, self.policy.as_ref(), &self.fleet_policy)
    }
}
