//! One controller over the clusters of an inventory: prints every ConfigMap of every cluster that has a ClusterProfile.

use std::{fmt, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Context;
use clap::Parser;
use examples::{Output, OutputArgs, printable};
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{
    AccessPolicy, Action, AddressPolicy, BoxError, ClusterSelector, Controller, Request, RequestObject,
    args::{HubArgs, ManagerArgs},
};
use mcr_provider_cluster_inventory::{AccessProviders, ClusterInventoryProvider, VERSION_PROPERTY};
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  cargo run -p examples --features cluster-inventory --example cluster-inventory -- --hub-context hub --namespace fleet \\
    --clusterprofile-provider-file providers.json
  cargo run -p examples --features cluster-inventory --example cluster-inventory -- --all-namespaces --selector env=prod \\
    --clusterprofile-provider-file providers.json --format json";

/// Reconcile the ConfigMaps of all clusters of an inventory, while its ClusterProfiles are created, change and are deleted.
///
/// The hub is the cluster with the ClusterProfiles. A cluster is connected once its cluster manager reports that it is healthy
/// and how to reach it. It is suspended while it is not healthy, and leaves when its ClusterProfile is deleted.
///
/// A line has the cluster with its region and its version of Kubernetes, the namespace and name of the object, and the
/// state that the reconciler saw ("event"): `live` for an object that exists, `deleted` for one that was deleted. The log
/// on stderr has the changes of clusters (see RUST_LOG).
#[derive(Parser)]
#[command(after_long_help = EXAMPLES)]
struct Args {
    #[command(flatten)]
    hub: HubArgs,
    /// The namespace of the inventory [default: that of the hub's context]
    #[arg(long, value_name = "NAMESPACE", help_heading = "Clusters")]
    namespace: Option<String>,
    /// Use the inventories of all namespaces; a cluster is then named NAMESPACE/NAME
    #[arg(long, conflicts_with = "namespace", help_heading = "Clusters")]
    all_namespaces: bool,
    /// Use only the ClusterProfiles that this label selector matches
    #[arg(long, value_name = "SELECTOR", help_heading = "Clusters")]
    selector: Option<String>,
    /// The provider file, which names a plugin for each access provider; only these plugins are run
    #[arg(long, value_name = "PATH", help_heading = "Clusters")]
    clusterprofile_provider_file: PathBuf,
    /// Let ClusterProfiles lead to this machine
    #[arg(long, help_heading = "Clusters")]
    allow_loopback: bool,
    #[command(flatten)]
    manager: ManagerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is printed.
#[derive(Serialize)]
struct Line<'a> {
    cluster: &'a str,
    /// The property `region` of the ClusterProfile, if it has it.
    region: Option<String>,
    version: Option<String>,
    namespace: &'a str,
    name: &'a str,
    event: &'static str,
}

async fn reconcile(request: Request<ConfigMap>, output: Arc<Output>) -> Result<Action, BoxError> {
    let event = match request.object {
        RequestObject::Live(_) => "live",
        RequestObject::Deleted { .. } => "deleted",
        _ => return Ok(Action::done()),
    };
    output.record(&Line {
        cluster: request.cluster.name().as_str(),
        region: request.cluster.property("region"),
        version: request.cluster.property(VERSION_PROPERTY),
        namespace: request.namespace().unwrap_or_default(),
        name: request.name(),
        event,
    });
    Ok(Action::done())
}

/// The clusters of the inventory.
async fn clusters(args: &Args, providers: AccessProviders) -> anyhow::Result<ClusterInventoryProvider> {
    let mut builder = ClusterInventoryProvider::builder()
        .client(args.hub.hub()?.client().await?)
        .access_providers(providers);
    if let Some(namespace) = &args.namespace {
        builder = builder.namespace(namespace);
    }
    if args.all_namespaces {
        builder = builder.all_namespaces();
    }
    if let Some(selector) = &args.selector {
        builder = builder.labels(selector);
    }
    Ok(builder.build()?)
}

async fn run(args: Args) -> anyhow::Result<()> {
    let providers = AccessProviders::from_file(&args.clusterprofile_provider_file)
        .context("--clusterprofile-provider-file")?;
    let policy = AccessPolicy::default()
        .addresses(AddressPolicy::default().allow_loopback(args.allow_loopback))
        // The fleet runs these plugins and no others.
        .credential_plugins(providers.plugin_policy());
    let (output, stop) = args.output.start()?;
    // `all` takes in a Cluster that happens to be named `hub` as well, which controllers leave out by default.
    let controller = Controller::<ConfigMap>::new("configmaps")
        .clusters(ClusterSelector::all())
        .build(reconcile, Arc::new(output));
    let manager = args
        .manager
        .manager_in(&args.hub)
        .provider(clusters(&args, providers).await?)
        .settings(|settings| settings.access_policy = policy)
        .controller(controller)
        .build()?;
    Ok(manager.run_until(stop).await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit(run(Args::parse()).await)
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cluster,
            region,
            version,
            namespace,
            name,
            event,
        } = self;
        let of_profile =
            [region, version].map(|value| printable(value.as_deref().unwrap_or("?")).to_string());
        write!(
            f,
            "{event:<8} {} ({})  {namespace}/{name}",
            printable(cluster),
            of_profile.join(", ")
        )
    }
}
