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

const EXAMPLES: &str = "\
Examples:
  cargo run -p examples --example baseline-rbac -- --baseline baseline.yaml --kubeconfigs a.yaml,b.yaml
  cargo run -p examples --features kind --example baseline-rbac -- --baseline baseline.yaml --provider kind";

/// Keep the same roles, bindings and admission policies in every cluster of the fleet.
///
/// The baseline is a file of manifests: ClusterRole, Role, ClusterRoleBinding, RoleBinding, ValidatingAdmissionPolicy
/// and ValidatingAdmissionPolicyBinding. The program reverts changes and deletions of these objects at once. It
/// replaces a binding whose role differs, because Kubernetes forbids to change the role of a binding. It deletes an
/// object that was removed from the file in every cluster at its next start. It does not touch an object of the same
/// name that somebody else made (`conflict`), and then stops there.
///
/// Kubernetes lets nobody grant rights that they do not have: the users of the kubeconfigs need every right that the
/// roles grant, or the verb `escalate` on roles and clusterroles and `bind` on the roles of the bindings. If such a
/// right is missing, the program reports it (`refused`).
///
/// Prints a line for each object that it `created`, `repaired`, `replaced` or `deleted` ("event").
#[derive(Parser)]
#[command(after_long_help = EXAMPLES)]
struct Args {
    /// The file with the manifests
    #[arg(long, value_name = "PATH")]
    baseline: PathBuf,
    /// The name of this baseline; others with other names can be kept beside it
    #[arg(long, default_value = "baseline")]
    name: String,
    /// Also work on a cluster that is named hub
    #[arg(long, help_heading = "Clusters")]
    include_hub: bool,
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

/// Whether what is there is what is wanted, and no more: one selector more can turn a policy off.
fn equal(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            let has =
                |(key, value): (&String, &Value)| found.get(key).is_some_and(|found| equal(found, value));
            let more = |(key, value): (&String, &Value)| !wanted.contains_key(key) && !is_default(key, value);
            wanted.iter().all(has) && !found.iter().any(more)
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found
                    .iter()
                    .zip(wanted)
                    .all(|(found, wanted)| equal(found, wanted))
        }
        _ => found == wanted,
    }
}

/// What API servers add by themselves to these kinds.
fn is_default(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty() || key == "status",
        Value::Array(items) => items.is_empty(),
        value => ["Fail", "Equivalent", "*", "", "rbac.authorization.k8s.io"]
            .iter()
            .any(|word| value == word),
    }
}

/// A merge patch that takes away what is there besides.
fn without_more(found: &Value, wanted: &Value) -> Value {
    let (Value::Object(fields), Value::Object(of)) = (found, wanted) else {
        return wanted.clone();
    };
    let differ = fields.iter().filter(|(key, value)| match of.get(*key) {
        Some(wanted) => !equal(value, wanted),
        None => !is_default(key, value),
    });
    let patch = |(key, value): (&String, &Value)| {
        (
            key.clone(),
            of.get(key)
                .map_or(Value::Null, |wanted| without_more(value, wanted)),
        )
    };
    differ.map(patch).collect()
}

fn is_right(found: &DynamicObject, wanted: &DynamicObject) -> bool {
    let labelled = wanted
        .labels()
        .iter()
        .all(|label| found.labels().get(label.0) == Some(label.1));
    let annotated = wanted
        .annotations()
        .iter()
        .all(|one| found.annotations().get(one.0) == Some(one.1));
    labelled && annotated && equal(&found.data, &wanted.data)
}

// ---- What is done about it --------------------------------------------------------------------------------------

struct Ctx {
    /// Who we are to the API servers, which note who wrote what.
    manager: String,
    baseline: Vec<(ApiResource, DynamicObject)>,
    output: Output,
}

/// Brings a whole cluster to the baseline. The first thing that can't be done ends it: nothing is bound to a role that somebody
/// else has made under its name, and nothing is deleted before what takes its place is there.
async fn reconcile(request: Request<()>, ctx: Arc<Ctx>) -> Result<(), BoxError> {
    for (kind, wanted) in &ctx.baseline {
        keep(&request.cluster, &ctx, kind, wanted).await?;
    }
    for kind in kinds().iter().rev() {
        for found in request.cluster.store_with::<DynamicObject>(kind)?.list()? {
            let is_it = |(of, wanted): &(ApiResource, DynamicObject)| {
                of == kind && ObjectKey::of(wanted) == ObjectKey::of(&*found)
            };
            if ctx.baseline.iter().any(is_it) {
                continue;
            }
            if delete(&api(&request.cluster, kind, &found), &ctx, &found.name_any()).await? {
                ctx.report(&request.cluster, kind, &found, "deleted");
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
            ctx.report(cluster, kind, wanted, "conflict");
            return Err(format!(
                "{} {key} is there, and not made by this program: rename or delete one of them",
                kind.kind
            )
            .into());
        }
        Some(found) if is_right(found, wanted) => return Ok(()),
        // What a binding refers to can't be changed.
        Some(found) if !equal(&found.data["roleRef"], &wanted.data["roleRef"]) => {
            delete(&api, ctx, &name).await?;
            "replaced"
        }
        Some(_) => "repaired",
    };
    let apply = PatchParams::apply(&ctx.manager).force();
    let mut applied = match api.patch(&name, &apply, &Patch::Apply(wanted)).await {
        Err(error)
            if error
                .to_string()
                .contains("attempting to grant RBAC permissions not currently held") =>
        {
            ctx.report(cluster, kind, wanted, "refused");
            let is_binding = kind.kind.ends_with("Binding");
            let verb = if is_binding {
                "bind on what it binds"
            } else {
                "escalate on it"
            };
            let text = "grants what this program's user does not have there; give it those rights, or";
            return Err(anyhow!(error)
                .context(format!("{} {key} {text} {verb}", kind.kind))
                .into());
        }
        applied => applied?,
    };
    // Applying leaves alone what others have added.
    if !equal(&applied.data, &wanted.data) {
        let less = Patch::Merge(without_more(&applied.data, &wanted.data));
        applied = api.patch(&name, &PatchParams::default(), &less).await?;
    }
    if found.is_none_or(|found| found.resource_version() != applied.resource_version()) {
        ctx.report(cluster, kind, wanted, event);
    }
    Ok(())
}

/// Deletes an object if we made it, since a label may have been copied, and no other that has its name meanwhile.
async fn delete(api: &Api<DynamicObject>, ctx: &Ctx, name: &str) -> Result<bool, kube::Error> {
    let Some(found) = api.get_opt(name).await?.filter(|found| ctx.made(found)) else {
        return Ok(false);
    };
    let only_this = Preconditions {
        uid: found.uid(),
        resource_version: None,
    };
    api.delete(name, &DeleteParams::default().preconditions(only_this))
        .await?;
    Ok(true)
}

fn api(cluster: &Cluster, kind: &ApiResource, object: &DynamicObject) -> Api<DynamicObject> {
    match object.namespace() {
        Some(namespace) => cluster.namespaced_with(&namespace, kind),
        None => cluster.api_with(kind),
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

    fn report(&self, cluster: &Cluster, kind: &ApiResource, object: &DynamicObject, event: &str) {
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
        .clusters(examples::selector(args.include_hub))
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
    examples::exit(run(Args::parse()).await)
}
