use std::{fmt, sync::Arc, time::Duration};

use kube::Client;
use mcr_core::{AccessPolicy, Trust, WatchRequest, WatchSettings};

use crate::{
    config::Config,
    error::KubeconfigError,
    provider::KubeconfigProvider,
    secret::{Rules, secrets},
};

/// The provider reports a hub that refuses the list of Secrets for this long.
const BLOCKED_FOR: Duration = Duration::from_secs(10);

/// The default label of Secrets that describe clusters, with the value `true`. See
/// [`label`](KubeconfigProviderBuilder::label).
pub const SECRET_LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

/// The default key of the kubeconfig in a Secret. See [`key`](KubeconfigProviderBuilder::key).
pub const SECRET_KEY: &str = "kubeconfig";

/// Builds a [`KubeconfigProvider`]. [`KubeconfigProvider::builder`] creates it.
#[derive(Clone)]
pub struct KubeconfigProviderBuilder {
    name: Arc<str>,
    client: Option<Client>,
    namespace: Namespaces,
    label: (String, String),
    key: String,
    trust: Trust,
    policy: Option<AccessPolicy>,
    events: bool,
    watch: Option<Arc<WatchSettings>>,
    blocked_for: Duration,
}

#[derive(Debug, Clone)]
enum Namespaces {
    Default,
    One(String),
    All,
}

impl KubeconfigProvider {
    /// A builder. [`client`](KubeconfigProviderBuilder::client) is required; all other options have defaults.
    pub fn builder() -> KubeconfigProviderBuilder {
        KubeconfigProviderBuilder::new()
    }
}

impl KubeconfigProviderBuilder {
    fn new() -> Self {
        Self {
            name: "kubeconfig".into(),
            client: None,
            namespace: Namespaces::Default,
            label: (SECRET_LABEL.into(), "true".into()),
            key: SECRET_KEY.into(),
            trust: Trust::Untrusted,
            policy: None,
            events: true,
            watch: None,
            blocked_for: BLOCKED_FOR,
        }
    }

    /// Sets the provider's name. Default: `kubeconfig`.
    #[must_use]
    pub fn provider_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the client of the hub, the cluster with the Secrets.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Sets the namespace of the Secrets. Default: the default namespace of the client; in a pod, the namespace of the pod.
    /// A cluster has the name of its Secret.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Namespaces::One(namespace.into());
        self
    }

    /// Uses the Secrets of all namespaces instead of one. The name of a cluster is `<namespace>/<secret>`.
    ///
    /// The client then needs a ClusterRole to list the Secrets of the whole hub, and everybody who may write Secrets in any
    /// namespace can add clusters.
    #[must_use]
    pub fn all_namespaces(mut self) -> Self {
        self.namespace = Namespaces::All;
        self
    }

    /// Sets the label of Secrets that describe clusters. Default: [`SECRET_LABEL`], with the value `true`. The API server
    /// applies the selector and sends no other Secrets.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.label = (key.into(), value.into());
        self
    }

    /// Sets the key of the kubeconfig in a Secret. Default: [`SECRET_KEY`]. Cluster API uses `value`.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }

    /// Sets what the kubeconfigs of this provider may use. Default: the policy of the fleet, `FleetSettings::access_policy`.
    ///
    /// The provider announces a kubeconfig that the policy forbids as broken, and reports it on the Secret. The fleet always
    /// checks its own policy before it connects, so this option can forbid more than the fleet does, but never allow more.
    #[must_use]
    pub fn access_policy(mut self, policy: AccessPolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Trusts the kubeconfigs as if they were files on the command line.
    ///
    /// # Security
    /// The kubeconfigs may then **run any program** with the rights of this process, **read any file** that it can read and
    /// send it to any server, turn off the verification of TLS, and connect to any address, such as the metadata service of a
    /// cloud. So can everybody who may write a Secret in the namespace. An [`access_policy`](Self::access_policy) that allows
    /// only the plugin or folder that you need is nearly always the better choice. The policy has no effect on trusted
    /// kubeconfigs.
    #[must_use]
    pub fn trusted(mut self) -> Self {
        self.trust = Trust::Trusted;
        self
    }

    /// Sets whether to write Kubernetes events on Secrets with problems. Default: yes.
    #[must_use]
    pub fn events(mut self, on: bool) -> Self {
        self.events = on;
        self
    }

    /// Times that tests shorten: those of the watch of the hub, and how long the hub has to forbid it before it is told that
    /// this will not end by itself. Not part of the API.
    #[doc(hidden)]
    #[must_use]
    pub fn times(mut self, watch: impl Into<Arc<WatchSettings>>, blocked_for: Duration) -> Self {
        (self.watch, self.blocked_for) = (Some(watch.into()), blocked_for);
        self
    }

    /// Builds the provider. Opens no connection yet.
    ///
    /// # Errors
    /// [`KubeconfigError`] if there is no client, or if the namespace, label or key is invalid.
    pub fn build(self) -> Result<KubeconfigProvider, KubeconfigError> {
        let client = self.client.ok_or(KubeconfigError::NoHub)?;
        let namespace = match self.namespace {
            Namespaces::Default => Some(client.default_namespace().to_owned()),
            Namespaces::One(namespace) => Some(namespace),
            Namespaces::All => None,
        };
        if let Some(namespace) = namespace.as_ref().filter(|namespace| !is_dns_label(namespace)) {
            return Err(KubeconfigError::Namespace(namespace.clone()));
        }
        let (key, value) = self.label;
        if !is_label_name(&key) || !(value.is_empty() || is_label_part(&value)) {
            return Err(KubeconfigError::Label { key, value });
        }
        if !is_secret_key(&self.key) {
            return Err(KubeconfigError::Key(self.key));
        }
        let mut request = WatchRequest::resource(&secrets()).labels(format!("{key}={value}"));
        if let Some(namespace) = &namespace {
            request = request.namespace(namespace.clone());
        }
        Ok(KubeconfigProvider {
            name: self.name,
            config: Arc::new(Config {
                client,
                namespace: namespace.clone(),
                request,
                rules: Arc::new(Rules {
                    label: key,
                    key: self.key,
                    qualified: namespace.is_none(),
                    trust: self.trust,
                    policy: self.policy,
                    fleet_policy: AccessPolicy::default(),
                }),
                events: self.events,
                ledger: Arc::default(),
                watch: self.watch,
                blocked_for: self.blocked_for,
            }),
        })
    }
}

fn is_word(text: &str, more: &[u8]) -> bool {
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || more.contains(byte);
    end(bytes.first()) && end(bytes.last()) && bytes.iter().all(inside)
}

fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_word(text, b"-") && !text.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_label_part(text: &str) -> bool {
    text.len() <= 63 && is_word(text, b"-_.")
}

fn is_label_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => {
            domain.len() <= 253 && domain.split('.').all(is_dns_label) && is_label_part(name)
        }
        None => is_label_part(text),
    }
}

fn is_secret_key(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.len() <= 253 && !matches!(text, "." | "..") && text.bytes().all(fits)
}

impl fmt::Debug for KubeconfigProviderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeconfigProviderBuilder")
            .field("name", &self.name)
            .field("namespace", &self.namespace)
            .field("label", &self.label)
            .field("key", &self.key)
            .field("trust", &self.trust)
            .field("access_policy", &self.policy)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use mcr_core::Provider;
    use mcr_testkit::sim::SimCluster;

    use super::*;

    fn builder() -> KubeconfigProviderBuilder {
        KubeconfigProvider::builder().client(SimCluster::new().client())
    }

    #[tokio::test]
    async fn bad_options_are_refused_with_what_to_do() {
        let error = |builder: KubeconfigProviderBuilder| builder.build().unwrap_err().to_string();
        assert_eq!(
            error(KubeconfigProvider::builder()),
            "there is no hub; give the client of the cluster that has the Secrets with `client`"
        );
        assert_eq!(
            error(builder().namespace("Fleet")),
            "\"Fleet\" can't be the name of a namespace, which has at most 63 lower-case letters, digits and hyphens; \
             correct it, or leave `namespace` out to take the client's default namespace"
        );
        // What would widen the selection.
        for (key, value) in [
            ("", "true"),
            ("a,b", ""),
            ("a", "true,b!=c"),
            ("a b", "c"),
            ("/a", "b"),
            ("a/", "b"),
            ("a", "-"),
            ("a//b", "c"),
        ] {
            assert!(
                matches!(
                    builder().label(key, value).build(),
                    Err(KubeconfigError::Label { .. })
                ),
                "{key}={value}"
            );
        }
        assert!(error(builder().label("a", "b c")).ends_with("and so has the value; give `label` another"));
        for key in ["", "..", "a/b", "a b"] {
            assert_eq!(
                builder().key(key).build().unwrap_err(),
                KubeconfigError::Key(key.into())
            );
        }
        for namespace in ["", "a.b", "a/b", "-a", "?"] {
            assert!(matches!(
                builder().namespace(namespace).build(),
                Err(KubeconfigError::Namespace(_))
            ));
        }
        assert!(
            builder()
                .label("fleet.example.com/member", "")
                .key("value")
                .build()
                .is_ok()
        );
    }

    #[tokio::test]
    async fn what_is_asked_for_is_one_selection() {
        let asked = |builder: KubeconfigProviderBuilder| builder.build().unwrap().config.request.to_string();
        assert_eq!(
            asked(builder()),
            "secrets in namespace default with labels sigs.k8s.io/multicluster-runtime-kubeconfig=true"
        );
        assert_eq!(
            asked(builder().all_namespaces().label("a", "b")),
            "secrets with labels a=b"
        );
        let provider = builder().namespace("fleet").build().unwrap();
        assert_eq!(provider.name(), "kubeconfig");
        let searched = builder()
            .namespace("fleet")
            .label("a", "b")
            .key("value")
            .build()
            .unwrap()
            .searched();
        assert!(
            searched.starts_with("secrets in namespace fleet with labels a=b of the hub, each with a kubeconfig under the key value."),
            "{searched}"
        );
        assert!(searched.contains("may list and watch Secrets"), "{searched}");
        let shown = format!("{provider:?} {:?}", builder());
        assert!(
            shown.contains("namespace fleet") && shown.contains("Untrusted"),
            "{shown}"
        );
    }
}
