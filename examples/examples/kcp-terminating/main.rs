//! Keeps the ConfigMaps of kcp workspaces of a type in files, before kcp deletes the workspaces.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::Parser;
use examples::{Output, OutputArgs, printable};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{ResourceExt, api::ListParams};
use mcr::{
    Action, BoxError, Controller, Request,
    args::{HubArgs, ManagerArgs},
};
use mcr_provider_kcp::{Removal, TerminatingWorkspaces, api::core::v1alpha1::LogicalCluster};
use serde::Serialize;
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  cargo run -p examples --features kcp --example kcp-terminating -- --hub-kubeconfig controller.kubeconfig --folder archive
  cargo run -p examples --features kcp --example kcp-terminating -- --workspace-type archived --format json";

/// Keep the ConfigMaps of each kcp workspace of a WorkspaceType in a file, before kcp deletes the workspace.
///
/// The deletion of such a workspace waits until the program has written the file WORKSPACE.json, with the id of the
/// workspace, and has removed its terminator. If the program does not run, the deletion waits for it.
///
/// The hub is the workspace that has the WorkspaceType: the server in its kubeconfig ends with /clusters/WORKSPACE.
///
/// A line has the workspace with its path, the number of ConfigMaps, and "archived". The log on stderr has the changes
/// of workspaces (see RUST_LOG).
#[derive(Parser)]
#[command(after_long_help = EXAMPLES)]
struct Args {
    #[command(flatten)]
    hub: HubArgs,
    /// The WorkspaceType, which has `terminator: true`
    #[arg(
        long,
        value_name = "NAME",
        default_value = "archived",
        help_heading = "Clusters"
    )]
    workspace_type: String,
    /// The folder of the files
    #[arg(long, value_name = "PATH", default_value = "archive")]
    folder: PathBuf,
    #[command(flatten)]
    manager: ManagerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

struct Context {
    workspaces: TerminatingWorkspaces,
    folder: PathBuf,
    output: Output,
}

async fn reconcile(request: Request<LogicalCluster>, context: Arc<Context>) -> Result<Action, BoxError> {
    let (Some(workspace), Some(terminator)) = (request.live(), context.workspaces.terminator()) else {
        return Ok(Action::done());
    };
    if !terminator.is_on(workspace) {
        return Ok(Action::done());
    }
    // A kind is named here: in a workspace that is being deleted, kcp lists no kinds.
    let maps = request
        .cluster
        .api::<ConfigMap>()
        .list(&ListParams::default())
        .await?
        .items;
    let path = workspace.annotations().get("kcp.io/path");
    let content = json!({"cluster": request.cluster.name().as_str(), "workspace": path, "configMaps": maps});
    // Not named by the path: another workspace may get that.
    write(
        &context.folder,
        &format!("{}.json", request.cluster.name().slug()),
        &content.to_string(),
    )?;
    // Last: kcp deletes the content when the workspace has no terminator any more.
    if let Removal::Removed = terminator.remove(&request.cluster.client()).await? {
        context.output.record(&Line {
            cluster: request.cluster.name().as_str(),
            workspace: path.map(String::as_str),
            config_maps: maps.len(),
            event: "archived",
        });
    }
    Ok(Action::done())
}

/// Writes a file as a whole, so that a program that was killed leaves no half of one.
fn write(folder: &Path, name: &str, content: &str) -> Result<(), std::io::Error> {
    fs::create_dir_all(folder)?;
    let new = folder.join(format!("{name}.new"));
    fs::write(&new, content)?;
    fs::rename(new, folder.join(name))
}

/// What is printed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    cluster: &'a str,
    /// The path of the workspace.
    workspace: Option<&'a str>,
    config_maps: usize,
    event: &'static str,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (workspace, cluster) = (printable(self.workspace.unwrap_or("?")), printable(self.cluster));
        let (event, maps) = (self.event, self.config_maps);
        write!(f, "{event}  {workspace} ({cluster})  {maps} ConfigMaps")
    }
}

async fn run(args: Args) -> anyhow::Result<()> {
    let (output, stop) = args.output.start()?;
    let workspaces = TerminatingWorkspaces::builder()
        .access(args.hub.hub()?)
        .workspace_type(args.workspace_type)
        .build()?;
    let context = Context {
        workspaces: workspaces.clone(),
        folder: args.folder,
        output,
    };
    let controller = Controller::<LogicalCluster>::new("terminator").build(reconcile, Arc::new(context));
    let manager = args
        .manager
        .manager_in(&args.hub)
        .provider(workspaces)
        .controller(controller);
    Ok(manager.build()?.run_until(stop).await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit(run(Args::parse()).await)
}
