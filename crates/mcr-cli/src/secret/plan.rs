//! Plans the writes. No I/O, except that it reads the files that are named in flags and in the kubeconfig.

use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::{core::v1::Secret, rbac::v1::PolicyRule};
use mcr_core::{
    KubeconfigAccess, Trust,
    internal::{Outline, claims, outline},
};
use secrecy::{ExposeSecret, SecretString};

use super::{
    args::{CreateArgs, RoleType},
    rules,
};
use crate::{doctor::target, values};

/// The name of the ServiceAccount. The same as in Go's script.
const ACCOUNT: &str = "multicluster-kubeconfig-provider";
/// The key in a Secret that has the kubeconfig.
pub(super) const KEY: &str = "kubeconfig";

/// The planned writes.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// The context of the member cluster.
    pub(super) member: String,
    /// The context of the hub.
    pub(super) hub: String,
    /// The name, the namespace and the labels of the Secret.
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) labels: Vec<(String, String)>,
    /// The name and the namespace of the ServiceAccount.
    pub(super) account: String,
    pub(super) remote_namespace: String,
    /// The rules of the role. `None` if the user manages the rights elsewhere.
    pub(super) rules: Option<Vec<PolicyRule>>,
    pub(super) role_type: RoleType,
    /// The name of the role. It contains the name of the Secret, because ClusterRoles have no namespace.
    pub(super) role: String,
    pub(super) lifetime: Duration,
    /// The address at which controllers reach the cluster.
    pub(super) server: String,
    pub(super) tls_server_name: Option<String>,
    /// The address at which this machine reaches the cluster, to check the token.
    pub(super) server_here: String,
    /// The proxy through which this machine reaches the cluster. May contain a password.
    pub(super) proxy_here: Option<SecretString>,
    pub(super) authority: Vec<u8>,
    rotation: Option<Rotation>,
}

/// The Secret that gets a fresh token. Whoever may write the Secret controls its contents. So its contents never
/// decide whose token is requested or where the token goes. They can only make a rotation fail.
#[derive(Debug, Clone)]
struct Rotation {
    resource_version: String,
    old_expires: Option<SystemTime>,
    old_token: Option<SecretString>,
    old_server: Option<String>,
    /// Whether the Secret has the certificate authority of the cluster.
    same_authority: bool,
}

/// A ServiceAccount: its namespace and its name.
pub(super) type Account = (String, String);

/// What this command has made for a Secret, according to the annotations of a binding.
#[derive(Debug, Clone)]
pub(super) struct Bound {
    pub(super) account: Account,
    pub(super) server: Option<String>,
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
            proxy_here: outline(access)
                .and_then(|found| found.proxy)
                .map(SecretString::from),
            authority,
            rotation: None,
        })
    }

    /// Keeps the labels of the existing Secret for which there is no flag. Fails if the Secret may belong to another
    /// cluster.
    pub(super) fn repeat(&mut self, args: &CreateArgs, found: &Secret) -> anyhow::Result<()> {
        let old = described(found);
        let server = old.server.filter(|_| args.server.is_none());
        let problem = if old.authority.is_some_and(|old| old != self.authority) {
            "another certificate authority: choose another --name, or delete the Secret if its cluster has a new authority"
        } else if server.is_some_and(|server| server != self.server) {
            "another address: choose another --name, or say with --server which address controllers use if it is of this cluster"
        } else {
            let kept = found.metadata.labels.clone();
            self.labels.splice(..0, kept.unwrap_or_default());
            return Ok(());
        };
        let (secret, member) = (self.secret(), &self.member);
        bail!("unlike context {member}, the Secret {secret} has {problem}; nothing was written")
    }

    /// Reads the existing Secret. [`decide`](Self::decide) then plans the rotation.
    pub(super) fn rotate(&mut self, found: Option<&Secret>) -> anyhow::Result<()> {
        let (namespace, name) = (&self.namespace, &self.name);
        let Some(secret) = found else {
            bail!(
                "--rotate: there is no Secret {namespace}/{name} in the hub ({}); leave --rotate out to make it",
                self.hub
            );
        };
        let old = described(secret);
        let claims = old
            .token
            .as_ref()
            .and_then(|token| claims::of(token.expose_secret()));
        self.rotation = Some(Rotation {
            resource_version: secret.metadata.resource_version.clone().unwrap_or_default(),
            old_expires: claims.and_then(|claims| claims.expires),
            old_token: old.token,
            old_server: old.server,
            same_authority: old.authority.as_ref() == Some(&self.authority),
        });
        Ok(())
    }

    /// The token that is replaced, so that the cluster can be asked whose token it is. `None` if the Secret has no
    /// token, or has the certificate authority of another cluster: then the token must not be sent to this one.
    pub(super) fn token_to_review(&self) -> Option<&SecretString> {
        let rotation = self.rotation.as_ref()?;
        rotation.old_token.as_ref().filter(|_| rotation.same_authority)
    }

    /// Decides whose token a rotation requests, and for which address. `reviewed` is the account of the token in the
    /// Secret, as the cluster recognises it. `bound` is what this command has made for the Secret, according to the
    /// binding in the cluster.
    pub(super) fn decide(
        &mut self,
        args: &CreateArgs,
        reviewed: Option<Account>,
        bound: Option<Bound>,
    ) -> anyhow::Result<()> {
        let (secret, member) = (self.secret(), &self.member);
        let other = |flag: &Option<String>, now: &str| flag.as_ref().is_some_and(|flag| flag != now);
        let (bound, server) = bound.map_or((None, None), |bound| (Some(bound.account), bound.server));
        let bound = bound.filter(|_| args.service_account.is_none());
        if let (Some(reviewed), Some(bound)) = (&reviewed, &bound)
            && reviewed != bound
        {
            bail!(
                "--rotate: the token in the Secret {secret} is of ServiceAccount {}/{}, and the binding in {member} of {}/{}; say with \
                 --service-account and --remote-namespace which of them the cluster is to have",
                reviewed.0,
                reviewed.1,
                bound.0,
                bound.1
            );
        }
        let account = reviewed.or(bound);
        if let Some((namespace, name)) = account {
            if other(&args.service_account, &name) || other(&args.remote_namespace, &namespace) {
                bail!(
                    "--rotate: the Secret {secret} is of ServiceAccount {namespace}/{name}, which --rotate keeps; leave --service-account and \
                     --remote-namespace out, or leave --rotate out to give it another account"
                );
            }
            (self.remote_namespace, self.account) = (namespace, name);
        } else if args.service_account.is_none() {
            bail!(
                "--rotate: nothing in {member} proves to which ServiceAccount the Secret {secret} belongs: its token is not accepted there \
                 or may not be reviewed, and there is no binding of it; name the account with --service-account and --remote-namespace, or \
                 leave --rotate out to write the Secret again"
            );
        }
        if args.server.is_none() {
            self.server = server.unwrap_or_else(|| self.server.clone());
            let rotation = self.rotation.as_ref();
            if rotation.is_some_and(|rotation| other(&rotation.old_server, &self.server)) {
                bail!(
                    "--rotate: the Secret {secret} has another address than {}, which is that of {member}; say with --server which address \
                     gets the token",
                    self.server
                );
            }
        }
        Ok(())
    }

    /// Notes about settings of the context that the Secret does not get.
    pub(super) fn left_out(&self) -> Option<String> {
        self.proxy_here.as_ref().map(|_| {
            format!(
                "note: the proxy of context {} (proxy-url) is left out of the Secret, because controllers refuse proxies by default: they have to \
                 reach {} directly; --server gives another address",
                self.member, self.server
            )
        })
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

    /// The Secret's namespace and name.
    pub(super) fn secret(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
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

/// The contents of the kubeconfig in a Secret. The address has the form that [`Plan::server`] has.
fn described(secret: &Secret) -> Outline {
    let text = secret.data.as_ref().and_then(|data| data.get(KEY));
    let found = text.and_then(|text| outline(&KubeconfigAccess::new(&text.0, Trust::Untrusted)));
    let mut found = found.unwrap_or_default();
    found.server = found
        .server
        .map(|server| server.trim().trim_end_matches('/').to_owned());
    found
}

/// A valid name of a Secret that is similar to this name.
fn suggestion(name: &str) -> String {
    let mut parts = name.rsplit(['/', ':', '@']);
    let last = parts
        .find(|part| !part.is_empty())
        .unwrap_or(name)
        .to_ascii_lowercase();
    let plain = last.replace(|char: char| !char.is_ascii_alphanumeric() && char != '.', "-");
    let plain = plain.trim_matches(['-', '.']);
    if values::is_subdomain(plain) {
        plain.to_owned()
    } else {
        "eu-1".to_owned()
    }
}

/// Base64, as in a kubeconfig.
pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
