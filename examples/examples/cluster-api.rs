//! One controller over the clusters that Cluster API makes: prints every ConfigMap of every cluster.
//!
//! The counterpart of the Go project's `cluster-api` example.

use std::{fmt, process::ExitCode, sync::Arc};

use clap::Parser;
use examples::{Output, OutputArgs, printable};
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{
    AccessPolicy, Action, AddressPolicy, BoxError, ClusterSelector, Controller, Request, RequestObject,
    args::{HubArgs, ManagerArgs},
};
use mcr_provider_cluster_api::{ClusterApiProvider, VERSION_PROPERTY};
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  cargo run -p examples --features cluster-api --example cluster-api -- --hub-context management --all-namespaces
  cargo run -p examples --features cluster-api --example cluster-api -- --namespace fleet --selector env=prod
  cargo run -p examples --features cluster-api --example cluster-api -- --format json | jq .cluster";

/// Reconcile the ConfigMaps of all clusters that Cluster API manages, while clusters are created, upgraded and deleted.
///
/// The hub is the management cluster. A cluster is connected once its control plane is initialized and its kubeconfig
/// Secret is there, and leaves when the deletion of its Cluster begins. A new kubeconfig, as Cluster API writes it before
/// a certificate expires, interrupts nothing.
///
/// A line has the cluster with its version of Kubernetes, the namespace and name of the object, and the state that the
/// reconciler saw ("event"): `live` for an object that exists, `deleted` for one that was deleted. The log on stderr
/// has the changes of clusters (see RUST_LOG).
#[derive(Parser)]
#[command(after_long_help = EXAMPLES)]
struct Args {
    #[command(flatten)]
    hub: HubArgs,
    /// The namespace of the Clusters [default: that of the hub's context]
    #[arg(long, value_name = "NAMESPACE", help_heading = "Clusters")]
    namespace: Option<String>,
    /// Use the Clusters of all namespaces; a cluster is then named NAMESPACE/NAME
    #[arg(long, conflicts_with = "namespace", help_heading = "Clusters")]
    all_namespaces: bool,
    /// Use only the Clusters that this label selector matches
    #[arg(long, value_name = "SELECTOR", help_heading = "Clusters")]
    selector: Option<String>,
    /// Let kubeconfigs lead to this machine, as those of Cluster API's Docker provider do
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
    /// The version of Kubernetes, if the Cluster has it.
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
        version: request.cluster.properties().remove(VERSION_PROPERTY),
        namespace: request.namespace().unwrap_or_default(),
        name: request.name(),
        event,
    });
    Ok(Action::done())
}

/// The clusters of Cluster API.
async fn clusters(args: &Args) -> anyhow::Result<ClusterApiProvider> {
    let mut builder = ClusterApiProvider::builder().client(args.hub.hub()?.client().await?);
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
    let (output, stop) = args.output.start()?;
    // `all` takes in a Cluster that happens to be named `hub` as well, which controllers leave out by default.
    let controller = Controller::<ConfigMap>::new("configmaps")
        .clusters(ClusterSelector::all())
        .build(reconcile, Arc::new(output));
    let addresses = AddressPolicy::default().allow_loopback(args.allow_loopback);
    let manager = args
        .manager
        .manager_in(&args.hub)
        .provider(clusters(&args).await?)
        .settings(|settings| settings.access_policy = AccessPolicy::default().addresses(addresses))
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
            version,
            namespace,
            name,
            event,
        } = self;
        let version = version.as_deref().unwrap_or("?");
        write!(
            f,
            "{event:<8} {} ({})  {namespace}/{name}",
            printable(cluster),
            printable(version)
        )
    }
}
