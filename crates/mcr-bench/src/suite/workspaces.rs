//! `workspaces`: ten thousand workspaces of a double of kcp.

use anyhow::{Context, Result};

use super::Session;
use crate::{alone::Case, driver::Subject, row::Row};

/// The number of workspaces with which the others are compared.
const FEW: usize = 100;

/// Runs the suite. The other subjects have nothing like it.
///
/// # Errors
///
/// When the double does not start, or not all workspaces are reconciled.
pub async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let all = session.options.clusters.unwrap_or(10_000);
    let mut runs = Vec::new();
    for run in 0..session.options.runs {
        for _ in session.order_of(run, |subject| subject == Subject::Mcr) {
            for workspaces in [FEW.min(all), all] {
                for row in one(session, workspaces).await.context("workspaces")? {
                    session.ran(run, row, &mut runs);
                }
            }
        }
    }
    Ok(session.report(&runs))
}

async fn one(session: &Session<'_>, workspaces: usize) -> Result<Vec<Row>> {
    let args = [format!("--size={workspaces}")];
    let mut figures = session.alone(Case::Workspaces, true, &args).await?;
    let (lists, watches) = (figures.remove("lists"), figures.remove("watches"));
    let rows = figures.iter().map(|(name, value)| Row {
        variant: name.clone(),
        value: Some(*value),
        lists,
        watches,
        ..Row::new("workspaces", "mcr", workspaces, 1)
    });
    Ok(rows.collect())
}
