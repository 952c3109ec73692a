//! `store`: the memory of an object compared with its JSON, and of a cluster without its objects.

use std::time::Duration;

use anyhow::{Context, Result};

use super::Session;
use crate::{
    alone::Case,
    driver::{Job, Running, Subject, sim::Sim},
    row::Row,
};

const OBJECTS: usize = 4_000;
const FEW: usize = 200;
const MANY: usize = 1_000;

/// Runs the suite.
///
/// # Errors
///
/// When the simulator does not start, or a process does not end.
pub async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let mut runs = Vec::new();
    for run in 0..session.options.runs {
        if session.options.subjects.contains(&Subject::Mcr) {
            let figures = session
                .alone(Case::Store, true, &[format!("--size={OBJECTS}")])
                .await
                .context("store")?;
            for kind in ["configmap", "pod", "deployment", "custom"] {
                let figure = |what: &str| figures.get(&format!("{kind}.{what}")).copied();
                let ratio = figure("bytes")
                    .zip(figure("json_bytes"))
                    .map(|(bytes, json)| bytes / json);
                for (variant, value) in [
                    (kind.to_owned(), ratio),
                    (format!("{kind} json bytes"), figure("json_bytes")),
                    (format!("{kind} read us"), figure("read_us")),
                ] {
                    session.ran(
                        run,
                        Row {
                            variant,
                            value,
                            ..Row::new("store", "mcr", 1, OBJECTS)
                        },
                        &mut runs,
                    );
                }
            }
        }
        for subject in session.order_of(run, |subject| subject != Subject::GoSerial) {
            let row = match session.missing(subject) {
                Some(why) => Row::skipped("store", subject.name(), MANY, 1, why),
                None => Row {
                    value: Some(
                        cluster(session, subject)
                            .await
                            .with_context(|| format!("store {}", subject.name()))?,
                    ),
                    ..Row::new("store", subject.name(), MANY, 1)
                },
            };
            let variant = "kB a cluster".to_owned();
            session.ran(run, Row { variant, ..row }, &mut runs);
        }
    }
    Ok(session.report(&runs))
}

/// The kilobytes of one more cluster with few objects.
async fn cluster(session: &Session<'_>, subject: Subject) -> Result<f64> {
    let mut resident = Vec::new();
    for clusters in [FEW, MANY] {
        let sim = Sim::start(&session.programs, clusters, 1).await?;
        let job = Job::new(sim.kubeconfig(), clusters);
        let mut process = Running::subject(subject, &session.programs, &job)?;
        process.synced(Duration::from_secs(120)).await?;
        tokio::time::sleep(session.options.idle()).await;
        resident.push(process.usage()?.rss_kb);
        process.stop().await?;
    }
    let more = resident
        .iter()
        .rev()
        .copied()
        .reduce(|many, few| many - few)
        .unwrap_or_default();
    Ok(more / (MANY - FEW) as f64)
}
