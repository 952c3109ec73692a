//! `cargo xtask e2e`: runs the suites that need real clusters on new kind clusters, and the suite on the controllers
//! of Cluster API.
//!
//! A suite on kind clusters is a test target named `e2e` in a package. Each case runs in its own process, so a case
//! that hangs, aborts or prints anything is still a single result. `mcr-testkit/src/e2e` documents the environment of
//! the suites.

mod capi;
mod case;
mod clusters;
mod nodes;
mod note;
mod report;
mod suites;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::engine::Engine;
use crate::process::Rules;
use crate::stage::{Done, Stages};
use crate::{assets, interrupt, workspace};
use case::Outcome;
use clusters::Clusters;
use nodes::{Nodes, Wanted};
use report::{Format, Report};
use suites::Suite;

/// No case takes longer than a few minutes. On a busy machine, kind needs half of this time for a cluster.
const CASE: Rules = Rules::within(Duration::from_secs(600));

const IF_AT_ONCE: &str = "clusters may stay, and the next `cargo xtask e2e` removes them";

/// Arguments of `cargo xtask e2e`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this provider's suite, or `examples`; may be given several times. `cluster-api` needs no container engine
    #[arg(long = "provider", value_name = "NAME")]
    providers: Vec<String>,
    /// Keep the clusters, and print how to use and remove them
    #[arg(long)]
    keep: bool,
    /// Also write the results to this file, as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// The output format of the results on stdout; json is one object per line, as they come
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// auto: kind's own image if the engine has it or can pull it, else own; own: the control plane that
    /// `cargo xtask node-image` makes; or an image's name
    #[arg(long, value_name = "auto|own|IMAGE", default_value = "auto")]
    node_image: Wanted,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            providers: Vec::new(),
            keep: false,
            junit: None,
            format: Format::default(),
            node_image: Wanted::Auto,
        }
    }
}

/// Runs the stages and prints their times.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut names = args.providers.clone();
    names.retain(|name| name != capi::NAME);
    let with_capi = names.len() < args.providers.len() || args.providers.is_empty();
    let with_clusters = !names.is_empty() || args.providers.is_empty();
    let suites = Suite::chosen(&names)?;
    let engine = with_clusters.then(|| Engine::find(None)).transpose()?;
    let mut stages = Stages::default();
    add_suites(&mut stages, args, |stages, report| {
        if with_capi {
            capi::add(stages, report);
        }
        if let Some(engine) = &engine {
            on_clusters(stages, args, engine, suites, report);
        }
    })?;
    stages.finish()
}

/// Adds the stages of the suites on kind clusters.
pub(crate) fn add(stages: &mut Stages, args: &Args, engine: &Engine) -> Result<()> {
    let suites = Suite::chosen(&args.providers)?;
    add_suites(stages, args, |stages, report| {
        on_clusters(stages, args, engine, suites, report)
    })
}

fn add_suites(stages: &mut Stages, args: &Args, add: impl FnOnce(&mut Stages, &mut Report)) -> Result<()> {
    interrupt::watch(IF_AT_ONCE)?;
    let mut report = Report::new(args.format);
    add(stages, &mut report);
    report.finish();
    if let Some(file) = &args.junit {
        // The folder of the file was chosen by the user. If the results can't be written there, that is a failure.
        stages.run("e2e report", || report.junit(file).map(|()| Done::Passed));
    }
    if interrupt::received() {
        bail!("interrupted");
    }
    Ok(())
}

fn on_clusters(
    stages: &mut Stages,
    args: &Args,
    engine: &Engine,
    mut suites: Vec<Suite>,
    report: &mut Report,
) {
    let mut ready = None;
    stages.run("e2e nodes", || {
        let assets = assets::ensure(&assets::Args::default())?;
        ready = Some((Nodes::choose(&args.node_image, engine)?, assets));
        Ok(Done::Passed)
    });
    let Some((nodes, assets)) = ready else { return };

    let mut built = None;
    stages.run("e2e build", || {
        built = Some(suites::build(&mut suites, args.providers.is_empty())?);
        Ok(Done::Passed)
    });
    if built.is_none() {
        return;
    }

    let mut made = None;
    stages.run("e2e set up", || {
        let folder = workspace::target()?.join("e2e").join(engine.folder());
        made = Some(Clusters::make(&folder, engine, &nodes, &assets)?);
        Ok(Done::Passed)
    });
    let Some(mut clusters) = made else { return };

    for suite in &suites {
        if interrupt::received() {
            break;
        }
        stages.run(&format!("e2e {}", suite.name), || {
            // The previous suite may have restarted the engine.
            clusters.wait_until_ready()?;
            run_suite(suite, &clusters, report)
        });
    }

    if args.keep && !interrupt::received() {
        stages.run("e2e keep", || {
            clusters.keep()?;
            Ok(Done::Passed)
        });
    } else {
        stages.run("e2e clean up", || {
            clusters.remove()?;
            Ok(Done::Passed)
        });
    }
}

fn run_suite(suite: &Suite, clusters: &Clusters<'_>, report: &mut Report) -> Result<Done> {
    let cases = suite.cases(|command| clusters.describe(command))?;
    let (mut failed, mut skipped, count) = (Vec::new(), Vec::new(), cases.len());
    for name in cases {
        let case = suite.run(&name, CASE, |command| clusters.describe(command))?;
        match &case.outcome {
            Outcome::Failed(why) if why == "interrupted" => bail!("interrupted in {name}"),
            Outcome::Failed(_) => failed.push(name),
            Outcome::Skipped(why) => skipped.push(why.clone()),
            Outcome::Passed => {}
        }
        report.add(case);
    }
    if !failed.is_empty() {
        bail!("{} of {count} cases: {}", failed.len(), failed.join(", "));
    }
    if count == 0 {
        bail!("it has no case");
    }
    if skipped.len() == count {
        return Ok(Done::Skipped(skipped.swap_remove(0)));
    }
    Ok(Done::Passed)
}
