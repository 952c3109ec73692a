//! The suites. Short suites are in this file. Every other suite has a file of its own.

mod capacity;
mod fleet;
mod latency;
mod moving;
mod store;
mod sync;
mod update;
mod wan;
mod work;

use anyhow::Result;

use crate::{
    alone::{Case, queue::SHAPES},
    driver::{Servers, Subject},
    plan::Suite,
    row::{Figure, Row},
    run::{Session, Turn},
    simulator::SimArgs,
};

/// The size of the small fleet of suite `workspaces`. A comparison with it shows the cost of each further workspace.
const FEW_WORKSPACES: usize = 100;

/// Measures a suite. Returns its rows.
///
/// # Errors
///
/// If a server or a program does not start, or if a subject does not finish in time.
pub async fn run(suite: Suite, session: &mut Session<'_>) -> Result<Vec<Row>> {
    match suite {
        Suite::Fleet => fleet::fleet(session).await,
        Suite::Kinds => fleet::kinds(session).await,
        Suite::Large => fleet::large(session).await,
        Suite::Store => store::run(session).await,
        Suite::Update => update::run(session).await,
        Suite::Work => work::run(session).await,
        Suite::Capacity => capacity::run(session).await,
        Suite::Churn => moving::churn(session).await,
        Suite::Isolation => moving::isolation(session).await,
        Suite::Fairness => moving::fairness(session).await,
        Suite::SharedScope => shared_scope(session).await,
        Suite::Discovery => discovery(session).await,
        Suite::Workspaces => workspaces(session).await,
        Suite::Queue => queue(session).await,
        Suite::Sync => sync::run(session).await,
        Suite::Wan => wan::run(session).await,
    }
}

/// Measures ten thousand clusters behind one endpoint.
async fn shared_scope(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let clusters = session.options.clusters.unwrap_or(10_000);
    let row = Row::new("shared-scope", "", clusters, 1);
    let measure = async |session: &Session<'_>, turn: Turn| {
        let args = SimArgs {
            tenants: clusters,
            ..SimArgs::new(1, 0)
        };
        let mut sim = Servers::sim(&session.programs, args).await?;
        let kubeconfig = format!("--kubeconfig={}", sim.kubeconfig.display());
        let args = [format!("--size={clusters}"), kubeconfig];
        let mut figures = session.alone(Case::Scope, true, &args).await?;
        let counts = sim.counts().await?.unwrap_or_default();
        figures.insert("lists".to_owned(), counts.lists as f64);
        figures.insert("watches".to_owned(), counts.watches as f64);
        Ok(turn.row.each(figures))
    };
    session.subjects(row, &[Subject::Mcr], measure).await
}

/// Measures how a provider finds a thousand clusters in a hub.
async fn discovery(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let clusters = session.options.clusters.unwrap_or(1_000);
    let row = Row::new("discovery", "", clusters, 1);
    let measure = async |session: &Session<'_>, turn: Turn| {
        let sim = Servers::sim(&session.programs, SimArgs::new(clusters, 1)).await?;
        let args = [format!("--kubeconfig={}", sim.kubeconfig.display())];
        let figures = session.alone(Case::Discovery, true, &args).await?;
        Ok(turn.row.each(figures))
    };
    session.subjects(row, &[Subject::Mcr], measure).await
}

/// Measures ten thousand workspaces of a test double of kcp, and a few workspaces to compare.
async fn workspaces(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let all = session.options.clusters.unwrap_or(10_000);
    let row = Row::new("workspaces", "", all, 1);
    let measure = async |session: &Session<'_>, turn: Turn| {
        let mut rows = Vec::new();
        for clusters in [FEW_WORKSPACES.min(all), all] {
            let args = [format!("--size={clusters}")];
            let figures = session.alone(Case::Workspaces, true, &args).await?;
            let row = turn.row.clone();
            rows.extend(Row { clusters, ..row }.each(figures));
        }
        Ok(rows)
    };
    session.subjects(row, &[Subject::Mcr], measure).await
}

/// Measures how many pushes and pops the queue does in a second, on one core.
async fn queue(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let row = Row::new("queue", "", 0, 0);
    let measure = async |session: &Session<'_>, turn: Turn| {
        let figures = session.alone(Case::Queue, false, &[]).await?;
        let of_shape = |(clusters, objects): (usize, usize)| {
            let row = Row::new("queue", &turn.row.subject, clusters, objects);
            row.with(Figure::Value, figures.get(&clusters.to_string()).copied())
        };
        Ok(SHAPES.map(of_shape).into())
    };
    session.subjects(row, &[Subject::Mcr], measure).await
}
