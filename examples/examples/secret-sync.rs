//! Copies Secrets of the hub into the clusters with the label `tier=prod`, and keeps the copies as they should be.
//!
//! A request names a copy: a cluster, and the key of a Secret. Whatever happens leads to one question about that copy:
//! does the hub have its original, and has the cluster the label? The answer is a copy, or none.
//!
//! A cluster has the labels of its kubeconfig: the extension `mcr.dev/labels` of its context.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use mcr::{
    BoxError, BuildError, BuiltController, Cluster, ClusterSelector, Controller, Fleet, FleetEvent, HUB,
    Request, RequestKey, WatchOptions, Watched, args::Args,
};
use mcr_provider_file::FileProvider;
use serde_json::json;

pub(crate) fn controller() -> Result<BuiltController, BuildError> {
    // All requests wait until the hub has listed the originals, so that none is taken for missing.
    let in_hub = WatchOptions::new().clusters(ClusterSelector::hub());
    let originals = in_hub.request(|secrets| secrets.labels("example.io/sync=original"));
    Controller::<Secret>::new("secret-sync")
        .watch_request(|secrets| secrets.labels("example.io/sync=copy"))
        .watches_with(&(), copies_of, originals)
        .try_watches_fleet(copies_in)
        .timeout(Duration::from_secs(30))
        .build(reconcile, Arc::new(()))
}

/// The copies of an original, one in each cluster.
fn copies_of(original: Watched<Secret>) -> Vec<RequestKey> {
    let clusters = original.fleet.clusters().into_iter();
    let copy = |cluster| RequestKey::of(&cluster, &*original.object);
    clusters.filter_map(copy).collect()
}

/// The copies in a cluster that has joined, or whose labels may have changed. Fails until the hub has listed.
fn copies_in(event: &FleetEvent, fleet: &Fleet) -> Result<Vec<RequestKey>, BoxError> {
    let (FleetEvent::Engaged(cluster) | FleetEvent::Updated(cluster)) = event else {
        return Ok(Vec::new());
    };
    let originals = fleet.get(HUB)?.store::<Secret>()?.keys()?;
    let copy = |original| RequestKey::new(cluster.name().clone(), original);
    Ok(originals.into_iter().map(copy).collect())
}

/// Whether a cluster gets copies.
fn is_selected(cluster: &Cluster) -> bool {
    *cluster.name() != HUB && cluster.label("tier").as_deref() == Some("prod")
}

async fn reconcile(request: Request<Secret>, _: Arc<()>) -> Result<(), BoxError> {
    let originals = request.fleet.get(HUB)?.store::<Secret>()?;
    let original = originals.get(&request.key.object)?;
    let copies = request.api::<Secret>();
    let Some(original) = original.filter(|_| is_selected(&request.cluster)) else {
        // A Secret without the label of a copy is not in this watch, and not ours to delete.
        if request.live().is_some() {
            copies.delete(request.name(), &DeleteParams::default()).await?;
            tracing::info!("deleted");
        }
        return Ok(());
    };
    let apply = PatchParams::apply("secret-sync").force();
    let name = request.namespace().unwrap_or_default();
    let namespaces = request.cluster.api::<Namespace>();
    if namespaces.get_opt(name).await?.is_none() {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        namespaces.patch(name, &apply, &Patch::Apply(namespace)).await?;
    }
    let copy = json!({
        "apiVersion": "v1", "kind": "Secret", "type": original.type_, "data": original.data,
        "metadata": {"name": request.name(), "labels": {"example.io/sync": "copy"}},
    });
    copies.patch(request.name(), &apply, &Patch::Apply(copy)).await?;
    tracing::info!("copied");
    Ok(())
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
    Ok(manager.controller(controller()).build()?.run().await?)
}
