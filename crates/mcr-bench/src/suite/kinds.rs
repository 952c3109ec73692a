//! `kinds`: ten kinds of objects in each cluster, from the start of the process until all have been reconciled.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{Session, fleet};
use crate::{
    driver::{Backend, Subject, real::Real, sim::Sim},
    kind::Kind,
    row::Row,
};

/// How long after the sync memory is looked at. Go's runtime gives memory back for some time after a sync.
const IDLE: Duration = Duration::from_secs(30);

/// Runs the suite.
///
/// # Errors
///
/// When the servers don't start, when a subject does not sync within ten minutes, and when it does not watch every kind of every
/// cluster within another one.
pub async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let clusters = session.options.clusters.unwrap_or(200);
    let objects = session.options.objects.unwrap_or(20);
    let backend = if session.options.sim {
        let sim = Sim::with_kinds(&session.programs, clusters, objects, &Kind::ALL).await?;
        Backend::Sim(Box::new(sim))
    } else {
        Backend::Real(Real::with_kinds(clusters, objects, &Kind::ALL).await?)
    };
    let variant = if session.options.sim { "sim" } else { "" };
    measured(session, backend, "kinds", variant, |subject| {
        subject != Subject::Floor
    })
    .await
}

/// Measures the subjects that fit, as `fleet` does, in rows of another suite.
pub(super) async fn measured(
    session: &mut Session<'_>,
    mut backend: Backend,
    suite: &str,
    variant: &str,
    fit: impl Fn(Subject) -> bool,
) -> Result<Vec<Row>> {
    let idle = session.options.idle.unwrap_or(IDLE);
    let mut runs = Vec::new();
    for run in 0..session.options.runs {
        for subject in session.order_of(run, &fit) {
            let (clusters, objects) = (backend.clusters(), backend.objects() / backend.clusters().max(1));
            let row = match session.missing(subject) {
                Some(why) => Row::skipped(suite, subject.name(), clusters, objects, why),
                None => fleet::one(session, &mut backend, subject, Some(idle))
                    .await
                    .with_context(|| format!("{suite} {}", subject.name()))?,
            };
            let row = Row {
                suite: suite.to_owned(),
                variant: variant.to_owned(),
                ..row
            };
            session.ran(run, row, &mut runs);
        }
    }
    Ok(session.report(&runs))
}
