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

/// Writes a kubeconfig of any number of contexts, all data inline.
#[derive(Clone, Debug, Default)]
pub struct KubeconfigBuilder {
    contexts: Vec<Context>,
    current: Option<String>,
}

#[derive(Clone, Debug)]
struct Context {
    name: String,
    server: String,
    ca_pem: Option<String>,
    credentials: Credentials,
    namespace: Option<String>,
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
        let name = name.into();
        self.contexts.retain(|context| context.name != name);
        self.contexts.push(Context {
            name,
            server: server.into(),
            ca_pem: Some(ca_pem.into()).filter(|pem| !pem.is_empty()),
            credentials,
            namespace: None,
        });
        self
    }

    /// Sets the default namespace of the context added last.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        if let Some(context) = self.contexts.last_mut() {
            context.namespace = Some(namespace.into());
        }
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
        let config = self.to_json();
        // As kubectl writes it: certificates on one line.
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
        // If the YAML writer fails, the text is JSON, which is valid YAML.
        serde_saphyr::to_string_with_options(&config, options).unwrap_or_else(|_| config.to_string())
    }

    fn to_json(&self) -> Value {
        let clusters: Vec<Value> = self
            .contexts
            .iter()
            .map(|context| {
                let mut cluster = json!({ "server": context.server });
                if let Some(pem) = &context.ca_pem {
                    cluster["certificate-authority-data"] = STANDARD.encode(pem).into();
                }
                json!({ "name": context.name, "cluster": cluster })
            })
            .collect();
        let users: Vec<Value> = self
            .contexts
            .iter()
            .map(|context| json!({ "name": context.name, "user": context.credentials.to_json() }))
            .collect();
        let contexts: Vec<Value> = self
            .contexts
            .iter()
            .map(|context| {
                let mut inner = json!({ "cluster": context.name, "user": context.name });
                if let Some(namespace) = &context.namespace {
                    inner["namespace"] = namespace.as_str().into();
                }
                json!({ "name": context.name, "context": inner })
            })
            .collect();
        let current = self
            .current
            .as_deref()
            .or(self.contexts.first().map(|context| context.name.as_str()));
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": clusters,
            "users": users,
            "contexts": contexts,
            "current-context": current.unwrap_or_default(),
        })
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
