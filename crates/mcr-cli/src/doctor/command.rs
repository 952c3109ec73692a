//! The commands that the doctor prints. Each of them is run or parsed by a test, which has to know every variant. None of them deletes
//! anything: what has to go is named in words.

use std::fmt;

use crate::output::printable;

/// The Clusters of Cluster API.
pub(super) const CLUSTERS: &str = "clusters.cluster.x-k8s.io";
/// The Shoots of Gardener.
pub(super) const SHOOTS: &str = "shoots.core.gardener.cloud";
/// What a seed says of them.
pub(super) const SEED_CLUSTERS: &str = "clusters.extensions.gardener.cloud";
/// The ClusterProfiles of the Cluster Inventory API.
pub(super) const PROFILES: &str = "clusterprofiles.multicluster.x-k8s.io";

/// A command for a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    /// Lists the clusters of the same providers.
    ListClusters,
    /// Writes the Secret of a cluster.
    CreateSecret {
        namespace: String,
        /// `None`: the name of the context.
        name: Option<String>,
        more: &'static str,
    },
    LabelSecret {
        namespace: String,
        name: String,
        label: String,
        value: String,
    },
    /// The objects of a kind, in all namespaces.
    ListAll(&'static str),
    /// An object, with its conditions.
    Describe {
        resource: &'static str,
        namespace: String,
        name: String,
    },
    /// Shows objects of a workspace of kcp, with the credentials of the current context.
    Look {
        server: String,
        /// `get` or `describe`.
        verb: &'static str,
        resource: &'static str,
        /// `None`: all objects.
        name: Option<String>,
    },
    CreateNamespace(String),
    /// Creates a role and binds it to a user.
    Grant(Box<Grant>),
    /// The user of a context, as the API server sees it.
    WhoAmI {
        path: String,
        context: String,
    },
    ShowContexts,
    ShowHub,
    /// A request without a kubeconfig.
    Get {
        url: String,
        /// Whether the certificate of the server is left unverified.
        insecure: bool,
    },
    /// A request with the credentials and the certificate authority of a context.
    GetRaw {
        file: String,
        context: String,
        path: String,
    },
    Resolve(String),
    ListFile(String),
    ShowUser,
    ListContainers {
        engine: String,
    },
    /// Starts or restarts the node of a kind cluster.
    Node {
        engine: String,
        action: &'static str,
        cluster: String,
    },
    CreateKindCluster,
    /// Shows whether kind itself can still read the kubeconfig of its cluster.
    ExportKindKubeconfig(String),
    ShowClock,
    SynchronizeClock,
    RenewCertificate,
}

/// A role and its binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    /// Whether the user has to say with which context, because the one at hand lacks the right.
    pub(super) elsewhere: bool,
    pub(super) role: String,
    /// `None`: in all namespaces.
    pub(super) namespace: Option<String>,
    pub(super) verbs: String,
    pub(super) resource: String,
    /// `None`: all objects.
    pub(super) name: Option<String>,
    /// `None` if the user is unknown.
    pub(super) user: Option<String>,
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ListClusters => f.write_str("mcr clusters"),
            Self::CreateSecret {
                namespace,
                name,
                more,
            } => {
                f.write_str("mcr kubeconfig-secret create --context CONTEXT")?;
                if let Some(name) = name {
                    write!(f, " --name {}", word(name))?;
                }
                write!(f, " -n {}{more}", word(namespace))
            }
            Self::LabelSecret {
                namespace,
                name,
                label,
                value,
            } => write!(
                f,
                "kubectl -n {} label --overwrite secret {} {}",
                word(namespace),
                word(name),
                word(&format!("{label}={value}"))
            ),
            Self::ListAll(resource) => write!(f, "kubectl get {resource} --all-namespaces"),
            Self::Describe {
                resource,
                namespace,
                name,
            } => write!(
                f,
                "kubectl -n {} describe {resource} {}",
                word(namespace),
                word(name)
            ),
            Self::Look {
                server,
                verb,
                resource,
                name,
            } => {
                write!(f, "kubectl --server {} {verb} {resource}", word(server))?;
                match name {
                    Some(name) => write!(f, " {}", word(name)),
                    None => Ok(()),
                }
            }
            Self::CreateNamespace(name) => write!(f, "kubectl create namespace {}", word(name)),
            Self::Grant(grant) => grant.fmt(f),
            Self::WhoAmI { path, context } => write!(
                f,
                "kubectl --kubeconfig {} --context {} auth whoami",
                word(path),
                word(context)
            ),
            Self::ShowContexts => f.write_str("kubectl config get-contexts"),
            Self::ShowHub => f.write_str("kubectl version"),
            Self::Get { url, insecure } => {
                write!(f, "curl {} {}", if *insecure { "-vk" } else { "-v" }, word(url))
            }
            Self::GetRaw { file, context, path } => write!(
                f,
                "kubectl --kubeconfig {} --context {} get --raw {}",
                word(file),
                word(context),
                word(path)
            ),
            Self::Resolve(host) => write!(f, "getent hosts {}", word(host)),
            Self::ListFile(path) => write!(f, "ls -l {}", word(path)),
            Self::ShowUser => f.write_str("id"),
            Self::ListContainers { engine } => write!(f, "{} ps", word(engine)),
            Self::Node {
                engine,
                action,
                cluster,
            } => write!(
                f,
                "{} {action} {}",
                word(engine),
                word(&format!("{cluster}-control-plane"))
            ),
            Self::CreateKindCluster => f.write_str("kind create cluster"),
            Self::ExportKindKubeconfig(name) => write!(f, "kind export kubeconfig --name {}", word(name)),
            Self::ShowClock => f.write_str("timedatectl"),
            Self::SynchronizeClock => f.write_str("timedatectl set-ntp true"),
            Self::RenewCertificate => f.write_str("kubeadm certs renew apiserver"),
        }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kubectl = if self.elsewhere {
            "kubectl --context CONTEXT"
        } else {
            "kubectl"
        };
        let role = &self.role;
        let (kind, place) = match &self.namespace {
            Some(namespace) => ("role", format!(" -n {}", word(namespace))),
            None => ("clusterrole", String::new()),
        };
        let name = self
            .name
            .as_deref()
            .map(|name| format!(" --resource-name={}", word(name)));
        let name = name.unwrap_or_default();
        write!(
            f,
            "{kubectl} create {kind} {role}{place} --verb={} --resource={}{name}; \
             {kubectl} create {kind}binding {role}{place} --{kind}={role} --user={}",
            word(&self.verbs),
            word(&self.resource),
            word(self.user.as_deref().unwrap_or("USER"))
        )
    }
}

/// Quotes a word for a shell if it needs quotes.
fn word(text: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "._/-:=@,+".contains(char);
    let text = printable(text);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
