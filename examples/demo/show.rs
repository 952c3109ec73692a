//! What is shown, whatever the form.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use examples::{Step, Summary};
use mcr::Fleet;
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
