//! `mcr-bench sim`: simulated API servers behind one port, in a process of their own.
//!
//! Commands on stdin, each answered with one line: `counts`; `beat SEQ [FROM]` writes the beat in every cluster from number
//! FROM on.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use mcr_testkit::{
    control_plane::{Credentials, KubeconfigBuilder},
    sim::{SimCluster, SimFleet},
};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::{
    objects::{self, BEAT},
    subject::{
        said::{Said, now},
        say,
    },
};

/// What the simulator is started with.
#[derive(clap::Args, Clone, Debug)]
pub struct SimArgs {
    /// How many clusters
    #[arg(long)]
    pub clusters: usize,
    /// How many ConfigMaps in each
    #[arg(long)]
    pub objects: usize,
    /// Where to write their kubeconfig
    #[arg(long)]
    pub kubeconfig: PathBuf,
}

/// Serves until its stdin ends.
///
/// # Errors
///
/// When there is no port.
pub fn run(args: SimArgs) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(serve(args))
}

async fn serve(args: SimArgs) -> Result<()> {
    let template = SimCluster::new();
    template.create(objects::beat())?;
    for number in 1..args.objects {
        template.create(objects::config_map(number))?;
    }
    let clusters: Vec<SimCluster> = (0..args.clusters)
        .map(|number| {
            SimCluster::builder()
                .name(format!("cluster-{number:05}"))
                .template(&template)
                .build()
        })
        .collect();
    let fleet = SimFleet::serve(clusters.iter().cloned()).await?;
    let mut contexts = KubeconfigBuilder::new();
    for cluster in &clusters {
        let name = cluster.name();
        contexts = contexts.context(
            name,
            fleet.url(name),
            fleet.ca_pem(),
            Credentials::Token(cluster.admin_token()),
        );
    }
    std::fs::write(&args.kubeconfig, contexts.to_yaml())?;
    say(&Said::Serving);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let mut words = line.split_whitespace();
        let answer = match words.next() {
            Some("counts") => counts(&clusters),
            Some("beat") => {
                let seq: u64 = words.next().context("beat SEQ")?.parse()?;
                let from: usize = words.next().map_or(Ok(0), str::parse)?;
                for cluster in clusters.iter().skip(from) {
                    beat(cluster, seq)?;
                }
                Said::Done { at: now() }
            }
            _ => bail!("the simulator does not know {line:?}"),
        };
        say(&answer);
    }
    Ok(())
}

fn beat(cluster: &SimCluster, seq: u64) -> Result<()> {
    let mut object = objects::beat();
    object["data"] = json!({ "seq": seq.to_string() });
    debug_assert_eq!(object["metadata"]["name"], BEAT);
    cluster.update(object)?;
    Ok(())
}

fn counts(clusters: &[SimCluster]) -> Said {
    let (mut lists, mut watches, mut open) = (0, 0, 0);
    for cluster in clusters {
        let audit = cluster.audit();
        lists += audit.count(|event| event.is_list("configmaps")) as u64;
        watches += audit.count(|event| event.is_watch_start("configmaps")) as u64;
        open += cluster.watches() as u64;
    }
    Said::Counts { lists, watches, open }
}
