//! Kubeconfigs: those in Secrets, and how all of them are judged. No I/O.

use std::{collections::BTreeMap, fmt, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use mcr_core::{
    AccessPolicy, EndpointAccess, Fingerprint, KubeconfigAccess, Object, Trust,
    internal::{KubeconfigProblem, parse_announced},
};
use parking_lot::Mutex;
use serde::Deserialize;

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
    pub(crate) kubeconfig: Result<Arc<Text>, Arc<str>>,
}

/// The text of a kubeconfig until it is taken, because it takes more memory than all the rest.
pub(crate) struct Text {
    text: Mutex<Option<Vec<u8>>>,
    /// Tells kubeconfigs apart when their texts are gone.
    fingerprint: Fingerprint,
}

/// No Debug: it holds secrets.
#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

impl SecretFacts {
    pub(crate) fn read(object: &Object) -> Self {
        let secret: Secret = match object.decode() {
            Ok(secret) => secret,
            Err(error) => {
                return Self {
                    profile: None,
                    kubeconfig: Err(error.to_string().into()),
                };
            }
        };
        let data = secret.data.and_then(|mut data| data.remove(KUBECONFIG_KEY));
        let decoded = data
            .filter(|data| !data.is_empty())
            .map(|data| STANDARD.decode(data));
        Self {
            profile: secret
                .metadata
                .labels
                .and_then(|mut labels| labels.remove(PROFILE_LABEL))
                .map(Arc::from),
            kubeconfig: match decoded {
                Some(Ok(text)) => Ok(Arc::new(Text::new(text))),
                Some(Err(_)) => Err("the value is not base64, as the API server would have it".into()),
                None => Err("the key is missing or empty; put the kubeconfig there".into()),
            },
        }
    }
}

impl Text {
    pub(crate) fn new(text: Vec<u8>) -> Self {
        Self {
            fingerprint: Fingerprint::of(&text),
            text: Mutex::new(Some(text)),
        }
    }

    /// None if it was taken before.
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        self.text.lock().take()
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Eq for Text {}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fingerprint.fmt(f)
    }
}

/// How kubeconfigs are judged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checks {
    /// None if the policy of the fleet applies.
    pub(crate) policy: Option<AccessPolicy>,
    pub(crate) fleet_policy: AccessPolicy,
}

impl Checks {
    /// Parses a kubeconfig and judges it, which may take long.
    pub(crate) fn parse(&self, text: impl AsRef<[u8]>) -> Result<EndpointAccess, KubeconfigProblem> {
        let kubeconfig = KubeconfigAccess::new(text, Trust::Untrusted);
        parse_announced(&kubeconfig, self.policy.as_ref(), &self.fleet_policy)
    }
}
