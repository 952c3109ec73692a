//! A rule for namespaces, kept in every cluster of the fleet: labels that they must have, and a ConfigMap that must be in them.
//!
//! What a platform team would start from. The reconciler asks one question about one namespace, whatever happened: is it as the
//! policy wants it? The store shows whether there is anything to do, which is nearly always no and costs nothing. What is done is
//! decided by what the API server has then, and written by server-side apply under a field manager of its own: what others put
//! there, more labels or more keys, stays theirs.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, ensure};
use clap::Parser;
use examples::{FleetArgs, ObjectLine, Output, OutputArgs, documents};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::{Selector, SelectorExt},
};
use mcr::{BoxError, Controller, ObjectKey, Request, WatchOptions, Watched};
use serde::Deserialize;
use serde_json::json;

const EXAMPLES: &str = "\
A policy for namespaces with a label team:
  namespaces: {matchExpressions: [{key: team, operator: Exists}]}
  labels: {pod-security.kubernetes.io/warn: baseline}
  configMap: {name: platform, data: {support: \"#platform\"}}

Examples:
  cargo run -p examples --example fleet-policy -- --policy policy.yaml --kubeconfigs a.yaml,b.yaml
  cargo run -p examples --features kind --example fleet-policy -- --policy policy.yaml --provider kind --prefix fleet-";

/// Keep required labels on namespaces, and a required ConfigMap in them, in every cluster of the fleet.
///
/// The policy is a file; see the example below. The program reverts changes and deletions at once. It removes its
/// labels and its ConfigMap from a namespace that is no longer selected, and a ConfigMap that the policy no longer
/// has, also if that changed while the program did not run. It does not touch a ConfigMap of the required name that
/// somebody else made (`conflict`).
///
/// Prints a line for each repair ("event"): a namespace was `labelled` or `unlabelled`, a ConfigMap `created`,
/// `repaired` or `deleted`.
#[derive(Parser)]
#[command(after_long_help = EXAMPLES)]
struct Args {
    /// The file with the policy
    #[arg(long, value_name = "PATH")]
    policy: PathBuf,
    /// The name of this policy; others with other names can be kept beside it
    #[arg(long, default_value = "platform")]
    name: String,
    /// Also work on a cluster that is named hub
    #[arg(long, help_heading = "Clusters")]
    include_hub: bool,
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// On ConfigMaps: the name of the policy they were made for.
const OURS: &str = "example.io/fleet-policy";
/// On ConfigMaps, an annotation: which labels we gave the namespace, so that they can be taken back.
const LABELS: &str = "example.io/fleet-policy-labels";
const BY_NAMESPACE: &str = "namespace";

// ---- The policy -------------------------------------------------------------------------------------------------

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Policy {
    namespaces: Namespaces,
    labels: BTreeMap<String, String>,
    config_map: Required,
}

/// A label selector. Kubernetes' own type would pass over fields that it does not know, and so over a mistyped rule.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Namespaces {
    #[serde(default)]
    match_labels: BTreeMap<String, String>,
    #[serde(default)]
    match_expressions: Vec<LabelSelectorRequirement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Required {
    name: String,
    data: BTreeMap<String, String>,
}

impl Policy {
    fn read(path: &Path) -> anyhow::Result<(Self, Selector)> {
        let mut policies = documents::<Self>("--policy", path)?;
        ensure!(
            policies.len() == 1,
            "--policy {}: there must be one YAML document in it",
            path.display()
        );
        let policy = policies.remove(0);
        let selector = policy
            .selector()
            .with_context(|| format!("--policy {}", path.display()))?;
        Ok((policy, selector))
    }

    fn selector(&self) -> anyhow::Result<Selector> {
        ensure!(!self.config_map.name.is_empty(), "configMap.name: it is empty");
        let (labels, expressions) = (&self.namespaces.match_labels, &self.namespaces.match_expressions);
        // Otherwise what is given could change what is selected, and be taken back and given for ever.
        for key in labels
            .keys()
            .chain(expressions.iter().map(|expression| &expression.key))
        {
            let free = !self.labels.contains_key(key);
            ensure!(
                free,
                "labels.{key}: it also selects the namespaces; require another label"
            );
        }
        let selector = LabelSelector {
            match_labels: Some(labels.clone()),
            match_expressions: Some(expressions.clone()),
        };
        selector.try_into().context("namespaces.matchExpressions")
    }
}

// ---- What is done about it --------------------------------------------------------------------------------------

struct Ctx {
    name: String,
    /// Who we are to the API servers, which note who wrote what.
    manager: String,
    policy: Policy,
    selector: Selector,
    output: Output,
}

async fn reconcile(request: Request<Namespace>, ctx: Arc<Ctx>) -> Result<(), BoxError> {
    let ours = request
        .cluster
        .store::<ConfigMap>()?
        .by_index(BY_NAMESPACE, request.name())?;
    match request.live() {
        // What is in a namespace goes with it, and nothing can be made in one that goes.
        Some(namespace) if namespace.metadata.deletion_timestamp.is_some() => return Ok(()),
        Some(_) => {
            label(&request, &ctx, &ctx.policy.labels, &ours).await?;
            provide(&request, &ctx, &ours).await?;
        }
        None if ours.is_empty() => return Ok(()),
        None => {
            let now = request.cluster.api::<Namespace>().get_opt(request.name()).await?;
            // What has just been selected is reconciled again when the store knows.
            if now.is_some_and(|now| ctx.selector.matches(now.labels())) {
                return Ok(());
            }
            label(&request, &ctx, &BTreeMap::new(), &ours).await?;
        }
    }
    // Last: they name the labels that were ours.
    let wanted = request.live().map(|_| ctx.policy.config_map.name.as_str());
    for map in ours.iter().filter(|map| map.metadata.name.as_deref() != wanted) {
        if delete(&request, &ctx, map).await? {
            ctx.report(&request, "ConfigMap", &map.name_any(), "deleted");
        }
    }
    Ok(())
}

/// Gives the namespace these labels, and takes back those that it had from us before.
async fn label(
    request: &Request<Namespace>,
    ctx: &Ctx,
    labels: &BTreeMap<String, String>,
    ours: &[Arc<ConfigMap>],
) -> Result<(), BoxError> {
    let has = |namespace: &Namespace| {
        labels
            .iter()
            .all(|label| namespace.labels().get(label.0) == Some(label.1))
    };
    let recorded = ours
        .iter()
        .all(|map| map.annotations().get(LABELS) == Some(&names(labels)));
    if recorded && request.live().is_some_and(|namespace| has(namespace)) {
        return Ok(());
    }
    let namespaces: Api<Namespace> = request.cluster.api();
    let Some(found) = namespaces.get_opt(request.name()).await? else {
        return Ok(());
    };
    // With its UID, so that one which is deleted meanwhile is not made again.
    let applied = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": request.name(), "uid": found.metadata.uid, "labels": labels},
    });
    let apply = PatchParams::apply(&ctx.manager).force();
    let now = namespaces
        .patch(request.name(), &apply, &Patch::Apply(applied))
        .await?;
    if now.metadata.labels != found.metadata.labels {
        let event = if request.live().is_some() {
            "labelled"
        } else {
            "unlabelled"
        };
        ctx.report(request, "Namespace", request.name(), event);
    }
    Ok(())
}

/// Puts the required ConfigMap into the namespace.
async fn provide(request: &Request<Namespace>, ctx: &Ctx, ours: &[Arc<ConfigMap>]) -> Result<(), BoxError> {
    let Required { name, data } = &ctx.policy.config_map;
    let applied = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {OURS: ctx.name}, "annotations": {LABELS: names(&ctx.policy.labels)}},
        "data": data,
    });
    let has_data = |map: &ConfigMap| {
        let has = map.data.clone().unwrap_or_default();
        data.iter().all(|(key, value)| has.get(key) == Some(value))
    };
    let is_right = |map: &ConfigMap| {
        let marked = map.labels().get(OURS) == Some(&ctx.name);
        marked && map.annotations().get(LABELS) == Some(&names(&ctx.policy.labels)) && has_data(map)
    };
    if ours.iter().any(|map| map.name_any() == *name && is_right(map)) {
        return Ok(());
    }
    let maps = request.cluster.namespaced::<ConfigMap>(request.name());
    let event = match maps.get_opt(name).await? {
        Some(map) if !ctx.made(&map) => {
            ctx.report(request, "ConfigMap", name, "conflict");
            return Ok(());
        }
        Some(map) if is_right(&map) => return Ok(()),
        // What is immutable can't be put right: another one takes its place.
        Some(map) if map.immutable == Some(true) && !has_data(&map) => {
            delete(request, ctx, &map).await?;
            "repaired"
        }
        Some(_) => "repaired",
        None => "created",
    };
    maps.patch(
        name,
        &PatchParams::apply(&ctx.manager).force(),
        &Patch::Apply(applied),
    )
    .await?;
    ctx.report(request, "ConfigMap", name, event);
    Ok(())
}

/// Deletes this ConfigMap if we made it, and no other that has its name meanwhile. A label may have been copied.
async fn delete(request: &Request<Namespace>, ctx: &Ctx, map: &ConfigMap) -> Result<bool, kube::Error> {
    let maps = request.cluster.namespaced::<ConfigMap>(request.name());
    let Some(found) = maps.get_opt(&map.name_any()).await?.filter(|map| ctx.made(map)) else {
        return Ok(false);
    };
    let only_this = Preconditions {
        uid: found.metadata.uid,
        resource_version: None,
    };
    maps.delete(&map.name_any(), &DeleteParams::default().preconditions(only_this))
        .await?;
    Ok(true)
}

/// The names of labels, as the annotation has them.
fn names(labels: &BTreeMap<String, String>) -> String {
    labels.keys().map(String::as_str).collect::<Vec<_>>().join(",")
}

impl Ctx {
    /// Whether we made it, by what the API server notes: a label can be taken away, and copied.
    fn made(&self, map: &ConfigMap) -> bool {
        map.managed_fields()
            .iter()
            .any(|entry| entry.manager.as_ref() == Some(&self.manager))
    }

    fn report(&self, request: &Request<Namespace>, kind: &str, name: &str, event: &str) {
        self.output.record(&ObjectLine {
            cluster: request.cluster.name().as_str(),
            kind,
            namespace: if kind == "Namespace" { "" } else { request.name() },
            name,
            event,
        });
    }
}

// ---- The program ------------------------------------------------------------------------------------------------

async fn run(args: Args) -> anyhow::Result<()> {
    let (policy, selector) = Policy::read(&args.policy)?;
    let (output, stop) = args.output.start()?;
    let in_namespace = |map: Watched<ConfigMap>| map.object.namespace().map(ObjectKey::cluster_scoped);
    let (made_for, selected) = (format!("{OURS}={}", args.name), selector.to_string());
    let controller = Controller::<Namespace>::new("fleet-policy")
        .clusters(examples::selector(args.include_hub))
        .watch_request(|watch| watch.labels(selected))
        .watches_with(
            &(),
            in_namespace,
            WatchOptions::new().request(|watch| watch.labels(made_for)),
        )
        .timeout(Duration::from_secs(60));
    let manager = format!("fleet-policy-{}", args.name);
    let controller = controller.build(
        reconcile,
        Arc::new(Ctx {
            name: args.name,
            manager,
            policy,
            selector,
            output,
        }),
    );
    let manager = args.fleet.manager().await?.controller(controller).build()?;
    let namespace_of = |map: &ConfigMap| map.namespace().into_iter().collect();
    manager.fleet().index(BY_NAMESPACE, namespace_of);
    Ok(manager.run_until(stop).await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit(run(Args::parse()).await)
}
