//! Copies labelled ConfigMaps of one cluster, the hub, into all others, and keeps the copies as they should be.
//!
//! [`ObjectSync`] does the work. A second controller watches the copies, and prints them. The two know nothing of each other.

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::bail;
use clap::Parser;
use examples::{ObjectLine, Output, OutputArgs};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use mcr::{
    Action, BoxError, BuiltController, ClusterSelector, Controller, HUB, Manager, Request, RequestObject,
    args::{HubArgs, KubeconfigArgs},
};
use mcr_provider_single::SingleProvider;
use mcr_sync::{NameTemplate, ObjectSync};

const EXAMPLES: &str = "\
Examples:
  cargo run -p examples --features single --example sync-local-to-remote -- --hub-kubeconfig hub.yaml --kubeconfigs a.yaml,b.yaml";

/// Copy ConfigMaps of a local cluster, the hub, into all remote ones, and keep the copies equal to their originals.
///
/// The program copies ConfigMaps with the label `example.io/propagate: "true"` in the local cluster. It reverts
/// changes and deletions of copies in remote clusters. Entries that others add to a copy stay. A cluster that joins
/// gets all copies. The program does not touch a remote ConfigMap of the same name that it did not make.
///
/// An original has a finalizer. When somebody deletes it, or takes its label away, its copies go first, also if that
/// happened while the program did not run. A copy in a cluster that is away holds its original; the annotation
/// `sync.mcr.dev/abandon: CLUSTER` on the original gives that copy up.
///
/// Prints a line for each copy that was `copied` or changed, and for each one that was `deleted` ("event").
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

/// On originals: they are to be copied.
const PROPAGATE: &str = "example.io/propagate";
/// The name of the sync. Copies have it in the label `sync.mcr.dev/sync`.
const SYNC: &str = "sync-local-to-remote";

fn sync() -> anyhow::Result<BuiltController> {
    let sync = ObjectSync::<ConfigMap, ConfigMap>::new(SYNC)
        .from(ClusterSelector::hub())
        .to_each(!ClusterSelector::hub())
        .filter(|map| map.labels().get(PROPAGATE).is_some_and(|value| value == "true"))
        .name_by(NameTemplate::parse("{name}")?)
        .replace_when_immutable(true)
        .project(|original, _| {
            let mut copy = ConfigMap::clone(original);
            // A copy is not itself an original.
            copy.labels_mut().remove(PROPAGATE);
            copy
        });
    Ok(sync.build_with(|controller| controller.timeout(Duration::from_secs(60)))?)
}

async fn print(copy: Request<ConfigMap>, output: Arc<Output>) -> Result<Action, BoxError> {
    let event = match copy.object {
        RequestObject::Live(_) => "copied",
        RequestObject::Deleted { .. } => "deleted",
        // A copy without the label is put right, and copied again.
        RequestObject::LeftWatch { .. } if copy.confirm_deleted().await? => "deleted",
        _ => return Ok(Action::done()),
    };
    output.record(&ObjectLine {
        cluster: copy.cluster.name(),
        kind: "ConfigMap",
        namespace: copy.namespace().unwrap_or_default(),
        name: copy.name(),
        event,
    });
    Ok(Action::done())
}

async fn run(args: Args) -> anyhow::Result<()> {
    if args.members.is_empty() {
        // Nothing is written to all clusters of a kubeconfig because a flag is missing.
        bail!("which clusters to copy to? Give --kubeconfigs or --kubeconfig-dirs");
    }
    let hub = args.hub.hub()?;
    let members = hub.members_of(examples::file(&args.members)?);
    let hub = SingleProvider::named(HUB, hub)?;

    let (output, stop) = args.output.start()?;
    let copies = Controller::<ConfigMap>::new("copies")
        .watch_request(|maps| maps.labels(format!("sync.mcr.dev/sync={SYNC}")))
        .build(print, Arc::new(output));
    let manager = Manager::builder()
        .provider(hub)
        .provider(members)
        .controller(sync()?)
        .controller(copies)
        .build()?;
    Ok(manager.run_until(stop).await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit(run(Args::parse()).await)
}
