//! `store`: the memory of an object compared with its JSON, and of a cluster without its objects.

use std::time::Duration;

use anyhow::Result;

use crate::{
    alone::Case,
    driver::{Job, Servers, Subject},
    row::{Figure, Row},
    run::{REST, Session, Turn},
    simulator::SimArgs,
};

const OBJECTS: usize = 4_000;
const FEW: usize = 200;
const MANY: usize = 1_000;

pub(super) async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    use Subject::{Floor, GoConcurrent, KubeRs, KubeRsTuned, Mcr};
    let row = Row::new("store", "", MANY, 1).variant("kB a cluster");
    let fit = [Mcr, KubeRs, KubeRsTuned, GoConcurrent, Floor];
    let measure = async |session: &Session<'_>, turn: Turn| {
        let mut rows = Vec::new();
        if turn.subject == Mcr {
            rows.extend(of_objects(session).await?);
        }
        let kb = of_a_cluster(session, turn.subject).await?;
        rows.push(turn.row.with(Figure::Value, kb));
        Ok(rows)
    };
    session.subjects(row, &fit, measure).await
}

/// What objects take in mcr's store.
async fn of_objects(session: &Session<'_>) -> Result<Vec<Row>> {
    let args = [format!("--size={OBJECTS}")];
    let figures = session.alone(Case::Store, true, &args).await?;
    let mut rows = Vec::new();
    for kind in ["configmap", "pod", "deployment", "custom"] {
        let figure = |what: &str| figures.get(&format!("{kind}.{what}")).copied();
        let ratio = figure("bytes").zip(figure("json_bytes"));
        let mut row = |variant: String, value: Option<f64>| {
            let row = Row::new("store", "mcr", 1, OBJECTS).variant(variant);
            rows.push(row.with(Figure::Value, value));
        };
        row(kind.to_owned(), ratio.map(|(bytes, json)| bytes / json));
        row(format!("{kind} json bytes"), figure("json_bytes"));
        row(format!("{kind} read us"), figure("read_us"));
    }
    Ok(rows)
}

/// The kilobytes of one more cluster with few objects.
async fn of_a_cluster(session: &Session<'_>, subject: Subject) -> Result<f64> {
    let resident = async |clusters| {
        let sim = Servers::sim(&session.programs, SimArgs::new(clusters, 1)).await?;
        let job = Job::new(&sim.kubeconfig, clusters);
        let process = session.start(subject, &job, Duration::from_secs(120)).await?;
        tokio::time::sleep(session.options.idle.unwrap_or(2 * REST)).await;
        let kb = process.usage()?.rss_kb;
        process.stop().await?;
        anyhow::Ok(kb)
    };
    let few = resident(FEW).await?;
    Ok((resident(MANY).await? - few) / (MANY - FEW) as f64)
}
