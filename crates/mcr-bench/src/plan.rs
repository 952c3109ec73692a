//! The suites, and the plan of a call without any of them named: which it measures, how often, and how long that takes.

use std::{fmt::Write, time::Duration};

use clap::ValueEnum;

use crate::{driver::Subject, names::name, row::Row, run::Options};

/// A suite.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// All objects of all clusters, from the start
    Fleet,
    /// What objects and clusters cost in memory
    Store,
    /// One write, seen by all clusters
    Update,
    /// A reconciler that applies one ConfigMap for each request
    Work,
    /// Ten kinds of objects in each of two hundred clusters
    Kinds,
    /// Five clusters with 20,000 large Pods each
    Large,
    /// Ten thousand clusters behind one endpoint
    SharedScope,
    /// A thousand clusters that a provider finds in a hub
    Discovery,
    /// Ten thousand workspaces of a double of kcp
    Workspaces,
    /// Ten thousand clusters with 500 objects of three kinds each, and a steady stream of events
    Capacity,
    /// Clusters leave and join all the time
    Churn,
    /// A fifth of the clusters fail
    Isolation,
    /// One cluster with a hundred times the events
    Fairness,
    /// Operations of the queue
    Queue,
    /// Ten thousand ConfigMaps of 500 clusters, copied to one more
    Sync,
    /// A hundred clusters behind a slow network, and after an outage of it
    Wan,
}

impl Suite {
    /// As it is written in rows and arguments.
    pub fn name(self) -> String {
        name(&self)
    }
}

/// One step of a plan: a suite with its options.
#[derive(Clone, Debug)]
pub struct Step {
    /// The suite.
    pub suite: Suite,
    /// The options it is run with.
    pub options: Options,
    /// How long it takes on a machine with two cores, servers included. `None` if that is not known.
    pub takes: Option<Duration>,
}

impl Step {
    /// As progress shows it: `fleet 500 x 102`.
    pub fn name(&self) -> String {
        let Options {
            clusters, objects, ..
        } = self.options;
        let size = clusters.zip(objects);
        let size = size.map_or_else(String::new, |(clusters, objects)| {
            format!(" {clusters} x {objects}")
        });
        format!("{}{size}", self.suite.name())
    }

    /// A row with the reason why there are no others.
    pub fn without_rows(&self, why: &str) -> Row {
        let clusters = self.options.clusters.unwrap_or_default();
        let objects = self.options.objects.unwrap_or_default();
        Row::new(&self.suite.name(), "all", clusters, objects).skipped(why)
    }
}

/// The measurements if no suite is named. They take about 40 minutes on two cores, and what has no target is last. `runs` is
/// how often each is measured, if not as often as fits.
///
/// Memory and idle CPU are read two minutes after the sync where targets are about them, and after some seconds at all other
/// sizes.
pub fn everything(options: &Options, runs: Option<usize>) -> Vec<Step> {
    const SHORT: Duration = Duration::from_secs(6);
    let plan = Plan { options, runs };
    let all = &Subject::ALL;
    let compared = [
        Subject::Mcr,
        Subject::KubeRsTuned,
        Subject::GoSerial,
        Subject::GoConcurrent,
    ];
    let side_by_side = Subject::SIDE_BY_SIDE;
    let beside = [Subject::KubeRs, Subject::Floor];
    let with_floor = [&compared[..], &[Subject::Floor]].concat();
    let fleet = |clusters, objects, sim, idle: Option<Duration>, subjects: &[Subject], runs, seconds| {
        let mut step = plan.step(Suite::Fleet, subjects, runs, seconds);
        step.options.clusters = Some(clusters);
        step.options.objects = Some(objects);
        step.options.sim = sim;
        step.options.idle = options.idle.or(idle);
        step
    };
    // What fits into the time. `cargo xtask bench capacity` has more clusters.
    let mut capacity = plan.step(Suite::Capacity, &side_by_side[..1], 1, 55);
    capacity.options.clusters = options.clusters.or(Some(1_000));
    let mut churn = plan.step(Suite::Churn, all, 1, 80);
    churn.options.seconds = options.seconds.or(Some(60));
    // What fits: with Go, the sizes of the suite and its outage it takes 17 minutes.
    let mut wan = plan.step(Suite::Wan, &side_by_side[..2], 1, 40);
    wan.options.objects = options.objects.or(Some(100));
    wan.options.seconds = options.seconds.or(Some(0));
    vec![
        fleet(500, 102, false, None, &compared, 2, 680),
        fleet(500, 102, false, Some(SHORT), &beside, 2, 60),
        fleet(5_000, 20, true, None, &side_by_side[..1], 1, 150),
        fleet(5_000, 20, true, Some(SHORT), &side_by_side[1..2], 1, 40),
        fleet(500, 20, true, Some(SHORT), &side_by_side, 1, 45),
        plan.step(Suite::Update, &with_floor, 1, 190),
        plan.step(Suite::Work, &side_by_side, 1, 190),
        plan.step(Suite::Kinds, &side_by_side, 1, 180),
        plan.step(Suite::Large, &side_by_side, 1, 240),
        plan.step(Suite::Store, all, 1, 70),
        plan.step(Suite::SharedScope, all, 1, 5),
        plan.step(Suite::Discovery, all, 3, 30),
        plan.step(Suite::Workspaces, all, 1, 60),
        capacity,
        churn,
        plan.step(Suite::Isolation, &side_by_side, 1, 220),
        plan.step(Suite::Fairness, all, 1, 55),
        plan.step(Suite::Queue, all, 3, 20),
        plan.step(Suite::Sync, all, 1, 160),
        wan,
        fleet(100, 102, false, Some(SHORT), all, 1, 55),
        fleet(250, 102, false, Some(SHORT), all, 1, 75),
    ]
}

struct Plan<'a> {
    options: &'a Options,
    runs: Option<usize>,
}

impl Plan<'_> {
    /// A suite with those of these subjects that were asked for, and the time of so many runs.
    fn step(&self, suite: Suite, subjects: &[Subject], runs: usize, seconds: u64) -> Step {
        // The floor is always measured, because figures are compared with it.
        let asked = |subject: &Subject| *subject == Subject::Floor || self.options.subjects.contains(subject);
        let asked_runs = self.runs.unwrap_or(runs);
        Step {
            suite,
            options: Options {
                runs: asked_runs,
                subjects: subjects.iter().copied().filter(asked).collect(),
                ..self.options.clone()
            },
            takes: Some(Duration::from_secs(seconds).mul_f64(asked_runs as f64 / runs as f64)),
        }
    }
}

/// How far a plan is, as it is printed before each step: what comes, and when all will be done.
pub fn progress(steps: &[Step], at: usize, elapsed: Duration, limit: Option<Duration>) -> String {
    let minutes = |time: Duration| (time.as_secs_f64() / 60.0).round();
    let left: Option<Duration> = steps.iter().skip(at).map(|step| step.takes).sum();
    let mut text = format!("bench: step {} of {}", at + 1, steps.len());
    // Writing to a String never fails.
    if let Some(step) = steps.get(at) {
        let _ = write!(text, ": {}", step.name());
    }
    let _ = write!(text, "; {} min so far", minutes(elapsed));
    if let Some(left) = left {
        let left = limit.map_or(left, |limit| left.min(limit.saturating_sub(elapsed)));
        let _ = write!(text, ", about {} min to go", minutes(left));
    }
    text
}
