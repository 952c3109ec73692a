//! `cargo xtask ci`: everything a change must pass.

use anyhow::Result;

use crate::assets::{self, Capi};
use crate::engine::{Engine, OwnEngine};
use crate::stage::{Beside, Done, Stages};
use crate::{e2e, interrupt, lint, test};

/// Arguments of `cargo xtask ci`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also run the tests marked `#[ignore]`: the long ones
    #[arg(long)]
    full: bool,
}

/// Runs all stages, even after a failure, and prints the time of each.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut stages = Stages::default();
    lint::add(&mut stages);
    test::add(
        &mut stages,
        &test::Args {
            full: args.full,
            ..test::Args::default()
        },
    );
    // All three wait most of the time, so they run in parallel.
    let planted = Beside::start("planted bugs", &["planted"]);
    let cluster_api = cluster_api(&mut stages);
    let on_clusters = on_clusters(&mut stages);
    stages.wait(planted);
    if let Some(cluster_api) = cluster_api {
        stages.wait(cluster_api);
    }
    on_clusters?;
    stages.finish()
}

/// Starts the suite on the controllers of Cluster API, if they can run here.
fn cluster_api(stages: &mut Stages) -> Option<Result<Beside>> {
    let mut ready = false;
    // This is a stage of its own, so that the table of stages shows why the suite was skipped.
    stages.run("cluster-api assets", || match assets::ensure_capi()? {
        (_, Capi::Ready(_)) => {
            ready = true;
            Ok(Done::Passed)
        }
        (_, Capi::Missing(why)) => Ok(Done::Skipped(format!("nothing ran on Cluster API: {why}"))),
    });
    ready.then(|| Beside::start("e2e cluster-api", &["e2e", "--provider", "cluster-api"]))
}

/// Runs the suites that need real clusters, in the engine of this machine or in one that is started for them.
fn on_clusters(stages: &mut Stages) -> Result<()> {
    interrupt::watch("`.ci/engine stop` removes what stays")?;
    let mut found = None;
    stages.run("e2e engine", || match Engine::find(None) {
        Ok(engine) => {
            found = Some((engine, None));
            Ok(Done::Passed)
        }
        Err(none) => match OwnEngine::start() {
            Ok(own) => {
                found = Some((own.engine().clone(), Some(own)));
                Ok(Done::Passed)
            }
            Err(_) if interrupt::received() => Err(none),
            Err(why) => Ok(Done::Skipped(format!(
                "nothing ran against real clusters: {why:#}\n{none:#}"
            ))),
        },
    });
    let Some((engine, own)) = found else { return Ok(()) };
    let ran = e2e::add(stages, &e2e::Args::default(), &engine);
    // Dropped after the clusters that run in it.
    drop(own);
    ran
}
