//! A report on the whole fleet, written to the hub every 30 seconds: how many nodes and Pods each cluster has, or why
//! that is not known. It is a task of the manager and needs no controller.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use mcr::{BoxError, Fleet, HUB, args::Args};
use mcr_provider_file::FileProvider;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

const EVERY: Duration = Duration::from_secs(30);

pub(crate) async fn run(fleet: Fleet, stop: CancellationToken, every: Duration) -> Result<(), BoxError> {
    stop.run_until_cancelled(fleet.discovered()).await;
    let mut ticks = interval(every);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        if let Err(error) = report(&fleet, every).await {
            tracing::warn!(error, "no report was written");
        }
    }
    Ok(())
}

async fn report(fleet: &Fleet, limit: Duration) -> Result<(), BoxError> {
    // The snapshot has also the clusters whose description is unusable.
    let members = fleet.snapshot().clusters.into_iter();
    let lines = members.filter(|member| member.name != HUB).map(async |member| {
        let counts = count_all(fleet, &member.name, limit).await;
        let missing = |error| format!("missing: {error}");
        (member.name.slug(), counts.unwrap_or_else(missing))
    });
    let data: BTreeMap<_, _> = join_all(lines).await.into_iter().collect();
    let metadata = json!({"name": "fleet-report"});
    let report = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    let apply = PatchParams::apply("fleet-report").force();
    let maps = fleet.get(HUB)?.namespaced::<ConfigMap>("default");
    maps.patch("fleet-report", &apply, &Patch::Apply(report)).await?;
    Ok(())
}

async fn count_all(fleet: &Fleet, name: &str, limit: Duration) -> Result<String, BoxError> {
    let cluster = fleet.get(name)?;
    let counts = async { tokio::try_join!(count(cluster.api::<Node>()), count(cluster.api::<Pod>())) };
    let (nodes, pods) = timeout(limit, counts).await??;
    Ok(format!("{nodes} nodes, {pods} Pods"))
}

/// Asks for one object only: the API server returns how many remain.
async fn count<K: Clone + Debug + DeserializeOwned>(objects: Api<K>) -> Result<i64, kube::Error> {
    let list = objects.list_metadata(&ListParams::default().limit(1)).await?;
    Ok(i64::from(!list.items.is_empty()) + list.metadata.remaining_item_count.unwrap_or(0))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    args.init_log();
    let files = FileProvider::builder()
        .files(&args.clusters().kubeconfigs)
        .dirs(&args.clusters().kubeconfig_dirs)
        .globs(&args.clusters().globs)
        .build()?;
    let manager = args.manager().fleet(args.fleet(files)?.build());
    let manager = manager.task("report", |fleet, stop| run(fleet, stop, EVERY));
    Ok(manager.build()?.run().await?)
}
