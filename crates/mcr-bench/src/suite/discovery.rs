//! `discovery`: a thousand clusters that a provider finds in a hub.

use anyhow::{Context, Result};

use super::Session;
use crate::{
    alone::Case,
    driver::{Subject, sim::Sim},
    row::Row,
};

/// Runs the suite. The other subjects have nothing like it.
///
/// # Errors
///
/// When the simulator does not start, or not all clusters are reconciled.
pub async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let clusters = session.options.clusters.unwrap_or(1_000);
    let mut runs = Vec::new();
    for run in 0..session.options.runs {
        for _ in session.order_of(run, |subject| subject == Subject::Mcr) {
            for row in one(session, clusters).await.context("discovery")? {
                session.ran(run, row, &mut runs);
            }
        }
    }
    Ok(session.report(&runs))
}

async fn one(session: &Session<'_>, clusters: usize) -> Result<Vec<Row>> {
    let sim = Sim::start(&session.programs, clusters, 1).await?;
    let args = [format!("--kubeconfig={}", sim.kubeconfig().display())];
    let figures = session.alone(Case::Discovery, true, &args).await?;
    let rows = figures.iter().map(|(name, value)| Row {
        variant: name.clone(),
        value: Some(*value),
        ..Row::new("discovery", "mcr", clusters, 1)
    });
    Ok(rows.collect())
}
