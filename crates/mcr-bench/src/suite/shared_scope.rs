//! `shared-scope`: ten thousand clusters behind one endpoint.

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
    let clusters = session.options.clusters.unwrap_or(10_000);
    let mut runs = Vec::new();
    for run in 0..session.options.runs {
        for _ in session.order_of(run, |subject| subject == Subject::Mcr) {
            for row in one(session, clusters).await.context("shared-scope")? {
                session.ran(run, row, &mut runs);
            }
        }
    }
    Ok(session.report(&runs))
}

async fn one(session: &Session<'_>, clusters: usize) -> Result<Vec<Row>> {
    let options = [format!("--tenants={clusters}")];
    let mut sim = Sim::start_with(&session.programs, 1, 0, &options).await?;
    let args = [
        format!("--size={clusters}"),
        format!("--kubeconfig={}", sim.kubeconfig().display()),
    ];
    let figures = session.alone(Case::Scope, true, &args).await?;
    let counts = sim.counts().await?;
    let rows = figures.iter().map(|(name, value)| Row {
        variant: name.clone(),
        value: Some(*value),
        lists: Some(counts.lists as f64),
        watches: Some(counts.watches as f64),
        ..Row::new("shared-scope", "mcr", clusters, 1)
    });
    Ok(rows.collect())
}
