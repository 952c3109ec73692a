//! The health of a whole fleet in one ConfigMap of the hub: how many clusters of each region are ready, and which are not,
//! with the reason. It works with any provider, is a task of the manager, and needs no right in the clusters.

use std::{collections::BTreeMap, fmt, process::ExitCode, time::Duration};

use clap::Parser;
use examples::{FleetArgs, Output, OutputArgs, printable};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use mcr::{BoxError, Fleet, HUB, core::FleetSnapshot};
use serde::Serialize;
use serde_json::json;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

const EVERY: Duration = Duration::from_secs(1);
const WITHIN: Duration = Duration::from_secs(10);

/// Write the health of the fleet to the ConfigMap `fleet-health` of the hub, and print it, whenever it changes.
/// /// Clusters are counted by the value of a label or property, such as their region or their cluster set.
#[derive(Parser)]
#[command(after_long_help = "Examples:
  cargo run -p examples --example fleet-health -- --hub-context hub
  cargo run -p examples --features cluster-inventory --example fleet-health -- --provider cluster-inventory \\
    --clusterprofile-provider-file providers.json --by clusterset.k8s.io --format json")]
struct Args {
    #[command(flatten)]
    fleet: FleetArgs,
    /// The label or property by whose value clusters are counted
    #[arg(long, value_name = "NAME", default_value = "region")]
    by: String,
    /// The namespace of the ConfigMap in the hub
    #[arg(long, value_name = "NAMESPACE", default_value = "default")]
    report_namespace: String,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Default, PartialEq, Serialize)]
struct Report {
    ready: usize,
    clusters: usize,
    /// By the value of the label or property: ready clusters, and all.
    groups: BTreeMap<String, (usize, usize)>,
    /// The reason, by the name of the cluster.
    failing: BTreeMap<String, String>,
}

impl Report {
    fn of(fleet: &FleetSnapshot, by: &str) -> Self {
        let mut report = Self::default();
        for cluster in fleet.clusters.iter().filter(|cluster| cluster.name != HUB) {
            let value = cluster.labels.get(by).or_else(|| cluster.properties.get(by));
            let group = value.map_or("unknown", String::as_str).to_owned();
            let (ready, all) = report.groups.entry(group).or_default();
            (*all, report.clusters) = (*all + 1, report.clusters + 1);
            match cluster.not_ready() {
                None => (*ready, report.ready) = (*ready + 1, report.ready + 1),
                Some(why) => _ = report.failing.insert(cluster.name.to_string(), why),
            }
        }
        report
    }

    async fn write(&self, fleet: &Fleet, namespace: &str) -> Result<(), BoxError> {
        let data =
            json!({"ready": format!("{} of {}", self.ready, self.clusters), "report": self.to_string()});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fleet-health"}, "data": data});
        let apply = PatchParams::apply("fleet-health").force();
        let maps = fleet.get(HUB)?.namespaced::<ConfigMap>(namespace);
        timeout(WITHIN, maps.patch("fleet-health", &apply, &Patch::Apply(map))).await??;
        Ok(())
    }
}

async fn follow(fleet: Fleet, stop: CancellationToken, args: &Args, output: &Output) {
    stop.run_until_cancelled(fleet.discovered()).await;
    let mut written = Report::default();
    // Not every change of a snapshot has an event, and a write that failed is tried again.
    let mut looks = interval(EVERY);
    while stop.run_until_cancelled(looks.tick()).await.is_some() {
        let report = Report::of(&fleet.snapshot(), &args.by);
        if report == written {
            continue;
        }
        match stop
            .run_until_cancelled(report.write(&fleet, &args.report_namespace))
            .await
        {
            Some(Ok(())) => output.record(&report),
            Some(Err(error)) => {
                tracing::warn!(error, "no report was written");
                continue;
            }
            None => return,
        }
        written = report;
    }
}

async fn run(args: Args) -> anyhow::Result<()> {
    let (output, stop) = args.output.start()?;
    let manager = args
        .fleet
        .manager_with_hub()
        .await?
        .task("health", |fleet, stop| async move {
            follow(fleet, stop, &args, &output).await;
            Ok(())
        });
    Ok(manager.build()?.run_until(stop).await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit(run(Args::parse()).await)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} clusters are ready", self.ready, self.clusters)?;
        for (group, (ready, all)) in &self.groups {
            write!(f, "\n  {}: {ready} of {all}", printable(group))?;
        }
        for (cluster, why) in &self.failing {
            write!(f, "\n  {}: {}", printable(cluster), printable(why))?;
        }
        Ok(())
    }
}
