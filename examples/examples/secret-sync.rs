//! Copies Secrets of the hub into the clusters with the label `tier=prod`, and keeps the copies as they should be.
//!
//! A request names a copy: a cluster, and the key of a Secret. Whatever happens leads to one question about that copy:
//! does the hub have its original, and has the cluster the label? The answer is a copy, or none.

use std::{sync::Arc, time::Duration};

use clap::Parser;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use mcr::{
    BoxError, BuildError, BuiltController, Cluster, ClusterSelector, Controller, Fleet, FleetEvent, HUB,
    ObjectKey, Request, RequestKey, StoreError, WatchOptions, WatchRequest, Watched,
    args::{HubArgs, LogArgs, ManagerArgs},
};
use mcr_provider_kubeconfig::KubeconfigProvider;
use serde_json::json;

/// The Secrets to copy.
fn originals() -> WatchRequest {
    WatchRequest::of::<Secret>().labels("example.io/sync=original")
}

fn copies() -> WatchRequest {
    WatchRequest::of::<Secret>().labels("example.io/sync=copy")
}

pub(crate) fn controller(fleet: &Fleet) -> Result<BuiltController, BuildError> {
    let all = fleet.clone();
    let each_copy = move |original: Watched<Secret>| -> Vec<RequestKey> {
        let members = all.clusters().into_iter().filter(is_member);
        members
            .filter_map(|cluster| RequestKey::of(&cluster, &*original.object))
            .collect()
    };
    let this_copy = |copy: Watched<Secret>| ObjectKey::of(&*copy.object);
    let in_hub = WatchOptions::new().clusters(ClusterSelector::hub());
    let in_members = WatchOptions::new().clusters(!ClusterSelector::hub());
    Controller::named("secret-sync")
        .watches_with(&(), each_copy, in_hub.request(|_| originals()))
        .watches_with(&(), this_copy, in_members.request(|_| copies()))
        // The labels of a cluster decide about all copies in it.
        .watches_fleet(|event, fleet| match event {
            FleetEvent::Engaged(cluster) | FleetEvent::Updated(cluster) if is_member(cluster) => {
                all_copies(cluster, fleet).unwrap_or_default()
            }
            _ => Vec::new(),
        })
        .timeout(Duration::from_secs(30))
        .build(reconcile, Arc::new(()))
}

fn is_member(cluster: &Cluster) -> bool {
    *cluster.name() != HUB
}

/// A request for each copy that a cluster has or should have. What is not listed yet leads to requests when it is.
fn all_copies(cluster: &Cluster, fleet: &Fleet) -> Result<Vec<RequestKey>, StoreError> {
    let mut keys = match fleet.get(HUB) {
        Ok(hub) => hub.store_of::<Secret>(&originals())?.keys()?,
        Err(_) => Vec::new(),
    };
    keys.extend(cluster.store_of::<Secret>(&copies())?.keys()?);
    let request = |key| RequestKey::new(cluster.name().clone(), key);
    Ok(keys.into_iter().map(request).collect())
}

async fn reconcile(request: Request<()>, _: Arc<()>) -> Result<(), BoxError> {
    let (cluster, key) = (&request.cluster, &request.key.object);
    let namespace = request.namespace().ok_or("a Secret without a namespace")?;
    let secrets = cluster.namespaced::<Secret>(namespace);
    let originals = request.fleet.get(HUB)?.store_of::<Secret>(&originals())?;
    let original = originals.get(key)?;
    let selected = cluster.label("tier").as_deref() == Some("prod");
    let Some(original) = original.filter(|_| selected) else {
        if cluster.store_of::<Secret>(&copies())?.get(key)?.is_some() {
            secrets.delete(request.name(), &DeleteParams::default()).await?;
            tracing::info!("deleted");
        }
        return Ok(());
    };
    let apply = PatchParams::apply("secret-sync").force();
    let namespaces = cluster.api::<Namespace>();
    if namespaces.get_opt(namespace).await?.is_none() {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        namespaces.patch(namespace, &apply, &Patch::Apply(object)).await?;
    }
    let copy = json!({
        "apiVersion": "v1", "kind": "Secret", "type": original.type_, "data": original.data,
        "metadata": {"name": request.name(), "labels": {"example.io/sync": "copy"}},
    });
    secrets.patch(request.name(), &apply, &Patch::Apply(copy)).await?;
    tracing::info!("copied");
    Ok(())
}

/// Copies the Secrets of the hub with the label example.io/sync=original into the clusters with the label tier=prod. The
/// clusters are the Secrets of the hub that hold kubeconfigs; `mcr kubeconfig-secret create` makes them.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    manager: ManagerArgs,
    #[command(flatten)]
    log: LogArgs,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Cli::parse();
    args.log.init_log();
    let hub = args.hub.hub()?;
    let members = KubeconfigProvider::builder()
        .client(hub.client().await?)
        .build()?;
    let fleet = Fleet::builder().provider(hub).provider(members).build();
    let manager = args.manager.manager_in(&args.hub).fleet(fleet.clone());
    Ok(manager.controller(controller(&fleet)).build()?.run().await?)
}
