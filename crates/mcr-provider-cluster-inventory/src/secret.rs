//! The Secrets with kubeconfigs. No I/O.

use std::sync::Arc;

use mcr_core::{
    Object,
    hub::{Kubeconfig, SecretContent},
};

/// The label of a Secret with the name of the consumer that may use it. The Cluster Inventory API has deprecated these Secrets.
pub const CONSUMER_LABEL: &str = "x-k8s.io/cluster-inventory-consumer";
/// The label of a Secret with the name of its ClusterProfile.
pub const PROFILE_LABEL: &str = "x-k8s.io/cluster-profile";
/// The key of the kubeconfig in a Secret.
pub const KUBECONFIG_KEY: &str = "Config";

/// What the watch keeps of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecretFacts {
    /// The name of the ClusterProfile.
    pub(crate) profile: Option<Arc<str>>,
    /// An error is the reason why there is none.
    pub(crate) kubeconfig: Result<Arc<Kubeconfig>, Arc<str>>,
}

impl SecretFacts {
    pub(crate) fn read(object: &Object) -> Self {
        match object.decode() {
            Ok(secret) => Self::of(secret),
            Err(error) => Self {
                profile: None,
                kubeconfig: Err(error.to_string().into()),
            },
        }
    }

    pub(crate) fn of(mut secret: SecretContent) -> Self {
        let text = secret.take(KUBECONFIG_KEY);
        let labels = secret.metadata.labels.unwrap_or_default();
        Self {
            profile: labels.get(PROFILE_LABEL).map(|name| name.as_str().into()),
            kubeconfig: match text {
                Ok(text) => Ok(Arc::new(Kubeconfig::new(text, None))),
                Err(problem) => Err(problem.why.into()),
            },
        }
    }
}
