//! What is shown, whatever the form.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use examples::Backend;
use mcr::Fleet;
use serde::{Serialize, Serializer};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::seen::{Seen, short_name};

/// A form of output.
pub(crate) trait Show: Send + Sync {
    /// What this runs on, before the first step.
    fn intro(&self, _: &str) {}
    /// A step begins.
    fn begin(&self, doing: &str);
    /// A step has ended.
    fn step(&self, step: &Step);
    /// All steps have ended, or one has failed.
    fn summary(&self, summary: &Summary);
    /// What one could do now.
    fn hint(&self, _: &str) {}
    /// The clusters as they are; called several times a second.
    fn clusters(&self, _: &[Row]) {}
}

/// What happened in a step and how long it took.
#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Step {
    /// A short name, the same every time.
    pub(crate) step: &'static str,
    pub(crate) backend: Backend,
    /// What happened, in words.
    pub(crate) what: String,
    #[serde(rename = "tookMs", serialize_with = "millis")]
    pub(crate) took: Duration,
    pub(crate) ok: bool,
    /// The same in numbers.
    pub(crate) details: Value,
}

/// All that happened.
pub(crate) struct Summary {
    pub(crate) backend: Backend,
    pub(crate) steps: Vec<Step>,
    pub(crate) took: Duration,
    pub(crate) ok: bool,
}

impl Summary {
    pub(crate) fn failed(&self) -> String {
        let failed = self.steps.iter().filter(|step| !step.ok);
        failed
            .map(|step| format!("{} ({})", step.step, step.what))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// The table at the end.
    pub(crate) fn text(&self) -> String {
        let width = self
            .steps
            .iter()
            .map(|step| step.what.chars().count())
            .max()
            .unwrap_or_default();
        let mut text = format!("\n   {:<11}{:<width$}  {:>8}\n", "STEP", "WHAT HAPPENED", "TOOK");
        for step in &self.steps {
            let mark = if step.ok { "✓" } else { "✗" };
            text += &format!(
                "{mark}  {:<11}{:<width$}  {:>8}\n",
                step.step,
                step.what,
                duration(step.took)
            );
        }
        text + &format!("   {:<11}{:<width$}  {:>8}\n", "in all", "", duration(self.took))
    }
}

/// A cluster in the live table.
pub(crate) struct Row {
    pub(crate) cluster: String,
    pub(crate) state: &'static str,
    pub(crate) reason: Option<String>,
    pub(crate) objects: usize,
    pub(crate) reconciles: u64,
    pub(crate) last: Option<Duration>,
}

/// Shows the clusters again and again.
pub(crate) async fn redraw(show: Arc<dyn Show>, fleet: Fleet, seen: Arc<Seen>, stop: CancellationToken) {
    let draw = async {
        loop {
            show.clusters(&rows(&fleet, &seen));
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    };
    stop.run_until_cancelled(draw).await;
}

pub(crate) fn rows(fleet: &Fleet, seen: &Seen) -> Vec<Row> {
    let clusters = fleet.clusters();
    let seen = seen.state();
    let row = |cluster: &mcr::Cluster| {
        let (name, state) = (short_name(cluster), cluster.state());
        let of_cluster = seen.clusters.get(&name).cloned().unwrap_or_default();
        Row {
            state: state.as_str(),
            reason: state.reason().map(examples::printable),
            objects: cluster.kinds().iter().map(|kind| kind.objects).sum(),
            reconciles: of_cluster.reconciles,
            last: of_cluster
                .last
                .map(|last| Instant::now().saturating_duration_since(last)),
            cluster: name,
        }
    };
    clusters.iter().map(row).collect()
}

pub(crate) fn duration(took: Duration) -> String {
    match took.as_secs_f64() {
        seconds if seconds < 0.01 => format!("{:.1} ms", seconds * 1000.0),
        seconds if seconds < 1.0 => format!("{:.0} ms", seconds * 1000.0),
        seconds => format!("{seconds:.1} s"),
    }
}

/// Milliseconds with three digits after the point.
pub(crate) fn in_millis(took: Duration) -> f64 {
    (took.as_secs_f64() * 1e6).round() / 1e3
}

fn millis<S: Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(in_millis(*took))
}

/// Prints; that nobody reads is no reason to leave servers running half way through a step.
pub(crate) fn print(text: &str) {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
