//! The same baseline in every cluster of the fleet: roles, bindings and admission policies, from a file of manifests.
//!
//! One controller without a primary kind, whose requests mean a whole cluster: whatever changes in the baseline there leads to the
//! one request of that cluster, and the answer is always the same: compare everything with the file. Written is by server-side
//! apply under a field manager of its own. What was made before and is not in the file any more is deleted.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, anyhow, ensure};
use clap::Parser;
use examples::{FleetArgs, ObjectLine, Output, OutputArgs, documents};
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::{ApiResource, DynamicObject},
};
use mcr::{
    BoxError, Cluster, Controller, FleetEvent, ObjectKey, Request, RequestKey, WatchOptions, Watched,
    queue::Backoff,
};
use serde_json::Value;

/// Keep the same roles, bindings and admission policies in every cluster of the fleet.
///
/// The baseline is a file of manifests: ClusterRole, Role, ClusterRoleBinding, RoleBinding, ValidatingAdmissionPolicy and
/// ValidatingAdmissionPolicyBinding. What is changed or deleted is put right at once, and a binding to another role is made
/// anew, since Kubernetes lets nobody change that. What leaves the file is deleted in every cluster the next time this starts.
/// An object of the same name that somebody else made is left alone (`conflict`), and then nothing after it is done there.
///
/// Kubernetes lets nobody grant what they don't have: the users of the kubeconfigs need every right that the roles grant, or
/// the verb `escalate` on roles and clusterroles and `bind` on what the bindings name. Who lacks them is told so (`refused`).
///
/// Prints a line for each object that was `created`, `repaired`, `replaced` or `deleted` ("event").
///
///   cargo run -p examples --example baseline-rbac -- --baseline baseline.yaml --kubeconfigs a.yaml,b.yaml
///   cargo run -p examples --features kind --example baseline-rbac -- --baseline baseline.yaml --provider kind
#[derive(Parser)]
#[command(verbatim_doc_comment)]
struct Args {
    /// The file with the manifests
    #[arg(long, value_name = "PATH")]
    baseline: PathBuf,
    /// The name of this baseline; others with other names can be kept beside it
    #[arg(long, default_value = "baseline")]
    name: String,
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// On every object: the name of the baseline it was made for.
const OURS: &str = "example.io/baseline";

// ---- The baseline -----------------------------------------------------------------------------------------------

/// In the order in which they are made: what is bound comes before what binds it.
fn kinds() -> [ApiResource; 6] {
    [
        ApiResource::erase::<ClusterRole>(&()),
        ApiResource::erase::<Role>(&()),
        ApiResource::erase::<ValidatingAdmissionPolicy>(&()),
        ApiResource::erase::<ClusterRoleBinding>(&()),
        ApiResource::erase::<RoleBinding>(&()),
        ApiResource::erase::<ValidatingAdmissionPolicyBinding>(&()),
    ]
}

fn is_namespaced(kind: &ApiResource) -> bool {
    kind.kind == "Role" || kind.kind == "RoleBinding"
}

/// Reads the objects, in the order in which they are made.
fn read(path: &Path, name: &str) -> anyhow::Result<Vec<(ApiResource, DynamicObject)>> {
    let named = || format!("--baseline {}", path.display());
    let mut baseline = Vec::new();
    let mut seen = BTreeSet::new();
    for mut object in documents::<DynamicObject>("--baseline", path)? {
        let types = object.types.clone().unwrap_or_default();
        let what = format!("{}: {} {}", named(), types.kind, object.name_any());
        let kind = kinds()
            .into_iter()
            .find(|kind| kind.api_version == types.api_version && kind.kind == types.kind);
        let kind = kind.with_context(|| {
            format!(
                "{what}: kind: {}/{} can't be in a baseline",
                types.api_version, types.kind
            )
        })?;
        ensure!(
            object.metadata.name.is_some(),
            "{what}: metadata.name: it is missing"
        );
        let right = object.metadata.namespace.is_some() == is_namespaced(&kind);
        ensure!(
            right,
            "{what}: metadata.namespace: Roles and RoleBindings have one, others have none"
        );
        ensure!(
            seen.insert((kind.kind.clone(), ObjectKey::of(&object))),
            "{what}: it is there twice"
        );
        object.labels_mut().insert(OURS.to_owned(), name.to_owned());
        baseline.push((kind, object));
    }
    // An empty file is more likely an accident than a wish to delete everything everywhere.
    ensure!(!baseline.is_empty(), "{}: there is no object in it", named());
    baseline.sort_by_key(|(kind, _)| kinds().iter().position(|known| known == kind));
    Ok(baseline)
}

/// Whether all that is wanted is there. What an API server adds (defaults, its own metadata) doesn't matter.
fn covers(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, value)| found.get(key).is_some_and(|found| covers(found, value))),
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found
                    .iter()
                    .zip(wanted)
                    .all(|(found, wanted)| covers(found, wanted))
        }
        _ => found == wanted,
    }
}

fn is_right(found: &DynamicObject, wanted: &DynamicObject) -> bool {
    let labelled = wanted
        .labels()
        .iter()
        .all(|(key, value)| found.labels().get(key) == Some(value));
    let annotated = wanted
        .annotations()
        .iter()
        .all(|(key, value)| found.annotations().get(key) == Some(value));
    labelled && annotated && covers(&found.data, &wanted.data)
}

// ---- What is done about it --------------------------------------------------------------------------------------

struct Ctx {
    /// Who we are to the API servers, which note who wrote what.
    manager: String,
    baseline: Vec<(ApiResource, DynamicObject)>,
    output: Output,
}

/// Brings a whole cluster to the baseline. The first thing that can't be done ends it: a binding is never made to a role that is
/// not ours, and nothing is deleted before what takes its place is there.
async fn reconcile(request: Request<()>, ctx: Arc<Ctx>) -> Result<(), BoxError> {
    for (kind, wanted) in &ctx.baseline {
        keep(&request.cluster, &ctx, kind, wanted).await?;
    }
    for kind in kinds().iter().rev() {
        for found in request.cluster.store_with::<DynamicObject>(kind)?.list()? {
            let is_it = |(of, wanted): &(ApiResource, DynamicObject)| {
                of == kind && ObjectKey::of(wanted) == ObjectKey::of(&*found)
            };
            if !ctx.baseline.iter().any(is_it) {
                prune(&request.cluster, &ctx, kind, &found).await?;
            }
        }
    }
    Ok(())
}

async fn keep(
    cluster: &Cluster,
    ctx: &Ctx,
    kind: &ApiResource,
    wanted: &DynamicObject,
) -> Result<(), BoxError> {
    let name = wanted.name_any();
    // Nearly always that is all: the store costs nothing. What is done is decided by what the API server has.
    let key = ObjectKey::of(wanted).context("no name")?;
    if cluster
        .store_with::<DynamicObject>(kind)?
        .get(&key)?
        .is_some_and(|found| is_right(&found, wanted))
    {
        return Ok(());
    }
    let api = api(cluster, kind, wanted);
    let found = api.get_opt(&name).await?;
    let event = match &found {
        None => "created",
        Some(found) if !ctx.made(found) => {
            ctx.say(cluster, kind, wanted, "conflict");
            return Err(format!(
                "{} {key} is there, and not made by this program: rename or delete one of them",
                kind.kind
            )
            .into());
        }
        Some(found) if is_right(found, wanted) => return Ok(()),
        // What a binding refers to can't be changed.
        Some(found) if !covers(&found.data["roleRef"], &wanted.data["roleRef"]) => {
            delete(&api, found).await?;
            "replaced"
        }
        Some(_) => "repaired",
    };
    let applied = api
        .patch(
            &name,
            &PatchParams::apply(&ctx.manager).force(),
            &Patch::Apply(wanted),
        )
        .await;
    let applied = applied.map_err(|error| {
        if !error
            .to_string()
            .contains("attempting to grant RBAC permissions not currently held")
        {
            return anyhow!(error);
        }
        ctx.say(cluster, kind, wanted, "refused");
        let verb = if kind.kind.ends_with("Binding") {
            "bind on what it binds"
        } else {
            "escalate on it"
        };
        anyhow!(error).context(format!(
            "{} {key} grants what this program's user in {} does not have; give it those rights, or {verb}",
            kind.kind,
            cluster.name()
        ))
    })?;
    if found.is_none_or(|found| found.resource_version() != applied.resource_version()) {
        ctx.say(cluster, kind, wanted, event);
    }
    Ok(())
}

/// Deletes what is not in the file any more, if we made it: a label may have been copied.
async fn prune(
    cluster: &Cluster,
    ctx: &Ctx,
    kind: &ApiResource,
    found: &DynamicObject,
) -> Result<(), BoxError> {
    let api = api(cluster, kind, found);
    if let Some(found) = api
        .get_opt(&found.name_any())
        .await?
        .filter(|found| ctx.made(found))
    {
        delete(&api, &found).await?;
        ctx.say(cluster, kind, &found, "deleted");
    }
    Ok(())
}

/// Deletes this object and no other that has its name meanwhile.
async fn delete(api: &Api<DynamicObject>, found: &DynamicObject) -> Result<(), kube::Error> {
    let only_this = Preconditions {
        uid: found.uid(),
        resource_version: None,
    };
    api.delete(
        &found.name_any(),
        &DeleteParams::default().preconditions(only_this),
    )
    .await
    .map(drop)
}

fn api(cluster: &Cluster, kind: &ApiResource, object: &DynamicObject) -> Api<DynamicObject> {
    match object.namespace() {
        Some(namespace) => Api::namespaced_with(cluster.client(), &namespace, kind),
        None => Api::all_with(cluster.client(), kind),
    }
}

impl Ctx {
    /// Whether we made it, by what the API server notes.
    fn made(&self, found: &DynamicObject) -> bool {
        found
            .managed_fields()
            .iter()
            .any(|entry| entry.manager.as_ref() == Some(&self.manager))
    }

    fn say(&self, cluster: &Cluster, kind: &ApiResource, object: &DynamicObject, event: &str) {
        self.output.record(&ObjectLine {
            cluster: cluster.name().as_str(),
            kind: &kind.kind,
            namespace: &object.namespace().unwrap_or_default(),
            name: &object.name_any(),
            event,
        });
    }
}

// ---- The program ------------------------------------------------------------------------------------------------

/// The one request of a cluster.
fn whole() -> ObjectKey {
    ObjectKey::cluster_scoped("baseline")
}

async fn run(args: Args) -> anyhow::Result<()> {
    let baseline = read(&args.baseline, &args.name)?;
    let (output, stop) = args.output.start()?;
    let mut controller = Controller::named("baseline-rbac")
        .clusters(args.fleet.selector())
        .timeout(Duration::from_secs(60))
        .backoff(Backoff {
            cap: Duration::from_secs(60),
            ..Backoff::default()
        })
        // Where nothing of it is there no object leads to a request.
        .watches_fleet(|event, _| match event {
            FleetEvent::Engaged(cluster) => Some(RequestKey::new(cluster.name().clone(), whole())),
            _ => None,
        });
    for kind in kinds() {
        let ours = format!("{OURS}={}", args.name);
        let ours = WatchOptions::new().request(|watch| watch.labels(ours));
        controller = controller.watches_with(&kind, |_: Watched<DynamicObject>| [whole()], ours);
    }
    let manager = format!("baseline-rbac-{}", args.name);
    let controller = controller.build(
        reconcile,
        Arc::new(Ctx {
            manager,
            baseline,
            output,
        }),
    );
    let manager = args.fleet.manager().await?.controller(controller).build()?;
    Ok(manager.run_until(stop).await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    examples::log();
    examples::exit(run(args).await)
}
