//! The built-in providers, by the enabled features.

use super::Linked;

pub(crate) fn builtin() -> Vec<Linked> {
    vec![
        #[cfg(feature = "file")]
        file(),
        #[cfg(feature = "kubeconfig")]
        kubeconfig(),
        #[cfg(feature = "cluster-api")]
        cluster_api(),
        #[cfg(feature = "cluster-inventory")]
        cluster_inventory(),
        #[cfg(feature = "gardener")]
        gardener(),
        #[cfg(feature = "kcp")]
        kcp(),
        #[cfg(feature = "kcp")]
        initializing(),
        #[cfg(feature = "kcp")]
        terminating(),
        #[cfg(feature = "kind")]
        kind(),
        #[cfg(feature = "namespace")]
        namespace(),
        #[cfg(feature = "single")]
        single(),
    ]
}

#[cfg(feature = "file")]
fn file() -> Linked {
    let about = "Every context of kubeconfig files is a cluster";
    Linked::new(
        "file",
        about,
        super::Kind::File,
        async |options: super::ProviderOptions| {
            let flags = options.flags();
            let built = mcr_provider_file::FileProvider::builder()
                .files(&flags.kubeconfigs)
                .dirs(&flags.kubeconfig_dirs)
                .globs(&flags.globs)
                .build()?;
            Ok(built)
        },
    )
}

#[cfg(feature = "kubeconfig")]
fn kubeconfig() -> Linked {
    use mcr_provider_kubeconfig::{KubeconfigProvider, SECRET_KEY, SECRET_LABEL};
    let about = "Each Secret of the hub that holds a kubeconfig is a cluster";
    Linked::new(
        "kubeconfig",
        about,
        super::Kind::Kubeconfig,
        async |options: super::ProviderOptions| {
            let flags = options.flags();
            let mut builder = KubeconfigProvider::builder()
                .client(options.hub().await?)
                .label(flags.kubeconfig_label.as_deref().unwrap_or(SECRET_LABEL), "true")
                .key(flags.kubeconfig_key.as_deref().unwrap_or(SECRET_KEY))
                // The plugins of another provider are not for these kubeconfigs.
                .access_policy(flags.policy())
                // No events: the command only reads, and the controller's provider writes them.
                .events(false);
            if let Some(namespace) = &flags.namespace {
                builder = builder.namespace(namespace);
            } else if flags.all_namespaces {
                builder = builder.all_namespaces();
            }
            Ok(builder.build()?)
        },
    )
}

#[cfg(feature = "cluster-api")]
fn cluster_api() -> Linked {
    let about = "Each Cluster of Cluster API in the hub";
    Linked::new(
        "cluster-api",
        about,
        super::Kind::ClusterApi,
        async |options: super::ProviderOptions| {
            let flags = options.flags();
            let mut builder = mcr_provider_cluster_api::ClusterApiProvider::builder()
                .client(options.hub().await?)
                // The plugins of another provider are not for these kubeconfigs.
                .access_policy(flags.policy())
                // No events: the command only reads, and the controller's provider writes them.
                .events(false);
            if let Some(namespace) = &flags.namespace {
                builder = builder.namespace(namespace);
            } else if flags.all_namespaces {
                builder = builder.all_namespaces();
            }
            if let Some(selector) = &flags.selector {
                builder = builder.labels(selector);
            }
            Ok(builder.build()?)
        },
    )
}

#[cfg(feature = "cluster-inventory")]
fn cluster_inventory() -> Linked {
    let about = "Each ClusterProfile of the Cluster Inventory API in the hub";
    Linked::new(
        "cluster-inventory",
        about,
        super::Kind::ClusterInventory,
        async |options: super::ProviderOptions| {
            let flags = options.flags();
            let mut builder = mcr_provider_cluster_inventory::ClusterInventoryProvider::builder()
                .client(options.hub().await?);
            builder = match &flags.consumer {
                Some(consumer) => builder.consumer_secrets(consumer.as_str()),
                // Without a provider file the inventory is shown, and no cluster can be reached.
                None => builder.access_providers(flags.access_providers.clone().unwrap_or_default()),
            };
            if let Some(namespace) = &flags.namespace {
                builder = builder.namespace(namespace);
            } else if flags.all_namespaces {
                builder = builder.all_namespaces();
            }
            if let Some(selector) = &flags.selector {
                builder = builder.labels(selector);
            }
            Ok(builder.build()?)
        },
    )
}

#[cfg(feature = "gardener")]
fn gardener() -> Linked {
    let about = "Each Shoot of Gardener in the hub";
    Linked::new(
        "gardener",
        about,
        super::Kind::Gardener,
        async |options: super::ProviderOptions| {
            let flags = options.flags();
            let mut builder = mcr_provider_gardener::GardenerProvider::builder()
                .client(options.hub().await?)
                // The plugins of another provider are not for these kubeconfigs.
                .access_policy(flags.policy());
            if let Some(namespace) = &flags.namespace {
                builder = builder.namespace(namespace);
            } else if flags.all_namespaces {
                builder = builder.all_namespaces();
            }
            if let Some(selector) = &flags.selector {
                builder = builder.labels(selector);
            }
            if flags.viewer {
                builder = builder.viewer();
            }
            if flags.seed {
                builder = builder.topology(mcr_provider_gardener::Topology::Seed);
            }
            Ok(builder.build()?)
        },
    )
}

#[cfg(feature = "kcp")]
fn kcp() -> Linked {
    use super::ReadyWhen;
    use mcr_provider_kcp::{KcpProvider, Readiness};
    let about = "Each kcp workspace that binds an APIExport of the hub";
    Linked::new(
        "kcp",
        about,
        super::Kind::Kcp(super::KcpApi::Export),
        async |options: super::ProviderOptions| {
            let flags = options.flags();
            let builder = KcpProvider::builder().access(options.hub_access().await?);
            let builder = match (&flags.slice, &flags.export) {
                (Some(slice), _) => builder.slice(slice.as_str()),
                (None, Some(export)) => builder.export(export.as_str()),
                (None, None) => {
                    return Err("give the name of an APIExportEndpointSlice with --slice, or of an APIExport with --export".into());
                }
            };
            let readiness = match flags.readiness {
                ReadyWhen::Bound => Readiness::Bound,
                ReadyWhen::Ready => Readiness::Ready,
                ReadyWhen::PermissionClaimsApplied => Readiness::PermissionClaimsApplied,
            };
            let prefix = flags.name_prefix.clone().unwrap_or_default();
            Ok(builder.readiness(readiness).name_prefix(prefix).build()?)
        },
    )
}

#[cfg(feature = "kcp")]
fn initializing() -> Linked {
    use mcr_provider_kcp::InitializingWorkspaces;
    let about = "Each new kcp workspace that waits for the initializer of a WorkspaceType of the hub";
    Linked::new(
        "kcp-initializing",
        about,
        super::Kind::Kcp(super::KcpApi::Initializing),
        async |options| {
            Ok(of_type(InitializingWorkspaces::builder(), options)
                .await?
                .build()?)
        },
    )
}

#[cfg(feature = "kcp")]
fn terminating() -> Linked {
    use mcr_provider_kcp::TerminatingWorkspaces;
    let about = "Each deleted kcp workspace that waits for the terminator of a WorkspaceType of the hub";
    Linked::new(
        "kcp-terminating",
        about,
        super::Kind::Kcp(super::KcpApi::Terminating),
        async |options| {
            Ok(of_type(TerminatingWorkspaces::builder(), options)
                .await?
                .build()?)
        },
    )
}

#[cfg(feature = "kcp")]
async fn of_type<P>(
    builder: mcr_provider_kcp::LifecycleBuilder<P>,
    options: super::ProviderOptions,
) -> Result<mcr_provider_kcp::LifecycleBuilder<P>, mcr_core::BoxError> {
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
fn kind() -> Linked {
    let about = "Each kind cluster in Docker, nerdctl or Podman";
    Linked::new(
        "kind",
        about,
        super::Kind::Engine,
        async |options: super::ProviderOptions| {
            let prefix = options.flags().prefix.clone().unwrap_or_default();
            Ok(mcr_provider_kind::KindProvider::builder()
                .prefix(prefix)
                .build()?)
        },
    )
}

#[cfg(feature = "namespace")]
fn namespace() -> Linked {
    let about = "Each namespace of the hub is a cluster";
    Linked::new(
        "namespace",
        about,
        super::Kind::Other,
        async |options: super::ProviderOptions| {
            let host = options.hub_access().await?;
            Ok(mcr_provider_namespace::NamespaceProvider::builder()
                .access(host)
                .build()?)
        },
    )
}

#[cfg(feature = "single")]
fn single() -> Linked {
    let about = "The hub itself, named local";
    Linked::new(
        "single",
        about,
        super::Kind::Other,
        async |options: super::ProviderOptions| {
            let access = options.hub_access().await?;
            let name = mcr_core::ClusterName::new(mcr_core::SINGLE_CLUSTER)?;
            Ok(mcr_provider_single::SingleProvider::new(name, access))
        },
    )
}
