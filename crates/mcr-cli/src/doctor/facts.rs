//! Facts: the results of the probes. The diagnosis turns facts into findings.

use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};

use super::target::Credential;
use crate::{kubeconfigs::NamedFile, providers::KcpApi};

/// The facts about a cluster.
#[derive(Debug, Clone)]
pub(super) struct ClusterFacts {
    /// The name in the fleet.
    pub(super) name: String,
    pub(super) provider: String,
    pub(super) origin: Origin,
    /// The state, as in [`mcr_core::ClusterStatus::state`].
    pub(super) state: String,
    pub(super) reason: Option<String>,
    pub(super) warnings: Vec<String>,
    /// `None` if the access has no visible address.
    pub(super) connection: Option<Connection>,
    pub(super) api: Option<Api>,
    /// The Cluster of Cluster API that describes the cluster, if it is one that waits or is broken.
    pub(super) cluster_api: Option<ClusterApiFacts>,
    /// The ClusterProfile that describes the cluster, if it is one that waits.
    pub(super) profile: Option<ProfileFacts>,
    pub(super) now: SystemTime,
}

/// The object or file that describes a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    Secret {
        namespace: String,
        name: String,
    },
    File {
        path: String,
        context: String,
    },
    /// A kind cluster, with the program of its engine.
    KindCluster {
        name: String,
        engine: String,
    },
    /// A Cluster of Cluster API.
    ClusterApi {
        namespace: String,
        name: String,
    },
    /// A ClusterProfile of the Cluster Inventory API.
    ClusterProfile {
        namespace: String,
        name: String,
    },
    /// A Shoot of Gardener.
    Shoot {
        namespace: String,
        name: String,
    },
    /// A workspace of kcp, with its address at kcp's front proxy.
    KcpWorkspace {
        address: String,
        path: Option<String>,
        /// The APIBinding that the workspace waits for.
        binding: Option<String>,
    },
    /// The workspace of kcp that has the endpoint slice or the WorkspaceType, or one of its endpoints.
    KcpAddress,
    Other,
}

/// The facts about the connection to an API server.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) address: String,
    pub(super) host: String,
    pub(super) credential: Credential,
    /// Whether the connection goes through a proxy, which the probe can't follow.
    pub(super) proxied: bool,
    pub(super) insecure: bool,
    pub(super) reach: Option<Reach>,
}

/// How far the probe came. A step is `None` if an earlier step failed.
#[derive(Debug, Clone, Default)]
pub(super) struct Reach {
    pub(super) resolved: Option<Result<Vec<IpAddr>, Failure>>,
    /// The error of the access policy, if it does not allow an address of the host.
    pub(super) forbidden: Option<String>,
    pub(super) connected: Option<Result<Duration, Failure>>,
    pub(super) greeted: Option<Result<Tls, Failure>>,
    pub(super) answered: Option<Result<Answer, Failure>>,
}

/// The certificate of the server, as seen in the TLS handshake.
#[derive(Debug, Clone)]
pub(super) struct Tls {
    /// `None` if nothing verified the certificate: the kubeconfig says so, or this machine has no certificate authorities.
    pub(super) verdict: Option<Verdict>,
    pub(super) expires: Option<SystemTime>,
    pub(super) valid_from: Option<SystemTime>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    Bad { why: Bad, text: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bad {
    UnknownIssuer,
    Expired,
    NotYetValid,
    OtherName,
    Other,
}

/// The answer to a request without credentials.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) took: Duration,
    /// By how many seconds the clock of the server is ahead of the local one. Negative if it is behind.
    pub(super) ahead: Option<i64>,
}

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    UnknownHost,
    Refused,
    TimedOut,
    Unroutable,
    Other,
}

/// The answers of an API server to the credentials of the cluster.
#[derive(Debug, Clone)]
pub(super) struct Api {
    pub(super) version: Result<Version, String>,
    /// The user that the API server sees, if known.
    pub(super) user: Option<String>,
    pub(super) rights: Vec<Right>,
    /// The namespace of the rights. `None`: all namespaces.
    pub(super) namespace: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) shown: String,
    pub(super) minor: Option<u32>,
    pub(super) took: Duration,
}

/// The rights on a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Right {
    pub(super) resource: String,
    /// Of one object only.
    pub(super) name: Option<String>,
    pub(super) verbs: Vec<String>,
    /// The refused verbs, or why they are unknown.
    pub(super) denied: Result<Vec<String>, String>,
}

/// The facts about a provider.
#[derive(Debug, Clone)]
pub(super) struct ProviderFacts {
    pub(super) name: String,
    /// Why the provider could not be built, or why its discovery fails.
    pub(super) error: Option<String>,
    pub(super) synced: bool,
    pub(super) clusters: usize,
    pub(super) of: Source,
}

/// The source of a provider's clusters.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Secrets(Box<Hub>),
    /// A hub with the Clusters of Cluster API, or with ClusterProfiles.
    Served(Box<ServedHub>),
    Kcp(Box<KcpHub>),
    /// A hub without a usable connection.
    NoHub,
    Files(Vec<NamedFile>),
    Engine,
    Other,
}

/// A hub with Secrets, Clusters or ClusterProfiles.
#[derive(Debug, Clone)]
pub(super) struct Hub {
    /// The namespace of the objects that describe clusters. `None`: all namespaces.
    pub(super) namespace: Option<String>,
    /// The user that the hub sees, if known.
    pub(super) user: Option<String>,
    /// Whether that namespace exists. `None` if the user may not see it, and for all namespaces.
    pub(super) exists: Option<bool>,
    /// The rights on the kinds that describe clusters, and on events.
    pub(super) rights: Vec<Right>,
    pub(super) version: Option<Version>,
}

/// An API whose objects describe clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HubApi {
    ClusterApi,
    ClusterInventory,
    Garden,
    Seed,
}

impl HubApi {
    /// The API group, and the name of the API for people.
    pub(super) fn group(self) -> (&'static str, &'static str) {
        match self {
            Self::ClusterApi => ("cluster.x-k8s.io", "Cluster API"),
            Self::ClusterInventory => ("multicluster.x-k8s.io", "the Cluster Inventory API"),
            Self::Garden => ("core.gardener.cloud", "the API of Gardener"),
            Self::Seed => ("extensions.gardener.cloud", "the API of Gardener's extensions"),
        }
    }
}

/// A hub that serves such an API.
#[derive(Debug, Clone)]
pub(super) struct ServedHub {
    pub(super) api: HubApi,
    pub(super) hub: Hub,
    /// The versions of the API that the hub serves, the preferred one first. Empty: it is not installed there.
    pub(super) versions: Result<Vec<String>, String>,
}

impl ServedHub {
    /// Whether the API is installed in the hub, as far as is known.
    pub(super) fn is_installed(&self) -> bool {
        !matches!(&self.versions, Ok(versions) if versions.is_empty())
    }
}

/// A hub that is a workspace of kcp with an endpoint slice or a WorkspaceType.
#[derive(Debug, Clone)]
pub(super) struct KcpHub {
    pub(super) api: KcpApi,
    pub(super) address: String,
    /// Whether the address is that of one workspace. If not, nothing else was asked.
    pub(super) is_workspace: bool,
    pub(super) connection: Option<Connection>,
    /// Why requests with the credentials of the kubeconfig fail, if they do.
    pub(super) error: Option<String>,
    /// The user that kcp sees, if known.
    pub(super) user: Option<String>,
    /// The right to read the slice or the type. `None` if it was not asked for.
    pub(super) slice_right: Option<Right>,
    /// `None`: there is no such slice or type.
    pub(super) slice: Result<Option<KcpSlice>, String>,
    /// The right to the workspaces. `None` if the export is in another workspace.
    pub(super) content_right: Option<Right>,
    pub(super) endpoints: Vec<KcpEndpoint>,
    pub(super) now: SystemTime,
}

/// An APIExportEndpointSlice, or a WorkspaceType.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KcpSlice {
    pub(super) name: String,
    /// The export, or the type itself: the right to the workspaces has this name.
    pub(super) export: String,
    /// The workspace of the export, if the slice names it.
    pub(super) path: Option<String>,
    /// Whether the export is known to be in the workspace of the slice.
    pub(super) is_beside_export: bool,
    /// The condition that is false, with its message.
    pub(super) invalid: Option<String>,
    pub(super) urls: Vec<String>,
}

/// An endpoint of a slice or a type.
#[derive(Debug, Clone)]
pub(super) struct KcpEndpoint {
    pub(super) url: String,
    /// `None` if the URL can't be used.
    pub(super) connection: Option<Connection>,
    pub(super) bindings: Result<Vec<KcpBinding>, String>,
    /// Whether the list was answered with 403.
    pub(super) forbidden: bool,
}

/// An APIBinding at an endpoint, or a LogicalCluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KcpBinding {
    /// The id of the workspace.
    pub(super) cluster: String,
    pub(super) path: Option<String>,
    pub(super) name: String,
    pub(super) phase: String,
    pub(super) deleting: bool,
    pub(super) ready: bool,
    /// Whether all objects that the consumer has granted are visible.
    pub(super) claims_applied: bool,
    /// The kinds that the export claims and the consumer has granted.
    pub(super) granted: Vec<String>,
    /// The kinds that the export claims and the consumer has not granted.
    pub(super) refused: Vec<String>,
}

/// The facts about a name that no provider announces.
#[derive(Debug, Clone)]
pub(super) struct MissingFacts {
    pub(super) name: String,
    pub(super) known: Vec<String>,
    pub(super) secrets: Vec<SecretFact>,
    pub(super) clusters: Vec<ClusterApiFacts>,
    pub(super) profiles: Vec<ProfileFacts>,
    pub(super) shoots: Vec<ShootFacts>,
    /// The clusters whose workspace has this name as its path: the provider and the name of each.
    pub(super) workspaces: Vec<(String, String)>,
}

/// A Secret of that name, with the fields that a provider checks.
#[derive(Debug, Clone)]
pub(super) struct SecretFact {
    pub(super) provider: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) label: String,
    pub(super) labelled: Option<String>,
    /// The namespace in which the provider looks for Secrets. `None`: all namespaces.
    pub(super) looks_in: Option<String>,
}

/// A Cluster of Cluster API and its kubeconfig Secret, of which at least one is there.
#[derive(Debug, Clone)]
pub(super) struct ClusterApiFacts {
    pub(super) provider: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The namespace in which the provider looks for Clusters. `None`: all namespaces.
    pub(super) looks_in: Option<String>,
    pub(super) cluster: Option<ManagedCluster>,
    pub(super) secret: Result<Option<KubeconfigSecret>, String>,
}

/// The fields of a Cluster on which it depends whether controllers use it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ManagedCluster {
    /// Whether the label selector of the provider matches.
    pub(super) selected: bool,
    pub(super) deleting: bool,
    pub(super) paused: bool,
    pub(super) initialized: bool,
    pub(super) phase: Option<String>,
    /// The first condition on the way to a control plane that is not true, with its message.
    pub(super) waits_for: Option<String>,
}

/// A Shoot of Gardener that is not in the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShootFacts {
    pub(super) provider: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The namespace in which the provider looks for Shoots. `None`: all namespaces.
    pub(super) looks_in: Option<String>,
    /// Whether the label selector of the provider matches.
    pub(super) selected: bool,
    pub(super) deleting: bool,
}

/// A ClusterProfile of the Cluster Inventory API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ProfileFacts {
    pub(super) provider: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The namespace in which the provider looks for ClusterProfiles. `None`: all namespaces.
    pub(super) looks_in: Option<String>,
    /// Whether the label selector of the provider matches.
    pub(super) selected: bool,
    pub(super) deleting: bool,
    pub(super) manager: String,
    /// Whether the condition `ControlPlaneHealthy` is true.
    pub(super) healthy: bool,
    /// Why the condition `Joined` is there and not true.
    pub(super) not_joined: Option<String>,
    /// The access providers, as the provider sees them.
    pub(super) offers: Vec<String>,
    /// The deprecated `credentialProviders`, if the provider reads a version that does not show them.
    pub(super) hidden: Vec<String>,
    /// An older ClusterProfile of the same cluster.
    pub(super) older: Option<String>,
    /// Whether the flags name a provider file.
    pub(super) has_plugins: bool,
    /// Whether the kubeconfigs are in Secrets.
    pub(super) by_secrets: bool,
}

/// The Secret `<cluster>-kubeconfig`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KubeconfigSecret {
    pub(super) name: String,
    /// The value of the label that names the Cluster.
    pub(super) label: Option<String>,
}
