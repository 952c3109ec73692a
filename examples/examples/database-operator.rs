//! An operator for a custom resource, in every cluster of a fleet: a `Database` becomes a StatefulSet and a ConfigMap.
//!
//! The image comes from a profile: a ConfigMap of the hub, in the namespace `profiles`, with a label. A change of a profile reaches
//! the databases of all clusters that use it, through an index over the fleet.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::ConfigMap};
use kube::{
    CustomResource, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{controller::Action, events, finalizer},
};
use mcr::{
    BoxError, BuildError, BuiltController, ClusterSelector, Controller, Fleet, HUB, Predicate, Request,
    RequestKey, WatchOptions, Watched, args::Args,
};
use mcr_provider_file::FileProvider;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A database, kept by this operator.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, JsonSchema)]
#[kube(group = "example.io", version = "v1", kind = "Database")]
#[kube(namespaced, status = "DatabaseStatus")]
pub(crate) struct DatabaseSpec {
    /// The ConfigMap in the namespace `profiles` of the hub that has the image.
    pub(crate) profile: String,
    pub(crate) replicas: i32,
}

#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema)]
pub(crate) struct DatabaseStatus {
    pub(crate) phase: String,
    pub(crate) message: String,
}

/// kube's `finalizer` takes no error in a box.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Error(BoxError);

/// The namespace of the profiles in the hub.
const PROFILES: &str = "profiles";
/// The index of databases.
const BY_PROFILE: &str = "profile";

pub(crate) fn controller(fleet: &Fleet) -> Result<BuiltController, BuildError> {
    fleet.index::<Database>(BY_PROFILE, |db| vec![db.spec.profile.clone()]);
    // All requests wait until the hub has listed the profiles, so that none is taken for missing.
    let in_hub = WatchOptions::new().clusters(ClusterSelector::hub());
    let profiles = in_hub.request(|maps| maps.namespace(PROFILES).labels("example.io/profile"));
    Controller::<Database>::new("databases")
        .predicate(Predicate::spec_changed())
        .owns::<StatefulSet>()
        .owns::<ConfigMap>()
        .watches_with(&(), users, profiles)
        .timeout(Duration::from_secs(30))
        .build(reconcile, Arc::new(()))
}

/// The databases that use a profile. Clusters that are not listed yet lead to requests when they are.
fn users(profile: Watched<ConfigMap>) -> Vec<RequestKey> {
    let name = profile.object.name_any();
    let users = profile.fleet.by_index::<Database>(BY_PROFILE, &name).objects;
    let request = |(cluster, db): (_, Arc<Database>)| RequestKey::of(&cluster, &*db);
    users.into_iter().filter_map(request).collect()
}

async fn reconcile(request: Request<Database>, _: Arc<()>) -> Result<Action, BoxError> {
    let Some(db) = request.live() else {
        return Ok(Action::await_change());
    };
    let dbs = request.api();
    let reconciled = finalizer::finalizer(&dbs, "example.io/database", db.clone(), async |event| {
        let reconciled = match event {
            finalizer::Event::Apply(db) => keep(&request, &db).await,
            // The place for what must not be left behind, such as backups in an object store.
            finalizer::Event::Cleanup(db) => report(&request, &db, "Released", "no backups are left").await,
        };
        reconciled.map(|()| Action::await_change()).map_err(Error)
    });
    Ok(reconciled.await?)
}

async fn keep(request: &Request<Database>, db: &Database) -> Result<(), BoxError> {
    let (name, profile, replicas) = (request.name(), &db.spec.profile, db.spec.replicas);
    let profiles = request.fleet.get(HUB)?.store::<ConfigMap>()?;
    let found = profiles.get_in(PROFILES, profile)?;
    let Some(image) = found.and_then(|found| found.data.as_ref()?.get("image").cloned()) else {
        // A profile that appears in the hub leads to the next request.
        let message = format!("the hub has no profile {profile} with an image");
        return report(request, db, "Waiting", &message).await;
    };
    let apply = PatchParams::apply("database-operator").force();
    let metadata = json!({"name": name, "ownerReferences": [db.controller_owner_ref(&())]});
    let data = json!({"cluster": request.cluster.name(), "profile": profile});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    let maps = request.api::<ConfigMap>();
    maps.patch(name, &apply, &Patch::Apply(map)).await?;
    let container = json!({"name": "db", "image": image, "envFrom": [{"configMapRef": {"name": name}}]});
    let spec = json!({
        "serviceName": name, "replicas": replicas, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
    });
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec});
    let sets = request.api::<StatefulSet>();
    let set = sets.patch(name, &apply, &Patch::Apply(set)).await?;
    let ready = set.status.and_then(|status| status.ready_replicas).unwrap_or(0);
    let phase = if ready < replicas { "Progressing" } else { "Ready" };
    let message = format!("{ready} of {replicas} replicas of {image} are ready");
    report(request, db, phase, &message).await
}

/// Writes the status if it has changed, and an event if the phase has.
async fn report(request: &Request<Database>, db: &Database, phase: &str, note: &str) -> Result<(), BoxError> {
    let status = json!({"phase": phase, "message": note});
    if json!(db.status) == status {
        return Ok(());
    }
    if db.status.as_ref().is_none_or(|before| before.phase != phase) {
        let event = events::Event {
            type_: match phase {
                "Waiting" => events::EventType::Warning,
                _ => events::EventType::Normal,
            },
            reason: phase.into(),
            note: Some(note.into()),
            action: "Reconcile".into(),
            secondary: None,
        };
        let recorder = request.cluster.recorder();
        recorder.publish(&event, &db.object_ref(&())).await?;
    }
    let status = json!({"apiVersion": "example.io/v1", "kind": "Database", "status": status});
    let apply = PatchParams::apply("database-operator").force();
    let dbs = request.api::<Database>();
    dbs.patch_status(request.name(), &apply, &Patch::Apply(status))
        .await?;
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
    let fleet = args.fleet(files)?.build();
    let manager = args.manager().fleet(fleet.clone());
    Ok(manager.controller(controller(&fleet)).build()?.run().await?)
}
