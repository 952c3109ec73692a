//! Kubeconfigs of a hub, and the Secrets that hold them. No I/O.

use std::{collections::HashMap, fmt, sync::Arc};

use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use mcr_access::{
    AccessPolicy, EndpointAccess, Fingerprint, KubeconfigAccess, Trust,
    internal::{KubeconfigProblem, parse_announced},
};

/// More than an API server takes.
const LARGEST: usize = 1 << 20;

/// How a provider judges the kubeconfigs of its hub.
#[derive(Debug, Clone)]
pub struct Judge {
    /// How far they are trusted.
    pub trust: Trust,
    /// The policy of the provider. None if that of the fleet applies.
    pub policy: Option<AccessPolicy>,
    /// The policy of the fleet.
    pub fleet_policy: AccessPolicy,
}

impl Judge {
    /// Parses a kubeconfig and judges it. Blocks, and may take long.
    ///
    /// # Errors
    /// The first problem. Its text holds no secret, and its public text nothing of the kubeconfig.
    pub fn parse(
        &self,
        text: impl AsRef<[u8]>,
        context: Option<&Arc<str>>,
    ) -> Result<EndpointAccess, KubeconfigProblem> {
        let mut kubeconfig = KubeconfigAccess::new(text, self.trust);
        kubeconfig.context = context.cloned();
        parse_announced(&kubeconfig, self.policy.as_ref(), &self.fleet_policy)
    }
}

/// A kubeconfig, which is parsed once. Its text, which takes more memory than all the rest, is gone then.
pub struct Kubeconfig {
    /// Distinguishes kubeconfigs when their texts are gone.
    fingerprint: Fingerprint,
    content: Mutex<Content>,
}

enum Content {
    Text(Vec<u8>, Option<Arc<str>>),
    Parsed(Result<EndpointAccess, KubeconfigProblem>),
}

impl Kubeconfig {
    /// The kubeconfig of this text. None as its context: the current one.
    pub fn new(text: Vec<u8>, context: Option<Arc<str>>) -> Self {
        Self {
            fingerprint: Fingerprint::of(&(&text, &context)),
            content: Mutex::new(Content::Text(text, context)),
        }
    }

    /// The text, until it is parsed. It holds secrets.
    pub fn text(&self) -> Option<Vec<u8>> {
        match &*self.content.lock() {
            Content::Text(text, _) => Some(text.clone()),
            Content::Parsed(_) => None,
        }
    }

    /// Parses the kubeconfig at the first call, and judges it. Blocks then, and may take long.
    ///
    /// # Errors
    /// As [`Judge::parse`].
    pub fn parse(&self, judge: &Judge) -> Result<EndpointAccess, KubeconfigProblem> {
        let mut content = self.content.lock();
        let parsed = match &*content {
            Content::Parsed(parsed) => return parsed.clone(),
            Content::Text(text, context) => judge.parse(text, context.as_ref()),
        };
        *content = Content::Parsed(parsed.clone());
        parsed
    }
}

impl PartialEq for Kubeconfig {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Eq for Kubeconfig {}

// Holds credentials, so none of its content is shown.
impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kubeconfig(..)")
    }
}

/// A Secret, as far as providers need it. Values that no one takes are not decoded. No `Debug`, because it holds secrets.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct SecretContent {
    /// The metadata.
    pub metadata: ObjectMeta,
    data: Option<HashMap<String, Value>>,
}

/// Why there is no kubeconfig in a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoKubeconfig {
    /// What is wrong, and what to do about it. It holds nothing of the Secret.
    pub why: String,
    /// Whether there is nothing at all where the kubeconfig should be.
    pub is_absent: bool,
}

impl SecretContent {
    /// Takes the value of this key, as the text of a kubeconfig.
    ///
    /// # Errors
    /// [`NoKubeconfig`] if the key is missing, empty or too large, or not encoded as an API server would have it.
    pub fn take(&mut self, key: &str) -> Result<Vec<u8>, NoKubeconfig> {
        let no = |is_absent, why: String| Err(NoKubeconfig { why, is_absent });
        let value = self.data.as_mut().and_then(|data| data.remove(key));
        let Some(value) = value.filter(|value| !value.is_null()) else {
            return no(
                true,
                format!("the Secret has no key {key:?}; put the kubeconfig under it"),
            );
        };
        let Ok(ByteString(text)) = serde_json::from_value(value) else {
            let why = "the value is not base64, as the API server would have it";
            return no(false, why.into());
        };
        match text.len() {
            0 => no(
                true,
                format!("the Secret's key {key:?} is empty; put the kubeconfig there"),
            ),
            1..=LARGEST => Ok(text),
            bytes => no(
                false,
                format!("the kubeconfig has {bytes} bytes, more than 1 MiB; make it smaller"),
            ),
        }
    }
}
