//! Serves an API to many kcp workspaces: each `Site` of a workspace that binds the APIExport `sites` becomes a page in a folder.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::Parser;
use examples::{Output, OutputArgs, printable};
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
    BoxError, Controller, Predicate, Request,
    args::{HubArgs, ManagerArgs},
};
use mcr_provider_kcp::{KcpProvider, Readiness};
use serde::{Deserialize, Serialize};
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  cargo run -p examples --features kcp --example kcp-apiexport -- --hub-kubeconfig controller.kubeconfig --folder pages
  cargo run -p examples --features kcp --example kcp-apiexport -- --slice sites --format json";

/// Publish the Sites of all kcp workspaces that bind an APIExport.
///
/// The hub is the workspace of the export's endpoint slice: the server in its kubeconfig ends with /clusters/WORKSPACE.
/// A page is a file WORKSPACE/NAMESPACE/NAME.html in the folder, with the id of the workspace. It is removed when its
/// Site is deleted, when the workspace is deleted, and when the workspace unbinds the API.
///
/// A line has the workspace with its path, the namespace and name of the Site, and "published" or "removed". The log
/// on stderr has the changes of workspaces (see RUST_LOG).
#[derive(Parser)]
#[command(after_long_help = EXAMPLES)]
struct Args {
    #[command(flatten)]
    hub: HubArgs,
    /// The APIExportEndpointSlice, which kcp creates with the name of the APIExport
    #[arg(long, value_name = "NAME", default_value = "sites", help_heading = "Clusters")]
    slice: String,
    /// The folder of the pages
    #[arg(long, value_name = "PATH", default_value = "pages")]
    folder: PathBuf,
    #[command(flatten)]
    manager: ManagerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A page.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug)]
#[kube(group = "web.example.io", version = "v1", kind = "Site", namespaced)]
#[kube(status = "SiteStatus", schema = "disabled")]
struct SiteSpec {
    title: String,
    text: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
struct SiteStatus {
    phase: String,
    page: String,
    observed_generation: Option<i64>,
}

struct Context {
    folder: PathBuf,
    output: Output,
}

/// kube's `finalizer` takes no error in a box.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Error(BoxError);

async fn reconcile(request: Request<Site>, context: Arc<Context>) -> Result<Action, BoxError> {
    // A Site that is gone has no page: its finalizer was released after its page was removed.
    let Some(site) = request.live() else {
        return Ok(Action::await_change());
    };
    let sites = request.api::<Site>();
    // The same namespace and name may exist in each workspace. The id of the workspace keeps the pages apart.
    let cluster = request.cluster.name();
    let page = format!(
        "{cluster}/{}/{}.html",
        request.namespace().unwrap_or_default(),
        request.name()
    );
    let file = context.folder.join(&page);
    let reconciled = finalizer(&sites, "web.example.io/page", site.clone(), async |event| {
        let done = match event {
            finalizer::Event::Apply(site) => publish(&request, &site, &file, page, &context.output).await,
            finalizer::Event::Cleanup(_) => remove(&request, &file, &context.output),
        };
        done.map(|()| Action::await_change()).map_err(Error)
    });
    Ok(reconciled.await?)
}

async fn publish(
    request: &Request<Site>,
    site: &Site,
    file: &Path,
    page: String,
    output: &Output,
) -> Result<(), BoxError> {
    let (title, text) = (escaped(&site.spec.title), escaped(&site.spec.text));
    let content = format!("<!doctype html>\n<title>{title}</title>\n<h1>{title}</h1>\n<p>{text}</p>\n");
    if fs::read_to_string(file).ok().as_ref() != Some(&content) {
        fs::create_dir_all(file.parent().unwrap_or(file))?;
        fs::write(file, content)?;
    }
    let status = SiteStatus {
        phase: "Published".into(),
        page,
        observed_generation: site.metadata.generation,
    };
    if site.status.as_ref() == Some(&status) {
        return Ok(());
    }
    report(request, site, &status.page).await?;
    // kcp turns a server-side apply into an update there, so mcr refuses it. A merge patch needs null for a field to remove.
    let patch = Patch::Merge(json!({"status": status}));
    let sites = request.api::<Site>();
    sites
        .patch_status(&site.name_any(), &PatchParams::default(), &patch)
        .await?;
    line(request, "published", output);
    Ok(())
}

/// Writes an event on a Site, if its workspace has accepted the claim on events.
async fn report(request: &Request<Site>, site: &Site, page: &str) -> Result<(), BoxError> {
    let event = Event {
        type_: EventType::Normal,
        reason: "Published".into(),
        note: Some(format!("the page is {page}")),
        action: "Publish".into(),
        secondary: None,
    };
    match request
        .cluster
        .recorder()
        .publish(&event, &site.object_ref(&()))
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
        reported => Ok(reported?),
    }
}

fn remove(request: &Request<Site>, file: &Path, output: &Output) -> Result<(), BoxError> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => line(request, "removed", output),
    }
    Ok(())
}

/// The text cannot become HTML: anyone who may write Sites in some workspace has written it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// What is printed.
#[derive(Serialize)]
struct Line<'a> {
    cluster: &'a str,
    /// The path of the workspace.
    workspace: Option<String>,
    namespace: &'a str,
    name: &'a str,
    event: &'static str,
}

fn line(request: &Request<Site>, event: &'static str, output: &Output) {
    output.record(&Line {
        cluster: request.cluster.name().as_str(),
        workspace: request.cluster.properties().remove("kcp.io/path"),
        namespace: request.namespace().unwrap_or_default(),
        name: request.name(),
        event,
    });
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cluster,
            workspace,
            namespace,
            name,
            event,
        } = self;
        let workspace = printable(workspace.as_deref().unwrap_or("?"));
        write!(
            f,
            "{event:<9}  {workspace} ({})  {namespace}/{name}",
            printable(cluster)
        )
    }
}

async fn run(args: Args) -> anyhow::Result<()> {
    let (output, stop) = args.output.start()?;
    let consumers = KcpProvider::builder()
        .access(args.hub.hub()?)
        .slice(args.slice)
        // Events can be written when the claim on them is in effect.
        .readiness(Readiness::PermissionClaimsApplied)
        .build()?;
    let context = Context {
        folder: args.folder,
        output,
    };
    let controller = Controller::<Site>::new("sites")
        .predicate(Predicate::spec_changed())
        .build(reconcile, Arc::new(context));
    let manager = args
        .manager
        .manager_in(&args.hub)
        .provider(consumers)
        .controller(controller);
    Ok(manager.build()?.run_until(stop).await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit(run(Args::parse()).await)
}
