//! The operator: each Database of a workspace is a Deployment in the service cluster.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
    runtime::{
        controller::Action,
        finalizer::{self, finalizer},
    },
};
use mcr::{
    BoxError, ClusterSelector, Controller, Fleet, FleetEvent, Manager, ManagerError, ObjectKey, Request,
    RequestKey, WatchOptions, Watched,
};
use mcr_core::{Cluster, ClusterName, Provider};
use mcr_provider_multi::{MultiProvider, split_cluster_name};
use mcr_testkit::waiting::{Background, OrFail, eventually};
use serde_json::json;

use crate::{
    DEADLINE,
    api::{Database, DatabaseStatus},
    kcp::{Consumer, Kcp},
    service::Service,
};

const FINALIZER: &str = "example.io/database";

/// kube's `finalizer` takes no error in a box.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Failed(BoxError);

/// Where the Deployments are.
struct Target {
    /// The name of the service cluster in the fleet.
    cluster: String,
    namespace: String,
}

/// A running operator.
pub(crate) struct Operator {
    pub(crate) fleet: Fleet,
    service: String,
    running: Background<Result<(), ManagerError>>,
}

impl Operator {
    /// One fleet: the consumers, and the service cluster.
    pub(crate) fn start(kcp: &Kcp, service: &Service, clusters: impl Provider) -> Self {
        let provider = MultiProvider::builder()
            .child(kcp.consumers())
            .child_as("service", clusters)
            .build()
            .or_fail();
        let target = Arc::new(Target {
            cluster: service.cluster.clone(),
            namespace: service.namespace.clone(),
        });
        let deployments = WatchOptions::new().clusters(ClusterSelector::name(&*service.cluster));
        let namespace = service.namespace.clone();
        let is_service = target.clone();
        let controller = Controller::<Database>::new("databases")
            .clusters(ClusterSelector::provider("kcp"))
            .watches_with(
                &(),
                database_of,
                deployments.request(|watch| watch.namespace(namespace)),
            )
            .watches_fleet(move |event, fleet| match event {
                FleetEvent::Updated(cluster) if *cluster.name() == *is_service.cluster => {
                    all_databases(cluster, fleet)
                }
                _ => Vec::new(),
            })
            .timeout(Duration::from_secs(30))
            .build(reconcile, target);
        let manager = Manager::builder()
            .provider(provider)
            .controller(controller)
            .build()
            .or_fail();
        Self {
            fleet: manager.fleet().clone(),
            service: service.cluster.clone(),
            running: Background::start(|stop| manager.run_until(stop)),
        }
    }

    /// Waits until a cluster is ready.
    pub(crate) async fn ready(&self, cluster: &str) -> Cluster {
        eventually(DEADLINE, format!("{cluster} is ready"), || {
            let cluster = self.fleet.get(cluster).ok()?;
            cluster.state().is_ready().then_some(cluster)
        })
        .await
    }

    /// Waits until the fleet has the service cluster and these consumers, and no others.
    pub(crate) async fn has(&self, consumers: &[&Consumer]) {
        let mut wanted: Vec<String> = consumers.iter().map(|consumer| consumer.cluster()).collect();
        wanted.push(self.service.clone());
        wanted.sort();
        let names = || {
            let clusters = self.fleet.clusters();
            let names = clusters.iter().map(|cluster| cluster.name().to_string());
            names.collect::<Vec<_>>()
        };
        eventually(DEADLINE, format!("the fleet is {wanted:?}"), || {
            (names() == wanted).then_some(())
        })
        .await;
    }

    pub(crate) async fn stop(self) {
        self.running.stop().await.or_fail();
    }
}

/// Two workspaces may have the same object, and neither an id nor a namespace has a dot.
pub(crate) fn deployment_name(id: &str, database: &ObjectKey) -> String {
    let namespace = database.namespace.as_deref().unwrap_or_default();
    format!("{id}.{namespace}.{}", database.name)
}

fn database_of(deployment: Watched<Deployment>) -> Option<RequestKey> {
    let name = deployment.object.name_any();
    let (id, database) = name.split_once('.')?;
    let (namespace, name) = database.split_once('.')?;
    let cluster = ClusterName::new(format!("kcp#{id}")).ok()?;
    Some(RequestKey::new(cluster, ObjectKey::namespaced(namespace, name)))
}

/// What failed while the service cluster was away is tried at once when it is back.
fn all_databases(service: &Cluster, fleet: &Fleet) -> Vec<RequestKey> {
    if !service.state().is_ready() {
        return Vec::new();
    }
    let consumers = fleet.clusters().into_iter();
    let requests = consumers.filter_map(|cluster| {
        let databases = cluster.store::<Database>().ok()?.keys().ok()?;
        let request = |database| RequestKey::new(cluster.name().clone(), database);
        Some(databases.into_iter().map(request).collect::<Vec<_>>())
    });
    requests.flatten().collect()
}

async fn reconcile(request: Request<Database>, target: Arc<Target>) -> Result<Action, BoxError> {
    let Some(database) = request.live() else {
        return Ok(Action::await_change());
    };
    let service = request.fleet.get(&target.cluster)?;
    let deployments: Api<Deployment> = service.namespaced(&target.namespace);
    let (_, id) =
        split_cluster_name(request.cluster.name().as_str(), "#").ok_or("a workspace is a child's")?;
    let name = deployment_name(id, &request.key.object);
    let databases = request.api();
    let kept = finalizer(&databases, FINALIZER, database.clone(), async |event| {
        let kept = match event {
            finalizer::Event::Apply(database) => keep(&request, &database, &deployments, &name).await,
            finalizer::Event::Cleanup(_) => remove(&deployments, &name).await,
        };
        kept.map(|()| Action::await_change()).map_err(Failed)
    });
    Ok(kept.await?)
}

async fn keep(
    request: &Request<Database>,
    database: &Database,
    deployments: &Api<Deployment>,
    name: &str,
) -> Result<(), BoxError> {
    let labels = json!({"app": "database", "workspace": request.cluster.identity()});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": database.spec.replicas, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "database", "image": "registry.invalid/database"}]},
            },
        },
    });
    let apply = PatchParams::apply("e2e").force();
    let deployment = deployments.patch(name, &apply, &Patch::Apply(deployment)).await?;
    let generation = deployment.metadata.generation;
    let seen = deployment
        .status
        .filter(|status| status.observed_generation == generation);
    let status = match seen {
        Some(status) => DatabaseStatus {
            replicas: Some(status.replicas.unwrap_or(0)),
            message: None,
        },
        None => DatabaseStatus {
            replicas: None,
            message: Some("the service cluster has not handled it yet".to_owned()),
        },
    };
    if database.status.as_ref() != Some(&status) {
        // kcp has no server-side apply for it: what is not said any more is null.
        let patch = Patch::Merge(json!({"status": status}));
        let databases = request.api::<Database>();
        databases
            .patch_status(request.name(), &PatchParams::default(), &patch)
            .await?;
    }
    Ok(())
}

async fn remove(deployments: &Api<Deployment>, name: &str) -> Result<(), BoxError> {
    match deployments.delete(name, &DeleteParams::background()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => Ok(deleted.map(drop)?),
    }
}
