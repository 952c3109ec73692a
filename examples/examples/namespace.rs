//! One cluster as a fleet: each of its namespaces is a cluster.
//!
//! The counterpart of the Go project's `namespace` example.

use std::{fmt, process::ExitCode, sync::Arc};

use anyhow::Context;
use clap::Parser;
use examples::{Output, OutputArgs, printable};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use mcr::{Action, BoxError, Controller, Manager, Request, RequestObject, args::HubArgs};
use mcr_provider_namespace::NamespaceProvider;
use mcr_testkit::sim::SimCluster;
use serde::Serialize;
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  cargo run -p examples --features namespace --example namespace
  cargo run -p examples --features namespace --example namespace -- --hub-kubeconfig ~/.kube/config";

/// Reconcile the animals of all namespaces of one cluster, where each namespace is a cluster of its own.
///
/// The cluster is the hub; without --hub-kubeconfig and --hub-context it is a simulated one.
///
/// First creates the namespaces zoo, jungle and island, with a ConfigMap for each animal that lives there. Then
/// prints a line for each animal: its cluster, namespace and name, and the state that the reconciler saw ("event"):
/// `live` or `deleted`. Cluster and namespace have the same name.
#[derive(Parser)]
#[command(after_long_help = EXAMPLES)]
struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const ANIMALS: [(&str, &[&str]); 3] = [
    ("zoo", &["elephant", "lion"]),
    ("jungle", &["monkey"]),
    ("island", &["bird"]),
];

/// What is printed.
#[derive(Serialize)]
struct Line<'a> {
    cluster: &'a str,
    namespace: &'a str,
    name: &'a str,
    event: &'static str,
}

async fn reconcile(request: Request<ConfigMap>, output: Arc<Output>) -> Result<Action, BoxError> {
    let event = match &request.object {
        RequestObject::Live(_) => "live",
        // The watch has a selector, so the request does not show whether the label or the object is gone.
        RequestObject::LeftWatch { .. } if request.confirm_deleted().await? => "deleted",
        RequestObject::LeftWatch { .. } => "left",
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

/// The cluster whose namespaces are clusters.
async fn host(args: &HubArgs) -> anyhow::Result<Client> {
    if args.hub_kubeconfig.is_none() && args.hub_context.is_none() {
        return Ok(SimCluster::builder().name("host").build().client());
    }
    Ok(args.hub()?.client().await?)
}

/// Makes namespaces and animals, where they are not there.
async fn converge(host: &Client) -> anyhow::Result<()> {
    let apply = PatchParams::apply("namespace-example").force();
    for (place, animals) in ANIMALS {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}});
        let namespaces: Api<Namespace> = Api::all(host.clone());
        namespaces
            .patch(place, &apply, &Patch::Apply(namespace))
            .await
            .with_context(|| format!("making namespace {place}"))?;
        for animal in animals {
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": animal, "labels": {"type": "animal"}}, "data": {"stomach": "food"},
            });
            let maps: Api<ConfigMap> = Api::namespaced(host.clone(), place);
            maps.patch(animal, &apply, &Patch::Apply(map))
                .await
                .with_context(|| format!("making {place}/{animal}"))?;
        }
    }
    Ok(())
}

async fn run(args: Args) -> anyhow::Result<()> {
    let (output, stop) = args.output.start()?;
    let host = host(&args.hub).await?;
    converge(&host).await?;
    let controller = Controller::<ConfigMap>::new("animals")
        .watch_request(|watch| watch.labels("type=animal"))
        .build(reconcile, Arc::new(output));
    let namespaces = NamespaceProvider::builder().client(host).build()?;
    let manager = Manager::builder()
        .provider(namespaces)
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
            namespace,
            name,
            event,
        } = self;
        write!(f, "{event:<8} {}  {namespace}/{name}", printable(cluster))
    }
}
