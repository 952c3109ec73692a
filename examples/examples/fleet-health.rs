//! The health of a whole fleet in one ConfigMap of the hub: how many clusters of each region are ready, and which are not.
//! It works with any provider, is a task of the manager, and needs no right in the clusters.

use std::{collections::BTreeMap, fmt, time::Duration};

use clap::Parser;
use examples::{FleetArgs, Output, OutputArgs, printable};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use mcr::{BoxError, Fleet, HUB, core::FleetSnapshot};
use serde::Serialize;
use serde_json::json;
use tokio::time::{interval, timeout};

/// Write the health of the fleet to the ConfigMap fleet-health of the hub, and print it, whenever it changes.
#[derive(Parser)]
#[command(after_long_help = "cargo run -p examples --example fleet-health -- --by region --format json")]
struct Args {
    #[command(flatten)]
    fleet: FleetArgs,
    /// The label or property by whose value clusters are counted
    #[arg(long, value_name = "NAME", default_value = "region")]
    by: String,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Default, PartialEq, Serialize)]
struct Report {
    groups: BTreeMap<String, (usize, usize)>, // ready clusters, and all
    failing: BTreeMap<String, String>,        // the reasons, by the names of clusters
}

fn look(fleet: &FleetSnapshot, by: &str) -> Report {
    let mut report = Report::default();
    for cluster in fleet.clusters.iter().filter(|cluster| cluster.name != HUB) {
        let value = cluster.labels.get(by).or(cluster.properties.get(by));
        let group = value.map_or("unknown", String::as_str).to_owned();
        let (ready, all) = report.groups.entry(group).or_default();
        *all += 1;
        match cluster.not_ready() {
            None => *ready += 1,
            Some(why) => _ = report.failing.insert(cluster.name.to_string(), why),
        }
    }
    report
}

async fn write(report: &Report, fleet: &Fleet) -> Result<(), BoxError> {
    let metadata = json!({"name": "fleet-health"});
    let data = json!({"report": report.to_string()});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    let map = Patch::Apply(map);
    let apply = PatchParams::apply("fleet-health").force();
    let maps = fleet.get(HUB)?.namespaced::<ConfigMap>("default");
    timeout(Duration::from_secs(10), maps.patch("fleet-health", &apply, &map)).await??;
    Ok(())
}

async fn follow(fleet: &Fleet, args: &Args, output: &Output) {
    fleet.discovered().await;
    let mut last = None;
    // A write that failed is tried again, and not every change of a snapshot has an event.
    let mut ticks = interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        let report = look(&fleet.snapshot(), &args.by);
        if last.as_ref() == Some(&report) {
            continue;
        }
        match write(&report, fleet).await {
            Ok(()) => output.record(last.insert(report)),
            Err(error) => tracing::warn!(error, "no report was written"),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let (output, stop) = args.output.start()?;
    let manager = args.fleet.manager_with_hub().await?;
    let manager = manager.task("health", |fleet, stop| async move {
        stop.run_until_cancelled(follow(&fleet, &args, &output)).await;
        Ok(())
    });
    Ok(manager.build()?.run_until(stop).await?)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (group, (ready, all)) in &self.groups {
            writeln!(f, "{}: {ready} of {all} ready", printable(group))?;
        }
        let mut failing = self.failing.iter();
        failing.try_for_each(|(name, why)| writeln!(f, "{}: {}", printable(name), printable(why)))
    }
}
