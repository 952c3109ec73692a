//! Measures objects in a store: allocated bytes for each byte of their JSON, and the time to read one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Resource,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use mcr::{Store, WatchRequest, core::WatchHandle};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    Figures, Heap, Runs, allocated,
    canned::{self, Canned},
};
use crate::objects;

const LIMIT: Duration = Duration::from_secs(60);

/// A filled store, with the watch and the fleet that keep it filled.
pub struct Full<K> {
    /// The store.
    pub store: Store<K>,
    /// The watch that fills it, and its fleet.
    pub held: (WatchHandle, Runs),
}

/// Fills a store from a list of `count` objects.
///
/// # Errors
///
/// When the store is not filled within a minute.
pub async fn fill<K: DeserializeOwned>(
    request: &WatchRequest,
    make: fn(usize) -> Value,
    count: usize,
) -> Result<Full<K>> {
    let objects = move || (0..count).map(move |number| canned::stored(make(number), number));
    fill_from(Canned::listing(move || canned::list(objects())), request).await
}

/// Fills a store from a server.
///
/// # Errors
///
/// When the store is not filled within a minute.
pub async fn fill_from<K: DeserializeOwned>(server: Canned, request: &WatchRequest) -> Result<Full<K>> {
    let runs = canned::run([server])?;
    let cluster = runs.engaged("0").await;
    let handle = cluster.watch(request.clone(), None)?;
    let store = cluster.store_of::<K>(request)?;
    store.wait_synced(LIMIT).await?;
    Ok(Full {
        store,
        held: (handle, runs),
    })
}

/// Waits until the number of allocated bytes is stable, and returns it.
async fn measured_at_rest(heap: Heap) -> Result<f64> {
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(allocated(heap)? as f64)
}

async fn kind<K: DeserializeOwned>(
    name: &str,
    request: WatchRequest,
    make: fn(usize) -> Value,
    count: usize,
    heap: Heap,
    figures: &mut Figures,
) -> Result<()> {
    // The difference between two sizes leaves out the cost of the fleet, the cluster and the watch.
    let (few, many) = (count / 4, count);
    let mut filled = async |count| {
        let before = measured_at_rest(heap).await?;
        let full = fill::<K>(&request, make, count).await?;
        let allocated = measured_at_rest(heap).await? - before;
        let keys = full.store.keys()?;
        let begun = Instant::now();
        for key in &keys {
            let object = full.store.get(key)?;
            object.context("an object that is listed is not there")?;
        }
        let read = begun.elapsed().as_secs_f64() * 1e6 / keys.len().max(1) as f64;
        figures.insert(format!("{name}.read_us"), read);
        anyhow::Ok(allocated)
    };
    let of_few = filled(few).await?;
    let difference = filled(many).await? - of_few;
    let objects = (many - few) as f64;
    let json: usize = (few..many)
        .map(|number| {
            let mut object = canned::stored(make(number), number);
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("managedFields");
            }
            object.to_string().len()
        })
        .sum();
    figures.insert(format!("{name}.bytes"), difference / objects);
    figures.insert(format!("{name}.json_bytes"), json as f64 / objects);
    Ok(())
}

fn of<K: Resource<DynamicType = ()>>() -> WatchRequest {
    WatchRequest::of::<K>()
}

pub(super) async fn measure(count: usize, heap: Heap) -> Result<Figures> {
    use objects::{config_map, custom, deployment, pod};
    let mut of_all = Figures::new();
    let all = &mut of_all;
    let backups = ApiResource::from_gvk(&GroupVersionKind::gvk("bench.mcr.rs", "v1", "Backup"));
    let backups = WatchRequest::resource(&backups);
    kind::<ConfigMap>("configmap", of::<ConfigMap>(), config_map, count, heap, all).await?;
    kind::<Pod>("pod", of::<Pod>(), pod, count, heap, all).await?;
    kind::<Deployment>("deployment", of::<Deployment>(), deployment, count, heap, all).await?;
    kind::<DynamicObject>("custom", backups, custom, count, heap, all).await?;
    Ok(of_all)
}
