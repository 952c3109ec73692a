//! The built-in providers, by the enabled features.

#![cfg_attr(
    not(all(feature = "kubeconfig", feature = "kcp")),
    allow(
        unused_imports,
        unused_macros,
        reason = "used by the providers that are compiled in"
    )
)]

use mcr_core::BoxError;

use super::{LinkedProvider, ProviderOptions};

macro_rules! linked {
    ($($feature:literal: $name:literal, $selects:literal, $make:expr, $about:literal;)*) => {
        vec![$(#[cfg(feature = $feature)] LinkedProvider::new($name, $about, $selects, $make)),*]
    };
}

pub(crate) fn builtin() -> Vec<LinkedProvider> {
    linked! {
        "file": "file", false, file, "Every context of kubeconfig files is a cluster";
        "kubeconfig": "kubeconfig", false, kubeconfig, "Each Secret of the hub that holds a kubeconfig is a cluster";
        "cluster-api": "cluster-api", true, cluster_api, "Each Cluster of Cluster API in the hub";
        "cluster-inventory": "cluster-inventory", true, cluster_inventory,
            "Each ClusterProfile of the Cluster Inventory API in the hub";
        "gardener": "gardener", true, gardener, "Each Shoot of Gardener in the hub";
        "kcp": "kcp", false, kcp, "Each kcp workspace that binds an APIExport of the hub";
        "kcp": "kcp-initializing", false, initializing,
            "Each new kcp workspace that waits for the initializer of a WorkspaceType of the hub";
        "kcp": "kcp-terminating", false, terminating,
            "Each deleted kcp workspace that waits for the terminator of a WorkspaceType of the hub";
        "kind": "kind", false, kind, "Each kind cluster in Docker, nerdctl or Podman";
        "namespace": "namespace", false, namespace, "Each namespace of the hub is a cluster";
        "single": "single", false, single, "The hub itself, named local";
    }
}

/// Sets the namespace of a builder from the flags, and its label selector if `labels` is given.
macro_rules! chosen {
    ($builder:expr, $flags:expr $(, $labels:ident)?) => {{
        let (mut builder, flags) = ($builder, $flags);
        if let Some(namespace) = &flags.namespace {
            builder = builder.namespace(namespace);
        } else if flags.all_namespaces {
            builder = builder.all_namespaces();
        }
        $(if let Some(selector) = &flags.selector {
            builder = builder.$labels(selector);
        })?
        builder
    }};
}

#[cfg(feature = "file")]
async fn file(options: ProviderOptions) -> Result<mcr_provider_file::FileProvider, BoxError> {
    let flags = options.flags();
    let builder = mcr_provider_file::FileProvider::builder().files(&flags.kubeconfigs);
    Ok(builder.dirs(&flags.kubeconfig_dirs).globs(&flags.globs).build()?)
}

#[cfg(feature = "kubeconfig")]
async fn kubeconfig(
    options: ProviderOptions,
) -> Result<mcr_provider_kubeconfig::KubeconfigProvider, BoxError> {
    use mcr_provider_kubeconfig::{KubeconfigProvider, SECRET_KEY, SECRET_LABEL};
    let flags = options.flags();
    let builder = KubeconfigProvider::builder()
        .client(options.hub().await?)
        .label(flags.kubeconfig_label.as_deref().unwrap_or(SECRET_LABEL), "true")
        .key(flags.kubeconfig_key.as_deref().unwrap_or(SECRET_KEY))
        // The flags may allow plugins for another provider, but not for these kubeconfigs.
        .access_policy(flags.policy())
        // No events, because the command only reads. The provider in the controller writes them.
        .events(false);
    Ok(chosen!(builder, flags).build()?)
}

#[cfg(feature = "cluster-api")]
async fn cluster_api(
    options: ProviderOptions,
) -> Result<mcr_provider_cluster_api::ClusterApiProvider, BoxError> {
    let flags = options.flags();
    let builder = mcr_provider_cluster_api::ClusterApiProvider::builder()
        .client(options.hub().await?)
        // The plugins of another provider are not allowed, as for Secrets.
        .access_policy(flags.policy())
        .events(false);
    Ok(chosen!(builder, flags, labels).build()?)
}

#[cfg(feature = "cluster-inventory")]
async fn cluster_inventory(
    options: ProviderOptions,
) -> Result<mcr_provider_cluster_inventory::ClusterInventoryProvider, BoxError> {
    let flags = options.flags();
    let builder =
        mcr_provider_cluster_inventory::ClusterInventoryProvider::builder().client(options.hub().await?);
    let builder = match &flags.consumer {
        Some(consumer) => builder.consumer_secrets(consumer.as_str()),
        // Without a provider file, the inventory can be shown, but no cluster can be reached.
        None => builder.access_providers(flags.access_providers.clone().unwrap_or_default()),
    };
    Ok(chosen!(builder, flags, labels).build()?)
}

#[cfg(feature = "gardener")]
async fn gardener(options: ProviderOptions) -> Result<mcr_provider_gardener::GardenerProvider, BoxError> {
    let flags = options.flags();
    let mut builder = mcr_provider_gardener::GardenerProvider::builder()
        .client(options.hub().await?)
        // The flags may allow plugins for another provider, but not for these kubeconfigs.
        .access_policy(flags.policy());
    if flags.viewer {
        builder = builder.viewer();
    }
    if flags.seed {
        builder = builder.topology(mcr_provider_gardener::Topology::Seed);
    }
    Ok(chosen!(builder, flags, labels).build()?)
}

#[cfg(feature = "kcp")]
async fn kcp(options: ProviderOptions) -> Result<mcr_provider_kcp::KcpProvider, BoxError> {
    use super::ReadyWhen;
    use mcr_provider_kcp::{KcpProvider, Readiness};
    let flags = options.flags();
    let builder = KcpProvider::builder().access(options.hub_access().await?);
    let builder = match (&flags.slice, &flags.export) {
        (Some(slice), _) => builder.slice(slice.as_str()),
        (None, Some(export)) => builder.export(export.as_str()),
        (None, None) => {
            return Err(
                "give the name of an APIExportEndpointSlice with --slice, or of an APIExport with --export"
                    .into(),
            );
        }
    };
    let readiness = match flags.readiness {
        ReadyWhen::Bound => Readiness::Bound,
        ReadyWhen::Ready => Readiness::Ready,
        ReadyWhen::PermissionClaimsApplied => Readiness::PermissionClaimsApplied,
    };
    let prefix = flags.name_prefix.clone().unwrap_or_default();
    Ok(builder.readiness(readiness).name_prefix(prefix).build()?)
}

#[cfg(feature = "kcp")]
async fn initializing(
    options: ProviderOptions,
) -> Result<mcr_provider_kcp::InitializingWorkspaces, BoxError> {
    let builder = mcr_provider_kcp::InitializingWorkspaces::builder();
    Ok(of_type(builder, options).await?.build()?)
}

#[cfg(feature = "kcp")]
async fn terminating(options: ProviderOptions) -> Result<mcr_provider_kcp::TerminatingWorkspaces, BoxError> {
    let builder = mcr_provider_kcp::TerminatingWorkspaces::builder();
    Ok(of_type(builder, options).await?.build()?)
}

#[cfg(feature = "kcp")]
async fn of_type<P>(
    builder: mcr_provider_kcp::LifecycleBuilder<P>,
    options: ProviderOptions,
) -> Result<mcr_provider_kcp::LifecycleBuilder<P>, BoxError> {
    let flags = options.flags();
    let Some(of_type) = &flags.workspace_type else {
        return Err("give the name of a WorkspaceType with --workspace-type".into());
    };
    let prefix = flags.name_prefix.clone().unwrap_or_default();
    Ok(builder
        .access(options.hub_access().await?)
        .workspace_type(of_type.as_str())
        .name_prefix(prefix))
}

#[cfg(feature = "kind")]
async fn kind(options: ProviderOptions) -> Result<mcr_provider_kind::KindProvider, BoxError> {
    let prefix = options.flags().prefix.clone().unwrap_or_default();
    Ok(mcr_provider_kind::KindProvider::builder()
        .prefix(prefix)
        .build()?)
}

#[cfg(feature = "namespace")]
async fn namespace(options: ProviderOptions) -> Result<mcr_provider_namespace::NamespaceProvider, BoxError> {
    let builder = mcr_provider_namespace::NamespaceProvider::builder();
    Ok(builder.access(options.hub_access().await?).build()?)
}

#[cfg(feature = "single")]
async fn single(options: ProviderOptions) -> Result<mcr_provider_single::SingleProvider, BoxError> {
    let name = mcr_core::ClusterName::new(mcr_core::SINGLE_CLUSTER)?;
    let access = options.hub_access().await?;
    Ok(mcr_provider_single::SingleProvider::new(name, access))
}
