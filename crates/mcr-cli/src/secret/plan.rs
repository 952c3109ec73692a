//! Plans the writes. No I/O, except reading the files that flags and kubeconfig name.

use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::{core::v1::Secret, rbac::v1::PolicyRule};
use kube::config::Kubeconfig;
use mcr_core::{KubeconfigAccess, internal::claims};

use super::{
    args::{CreateArgs, RoleType},
    rules,
};
use crate::{doctor::target, values};

/// The name of the ServiceAccount, as in Go's script.
const ACCOUNT: &str = "multicluster-kubeconfig-provider";
/// The key in a Secret that has the kubeconfig.
pub(super) const KEY: &str = "kubeconfig";

/// The planned writes.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// The context of the cluster, and that of the hub.
    pub(super) member: String,
    pub(super) hub: String,
    /// Of the Secret.
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) labels: Vec<(String, String)>,
    /// Of the ServiceAccount.
    pub(super) account: String,
    pub(super) remote_namespace: String,
    /// The rules of the role. `None` if the user manages the rights elsewhere.
    pub(super) rules: Option<Vec<PolicyRule>>,
    pub(super) role_type: RoleType,
    /// The name of the role. It says who made the role, because the names of ClusterRoles are for the whole cluster.
    pub(super) role: String,
    pub(super) lifetime: Duration,
    /// The address at which controllers reach the cluster.
    pub(super) server: String,
    pub(super) tls_server_name: Option<String>,
    /// The address at which this machine reaches the cluster, to check the token.
    pub(super) server_here: String,
    pub(super) authority: Vec<u8>,
    rotation: Option<Rotation>,
}

/// The content of the Secret that gets a fresh token.
#[derive(Debug, Clone)]
struct Rotation {
    resource_version: String,
    old_expires: Option<SystemTime>,
}

impl Plan {
    pub(super) fn new(
        args: &CreateArgs,
        member: &str,
        hub: &str,
        access: &KubeconfigAccess,
    ) -> anyhow::Result<Self> {
        let name = args.name.clone().unwrap_or_else(|| member.to_owned());
        if !values::is_subdomain(&name) {
            bail!(
                "{name:?} can't be the name of a Secret, which has at most 253 lower-case letters, digits, `-` and `.`; \
                 give one with --name, for example --name {}",
                suggestion(&name)
            );
        }
        let remote_namespace = args
            .remote_namespace
            .clone()
            .unwrap_or_else(|| args.namespace.clone());
        for (flag, namespace) in [
            ("--namespace", &args.namespace),
            ("--remote-namespace", &remote_namespace),
        ] {
            if !values::is_dns_label(namespace) {
                bail!(
                    "{flag} {namespace:?}: this can't be the name of a namespace, which has at most 63 lower-case letters, digits and `-`"
                );
            }
        }
        let account = args.service_account.clone().unwrap_or_else(|| ACCOUNT.to_owned());
        if !values::is_subdomain(&account) {
            bail!(
                "--service-account {account:?}: this can't be a name, which has at most 253 lower-case letters, digits, `-` and `.`"
            );
        }
        let rules = match &args.rules_file {
            Some(path) => Some(rules::read(path)?),
            None => Some(rules::default()),
        };
        let target = target::of(&access.clone().into())
            .with_context(|| format!("context {member} has no address that can be used"))?;
        if !target.tls {
            bail!(
                "context {member} leads to {} without TLS, and a token is not sent there; use its https address",
                target.address
            );
        }
        if target.insecure {
            bail!(
                "context {member} has insecure-skip-tls-verify, so any server could get the token; put the cluster's \
                 certificate authority into its certificate-authority-data"
            );
        }
        let Some(authority) = target.authority else {
            bail!(
                "context {member} has no certificate authority, which the kubeconfig needs; put it into the cluster's \
                 certificate-authority-data"
            );
        };
        let server = match &args.server {
            Some(uri) if uri.scheme_str() == Some("https") && uri.host().is_some() => uri.to_string(),
            Some(uri) => bail!("--server {uri}: write https://host:port"),
            None => target.address.clone(),
        };
        Ok(Self {
            member: member.to_owned(),
            hub: hub.to_owned(),
            namespace: args.namespace.clone(),
            labels: args.label.clone(),
            account,
            remote_namespace,
            rules: rules.filter(|_| !args.skip_create_rbac && !args.rotate),
            role_type: args.role_type,
            role: format!("mcr-{name}"),
            name,
            lifetime: args.token_lifetime,
            server: server.trim_end_matches('/').to_owned(),
            tls_server_name: target.server_name,
            server_here: target.address,
            authority,
            rotation: None,
        })
    }

    /// Takes the account and the address of the cluster from the existing Secret.
    pub(super) fn rotate(&mut self, args: &CreateArgs, found: Option<&Secret>) -> anyhow::Result<()> {
        let (namespace, name) = (&self.namespace, &self.name);
        let Some(secret) = found else {
            bail!(
                "--rotate: there is no Secret {namespace}/{name} in the hub ({}); leave --rotate out to make it",
                self.hub
            );
        };
        let old = kubeconfig_in(secret);
        let claims = old.as_ref().and_then(claims_in);
        if let Some((namespace, account)) = claims.as_ref().and_then(|claims| claims.account.clone()) {
            let other = |flag: &Option<String>, now: &str| flag.as_ref().is_some_and(|flag| flag != now);
            if other(&args.service_account, &account) || other(&args.remote_namespace, &namespace) {
                bail!(
                    "--rotate: the Secret {}/{} has a token of ServiceAccount {namespace}/{account}, which --rotate keeps; leave \
                     --service-account and --remote-namespace out, or leave --rotate out to give it another account",
                    self.namespace,
                    self.name
                );
            }
            self.account = account;
            self.remote_namespace = namespace;
        }
        if args.server.is_none()
            && let Some(cluster) = old
                .as_ref()
                .and_then(|old| old.clusters.first()?.cluster.as_ref())
            && let Some(server) = cluster
                .server
                .as_deref()
                .filter(|server| server.starts_with("https://"))
        {
            server.trim_end_matches('/').clone_into(&mut self.server);
            self.tls_server_name.clone_from(&cluster.tls_server_name);
        }
        self.rotation = Some(Rotation {
            resource_version: secret.metadata.resource_version.clone().unwrap_or_default(),
            old_expires: claims.and_then(|claims| claims.expires),
        });
        Ok(())
    }

    pub(super) fn is_rotation(&self) -> bool {
        self.rotation.is_some()
    }

    /// The resource version of the Secret that was read.
    pub(super) fn resource_version(&self) -> Option<&str> {
        self.rotation
            .as_ref()
            .map(|rotation| rotation.resource_version.as_str())
    }

    pub(super) fn old_token_expires(&self) -> Option<SystemTime> {
        self.rotation.as_ref()?.old_expires
    }

    /// Keeps the role of an older version of this command, which was named like the Secret. A second role would leave the
    /// rights of the first one to the ServiceAccount.
    pub(super) fn keep_older_role(&mut self) {
        self.role.clone_from(&self.name);
    }

    pub(super) fn has_older_role(&self) -> bool {
        self.role == self.name
    }

    /// The name of the role's binding.
    pub(super) fn binding(&self) -> String {
        format!("{}-binding", self.role)
    }

    /// The user name that the API server sees.
    pub(super) fn account_user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.remote_namespace, self.account)
    }
}

/// The kubeconfig in a Secret, if it can be read.
fn kubeconfig_in(secret: &Secret) -> Option<Kubeconfig> {
    let bytes = &secret.data.as_ref()?.get(KEY)?.0;
    Kubeconfig::from_yaml(std::str::from_utf8(bytes).ok()?).ok()
}

/// A valid name of a Secret that is similar to this name.
fn suggestion(name: &str) -> String {
    let last = name
        .rsplit(['/', ':', '@'])
        .find(|part| !part.is_empty())
        .unwrap_or(name);
    let plain: String = last
        .chars()
        .map(|char| char.to_ascii_lowercase())
        .map(|char| {
            if char.is_ascii_alphanumeric() || char == '.' {
                char
            } else {
                '-'
            }
        })
        .collect();
    let plain = plain.trim_matches(['-', '.']).to_owned();
    if values::is_subdomain(&plain) {
        plain
    } else {
        "eu-1".to_owned()
    }
}

/// Base64, as in a kubeconfig.
pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The expiry and the account of the token in a kubeconfig.
fn claims_in(kubeconfig: &kube::config::Kubeconfig) -> Option<claims::Claims> {
    use secrecy::ExposeSecret;
    let token = kubeconfig
        .auth_infos
        .first()?
        .auth_info
        .as_ref()?
        .token
        .as_ref()?;
    claims::of(token.expose_secret())
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
