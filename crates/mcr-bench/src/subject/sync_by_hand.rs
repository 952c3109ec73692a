//! The sync of suite `sync` as a careful author writes it on kube-rs: a controller for each source cluster with kube's helper for
//! finalizers, and one watch of all targets, so that drift is repaired.

use std::{collections::HashMap, pin::pin, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
    runtime::{
        WatchStreamExt, applier,
        controller::{Action, Config, ReconcileRequest, trigger_self},
        finalizer::{Event, finalizer},
        reflector::{self, ObjectRef},
        watcher,
    },
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
};

use super::{
    Gzip, SubjectArgs, Tally,
    kube_rs::{client, contexts, first_failure},
    sync::{CONCURRENCY, TARGET, is_source, target_name},
};

const FINALIZER: &str = "by-hand.example.com/sync";
/// The label of targets.
const LABEL: &str = "by-hand.example.com/sync";
const SOURCE_CLUSTER: &str = "by-hand.example.com/source-cluster";
const SOURCE_NAME: &str = "by-hand.example.com/source-name";

/// How many reconciles run at once in one cluster, as with mcr.
const OF_A_CLUSTER: u16 = 8;

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("{0} belongs to somebody else")]
    Foreign(String),
    #[error(transparent)]
    Finalizer(Box<kube::runtime::finalizer::Error<Failure>>),
    #[error("the program ends")]
    Ended,
}

/// The controller of one source cluster.
struct Cluster {
    name: String,
    sources: Client,
    targets: Client,
    slots: Arc<Semaphore>,
}

/// The sync.
///
/// # Errors
///
/// When the kubeconfig can't be read, and when a watch ends.
pub async fn run(args: SubjectArgs, _: Tally) -> Result<()> {
    let mut clients = HashMap::new();
    for endpoint in contexts(&args.kubeconfig)? {
        clients.insert(endpoint.name.clone(), client(endpoint, Gzip::Off)?);
    }
    let targets = clients.remove(TARGET).context("there is no target cluster")?;
    let slots = Arc::new(Semaphore::new(CONCURRENCY));
    let mut changes = HashMap::new();
    let mut running = JoinSet::new();
    for (name, sources) in clients {
        let (changed, events) = mpsc::channel(1024);
        changes.insert(name.clone(), changed);
        let cluster = Cluster {
            name,
            sources,
            targets: targets.clone(),
            slots: slots.clone(),
        };
        running.spawn(control(Arc::new(cluster), events));
    }
    running.spawn(watch_targets(targets, changes));
    first_failure(running).await
}

/// Passes on to the controllers which of their targets have changed.
async fn watch_targets(
    targets: Client,
    changes: HashMap<String, mpsc::Sender<ObjectRef<ConfigMap>>>,
) -> Result<()> {
    let events = watcher(
        Api::<ConfigMap>::all(targets),
        watcher::Config::default().labels(LABEL),
    );
    let mut events = pin!(events.default_backoff().touched_objects());
    loop {
        match events.try_next().await {
            Ok(Some(target)) => {
                let annotation = |key: &str| target.metadata.annotations.as_ref()?.get(key);
                let (Some(cluster), Some(name)) = (annotation(SOURCE_CLUSTER), annotation(SOURCE_NAME))
                else {
                    continue;
                };
                let namespace = target.metadata.namespace.as_deref().unwrap_or_default();
                if let Some(changed) = changes.get(cluster) {
                    changed.send(ObjectRef::new(name).within(namespace)).await?;
                }
            }
            Ok(None) => return Ok(()),
            // The stream goes on after its pause.
            Err(_) => {}
        }
    }
}

async fn control(cluster: Arc<Cluster>, mut changed: mpsc::Receiver<ObjectRef<ConfigMap>>) -> Result<()> {
    let (store, writer) = kube::runtime::reflector::store();
    let sources = watcher(
        Api::<ConfigMap>::all(cluster.sources.clone()),
        watcher::Config::default(),
    );
    let sources = reflector::reflector(writer, sources)
        .default_backoff()
        .applied_objects();
    let own = trigger_self(sources, ());
    let changed = stream::poll_fn(move |context| changed.poll_recv(context));
    let drift = changed.map(|source| Ok(ReconcileRequest::from(source)));
    let failed = |_: Arc<ConfigMap>, _: &Failure, _: Arc<Cluster>| Action::requeue(Duration::from_secs(1));
    let config = Config::default().concurrency(OF_A_CLUSTER);
    let reconcile = |source, cluster| reconcile(source, cluster).boxed();
    applier(
        reconcile,
        failed,
        cluster,
        store,
        stream::select(own, drift),
        config,
    )
    .for_each(|_| std::future::ready(()))
    .await;
    Ok(())
}

async fn reconcile(source: Arc<ConfigMap>, cluster: Arc<Cluster>) -> Result<Action, Failure> {
    if !is_source(&source) {
        return Ok(Action::await_change());
    }
    let _slot = cluster.slots.acquire().await.map_err(|_| Failure::Ended)?;
    let namespace = source.metadata.namespace.clone().unwrap_or_default();
    let sources = Api::namespaced(cluster.sources.clone(), &namespace);
    let targets = Api::namespaced(cluster.targets.clone(), &namespace);
    let done = finalizer(&sources, FINALIZER, source, |event| async {
        match event {
            Event::Apply(source) => apply(&cluster.name, &targets, &source).await,
            Event::Cleanup(source) => clean(&cluster.name, &targets, &source).await,
        }
    });
    done.await.map_err(|error| Failure::Finalizer(Box::new(error)))
}

async fn apply(cluster: &str, targets: &Api<ConfigMap>, source: &ConfigMap) -> Result<Action, Failure> {
    let wanted = target(cluster, source);
    let name = wanted.metadata.name.clone().unwrap_or_default();
    match targets.get_opt(&name).await? {
        None => drop(targets.create(&PostParams::default(), &wanted).await?),
        Some(live) => {
            let mut live = own(live, &wanted)?;
            let labels = live.metadata.labels.get_or_insert_default();
            let has_labels = wanted
                .metadata
                .labels
                .iter()
                .flatten()
                .all(|(key, value)| labels.get(key) == Some(value));
            if live.data != wanted.data || !has_labels {
                labels.extend(wanted.metadata.labels.unwrap_or_default());
                live.data = wanted.data;
                // It has the resourceVersion that was read.
                targets.replace(&name, &PostParams::default(), &live).await?;
            }
        }
    }
    Ok(Action::await_change())
}

async fn clean(cluster: &str, targets: &Api<ConfigMap>, source: &ConfigMap) -> Result<Action, Failure> {
    let wanted = target(cluster, source);
    let name = wanted.metadata.name.clone().unwrap_or_default();
    if let Some(live) = targets.get_opt(&name).await? {
        let live = own(live, &wanted)?;
        let preconditions = Preconditions {
            uid: live.metadata.uid,
            resource_version: live.metadata.resource_version,
        };
        targets
            .delete(&name, &DeleteParams::default().preconditions(preconditions))
            .await?;
    }
    Ok(Action::await_change())
}

/// The object, if it is the target of the same source.
fn own(live: ConfigMap, wanted: &ConfigMap) -> Result<ConfigMap, Failure> {
    let source = |map: &ConfigMap| {
        let annotations = map.metadata.annotations.as_ref()?;
        Some([SOURCE_CLUSTER, SOURCE_NAME].map(|key| annotations.get(key).cloned()))
    };
    if source(&live) == source(wanted) {
        Ok(live)
    } else {
        Err(Failure::Foreign(live.metadata.name.unwrap_or_default()))
    }
}

fn target(cluster: &str, source: &ConfigMap) -> ConfigMap {
    let name = source.metadata.name.clone().unwrap_or_default();
    let mut labels = source.metadata.labels.clone().unwrap_or_default();
    labels.insert(LABEL.to_owned(), "true".to_owned());
    let mut annotations = source.metadata.annotations.clone().unwrap_or_default();
    annotations.insert(SOURCE_CLUSTER.to_owned(), cluster.to_owned());
    annotations.insert(SOURCE_NAME.to_owned(), name.clone());
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(target_name(cluster, &name)),
            namespace: source.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        data: source.data.clone(),
        ..ConfigMap::default()
    }
}
