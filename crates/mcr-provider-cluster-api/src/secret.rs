//! The Secret with the kubeconfig of a Cluster. No I/O.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mcr_core::{
    EndpointAccess, Object,
    hub::{Judge, KubeconfigProblem, SecretContent, describe_json_error},
};

/// The API group of Cluster API.
pub(crate) const GROUP: &str = "cluster.x-k8s.io";

/// The label that a Secret needs, with the name of its Cluster. Cluster API and its providers set it. A Secret without it is
/// invisible to this provider, as it is to Cluster API itself.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";

/// The key of the kubeconfig in the Secret of a Cluster, in the contract of Cluster API.
pub const KUBECONFIG_KEY: &str = "value";

/// The end of the names of Secrets with a kubeconfig.
pub(crate) const SUFFIX: &str = "-kubeconfig";

/// The metadata of a Secret that show when its content changes, and whose it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) uid: Arc<str>,
    version: Box<str>,
    /// The UID of the Cluster that owns the Secret. None if another object owns it, or none.
    owner: Option<Box<str>>,
}

impl Stamp {
    /// None if the metadata can't be read, which no API server sends.
    pub(crate) fn read(object: &Object) -> Option<Arc<Self>> {
        let object: SecretContent = object.decode().ok()?;
        Some(Arc::new(Self::of(&object.metadata)))
    }

    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        let mut owners = metadata.owner_references.iter().flatten();
        let owner = owners.find(|owner| {
            let group = owner.api_version.split_once('/').map(|(group, _)| group);
            owner.kind == "Cluster" && group == Some(GROUP)
        });
        Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            version: metadata.resource_version.as_deref().unwrap_or_default().into(),
            owner: owner.map(|owner| owner.uid.as_str().into()),
        }
    }

    /// Whether the Secret may be that of the Cluster with this UID.
    pub(crate) fn may_be_of(&self, uid: Option<&Arc<str>>) -> bool {
        match (&self.owner, uid) {
            (Some(owner), Some(uid)) => **owner == **uid,
            _ => true,
        }
    }
}

/// A Secret that was read.
#[derive(Debug)]
pub(crate) struct ReadSecret {
    pub(crate) stamp: Stamp,
    /// Whether it has the label, without which it does not count.
    pub(crate) labelled: bool,
    pub(crate) content: Result<EndpointAccess, KubeconfigProblem>,
}

impl ReadSecret {
    /// Reads a Secret from its JSON. Blocks while the kubeconfig is parsed.
    ///
    /// # Errors
    /// If this is no Secret. The text has nothing of it.
    pub(crate) fn parse(body: &[u8], key: &str, judge: &Judge) -> Result<Self, String> {
        let mut secret: SecretContent = serde_json::from_slice(body)
            .map_err(|error| format!("the hub's answer is no Secret: {}", describe_json_error(&error)))?;
        let content = match secret.take(key) {
            Ok(text) => judge.parse(text, None),
            Err(problem) => Err(KubeconfigProblem::new(problem.why)),
        };
        let mut labels = secret.metadata.labels.iter().flatten();
        Ok(Self {
            labelled: labels.any(|(name, _)| name == CLUSTER_NAME_LABEL),
            stamp: Stamp::of(&secret.metadata),
            content,
        })
    }
}
