//! A reconciler written for kube-rs' own `Controller`, unchanged, on every cluster of a fleet.
//!
//! It counts the entries of each ConfigMap labelled `example.io/count: "true"` and writes the number into the
//! annotation `example.io/entries`.

use std::{fmt, process::ExitCode, sync::Arc};

use clap::Parser;
use examples::{FleetArgs, Output, OutputArgs, printable};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    runtime::{Controller as KubeController, watcher},
};
use mcr::Controller;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  cargo run -p examples --example uniform -- --kubeconfigs a.yaml,b.yaml
  cargo run -p examples --example uniform -- --plain";

/// Run a reconciler taken from plain kube-rs, unchanged, on every cluster.
///
/// The reconciler keeps the annotation `example.io/entries` of each ConfigMap with the label `example.io/count:
/// "true"` equal to the number of its entries, and prints a line for each reconcile.
#[derive(Parser)]
#[command(after_long_help = EXAMPLES)]
struct Args {
    /// Run the very same functions with kube-rs' Controller instead, on the one cluster kubectl would use
    #[arg(long, conflicts_with_all = ["provider", "kubeconfigs", "kubeconfig_dirs", "globs"])]
    plain: bool,
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const LABEL: &str = "example.io/count=true";

use plain_kube_rs::{Ctx, error_policy, reconcile};

// ---- This is plain kube-rs code: it has one client and knows nothing of fleets. ------------------------------
mod plain_kube_rs {
    use std::{sync::Arc, time::Duration};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{
        Api, Client, ResourceExt,
        api::{Patch, PatchParams},
        runtime::controller::Action,
    };
    use serde_json::json;

    pub(crate) type Report = Box<dyn Fn(&ConfigMap, usize) + Send + Sync>;

    /// What the reconciler works with.
    pub(crate) struct Ctx {
        pub(crate) client: Client,
        pub(crate) report: Report,
    }

    #[derive(Debug, thiserror::Error)]
    pub(crate) enum Error {
        #[error("can't write the number of entries: {0}")]
        Patch(#[source] kube::Error),
    }

    pub(crate) async fn reconcile(map: Arc<ConfigMap>, ctx: Arc<Ctx>) -> Result<Action, Error> {
        let entries = map.data.as_ref().map_or(0, |data| data.len());
        let entries = entries + map.binary_data.as_ref().map_or(0, |data| data.len());
        if map.annotations().get("example.io/entries") != Some(&entries.to_string()) {
            let maps: Api<ConfigMap> = Api::namespaced(
                ctx.client.clone(),
                map.namespace().as_deref().unwrap_or("default"),
            );
            let patch = json!({"metadata": {"annotations": {"example.io/entries": entries.to_string()}}});
            maps.patch(&map.name_any(), &PatchParams::default(), &Patch::Merge(patch))
                .await
                .map_err(Error::Patch)?;
        }
        (ctx.report)(&map, entries);
        Ok(Action::await_change())
    }

    pub(crate) fn error_policy(_: Arc<ConfigMap>, _: &Error, _: Arc<Ctx>) -> Action {
        Action::requeue(Duration::from_secs(5))
    }
}
// ---- End of the plain kube-rs code. ---------------------------------------------------------------------------

/// On one cluster, as every kube-rs program does it.
async fn on_one_cluster(client: Client, output: Output, stop: CancellationToken) {
    let ctx = Ctx {
        client: client.clone(),
        report: report(output, "the one cluster".to_owned()),
    };
    KubeController::new(
        Api::<ConfigMap>::all(client),
        watcher::Config::default().labels(LABEL),
    )
    .graceful_shutdown_on(stop.cancelled_owned())
    .run(reconcile, error_policy, Arc::new(ctx))
    .for_each(|result| async move {
        if let Err(error) = result {
            tracing::warn!(%error, "reconcile failed");
        }
    })
    .await;
}

/// On every cluster of the fleet: a context for each, and the rest is the same.
async fn on_every_cluster(args: &FleetArgs, output: Output, stop: CancellationToken) -> anyhow::Result<()> {
    let controller = Controller::<ConfigMap>::new("uniform")
        .watch_request(|watch| watch.labels(LABEL))
        .build_uniform(reconcile, error_policy, move |cluster| Ctx {
            client: cluster.client(),
            report: report(output.clone(), cluster.name().to_string()),
        });
    let manager = args.manager().await?.controller(controller).build()?;
    Ok(manager.run_until(stop).await?)
}

async fn run(args: Args) -> anyhow::Result<()> {
    let (output, stop) = args.output.start()?;
    if args.plain {
        on_one_cluster(Client::try_default().await?, output, stop).await;
        return Ok(());
    }
    on_every_cluster(&args.fleet, output, stop).await
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit(run(Args::parse()).await)
}

/// What is printed.
#[derive(Serialize)]
struct Line<'a> {
    cluster: &'a str,
    namespace: &'a str,
    name: &'a str,
    entries: usize,
}

/// Prints where something was counted: the context knows its cluster, the reconciler need not.
fn report(output: Output, cluster: String) -> plain_kube_rs::Report {
    Box::new(move |map, entries| {
        output.record(&Line {
            cluster: &cluster,
            namespace: map.metadata.namespace.as_deref().unwrap_or_default(),
            name: map.metadata.name.as_deref().unwrap_or_default(),
            entries,
        });
    })
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cluster,
            namespace,
            name,
            entries,
        } = self;
        let plural = if *entries == 1 { "entry" } else { "entries" };
        write!(
            f,
            "{}  {namespace}/{name} has {entries} {plural}",
            printable(cluster)
        )
    }
}
