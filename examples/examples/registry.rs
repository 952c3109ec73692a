//! Shows which clusters there are, and how they are, as they change. Needs only a fleet: no manager, no controller.

use std::{
    collections::BTreeMap,
    fmt,
    process::ExitCode,
    time::{Duration, SystemTime},
};

use clap::Parser;
use examples::{ClusterArgs, Format, Output, OutputArgs, printable};
use mcr::{Fleet, core::ClusterStatus};
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  cargo run -p examples --example registry -- --kubeconfig-dirs /etc/fleet";

/// Print the fleet as it changes.
///
/// As text, prints a table after each change. As JSON, prints one line for each cluster that `joined`, `changed` (its
/// state, the reason for it, its warnings, labels or properties) or `left` ("event"), with its whole status
/// ("status"). The program connects to the clusters and probes them, but watches nothing in them.
#[derive(Parser)]
#[command(after_long_help = EXAMPLES)]
struct Args {
    #[command(flatten)]
    clusters: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
}

type Statuses = BTreeMap<String, ClusterStatus>;

/// Prints what is different from the last time, until dropped.
async fn show(fleet: &Fleet, output: &Output) {
    let mut events = fleet.subscribe();
    // Clusters whose description can't be used never join: they are in the snapshot, but no event names them.
    let mut looks = interval(Duration::from_secs(1));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shown = Statuses::new();
    loop {
        tokio::select! {
            _ = events.next() => {}
            _ = looks.tick() => {}
        }
        let now: Statuses = fleet
            .snapshot()
            .clusters
            .into_iter()
            .map(|status| (status.name.to_string(), status))
            .collect();
        let changes = changes(&shown, &now);
        match output.format() {
            Format::Text if !changes.is_empty() => output.record(&Table { clusters: &now }),
            Format::Text => {}
            Format::Json => changes.iter().for_each(|change| output.record(change)),
        }
        shown = now;
    }
}

fn changes<'a>(before: &'a Statuses, now: &'a Statuses) -> Vec<Change<'a>> {
    let left = before.iter().filter(|(name, _)| !now.contains_key(*name));
    let left = left.map(|(cluster, _)| Change {
        event: "left",
        cluster,
        status: None,
    });
    let come = now.iter().filter_map(|(cluster, status)| {
        let event = match before.get(cluster) {
            None => "joined",
            Some(known) if differ(known, status) => "changed",
            Some(_) => return None,
        };
        Some(Change {
            event,
            cluster,
            status: Some(status),
        })
    });
    left.chain(come).collect()
}

/// The time of its last answer does not count: it changes all the time.
fn differ(a: &ClusterStatus, b: &ClusterStatus) -> bool {
    (a.state, a.since, &a.reason, &a.warnings) != (b.state, b.since, &b.reason, &b.warnings)
        || (&a.labels, &a.properties) != (&b.labels, &b.properties)
}

async fn run(args: Args) -> anyhow::Result<()> {
    let (output, stop) = args.output.start()?;
    let fleet = Fleet::builder()
        .provider(args.clusters.provider().await?)
        .settings(|settings| args.clusters.settings(settings))
        .build();
    // Ends later than what is shown: that the clusters leave because this program ends is nobody's news.
    let end = CancellationToken::new();
    let running = tokio::spawn({
        let (fleet, end) = (fleet.clone(), end.clone());
        async move { fleet.run(end).await }
    });
    stop.run_until_cancelled(show(&fleet, &output)).await;
    end.cancel();
    Ok(running.await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit(run(Args::parse()).await)
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Change<'a> {
    event: &'static str,
    cluster: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a ClusterStatus>,
}

impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.event, printable(self.cluster))
    }
}

/// What is printed as text.
#[derive(Serialize)]
struct Table<'a> {
    clusters: &'a Statuses,
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .clusters
            .keys()
            .map(|name| name.chars().count())
            .max()
            .unwrap_or_default()
            .max(12);
        writeln!(
            f,
            "{:<width$}  {:<11}  {:>6}  REASON",
            format!("CLUSTER ({})", self.clusters.len()),
            "STATE",
            "SINCE"
        )?;
        for (name, status) in self.clusters {
            let reason = status
                .reason
                .iter()
                .chain(&status.warnings)
                .map(|text| printable(text));
            let reason = reason.collect::<Vec<_>>().join("; ");
            let line = format!(
                "{:<width$}  {:<11}  {:>6}  {reason}",
                printable(name),
                status.state,
                age(status.since)
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn age(since: Option<SystemTime>) -> String {
    let Some(age) = since.and_then(|since| since.elapsed().ok()) else {
        return "-".to_owned();
    };
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds => format!("{}h", seconds / 3600),
    }
}
