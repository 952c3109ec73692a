//! Where the clusters come from: flags, and the providers this was compiled with.

use anyhow::{Context, bail};
use clap::ValueEnum;
use mcr::{
    AccessPolicy, AddressPolicy, FleetSettings, Provider,
    args::{HubArgs, KubeconfigArgs},
};

/// A provider to choose with `--provider`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ProviderKind {
    /// Every context of kubeconfig files is a cluster
    #[default]
    File,
    /// The hub itself, named local
    Single,
    /// Each namespace of the hub is a cluster
    Namespace,
    /// Each Secret of the hub that holds a kubeconfig is a cluster
    Kubeconfig,
    /// Each Cluster of Cluster API in the hub
    ClusterApi,
    /// Each ClusterProfile of the Cluster Inventory API in the hub
    ClusterInventory,
    /// Each Shoot of Gardener in the hub
    Gardener,
    /// Each kcp workspace that binds the APIExport of --slice or --export; the hub is the workspace of the endpoint slice
    Kcp,
    /// Each kind cluster in Docker, nerdctl or Podman
    Kind,
}

/// Flags that name the clusters to work on.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ClusterArgs {
    /// Where clusters come from
    #[arg(long, value_enum, default_value_t, help_heading = "Clusters")]
    pub provider: ProviderKind,
    #[command(flatten)]
    #[allow(missing_docs, reason = "its text would become a help text of every example")]
    pub files: KubeconfigArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "its text would become a help text of every example")]
    pub hub: HubArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "its text would become a help text of every example")]
    pub secrets: SecretArgs,
    /// With --provider kcp: the APIExportEndpointSlice in the hub
    #[arg(long, value_name = "NAME", help_heading = "Clusters")]
    pub slice: Option<String>,
    /// With --provider kcp: the APIExport in the hub, in place of --slice
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "slice",
        help_heading = "Clusters"
    )]
    pub export: Option<String>,
    /// With --provider kind: only clusters whose names begin so [default: all]
    #[arg(long, value_name = "PREFIX", help_heading = "Clusters")]
    pub prefix: Option<String>,
}

/// Flags of the providers that read Secrets of the hub.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SecretArgs {
    /// With --provider kubeconfig, cluster-api, cluster-inventory or gardener: the namespace of the Secrets, Clusters,
    /// ClusterProfiles or Shoots [default: that of the hub's context]
    #[arg(long, value_name = "NAMESPACE", help_heading = "Clusters")]
    pub namespace: Option<String>,
    /// With --provider cluster-api, cluster-inventory or gardener: use the Clusters, ClusterProfiles or Shoots of all
    /// namespaces
    #[arg(long, conflicts_with = "namespace", help_heading = "Clusters")]
    pub all_namespaces: bool,
    /// With --provider cluster-api, cluster-inventory or gardener: use only those that this label selector matches
    #[arg(long, value_name = "SELECTOR", help_heading = "Clusters")]
    pub selector: Option<String>,
    /// With --provider kubeconfig: the label of the Secrets, with the value true [default:
    /// sigs.k8s.io/multicluster-runtime-kubeconfig]
    #[arg(long, value_name = "LABEL", help_heading = "Clusters")]
    pub kubeconfig_label: Option<String>,
    /// With --provider kubeconfig: the key of a Secret that has its kubeconfig [default: kubeconfig]
    #[arg(long, value_name = "KEY", help_heading = "Clusters")]
    pub kubeconfig_key: Option<String>,
    /// With --provider kubeconfig, cluster-api or cluster-inventory: let clusters lead to this machine, as those of kind do
    #[arg(long, help_heading = "Clusters")]
    pub allow_loopback: bool,
    /// With --provider cluster-inventory: the provider file, which names a plugin for each access provider
    #[cfg(feature = "cluster-inventory")]
    #[arg(
        long = "clusterprofile-provider-file",
        value_name = "PATH",
        value_parser = access_providers,
        help_heading = "Clusters"
    )]
    pub access_providers: Option<mcr_provider_cluster_inventory::AccessProviders>,
}

#[cfg(feature = "cluster-inventory")]
fn access_providers(
    path: &str,
) -> Result<
    mcr_provider_cluster_inventory::AccessProviders,
    mcr_provider_cluster_inventory::AccessProvidersError,
> {
    mcr_provider_cluster_inventory::AccessProviders::from_file(path)
}

impl ClusterArgs {
    /// Settings of a fleet over these clusters.
    pub fn settings(&self, settings: &mut FleetSettings) {
        let addresses = AddressPolicy::default().allow_loopback(self.secrets.allow_loopback);
        settings.access_policy = AccessPolicy::default().addresses(addresses);
        #[cfg(feature = "cluster-inventory")]
        if let (ProviderKind::ClusterInventory, Some(providers)) =
            (self.provider, &self.secrets.access_providers)
        {
            let policy = settings.access_policy.clone();
            settings.access_policy = policy.credential_plugins(providers.plugin_policy());
        }
    }

    /// The provider that was asked for.
    ///
    /// # Errors
    /// If a flag makes no sense, or the provider was not compiled in.
    pub async fn provider(&self) -> anyhow::Result<Box<dyn Provider>> {
        if self.provider != ProviderKind::File && !self.files.is_empty() {
            bail!("--kubeconfigs and --kubeconfig-dirs make sense with --provider file only");
        }
        match self.provider {
            #[cfg(feature = "file")]
            ProviderKind::File => file(&self.files),
            #[cfg(feature = "single")]
            ProviderKind::Single => single(&self.hub),
            #[cfg(feature = "namespace")]
            ProviderKind::Namespace => namespace(&self.hub),
            #[cfg(feature = "kubeconfig")]
            ProviderKind::Kubeconfig => kubeconfig(&self.hub, &self.secrets).await,
            #[cfg(feature = "cluster-api")]
            ProviderKind::ClusterApi => cluster_api(&self.hub, &self.secrets).await,
            #[cfg(feature = "cluster-inventory")]
            ProviderKind::ClusterInventory => cluster_inventory(&self.hub, &self.secrets).await,
            #[cfg(feature = "gardener")]
            ProviderKind::Gardener => gardener(&self.hub, &self.secrets).await,
            #[cfg(feature = "kcp")]
            ProviderKind::Kcp => kcp(&self.hub, self.slice.as_deref(), self.export.as_deref()),
            #[cfg(feature = "kind")]
            ProviderKind::Kind => kind(self.prefix.as_deref()),
            #[allow(unreachable_patterns, reason = "all providers may be compiled in")]
            other => {
                let name = other.to_possible_value();
                let name = name.as_ref().map_or("", clap::builder::PossibleValue::get_name);
                bail!("--provider {name}: compiled without the provider {name}: add --features {name}")
            }
        }
    }
}

/// Gives a builder the namespace and the label selector of the flags.
#[cfg(any(feature = "cluster-api", feature = "cluster-inventory", feature = "gardener"))]
macro_rules! chosen {
    ($builder:expr, $args:expr) => {{
        let mut builder = $builder;
        if let Some(namespace) = &$args.namespace {
            builder = builder.namespace(namespace);
        } else if $args.all_namespaces {
            builder = builder.all_namespaces();
        }
        if let Some(selector) = &$args.selector {
            builder = builder.labels(selector);
        }
        builder
    }};
}

/// The file provider.
///
/// # Errors
/// If a flag makes no sense, or the provider was not compiled in.
#[cfg(feature = "file")]
pub fn file(args: &KubeconfigArgs) -> anyhow::Result<Box<dyn Provider>> {
    let provider = mcr_provider_file::FileProvider::builder()
        .files(&args.kubeconfigs)
        .dirs(&args.kubeconfig_dirs)
        .globs(&args.globs)
        .build()
        .context("--globs")?;
    Ok(Box::new(provider))
}

#[cfg(feature = "single")]
fn single(hub: &HubArgs) -> anyhow::Result<Box<dyn Provider>> {
    use mcr_provider_single::SingleProvider;
    Ok(Box::new(SingleProvider::named(mcr::SINGLE_CLUSTER, hub.hub()?)?))
}

#[cfg(feature = "namespace")]
fn namespace(hub: &HubArgs) -> anyhow::Result<Box<dyn Provider>> {
    let provider = mcr_provider_namespace::NamespaceProvider::builder()
        .access(hub.hub()?)
        .build()?;
    Ok(Box::new(provider))
}

#[cfg(feature = "kubeconfig")]
async fn kubeconfig(hub: &HubArgs, secrets: &SecretArgs) -> anyhow::Result<Box<dyn Provider>> {
    use mcr_provider_kubeconfig::{KubeconfigProvider, SECRET_KEY, SECRET_LABEL};
    let mut builder = KubeconfigProvider::builder()
        .client(hub.hub()?.client().await?)
        .label(
            secrets.kubeconfig_label.as_deref().unwrap_or(SECRET_LABEL),
            "true",
        )
        .key(secrets.kubeconfig_key.as_deref().unwrap_or(SECRET_KEY));
    if let Some(namespace) = &secrets.namespace {
        builder = builder.namespace(namespace);
    }
    Ok(Box::new(builder.build()?))
}

#[cfg(feature = "cluster-api")]
async fn cluster_api(hub: &HubArgs, args: &SecretArgs) -> anyhow::Result<Box<dyn Provider>> {
    let builder = mcr_provider_cluster_api::ClusterApiProvider::builder().client(hub.hub()?.client().await?);
    Ok(Box::new(chosen!(builder, args).build()?))
}

#[cfg(feature = "cluster-inventory")]
async fn cluster_inventory(hub: &HubArgs, args: &SecretArgs) -> anyhow::Result<Box<dyn Provider>> {
    let Some(providers) = &args.access_providers else {
        bail!("--provider cluster-inventory needs --clusterprofile-provider-file");
    };
    let builder = mcr_provider_cluster_inventory::ClusterInventoryProvider::builder()
        .client(hub.hub()?.client().await?)
        .access_providers(providers.clone());
    Ok(Box::new(chosen!(builder, args).build()?))
}

#[cfg(feature = "gardener")]
async fn gardener(hub: &HubArgs, args: &SecretArgs) -> anyhow::Result<Box<dyn Provider>> {
    let builder = mcr_provider_gardener::GardenerProvider::builder().client(hub.hub()?.client().await?);
    Ok(Box::new(chosen!(builder, args).build()?))
}

#[cfg(feature = "kcp")]
fn kcp(hub: &HubArgs, slice: Option<&str>, export: Option<&str>) -> anyhow::Result<Box<dyn Provider>> {
    let builder = mcr_provider_kcp::KcpProvider::builder().access(hub.hub()?);
    let builder = match (slice, export) {
        (Some(slice), _) => builder.slice(slice),
        (None, Some(export)) => builder.export(export),
        (None, None) => bail!("--provider kcp needs --slice or --export"),
    };
    Ok(Box::new(builder.build()?))
}

#[cfg(feature = "kind")]
fn kind(prefix: Option<&str>) -> anyhow::Result<Box<dyn Provider>> {
    let provider = mcr_provider_kind::KindProvider::builder()
        .prefix(prefix.unwrap_or_default())
        .build()?;
    Ok(Box::new(provider))
}
