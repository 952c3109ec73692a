//! A report on the whole fleet, written to the hub every 30 seconds: how many nodes and Pods each cluster has, and
//! which clusters are missing in it and why. It is a task of the manager and needs no controller.

use std::{fmt::Debug, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::{
    Resource,
    api::{ListParams, Patch, PatchParams},
};
use mcr::{BoxError, Cluster, Fleet, HUB, args::Args};
use mcr_provider_file::FileProvider;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

const EVERY: Duration = Duration::from_secs(30);

pub(crate) async fn run(fleet: Fleet, stop: CancellationToken, every: Duration) -> Result<(), BoxError> {
    let mut ticks = interval(every);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        if fleet.is_discovered()
            && let Err(error) = report(&fleet, every).await
        {
            tracing::warn!(error, "no report was written");
        }
    }
    Ok(())
}

async fn report(fleet: &Fleet, limit: Duration) -> Result<(), BoxError> {
    let members = fleet.snapshot().clusters.into_iter();
    let counting = members.filter(|member| member.name != HUB).map(async |member| {
        let counted = timeout(limit, count_all(fleet, &member.name)).await;
        (member.name, counted.unwrap_or_else(|late| Err(late.into())))
    });
    let (mut counted, mut missing) = (String::new(), String::new());
    for (name, result) in join_all(counting).await {
        match result {
            Ok(counts) => counted += &format!("{name}: {counts}\n"),
            Err(error) => missing += &format!("{name}: {error}\n"),
        }
    }
    let maps = fleet.get(HUB)?.namespaced::<ConfigMap>("default");
    let report = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fleet-report"},
        "data": {"counted": counted, "missing": missing},
    });
    let apply = PatchParams::apply("fleet-report").force();
    maps.patch("fleet-report", &apply, &Patch::Apply(report)).await?;
    Ok(())
}

async fn count_all(fleet: &Fleet, name: &str) -> Result<String, BoxError> {
    let cluster = fleet.get(name)?;
    let (nodes, pods) = tokio::try_join!(count::<Node>(&cluster), count::<Pod>(&cluster))?;
    Ok(format!("{nodes} nodes, {pods} Pods"))
}

/// Asks for one object only: the API server says how many remain.
async fn count<K>(cluster: &Cluster) -> Result<i64, kube::Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
{
    let one = ListParams::default().limit(1);
    let list = cluster.api::<K>().list_metadata(&one).await?;
    Ok(i64::from(!list.items.is_empty()) + list.metadata.remaining_item_count.unwrap_or(0))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    args.init_log();
    let files = FileProvider::builder()
        .files(&args.clusters.kubeconfigs)
        .build()?;
    let fleet = args.fleet(files)?.build();
    let manager = args
        .manager()
        .fleet(fleet)
        .task("report", |fleet, stop| run(fleet, stop, EVERY));
    Ok(manager.build()?.run().await?)
}
