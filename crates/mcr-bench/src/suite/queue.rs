//! `queue`: pushes and pops a second of one core.

use anyhow::{Context, Result};

use super::Session;
use crate::{
    alone::{Case, queue::SHAPES},
    driver::Subject,
    row::Row,
};

/// Runs the suite.
///
/// # Errors
///
/// When its process can't be started.
pub async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let mut runs = Vec::new();
    for run in 0..session.options.runs {
        for _ in session.order_of(run, |subject| subject == Subject::Mcr) {
            let figures = session.alone(Case::Queue, false, &[]).await.context("queue")?;
            for (clusters, keys) in SHAPES {
                let value = figures.get(&clusters.to_string()).copied();
                session.ran(
                    run,
                    Row {
                        value,
                        ..Row::new("queue", "mcr", clusters, keys)
                    },
                    &mut runs,
                );
            }
        }
    }
    Ok(session.report(&runs))
}
