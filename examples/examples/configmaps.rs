//! One controller over many clusters: prints every ConfigMap of every cluster, and every one that is deleted.
//!
//! The counterpart of the Go project's `file` example.

use std::{fmt, process::ExitCode, sync::Arc};

use clap::Parser;
use examples::{FleetArgs, Output, OutputArgs, printable};
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, BoxError, Controller, Request, RequestObject};
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  cargo run -p examples --example configmaps -- --kubeconfigs a.yaml,b.yaml
  cargo run -p examples --example configmaps -- --kubeconfig-dirs /etc/fleet --format json | jq .name
  cargo run -p examples --features kubeconfig --example configmaps -- --provider kubeconfig --namespace fleet
  cargo run -p examples --example configmaps -- --serve 127.0.0.1:8080 & curl -s 127.0.0.1:8080/clusters | jq";

/// Reconcile the ConfigMaps of all clusters and print each one, also while clusters join, change and leave.
///
/// A line has the cluster, the namespace and name of the object, and the state that the reconciler saw ("event"):
/// `live` for an object that exists, new or changed, `deleted` for one that was deleted. A cluster that leaves does
/// not count as a deletion of its objects. The log on stderr has the changes of clusters (see RUST_LOG).
#[derive(Parser)]
#[command(after_long_help = EXAMPLES)]
struct Args {
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is printed.
#[derive(Serialize)]
struct Line<'a> {
    cluster: &'a str,
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
        namespace: request.namespace().unwrap_or_default(),
        name: request.name(),
        event,
    });
    Ok(Action::done())
}

async fn run(args: Args) -> anyhow::Result<()> {
    let (output, stop) = args.output.start()?;
    // `all` takes in a cluster that happens to be named `hub` as well, which controllers leave out by default.
    let controller = Controller::<ConfigMap>::new("configmaps")
        .clusters(mcr::ClusterSelector::all())
        .build(reconcile, Arc::new(output));
    let manager = args.fleet.manager().await?.controller(controller).build()?;
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
            namespace,
            name,
            event,
        } = self;
        write!(f, "{event:<8} {}  {namespace}/{name}", printable(cluster))
    }
}
