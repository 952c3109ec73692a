use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The credentials of a user in a kubeconfig.
#[derive(Clone)]
#[non_exhaustive]
pub enum Credentials {
    /// A client certificate and its key, PEM.
    ClientCertificate {
        /// The certificate.
        certificate: String,
        /// Its private key.
        key: String,
    },
    /// A bearer token.
    Token(String),
    /// A command that prints credentials (`client.authentication.k8s.io/v1`).
    Exec {
        /// The command.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Environment variables to add.
        env: Vec<(String, String)>,
    },
    /// No credentials: the API server treats the user as `system:anonymous`.
    Anonymous,
}

/// Does not show the secret, so that a failing test may print a struct with credentials.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientCertificate { .. } => f.write_str("ClientCertificate(..)"),
            Self::Token(_) => f.write_str("Token(..)"),
            Self::Exec { command, .. } => f
                .debug_struct("Exec")
                .field("command", command)
                .finish_non_exhaustive(),
            Self::Anonymous => f.write_str("Anonymous"),
        }
    }
}

impl Credentials {
    fn to_json(&self) -> Value {
        match self {
            Self::ClientCertificate { certificate, key } => json!({
                "client-certificate-data": STANDARD.encode(certificate),
                "client-key-data": STANDARD.encode(key),
            }),
            Self::Token(token) => json!({ "token": token }),
            Self::Exec { command, args, env } => {
                let env: Vec<Value> = env
                    .iter()
                    .map(|(name, value)| json!({ "name": name, "value": value }))
                    .collect();
                json!({ "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "interactiveMode": "Never",
                    "command": command,
                    "args": args,
                    "env": env,
                } })
            }
            Self::Anonymous => json!({}),
        }
    }
}

/// Builds a kubeconfig with any number of contexts and inline data.
#[derive(Clone, Default)]
pub struct KubeconfigBuilder {
    /// The name of each context, with its cluster, its user and the context itself.
    contexts: Vec<(String, [Value; 3])>,
    current: Option<String>,
}

/// Does not show the credentials.
impl fmt::Debug for KubeconfigBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.contexts.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

impl KubeconfigBuilder {
    /// A kubeconfig without contexts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a context, with a cluster and a user of the same name. Replaces a context of the same
    /// name.
    #[must_use]
    pub fn context(
        mut self,
        name: impl Into<String>,
        server: impl Into<String>,
        ca_pem: impl Into<String>,
        credentials: Credentials,
    ) -> Self {
        let (name, ca_pem) = (name.into(), ca_pem.into());
        let mut cluster = json!({ "server": server.into() });
        if !ca_pem.is_empty() {
            cluster["certificate-authority-data"] = STANDARD.encode(ca_pem).into();
        }
        let context = json!({ "cluster": name, "user": name });
        self.contexts.retain(|(known, _)| *known != name);
        self.contexts
            .push((name, [cluster, credentials.to_json(), context]));
        self
    }

    /// Sets the current context. Default: the first context.
    #[must_use]
    pub fn current(mut self, name: impl Into<String>) -> Self {
        self.current = Some(name.into());
        self
    }

    /// The kubeconfig as YAML.
    pub fn to_yaml(&self) -> String {
        let named = |index: usize, word: &str| -> Vec<Value> {
            let all = self.contexts.iter();
            all.map(|(name, parts)| json!({ "name": name, word: parts[index] }))
                .collect()
        };
        let first = self.contexts.first().map(|(name, _)| name);
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": named(0, "cluster"),
            "users": named(1, "user"),
            "contexts": named(2, "context"),
            "current-context": self.current.as_ref().or(first).map_or("", |name| name),
        });
        // Certificates on one line, as kubectl writes them.
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
        // If the YAML writer fails, writes JSON, which is valid YAML.
        serde_saphyr::to_string_with_options(&config, options).unwrap_or_else(|_| config.to_string())
    }
}

/// A client for a kubeconfig's current context.
pub(super) async fn client(yaml: &str) -> Result<kube::Client, super::ControlPlaneError> {
    let failed = || "making a client";
    let kubeconfig =
        kube::config::Kubeconfig::from_yaml(yaml).map_err(super::ControlPlaneError::api(failed()))?;
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default())
            .await
            .map_err(super::ControlPlaneError::api(failed()))?;
    mcr_access::crypto::install_default().map_err(super::ControlPlaneError::api(failed()))?;
    kube::Client::try_from(config).map_err(super::ControlPlaneError::api(failed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_do_not_print_their_secret() {
        let credentials = Credentials::Token("canary".into());
        assert!(!format!("{credentials:?}").contains("canary"));
    }
}
