//! Removes what belongs to kcp workspaces of a type outside of kcp, before the workspaces are gone.

use std::{fmt, fs, io, path::PathBuf, process::ExitCode, sync::Arc};

use clap::Parser;
use examples::{Output, OutputArgs, printable};
use kube::ResourceExt;
use mcr::{
    Action, BoxError, Controller, Request,
    args::{HubArgs, ManagerArgs},
};
use mcr_provider_kcp::{LogicalCluster, Removal, TerminatingWorkspaces};
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  cargo run -p examples --features kcp --example kcp-terminating -- --hub-kubeconfig controller.kubeconfig --folder files
  cargo run -p examples --features kcp --example kcp-terminating -- --workspace-type stored --format json";

/// Remove the files of each kcp workspace of a WorkspaceType when the workspace is deleted.
///
/// The files of a workspace are in a folder with the id of the workspace. The workspace is not gone before the program
/// has removed the folder, and then its terminator. If the program does not run, the deletion waits for it.
///
/// The hub is the workspace that has the WorkspaceType: the server in its kubeconfig ends with /clusters/WORKSPACE.
///
/// A line has the workspace with its path, and "cleaned up". The log on stderr has the changes of workspaces (see
/// RUST_LOG).
#[derive(Parser)]
#[command(after_long_help = EXAMPLES)]
struct Args {
    #[command(flatten)]
    hub: HubArgs,
    /// The WorkspaceType, which has `terminator: true`
    #[arg(
        long,
        value_name = "NAME",
        default_value = "stored",
        help_heading = "Clusters"
    )]
    workspace_type: String,
    /// The folder with a folder for each workspace
    #[arg(long, value_name = "PATH", default_value = "files")]
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
    // Not named by the path: another workspace may have that now.
    let files = context.folder.join(request.cluster.name().slug());
    match fs::remove_dir_all(files) {
        // The reconcile is repeated after a pause, and the workspace waits.
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    // Last: the workspace may be gone when it has no terminator any more.
    if terminator.remove(&request.cluster.client()).await? != Removal::Absent {
        let path = workspace.annotations().get("kcp.io/path");
        context.output.record(&Line {
            cluster: request.cluster.name().as_str(),
            workspace: path.map(String::as_str),
            event: "cleaned up",
        });
    }
    Ok(Action::done())
}

/// What is printed.
#[derive(Serialize)]
struct Line<'a> {
    cluster: &'a str,
    /// The path of the workspace.
    workspace: Option<&'a str>,
    event: &'static str,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (workspace, cluster) = (printable(self.workspace.unwrap_or("?")), printable(self.cluster));
        write!(f, "{}  {workspace} ({cluster})", self.event)
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
