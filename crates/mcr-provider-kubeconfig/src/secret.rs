//! What a Secret says of a cluster. No I/O.

use std::{collections::BTreeMap, fmt, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::core::ApiResource;
use mcr_core::{
    AccessPolicy, ClusterName, ClusterSpec, EndpointAccess, Fingerprint, InvalidClusterName,
    KubeconfigAccess, Object, ObjectKey, Trust, internal::parse_announced,
};
use parking_lot::Mutex;
use serde::Deserialize;

/// The annotation on a Secret that chooses a context of its kubeconfig. Without it the current context is used.
pub const CONTEXT_ANNOTATION: &str = "mcr.dev/context";

/// The prefix of annotations on a Secret that become properties of its cluster: `property.mcr.dev/region: eu` is the
/// property `region`.
pub const PROPERTY_ANNOTATION_PREFIX: &str = "property.mcr.dev/";

/// The property that names the Secret a cluster was found in.
const SECRET: &str = "secret";
/// The property that names the context that was chosen.
const CONTEXT: &str = "context";

/// The kind, without a type of its own.
pub(crate) fn secrets() -> ApiResource {
    ApiResource {
        group: String::new(),
        version: "v1".into(),
        api_version: "v1".into(),
        kind: "Secret".into(),
        plural: "secrets".into(),
    }
}

/// What is read of a Secret. No Debug: it holds secrets.
#[derive(Default, Deserialize)]
pub(crate) struct Secret {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    uid: Option<String>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

/// What counts of a Secret, and what it may say.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// The label that all of them have, and that therefore says nothing.
    pub(crate) label: String,
    pub(crate) key: String,
    /// Whether names have the namespace in them.
    pub(crate) qualified: bool,
    pub(crate) trust: Trust,
    /// `None` if the policy of the fleet applies.
    pub(crate) policy: Option<AccessPolicy>,
    pub(crate) fleet_policy: AccessPolicy,
}

/// What the provider keeps of a Secret. Clones share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecretFacts {
    /// Empty if the Secret can't be read.
    pub(crate) uid: Arc<str>,
    pub(crate) described: Result<Arc<Described>, Problem>,
}

/// A cluster as its Secret describes it.
pub(crate) struct Described {
    /// The kubeconfig until it is taken, because the text takes more memory than all the rest.
    text: Mutex<Option<Vec<u8>>>,
    /// Tells kubeconfigs apart when their texts are gone.
    fingerprint: Fingerprint,
    context: Option<Arc<str>>,
    labels: BTreeMap<String, String>,
    properties: BTreeMap<String, String>,
}

/// Why a Secret describes no cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// For logs and the fleet's state.
    pub(crate) text: Arc<str>,
    /// For an event, which more people may read than the Secret: nothing that stands in the kubeconfig.
    pub(crate) public: Arc<str>,
    /// Whether there is nothing at all where the kubeconfig should be, which ends the cluster.
    pub(crate) nothing: bool,
}

impl Rules {
    pub(crate) fn name(&self, key: &ObjectKey) -> Result<ClusterName, InvalidClusterName> {
        match &key.namespace {
            Some(namespace) if self.qualified => ClusterName::new(format!("{namespace}/{}", key.name)),
            _ => ClusterName::new(&key.name),
        }
    }

    /// What is to be shown as the object at fault.
    pub(crate) fn object(&self, key: &ObjectKey) -> String {
        format!("Secret {key}, key {:?}", self.key)
    }

    /// Takes out the facts that count. The kubeconfig is not parsed yet.
    pub(crate) fn read(&self, object: &Object) -> SecretFacts {
        match object.decode::<Secret>() {
            Ok(secret) => self.facts(object.key(), secret),
            Err(error) => SecretFacts {
                uid: Arc::default(),
                described: Err(Problem::unusable(error.to_string())),
            },
        }
    }

    pub(crate) fn facts(&self, key: &ObjectKey, mut secret: Secret) -> SecretFacts {
        SecretFacts {
            uid: secret.metadata.uid.take().unwrap_or_default().into(),
            described: self.describe(key, secret).map(Arc::new),
        }
    }

    fn describe(&self, key: &ObjectKey, mut secret: Secret) -> Result<Described, Problem> {
        let encoded = secret.data.as_mut().and_then(|data| data.remove(&self.key));
        let Some(encoded) = encoded else {
            return Err(Problem::nothing(format!(
                "the Secret has no key {:?}; put the kubeconfig under it",
                self.key
            )));
        };
        let Ok(yaml) = STANDARD.decode(&encoded) else {
            return Err(Problem::unusable(
                "the value is not base64, as the API server would have it",
            ));
        };
        if yaml.is_empty() {
            return Err(Problem::nothing(format!(
                "the Secret's key {:?} is empty; put the kubeconfig there, or remove the label",
                self.key
            )));
        }
        let mut context = None;
        let mut properties = BTreeMap::new();
        for (name, value) in secret.metadata.annotations.into_iter().flatten() {
            if name == CONTEXT_ANNOTATION {
                // Empty is none, as `kubectl annotate mcr.dev/context=` leaves it.
                context = Some(value.trim())
                    .filter(|value| !value.is_empty())
                    .map(Arc::from);
            } else if let Some(property) = name.strip_prefix(PROPERTY_ANNOTATION_PREFIX) {
                properties.insert(property.to_owned(), value);
            }
        }
        properties.remove(CONTEXT);
        if let Some(context) = &context {
            properties.insert(CONTEXT.into(), String::from(&**context));
        }
        properties.insert(SECRET.into(), key.to_string());
        let mut labels = secret.metadata.labels.unwrap_or_default();
        labels.remove(&self.label);
        Ok(Described {
            fingerprint: Fingerprint::of(&yaml),
            text: Mutex::new(Some(yaml)),
            context,
            labels,
            properties,
        })
    }

    /// Parses the kubeconfig of a Secret, and judges it. None if its text was taken before.
    pub(crate) fn parse(&self, described: &Described) -> Option<Result<EndpointAccess, Problem>> {
        let mut access = KubeconfigAccess::new(described.take_text()?, self.trust);
        access.context.clone_from(&described.context);
        let parsed = parse_announced(&access, self.policy.as_ref(), &self.fleet_policy);
        Some(parsed.map_err(|problem| Problem {
            text: problem.text,
            public: problem.public,
            nothing: false,
        }))
    }
}

impl Described {
    /// None if it was taken before.
    pub(crate) fn take_text(&self) -> Option<Vec<u8>> {
        self.text.lock().take()
    }

    pub(crate) fn spec(&self, name: ClusterName, access: EndpointAccess) -> ClusterSpec {
        let mut spec = ClusterSpec::new(name, access.into());
        spec.labels.clone_from(&self.labels);
        spec.properties.clone_from(&self.properties);
        spec
    }
}

impl Problem {
    pub(crate) fn unusable(text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        Self {
            public: text.clone(),
            text,
            nothing: false,
        }
    }

    fn nothing(text: impl Into<Arc<str>>) -> Self {
        Self {
            nothing: true,
            ..Self::unusable(text)
        }
    }
}

impl PartialEq for Described {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
            && self.context == other.context
            && self.labels == other.labels
            && self.properties == other.properties
    }
}

impl Eq for Described {}

// Holds credentials, so none of its content is shown.
impl fmt::Debug for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Described")
            .field("context", &self.context)
            .field("labels", &self.labels)
            .field("properties", &self.properties)
            .finish_non_exhaustive()
    }
}
