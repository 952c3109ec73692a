//! Prepares new kcp workspaces of a type before anybody can use them.

use std::{fmt, process::ExitCode, sync::Arc};

use clap::Parser;
use examples::{Output, OutputArgs, printable};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use mcr::{
    Action, BoxError, Controller, Request,
    args::{HubArgs, ManagerArgs},
};
use mcr_provider_kcp::{InitializingWorkspaces, LogicalCluster, Removal};
use serde::Serialize;
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  cargo run -p examples --features kcp --example kcp-initializing -- --hub-kubeconfig controller.kubeconfig
  cargo run -p examples --features kcp --example kcp-initializing -- --contact '#platform' --format json";

/// Prepare each new kcp workspace of a WorkspaceType, before anybody can use it.
///
/// Each workspace gets the ConfigMap `platform` in the namespace default, with its path and a contact. Then the program
/// removes its initializer, and kcp opens the workspace.
///
/// The hub is the workspace that has the WorkspaceType: the server in its kubeconfig ends with /clusters/WORKSPACE.
///
/// A line has the workspace with its path, and "initialized". The log on stderr has the changes of workspaces (see
/// RUST_LOG).
#[derive(Parser)]
#[command(after_long_help = EXAMPLES)]
struct Args {
    #[command(flatten)]
    hub: HubArgs,
    /// The WorkspaceType, which has `initializer: true`
    #[arg(long, value_name = "NAME", default_value = "team", help_heading = "Clusters")]
    workspace_type: String,
    /// Whom a team may ask
    #[arg(long, default_value = "#platform")]
    contact: String,
    #[command(flatten)]
    manager: ManagerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

struct Context {
    workspaces: InitializingWorkspaces,
    contact: String,
    output: Output,
}

async fn reconcile(request: Request<LogicalCluster>, context: Arc<Context>) -> Result<Action, BoxError> {
    // A workspace that has lost the initializer is not ours any more, whoever removed it.
    let (Some(workspace), Some(initializer)) = (request.live(), context.workspaces.initializer()) else {
        return Ok(Action::done());
    };
    if !initializer.is_on(workspace) {
        return Ok(Action::done());
    }
    // The content is that of the workspace itself, so server-side apply does what it does in any cluster.
    let path = workspace.annotations().get("kcp.io/path");
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "platform"},
        "data": {"contact": context.contact, "path": path},
    });
    let maps = request.cluster.namespaced::<ConfigMap>("default");
    let apply = PatchParams::apply("kcp-initializing").force();
    maps.patch("platform", &apply, &Patch::Apply(map)).await?;
    // Last: kcp opens the workspace when it has no initializer any more, and this program can't enter it then.
    if initializer.remove(&request.cluster.client()).await? != Removal::Absent {
        context.output.record(&Line {
            cluster: request.cluster.name().as_str(),
            workspace: path.map(String::as_str),
            event: "initialized",
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
    let workspaces = InitializingWorkspaces::builder()
        .access(args.hub.hub()?)
        .workspace_type(args.workspace_type)
        .build()?;
    let context = Context {
        workspaces: workspaces.clone(),
        contact: args.contact,
        output,
    };
    let controller = Controller::<LogicalCluster>::new("initializer").build(reconcile, Arc::new(context));
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
