//! Copies labelled ConfigMaps of one cluster, the hub, into all others, and keeps the copies as they should be.
//!
//! One controller, whose requests name a copy: an object of one member cluster. Whatever happens (the original
//! changes, the copy is changed, a cluster joins) leads to the same question about that copy: is it as the hub
//! wants it? The answer looks at both clusters, never at what happened, so it may be asked again at any time and
//! may be interrupted between any two writes.

use std::{collections::BTreeMap, fmt, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use clap::Parser;
use examples::{Output, OutputArgs, printable};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Namespace},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use mcr::{
    Action, BoxError, Cluster, ClusterName, ClusterSelector, Controller, Fleet, FleetEvent, HUB, Manager,
    ObjectKey, Request, RequestKey, WatchOptions, WatchRequest, Watched,
    args::{HubArgs, KubeconfigArgs},
};
use mcr_provider_single::SingleProvider;
use serde::Serialize;
use serde_json::{Value, json};

const EXAMPLES: &str = "\
Examples:
  cargo run -p examples --features single --example sync-local-to-remote -- --hub-kubeconfig hub.yaml --kubeconfigs a.yaml,b.yaml";

/// Copy ConfigMaps of a local cluster, the hub, into all remote ones, and keep the copies equal to their originals.
///
/// The program copies ConfigMaps with the label `example.io/propagate: "true"` in the local cluster. It reverts
/// changes and deletions of copies in remote clusters. It deletes the copies of an original that was deleted or lost
/// the label, also if that happened while the program did not run. A cluster that joins gets all copies. The program
/// does not touch a remote ConfigMap of the same name that it did not make (`conflict`).
///
/// Prints a line for each copy that it `created`, `updated`, found `up-to-date` or `deleted`, or can't make because
/// of a `conflict` ("event").
#[derive(Parser)]
#[command(after_long_help = EXAMPLES)]
struct Args {
    #[command(flatten)]
    members: KubeconfigArgs,
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// On originals: says that they are to be copied.
const PROPAGATE: &str = "example.io/propagate";
/// On copies: says that they are, and so what to delete when there is no original.
const COPY: &str = "example.io/propagated";
/// On copies, an annotation: the version of the original they were made of.
const VERSION: &str = "example.io/original-version";
/// Who we are to the API servers, which note who wrote what.
const MANAGER: &str = "sync-local-to-remote";

fn originals() -> WatchRequest {
    WatchRequest::of::<ConfigMap>().labels(format!("{PROPAGATE}=true"))
}

fn copies() -> WatchRequest {
    WatchRequest::of::<ConfigMap>().labels(format!("{COPY}=true"))
}

// ---- What leads to a request ------------------------------------------------------------------------------------

fn controller(output: Output) -> Result<mcr::BuiltController, mcr::BuildError> {
    let each_copy = |original: Watched<ConfigMap>| -> Vec<RequestKey> {
        let Some(key) = ObjectKey::of(&*original.object) else {
            return Vec::new();
        };
        members_of(&original.fleet)
            .map(|cluster| RequestKey::new(cluster, key.clone()))
            .collect()
    };
    Controller::named("sync-local-to-remote")
        .watches_with(
            &(),
            each_copy,
            WatchOptions::new()
                .clusters(ClusterSelector::hub())
                .request(|_| originals()),
        )
        .watches_with(
            &(),
            |copy: Watched<ConfigMap>| ObjectKey::of(&*copy.object),
            WatchOptions::new()
                .clusters(!ClusterSelector::hub())
                .request(|_| copies()),
        )
        .watches_fleet(|event, fleet| match event {
            FleetEvent::Engaged(cluster) => all_of(cluster, fleet),
            _ => Vec::new(),
        })
        .timeout(Duration::from_secs(60))
        .build(reconcile, Arc::new(output))
}

fn members_of(fleet: &Fleet) -> impl Iterator<Item = ClusterName> {
    fleet
        .clusters()
        .into_iter()
        .map(|cluster| cluster.name().clone())
        .filter(|name| *name != HUB)
}

/// For a member that joins every original there is so far. For another hub (it was replaced) every copy there is so far. The
/// objects that come later ask for the rest.
fn all_of(joined: &Cluster, fleet: &Fleet) -> Vec<RequestKey> {
    let keys = |cluster: &Cluster, watch: &WatchRequest| {
        let store = cluster.store_of::<ConfigMap>(watch);
        store
            .and_then(|store| store.keys_unsynced())
            .unwrap_or_default()
            .into_iter()
    };
    if *joined.name() != HUB {
        let Ok(hub) = fleet.get(HUB) else {
            return Vec::new();
        };
        return keys(&hub, &originals())
            .map(|key| RequestKey::new(joined.name().clone(), key))
            .collect();
    }
    let members = fleet
        .clusters()
        .into_iter()
        .filter(|cluster| *cluster.name() != HUB);
    members
        .flat_map(|member| {
            keys(&member, &copies())
                .map(move |key| RequestKey::new(member.name().clone(), key))
                .collect::<Vec<_>>()
        })
        .collect()
}

// ---- What is done about it --------------------------------------------------------------------------------------

/// Brings one copy in one member cluster to the state it should have.
async fn reconcile(request: Request<()>, output: Arc<Output>) -> Result<Action, BoxError> {
    let Some(namespace) = request.namespace() else {
        return Ok(Action::done());
    };
    let maps: Api<ConfigMap> = request.cluster.namespaced(namespace);
    let event = match wanted(&request, namespace).await? {
        Some(original) => put(&request, &maps, namespace, &original).await?,
        None => remove(&request, &maps).await?,
    };
    if let Some(event) = event {
        let cluster = request.cluster.name().as_str();
        output.record(&Line {
            cluster,
            namespace,
            name: request.name(),
            event,
        });
    }
    Ok(Action::done())
}

/// The original, if it is to be copied.
async fn wanted(request: &Request<()>, namespace: &str) -> Result<Option<Arc<ConfigMap>>, BoxError> {
    let hub = request.fleet.get(HUB)?;
    let store = hub.store_of::<ConfigMap>(&originals())?;
    if let Some(original) = store.get(&request.key.object)? {
        return Ok(Some(original).filter(|original| original.metadata.deletion_timestamp.is_none()));
    }
    // The store may be older than the hub. Nothing is deleted before the hub itself has said so.
    let original = hub
        .namespaced::<ConfigMap>(namespace)
        .get_opt(request.name())
        .await?;
    let labelled = |map: &ConfigMap| map.labels().get(PROPAGATE).is_some_and(|value| value == "true");
    let wanted = original.filter(|map| labelled(map) && map.metadata.deletion_timestamp.is_none());
    Ok(wanted.map(Arc::new))
}

/// The copy as it is in the member cluster now.
async fn found(request: &Request<()>, maps: &Api<ConfigMap>) -> Result<Option<Arc<ConfigMap>>, BoxError> {
    let stored = request
        .cluster
        .store_of::<ConfigMap>(&copies())?
        .get(&request.key.object)?;
    match stored {
        Some(copy) => Ok(Some(copy)),
        // It may be there without its label.
        None => Ok(maps.get_opt(request.name()).await?.map(Arc::new)),
    }
}

/// Whether we made it: by its label, or where somebody took that away, by what the API server notes.
fn is_ours(map: &ConfigMap) -> bool {
    let labelled = map.labels().get(COPY).is_some_and(|value| value == "true");
    labelled
        || map
            .managed_fields()
            .iter()
            .any(|entry| entry.manager.as_deref() == Some(MANAGER))
}

async fn put(
    request: &Request<()>,
    maps: &Api<ConfigMap>,
    namespace: &str,
    original: &ConfigMap,
) -> Result<Option<&'static str>, BoxError> {
    let found = found(request, maps).await?;
    let event = match &found {
        None => "created",
        Some(copy) if !is_ours(copy) => return Ok(Some("conflict")),
        Some(copy) if is_equal(copy, original) => return Ok(Some("up-to-date")),
        Some(_) => "updated",
    };
    let name = request.name();
    // What is immutable is never updated: another one takes its place, now or, if we are stopped here, next time.
    if let Some(copy) =
        found.filter(|copy| copy.immutable == Some(true) && content(copy) != content(original))
    {
        delete(maps, &copy).await?;
    }
    let apply = PatchParams::apply(MANAGER).force();
    let desired = Patch::Apply(desired(original, name));
    let applied = match maps.patch(name, &apply, &desired).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let namespaces: Api<Namespace> = request.cluster.api();
            let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            namespaces.patch(namespace, &apply, &Patch::Apply(made)).await?;
            maps.patch(name, &apply, &desired).await?
        }
        applied => applied?,
    };
    // Applying leaves alone what others have added; a copy has nothing that its original does not have.
    if let Some(added) = additions(&applied, original) {
        maps.patch(name, &PatchParams::default(), &Patch::Merge(added))
            .await?;
    }
    Ok(Some(event))
}

async fn remove(request: &Request<()>, maps: &Api<ConfigMap>) -> Result<Option<&'static str>, BoxError> {
    match found(request, maps).await? {
        Some(copy) if is_ours(&copy) => Ok(delete(maps, &copy).await?.then_some("deleted")),
        _ => Ok(None),
    }
}

/// Deletes this object and no other that has its name meanwhile. That it is gone already is fine.
async fn delete(maps: &Api<ConfigMap>, copy: &ConfigMap) -> Result<bool, kube::Error> {
    let only_this = Preconditions {
        uid: copy.meta().uid.clone(),
        resource_version: None,
    };
    match maps
        .delete(
            &copy.name_any(),
            &DeleteParams::default().preconditions(only_this),
        )
        .await
    {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

fn labels(original: &ConfigMap) -> BTreeMap<String, String> {
    let mut labels = original.labels().clone();
    labels.remove(PROPAGATE);
    labels.insert(COPY.to_owned(), "true".to_owned());
    labels
}

fn desired(original: &ConfigMap, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "labels": labels(original),
            "annotations": {VERSION: original.resource_version()},
        },
        "data": original.data,
        "binaryData": original.binary_data,
        "immutable": original.immutable,
    })
}

/// What must be the same in both. Absent and empty are the same.
fn content(map: &ConfigMap) -> (BTreeMap<String, String>, BTreeMap<String, ByteString>, bool) {
    let (data, binary) = (map.data.clone(), map.binary_data.clone());
    (
        data.unwrap_or_default(),
        binary.unwrap_or_default(),
        map.immutable.unwrap_or_default(),
    )
}

fn is_equal(copy: &ConfigMap, original: &ConfigMap) -> bool {
    // The version tells of what only the original knows, such as a label that was taken away; labels that others
    // put on the copy don't matter.
    let labelled = labels(original)
        .iter()
        .all(|(key, value)| copy.labels().get(key) == Some(value));
    let current = copy.annotations().get(VERSION) == original.metadata.resource_version.as_ref();
    labelled && current && content(copy) == content(original)
}

/// A merge patch that takes away what the copy has and its original does not.
fn additions(copy: &ConfigMap, original: &ConfigMap) -> Option<Value> {
    fn extra<V>(
        copy: &Option<BTreeMap<String, V>>,
        original: &Option<BTreeMap<String, V>>,
    ) -> BTreeMap<String, Value> {
        let known = |key: &str| original.as_ref().is_some_and(|map| map.contains_key(key));
        let keys = copy.iter().flat_map(BTreeMap::keys).filter(|key| !known(key));
        keys.map(|key| (key.clone(), Value::Null)).collect()
    }
    let data = extra(&copy.data, &original.data);
    let binary = extra(&copy.binary_data, &original.binary_data);
    (!data.is_empty() || !binary.is_empty()).then(|| json!({"data": data, "binaryData": binary}))
}

// ---- The program ------------------------------------------------------------------------------------------------

async fn run(args: Args) -> anyhow::Result<()> {
    if args.members.is_empty() {
        // Nothing is written to all clusters of a kubeconfig because a flag is missing.
        bail!("which clusters to copy to? Give --kubeconfigs or --kubeconfig-dirs");
    }
    let hub = args.hub.hub()?;
    let members = hub.members_of(examples::file(&args.members)?);
    let hub = SingleProvider::named(HUB, hub)?;

    let (output, stop) = args.output.start()?;
    let controller = controller(output).context("the controller")?;
    let manager = Manager::builder()
        .provider(hub)
        .provider(members)
        .controller(controller)
        .build()?;
    Ok(manager.run_until(stop).await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit(run(Args::parse()).await)
}

/// What is printed.
#[derive(Serialize)]
struct Line<'a> {
    cluster: &'a str,
    namespace: &'a str,
    name: &'a str,
    event: &'static str,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cluster,
            namespace,
            name,
            event,
        } = self;
        write!(f, "{event:<10} {}  {namespace}/{name}", printable(cluster))
    }
}
