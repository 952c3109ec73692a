//! Flags that select the clusters of a command.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use mcr_core::{AccessPolicy, AddressPolicy};
#[cfg(feature = "cluster-inventory")]
use mcr_provider_cluster_inventory::{AccessProviders, AccessProvidersError};

use crate::values;

#[cfg(feature = "cluster-inventory")]
const CONFLICTS_WITH_CONSUMER: [&str; 1] = ["access_providers"];
#[cfg(not(feature = "cluster-inventory"))]
const CONFLICTS_WITH_CONSUMER: [&str; 0] = [];

#[cfg(feature = "cluster-inventory")]
fn access_providers(path: &str) -> Result<AccessProviders, AccessProvidersError> {
    AccessProviders::from_file(path)
}

/// The clusters of a command.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Clusters")]
pub(crate) struct ClusterFlags {
    /// The provider of the clusters; with several providers, names begin with that of the provider: kind#dev
    #[arg(long, value_name = "PROVIDER", value_delimiter = ',', default_value = "file")]
    pub(crate) provider: Vec<String>,
    /// Kubeconfig files; each context is a cluster [default: those of kubectl]
    #[arg(long, value_name = "PATH[,PATH]", value_delimiter = ',')]
    pub(crate) kubeconfigs: Vec<PathBuf>,
    /// Folders with kubeconfig files
    #[arg(long, value_name = "PATH[,PATH]", value_delimiter = ',')]
    pub(crate) kubeconfig_dirs: Vec<PathBuf>,
    /// The names of kubeconfig files in folders [default: kubeconfig.yaml, *.kubeconfig and similar names]
    #[arg(long, value_name = "GLOB[,GLOB]", value_delimiter = ',')]
    pub(crate) globs: Vec<String>,
    /// The kubeconfig file of the hub, for the providers cluster-api, cluster-inventory, gardener, kcp,
    /// kcp-initializing, kcp-terminating, kubeconfig, namespace and single; with those of kcp the hub is the workspace
    /// of the endpoint slice or of the WorkspaceType [default: that of kubectl]
    #[arg(long, value_name = "PATH")]
    pub(crate) hub_kubeconfig: Option<PathBuf>,
    /// The context of the hub [default: the current one]
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) hub_context: Option<String>,
    /// For the providers cluster-api, cluster-inventory, gardener and kubeconfig: the namespace of the Clusters,
    /// ClusterProfiles, Shoots or Secrets [default: that of the hub's context]
    #[arg(long, short = 'n', value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// For the providers cluster-api, cluster-inventory, gardener and kubeconfig: use the Clusters, ClusterProfiles,
    /// Shoots or Secrets of all namespaces
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// For the providers cluster-api, cluster-inventory and gardener: use only the Clusters, ClusterProfiles or Shoots
    /// that this label selector matches, such as env=prod
    #[arg(long, short = 'l', value_name = "SELECTOR", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) selector: Option<String>,
    /// For the provider cluster-inventory: the provider file of the controller, which names a plugin for each access
    /// provider; the command runs these plugins
    #[cfg(feature = "cluster-inventory")]
    #[arg(
        long = "clusterprofile-provider-file",
        value_name = "PATH",
        value_parser = access_providers
    )]
    pub(crate) access_providers: Option<AccessProviders>,
    /// For the provider cluster-inventory: take kubeconfigs from the Secrets for this consumer, in place of a provider
    /// file; the Cluster Inventory API has deprecated these Secrets
    #[arg(long, value_name = "NAME", conflicts_with_all = CONFLICTS_WITH_CONSUMER)]
    pub(crate) consumer: Option<String>,
    /// For the provider kubeconfig: the label of the Secrets, whose value is true
    /// [default: sigs.k8s.io/multicluster-runtime-kubeconfig]
    #[arg(long, value_name = "LABEL")]
    pub(crate) kubeconfig_label: Option<String>,
    /// For the provider kubeconfig: the key of the kubeconfig in a Secret [default: kubeconfig]
    #[arg(long, value_name = "KEY")]
    pub(crate) kubeconfig_key: Option<String>,
    /// For the provider gardener: ask for kubeconfigs that only read, with the right to create shoots/viewerkubeconfig
    /// in place of shoots/adminkubeconfig
    #[arg(long)]
    pub(crate) viewer: bool,
    /// For the provider gardener: the hub is a seed; the clusters are the Shoots whose control planes run there
    #[arg(long, conflicts_with = "viewer")]
    pub(crate) seed: bool,
    /// For the providers cluster-api, cluster-inventory, gardener and kubeconfig: allow loopback addresses, such as
    /// those of kind
    #[arg(long)]
    pub(crate) allow_loopback: bool,
    /// Connect to clusters and hub through the proxies of the environment: HTTPS_PROXY, with the exceptions of NO_PROXY
    #[arg(long)]
    pub(crate) proxy_from_env: bool,
    /// For the provider kcp: the APIExportEndpointSlice of the hub whose consumers are the clusters
    #[arg(long, value_name = "NAME")]
    pub(crate) slice: Option<String>,
    /// For the provider kcp: the APIExport of the hub whose endpoint slice is to be found, in place of --slice
    #[arg(long, value_name = "NAME", conflicts_with = "slice")]
    pub(crate) export: Option<String>,
    /// For the provider kcp: when a workspace is ready; it is Suspended until then
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) readiness: ReadyWhen,
    /// For the providers kcp-initializing and kcp-terminating: the WorkspaceType of the hub for whose initializer or
    /// terminator workspaces wait
    #[arg(long, value_name = "NAME")]
    pub(crate) workspace_type: Option<String>,
    /// For the providers kcp, kcp-initializing and kcp-terminating: the beginning of the names of all clusters
    #[arg(long, value_name = "PREFIX")]
    pub(crate) name_prefix: Option<String>,
    /// For the provider kind: use only clusters whose names begin with this
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    /// An option for a provider that is not built in
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::pair)]
    pub(crate) provider_option: Vec<(String, String)>,
}

/// When a workspace of kcp is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum ReadyWhen {
    /// Its APIBinding is bound
    Bound,
    /// The condition Ready is true, too
    #[default]
    Ready,
    /// The condition PermissionClaimsApplied is true, too
    PermissionClaimsApplied,
}

impl ClusterFlags {
    /// The access policy for untrusted kubeconfigs, which may not run plugins.
    pub(crate) fn policy(&self) -> AccessPolicy {
        AccessPolicy::default().addresses(AddressPolicy::default().allow_loopback(self.allow_loopback))
    }

    /// The access policy of a fleet over the chosen clusters.
    pub(crate) fn fleet_policy(&self) -> AccessPolicy {
        let policy = self.policy();
        #[cfg(feature = "cluster-inventory")]
        if let Some(providers) = &self.access_providers {
            return policy.credential_plugins(providers.plugin_policy());
        }
        policy
    }

    /// The chosen providers, without duplicates.
    pub(crate) fn chosen(&self) -> Vec<&str> {
        let mut chosen: Vec<&str> = Vec::new();
        for name in &self.provider {
            if !chosen.contains(&name.as_str()) {
                chosen.push(name);
            }
        }
        chosen
    }
}
