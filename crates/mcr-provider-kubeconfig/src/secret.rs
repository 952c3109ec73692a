//! The facts of a Secret. No I/O.

use std::sync::Arc;

use kube::core::ApiResource;
use mcr_core::{
    Object, ObjectKey,
    hub::{Decoded, Described, Description, Kubeconfig, NoKubeconfig, SecretContent, decoded, pairs},
};

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

/// What counts of a Secret.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// The label that all of them have, and that is therefore left out.
    pub(crate) label: String,
    pub(crate) key: String,
}

/// What the provider keeps of a Secret.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SecretFacts {
    pub(crate) uid: Arc<str>,
    /// Without the UID of the Secret: a new Secret can describe the same cluster.
    description: Description,
    pub(crate) kubeconfig: Result<Kubeconfig, NoKubeconfig>,
}

impl Described for SecretFacts {
    fn description(&self) -> &Description {
        &self.description
    }
}

impl Rules {
    /// Takes out the facts that count. The kubeconfig is not parsed yet.
    pub(crate) fn read(&self, object: &Object) -> Option<Decoded<SecretFacts>> {
        decoded(object, |secret| Some(self.facts(object.key(), secret)))
    }

    pub(crate) fn facts(&self, key: &ObjectKey, mut secret: SecretContent) -> SecretFacts {
        let text = secret.take(&self.key);
        let metadata = secret.metadata;
        let annotations = metadata.annotations.unwrap_or_default();
        // Empty is none, as `kubectl annotate mcr.dev/context=` leaves it.
        let context = annotations.get(CONTEXT_ANNOTATION).map(|context| context.trim());
        let context = context.filter(|context| !context.is_empty());
        let secret = key.to_string();
        let own = [(CONTEXT, context), (SECRET, Some(&*secret))];
        let own = own.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let properties = annotations.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix(PROPERTY_ANNOTATION_PREFIX)?;
            Some((name, &**value)).filter(|_| ![CONTEXT, SECRET].contains(&name))
        });
        let labels = metadata
            .labels
            .iter()
            .flatten()
            .filter(|(name, _)| **name != self.label);
        SecretFacts {
            uid: metadata.uid.unwrap_or_default().into(),
            description: Description {
                uid: None,
                labels: pairs(labels),
                properties: pairs(properties.chain(own)),
            },
            kubeconfig: text.map(|text| Kubeconfig::new(text, context.map(Arc::from))),
        }
    }
}
