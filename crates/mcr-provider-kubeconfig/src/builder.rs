use std::{sync::Arc, time::Duration};

use kube::Client;
use mcr_core::{
    AccessPolicy, Trust, WatchSettings,
    hub::{HubOptions, Namespaces},
};

use crate::{config::Config, error::KubeconfigError, provider::KubeconfigProvider, secret::Rules};

/// The default label of Secrets that describe clusters, with the value `true`. See
/// [`label`](KubeconfigProviderBuilder::label).
pub const SECRET_LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

/// The default key of the kubeconfig in a Secret. See [`key`](KubeconfigProviderBuilder::key).
pub const SECRET_KEY: &str = "kubeconfig";

/// Builds a [`KubeconfigProvider`]. [`KubeconfigProvider::builder`] creates it.
#[must_use]
#[derive(Debug, Clone)]
pub struct KubeconfigProviderBuilder {
    hub: HubOptions,
    label: (String, String),
    key: String,
}

impl KubeconfigProvider {
    /// A builder. [`client`](KubeconfigProviderBuilder::client) is required; all other options have defaults.
    pub fn builder() -> KubeconfigProviderBuilder {
        KubeconfigProviderBuilder {
            hub: HubOptions::new("kubeconfig"),
            label: (SECRET_LABEL.into(), "true".into()),
            key: SECRET_KEY.into(),
        }
    }
}

impl KubeconfigProviderBuilder {
    /// Sets the provider's name. Default: `kubeconfig`.
    pub fn provider_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.hub.name = name.into();
        self
    }

    /// Sets the client of the hub, the cluster with the Secrets.
    pub fn client(mut self, client: Client) -> Self {
        self.hub.client = Some(client);
        self
    }

    /// Sets the namespace of the Secrets. Default: the default namespace of the client; in a pod, the namespace of the pod.
    /// A cluster has the name of its Secret.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.hub.namespaces = Namespaces::One(namespace.into());
        self
    }

    /// Uses the Secrets of all namespaces instead of one. The name of a cluster is `<namespace>/<secret>`.
    ///
    /// The client then needs a ClusterRole to list the Secrets of the whole hub, and everybody who may write Secrets in any
    /// namespace can add clusters.
    pub fn all_namespaces(mut self) -> Self {
        self.hub.namespaces = Namespaces::All;
        self
    }

    /// Sets the label of Secrets that describe clusters. Default: [`SECRET_LABEL`], with the value `true`. The API server
    /// applies the selector and sends no other Secrets.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.label = (key.into(), value.into());
        self
    }

    /// Sets the key of the kubeconfig in a Secret. Default: [`SECRET_KEY`]. Cluster API uses `value`.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }

    /// Sets what the kubeconfigs of this provider may use. Default: the policy of the fleet, `FleetSettings::access_policy`.
    ///
    /// The provider announces a kubeconfig that the policy forbids as broken, and reports it on the Secret. The fleet always
    /// checks its own policy before it connects, so this option can forbid more than the fleet does, but never allow more.
    pub fn access_policy(mut self, policy: AccessPolicy) -> Self {
        self.hub.access_policy = Some(policy);
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
    pub fn trusted(mut self) -> Self {
        self.hub.trust = Trust::Trusted;
        self
    }

    /// Sets whether to write Kubernetes events on Secrets with problems. Default: yes.
    pub fn events(mut self, on: bool) -> Self {
        self.hub.events = on;
        self
    }

    /// Times that tests shorten: those of the watch of the hub, and how long the hub has to forbid it before this is logged as
    /// something that will not end by itself. Not part of the API.
    #[doc(hidden)]
    pub fn times(mut self, watch: impl Into<Arc<WatchSettings>>, blocked_for: Duration) -> Self {
        self.hub.times.watch = Some(watch.into());
        self.hub.times.blocked_for = blocked_for;
        self
    }

    /// Builds the provider. Opens no connection yet.
    ///
    /// # Errors
    /// [`KubeconfigError`] if there is no client, or if the namespace, label or key is invalid.
    pub fn build(mut self) -> Result<KubeconfigProvider, KubeconfigError> {
        let (label, value) = self.label;
        if !is_label_name(&label) || !(value.is_empty() || is_label_part(&value)) {
            return Err(KubeconfigError::Label { key: label, value });
        }
        if !is_secret_key(&self.key) {
            return Err(KubeconfigError::Key(self.key));
        }
        self.hub.labels = Some(format!("{label}={value}"));
        Ok(KubeconfigProvider(Arc::new(Config {
            hub: self.hub.check()?,
            rules: Rules { label, key: self.key },
            memory: Arc::default(),
        })))
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

#[cfg(test)]
mod tests;
