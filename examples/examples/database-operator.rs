//! An operator for a custom resource, in every cluster of a fleet: a `Database` becomes a StatefulSet and a ConfigMap.
//!
//! The image comes from a profile: a ConfigMap of the hub, in the namespace `profiles`, with a label. A change of a profile reaches
//! the databases of all clusters that use it, through an index over the fleet.

use std::{fmt::Debug, sync::Arc, time::Duration};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{apps::v1::StatefulSet, core::v1::ConfigMap},
};
use kube::{
    CustomResource, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{
        controller::Action,
        events::{Event, EventType},
        finalizer::{self, finalizer},
    },
};
use mcr::{
    BuildError, BuiltController, ClusterSelector, Controller, Fleet, HUB, Predicate, Request, RequestKey,
    WatchOptions, WatchRequest, Watched, args::Args,
};
use mcr_provider_file::FileProvider;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// A database, kept by this operator.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, JsonSchema)]
#[kube(
    group = "example.io",
    version = "v1",
    kind = "Database",
    namespaced,
    status = "DatabaseStatus"
)]
pub(crate) struct DatabaseSpec {
    /// The ConfigMap in the namespace `profiles` of the hub that has the image.
    pub(crate) profile: String,
    pub(crate) replicas: i32,
}

#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema, PartialEq)]
pub(crate) struct DatabaseStatus {
    pub(crate) phase: String,
    pub(crate) message: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Hub(#[from] mcr::ClusterNotFound),
    #[error(transparent)]
    Store(#[from] mcr::StoreError),
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error(transparent)]
    Finalizer(#[from] Box<finalizer::Error<Self>>),
}

/// The namespace of the profiles in the hub.
const PROFILES: &str = "profiles";
/// The index of databases.
const BY_PROFILE: &str = "profile";

fn apply() -> PatchParams {
    PatchParams::apply("database-operator").force()
}

fn profiles() -> WatchRequest {
    WatchRequest::of::<ConfigMap>()
        .namespace(PROFILES)
        .labels("example.io/profile=database")
}

pub(crate) fn controller(fleet: &Fleet) -> Result<BuiltController, BuildError> {
    fleet.index::<Database>(BY_PROFILE, |db| vec![db.spec.profile.clone()]);
    let all = fleet.clone();
    let users = move |profile: Watched<ConfigMap>| -> Vec<RequestKey> {
        let users = all.by_index::<Database>(BY_PROFILE, &profile.object.name_any());
        users
            .objects
            .into_iter()
            .filter_map(|(cluster, db)| RequestKey::of(&cluster, &*db))
            .collect()
    };
    let in_hub = WatchOptions::new()
        .clusters(ClusterSelector::hub())
        .request(|_| profiles());
    Controller::<Database>::new("databases")
        .predicate(Predicate::spec_changed())
        .owns::<StatefulSet>()
        .owns::<ConfigMap>()
        .watches_with(&(), users, in_hub)
        .timeout(Duration::from_secs(30))
        .build(reconcile, Arc::new(()))
}

async fn reconcile(request: Request<Database>, _: Arc<()>) -> Result<Action, Error> {
    let Some(db) = request.live() else {
        return Ok(Action::await_change());
    };
    let dbs = request.api();
    let reconciled = finalizer(&dbs, "example.io/database", db.clone(), |event| async {
        match event {
            finalizer::Event::Apply(db) => keep(&request, &db).await?,
            // The place for what must not be left behind, such as backups in an object store.
            finalizer::Event::Cleanup(db) => {
                report(&request, &db, "Released", "no backups are left".into()).await?
            }
        }
        Ok(Action::await_change())
    });
    Ok(reconciled.await.map_err(Box::new)?)
}

async fn keep(request: &Request<Database>, db: &Database) -> Result<(), Error> {
    let (name, profile, replicas) = (db.name_any(), &db.spec.profile, db.spec.replicas);
    let profiles = request.fleet.get(HUB)?.store_of::<ConfigMap>(&profiles())?;
    let found = profiles.get_in(PROFILES, profile)?;
    let Some(image) = found.and_then(|found| found.data.as_ref()?.get("image").cloned()) else {
        // A profile that appears in the hub leads to the next request.
        return report(
            request,
            db,
            "Waiting",
            format!("the hub has no profile {profile} with an image"),
        )
        .await;
    };
    put::<ConfigMap>(
        request,
        db,
        json!({"data": {"cluster": request.cluster.name(), "profile": profile}}),
    )
    .await?;
    let labels = json!({"app": name});
    let container = json!({"name": "db", "image": image, "envFrom": [{"configMapRef": {"name": name}}]});
    let set = json!({"spec": {
        "serviceName": name, "replicas": replicas, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }});
    let set = put::<StatefulSet>(request, db, set).await?;
    let ready = set.status.and_then(|status| status.ready_replicas).unwrap_or(0);
    let phase = if ready < replicas { "Progressing" } else { "Ready" };
    report(
        request,
        db,
        phase,
        format!("{ready} of {replicas} replicas of {image} are ready"),
    )
    .await
}

/// Applies an object that the database owns and that has its name.
async fn put<K>(request: &Request<Database>, db: &Database, mut object: Value) -> Result<K, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug,
{
    object["apiVersion"] = K::api_version(&()).into();
    object["kind"] = K::kind(&()).into();
    object["metadata"] = json!({"name": db.name_any(), "ownerReferences": [db.controller_owner_ref(&())]});
    request
        .api::<K>()
        .patch(request.name(), &apply(), &Patch::Apply(object))
        .await
}

/// Writes the status, and an event if the phase is another.
async fn report(
    request: &Request<Database>,
    db: &Database,
    phase: &str,
    message: String,
) -> Result<(), Error> {
    let before = db.status.as_ref();
    let status = DatabaseStatus {
        phase: phase.to_owned(),
        message: message.clone(),
    };
    if before == Some(&status) {
        return Ok(());
    }
    if before.is_none_or(|before| before.phase != phase) {
        let type_ = if phase == "Waiting" {
            EventType::Warning
        } else {
            EventType::Normal
        };
        let (reason, action, note) = (phase.to_owned(), "Reconcile".to_owned(), Some(message));
        let event = Event {
            type_,
            reason,
            note,
            action,
            secondary: None,
        };
        request
            .cluster
            .recorder()
            .publish(&event, &db.object_ref(&()))
            .await?;
    }
    let object = json!({"apiVersion": Database::api_version(&()), "kind": "Database", "status": status});
    let dbs = request.api::<Database>();
    dbs.patch_status(request.name(), &apply(), &Patch::Apply(object))
        .await?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    args.init_log();
    let files = FileProvider::builder()
        .files(&args.clusters.kubeconfigs)
        .build()?;
    let fleet = args.fleet(files)?.build();
    let manager = args.manager().fleet(fleet.clone());
    Ok(manager.controller(controller(&fleet)).build()?.run().await?)
}
