//! `large`: few clusters with many large Pods, from the start of the process until all have been reconciled.

use anyhow::Result;

use super::{Session, kinds};
use crate::{
    driver::{Backend, Subject, sim::Sim},
    row::Row,
};

/// Runs the suite.
///
/// # Errors
///
/// When the simulator does not start, when a subject does not sync within ten minutes, and when it does not watch every cluster within
/// another one.
pub async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let clusters = session.options.clusters.unwrap_or(5);
    let pods = session.options.objects.unwrap_or(20_000);
    let sim = Sim::with_large_pods(&session.programs, clusters, pods).await?;
    let fit = |subject| {
        matches!(
            subject,
            Subject::Mcr | Subject::KubeRsTuned | Subject::GoConcurrent
        )
    };
    kinds::measured(session, Backend::Sim(Box::new(sim)), "large", "", fit).await
}
