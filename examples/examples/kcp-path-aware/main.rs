//! Copies ConfigMaps between kcp workspaces that name each other by their paths.

use std::{fmt, process::ExitCode, sync::Arc, time::Duration};

use clap::Parser;
use examples::{Output, OutputArgs, printable};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use mcr::{
    Action, BoxError, Controller, Fleet, ObjectKey, Request, RequestKey, Watched,
    args::{HubArgs, ManagerArgs},
};
use mcr_provider_kcp::{KcpProvider, Paths, Readiness};
use serde::Serialize;
use serde_json::{Value, json};

const EXAMPLES: &str = "\
Examples:
  cargo run -p examples --features kcp --example kcp-path-aware -- --hub-kubeconfig controller.kubeconfig
  cargo run -p examples --features kcp --example kcp-path-aware -- --slice sharing --format json";

/// Copy ConfigMaps between the kcp workspaces that bind an APIExport. Workspaces name each other by their paths.
///
/// A ConfigMap with the annotation `example.io/copy-of: root:team-a` gets the data of the ConfigMap of the same namespace
/// and name in the workspace root:team-a, if that one has the annotation `example.io/shared-with` with the path of the
/// copy's workspace. Several paths are separated by commas.
///
/// The hub is the workspace of the export's endpoint slice: the server in its kubeconfig ends with /clusters/WORKSPACE.
///
/// A line has the workspace with its path, the namespace and name of the copy, the path that it names, and what was found
/// ("event"): `copied`, `not shared`, or `no workspace` if no workspace that binds the export has the path. A copy whose
/// original is gone or not shared any more keeps its data. The log on stderr has the changes of workspaces (see RUST_LOG).
#[derive(Parser)]
#[command(after_long_help = EXAMPLES)]
struct Args {
    #[command(flatten)]
    hub: HubArgs,
    /// The APIExportEndpointSlice, which kcp creates with the name of the APIExport
    #[arg(
        long,
        value_name = "NAME",
        default_value = "sharing",
        help_heading = "Clusters"
    )]
    slice: String,
    #[command(flatten)]
    manager: ManagerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// On copies: the path of the workspace that has the original.
const COPY_OF: &str = "example.io/copy-of";
/// On originals: the paths of the workspaces that may have a copy.
const SHARED_WITH: &str = "example.io/shared-with";
/// Copies by the path that they name.
const BY_PATH: &str = "copy-of";
/// How long a copy waits whose path no workspace has.
const RETRY: Duration = Duration::from_secs(60);

struct Context {
    paths: Paths,
    output: Output,
}

// ---- What leads to a request ------------------------------------------------------------------------------------

/// The copies that name this path.
fn copies_of(fleet: &Fleet, path: &str) -> Vec<RequestKey> {
    let copies = fleet.by_index::<ConfigMap>(BY_PATH, path).objects.into_iter();
    let key = |(cluster, map): (mcr::Cluster, Arc<ConfigMap>)| {
        Some(RequestKey::new(cluster.name().clone(), ObjectKey::of(&*map)?))
    };
    copies.filter_map(key).collect()
}

/// A ConfigMap may be a copy, and an original of others.
fn of_map(map: Watched<ConfigMap>, paths: &Paths) -> Vec<RequestKey> {
    let Some(key) = ObjectKey::of(&*map.object) else {
        return Vec::new();
    };
    let mut requests: Vec<RequestKey> = paths
        .path_of(map.cluster.name())
        .map(|path| copies_of(&map.fleet, &path))
        .unwrap_or_default();
    requests.retain(|copy| copy.object == key);
    if map.object.annotations().contains_key(COPY_OF) {
        requests.push(RequestKey::new(map.cluster.name().clone(), key));
    }
    requests
}

// ---- What is done about it --------------------------------------------------------------------------------------

async fn reconcile(request: Request<()>, context: Arc<Context>) -> Result<Action, BoxError> {
    let store = request.cluster.store::<ConfigMap>()?;
    let Some(copy) = store.get(&request.key.object)? else {
        return Ok(Action::done());
    };
    let Some(named) = copy.annotations().get(COPY_OF) else {
        return Ok(Action::done());
    };
    let event = match original(&request, &context.paths, named)? {
        Found::NoWorkspace => "no workspace",
        Found::NotShared => "not shared",
        Found::Original(original) if original.data == copy.data => return Ok(Action::done()),
        Found::Original(original) => {
            // In a merge patch, null removes what the copy has and its original does not.
            let mut data = json!(original.data.clone().unwrap_or_default());
            for key in copy.data.iter().flat_map(|data| data.keys()) {
                let is_there = original.data.as_ref().is_some_and(|data| data.contains_key(key));
                if !is_there {
                    data[key] = Value::Null;
                }
            }
            let patch = Patch::Merge(json!({"data": data}));
            let maps = request
                .cluster
                .namespaced::<ConfigMap>(request.namespace().unwrap_or_default());
            maps.patch(request.name(), &PatchParams::default(), &patch)
                .await?;
            "copied"
        }
    };
    context.output.record(&Line {
        cluster: request.cluster.name().as_str(),
        workspace: context
            .paths
            .path_of(request.cluster.name())
            .map(|path| path.to_string()),
        namespace: request.namespace().unwrap_or_default(),
        name: request.name(),
        of: named,
        event,
    });
    // kcp may show the path of a workspace later than its ConfigMaps.
    Ok(match event {
        "no workspace" => Action::requeue(RETRY),
        _ => Action::done(),
    })
}

enum Found {
    NoWorkspace,
    NotShared,
    Original(Arc<ConfigMap>),
}

/// The original at this path, if it is shared with the workspace of the copy.
///
/// Both workspaces have to agree, because the controller may read what the workspace of the copy may not.
fn original(request: &Request<()>, paths: &Paths, named: &str) -> Result<Found, BoxError> {
    let cluster = paths.cluster_at(named).and_then(|id| request.fleet.get(&id).ok());
    let Some(cluster) = cluster else {
        return Ok(Found::NoWorkspace);
    };
    let found = cluster.store::<ConfigMap>()?.get(&request.key.object)?;
    let reader = paths.path_of(request.cluster.name());
    let is_shared = |original: &Arc<ConfigMap>| {
        let with = original.annotations().get(SHARED_WITH);
        let mut with = with.into_iter().flat_map(|paths| paths.split(',')).map(str::trim);
        reader
            .as_ref()
            .is_some_and(|reader| with.any(|path| *path == **reader))
    };
    Ok(found.filter(is_shared).map_or(Found::NotShared, Found::Original))
}

/// What is printed.
#[derive(Serialize)]
struct Line<'a> {
    cluster: &'a str,
    /// The path of the workspace.
    workspace: Option<String>,
    namespace: &'a str,
    name: &'a str,
    /// The path that the copy names.
    of: &'a str,
    event: &'static str,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cluster,
            workspace,
            namespace,
            name,
            of,
            event,
        } = self;
        let workspace = printable(workspace.as_deref().unwrap_or("?"));
        let (cluster, of) = (printable(cluster), printable(of));
        write!(
            f,
            "{event:<12}  {workspace} ({cluster})  {namespace}/{name}  of {of}"
        )
    }
}

// ---- The program ------------------------------------------------------------------------------------------------

async fn run(args: Args) -> anyhow::Result<()> {
    let (output, stop) = args.output.start()?;
    let consumers = KcpProvider::builder()
        .access(args.hub.hub()?)
        .slice(args.slice)
        // ConfigMaps can be read when the claim on them is in effect.
        .readiness(Readiness::PermissionClaimsApplied)
        .build()?;
    let paths = consumers.paths();
    let of_maps = paths.clone();
    let controller = Controller::named("copies")
        .watches(move |map: Watched<ConfigMap>| of_map(map, &of_maps))
        .timeout(Duration::from_secs(60))
        .build(reconcile, Arc::new(Context { paths, output }))?;
    let manager = args
        .manager
        .manager_in(&args.hub)
        .provider(consumers)
        .controller(controller)
        .build()?;
    manager.fleet().index(BY_PATH, |map: &ConfigMap| {
        map.annotations().get(COPY_OF).cloned().into_iter().collect()
    });
    Ok(manager.run_until(stop).await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit(run(Args::parse()).await)
}
