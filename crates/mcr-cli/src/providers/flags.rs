//! Flags that say which clusters a command is about.

use std::path::PathBuf;

use mcr_core::{AccessPolicy, AddressPolicy};

use crate::values;

/// Which clusters a command is about.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Clusters")]
pub(crate) struct ClusterFlags {
    /// Where clusters come from; of several, names begin with that of the provider: kind#dev
    #[arg(long, value_name = "PROVIDER", value_delimiter = ',', default_value = "file")]
    pub(crate) provider: Vec<String>,
    /// Kubeconfig files whose contexts are clusters; without files and folders those that kubectl would use
    #[arg(long, value_name = "PATH[,PATH]", value_delimiter = ',')]
    pub(crate) kubeconfigs: Vec<PathBuf>,
    /// Folders with kubeconfig files
    #[arg(long, value_name = "PATH[,PATH]", value_delimiter = ',')]
    pub(crate) kubeconfig_dirs: Vec<PathBuf>,
    /// Which files of a folder are kubeconfigs [default: kubeconfig.yaml, *.kubeconfig and the like]
    #[arg(long, value_name = "GLOB[,GLOB]", value_delimiter = ',')]
    pub(crate) globs: Vec<String>,
    /// The kubeconfig file of the hub, the one cluster that kubeconfig, namespace and single work on [default: as kubectl]
    #[arg(long, value_name = "PATH")]
    pub(crate) hub_kubeconfig: Option<PathBuf>,
    /// The context of the hub [default: the current one]
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) hub_context: Option<String>,
    /// With kubeconfig: the namespace of the Secrets [default: that of the hub's context]
    #[arg(long, short = 'n', value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// With kubeconfig: the Secrets of all namespaces
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// With kubeconfig: the label of the Secrets, with the value true
    /// [default: sigs.k8s.io/multicluster-runtime-kubeconfig]
    #[arg(long, value_name = "LABEL")]
    pub(crate) kubeconfig_label: Option<String>,
    /// With kubeconfig: the key of a Secret that has its kubeconfig [default: kubeconfig]
    #[arg(long, value_name = "KEY")]
    pub(crate) kubeconfig_key: Option<String>,
    /// With kubeconfig: let kubeconfigs lead to this machine, as those of kind do
    #[arg(long)]
    pub(crate) allow_loopback: bool,
    /// With kind: only clusters whose names begin so
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    /// An option of a provider that was linked by others
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::pair)]
    pub(crate) provider_option: Vec<(String, String)>,
}

impl ClusterFlags {
    /// The access policy for untrusted kubeconfigs.
    pub(crate) fn policy(&self) -> AccessPolicy {
        AccessPolicy::default().addresses(AddressPolicy::default().allow_loopback(self.allow_loopback))
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
