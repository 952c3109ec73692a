//! The sources and targets of suite `sync` in the simulator: the first cluster has the targets, all others have sources.

use std::time::Duration;

use anyhow::{Context, Result};
use mcr_testkit::sim::SimCluster;

use crate::{
    alone::Figures,
    objects,
    subject::sync::{COUNTER, target_name},
};

/// The pause between two comparisons of targets with their sources.
const PAUSE: Duration = Duration::from_millis(5);

/// The counters of all sources.
#[derive(Default)]
pub(crate) struct SyncLoad {
    sources: Vec<Source>,
    random: u64,
}

struct Source {
    cluster: usize,
    name: String,
    counter: u64,
}

impl SyncLoad {
    /// Creates so many sources in each of these clusters.
    pub(crate) fn fill(&mut self, clusters: &[SimCluster], objects: usize) -> Result<()> {
        for (at, cluster) in clusters.iter().enumerate().skip(1) {
            for number in 0..objects {
                let mut map = objects::config_map(number);
                map["data"][COUNTER] = "0".into();
                let made = cluster.create(map)?;
                let name = made["metadata"]["name"].as_str().context("it has a name")?;
                self.sources.push(Source {
                    cluster: at,
                    name: name.to_owned(),
                    counter: 0,
                });
            }
        }
        Ok(())
    }

    /// Raises the counters of sources that chance selects, the same in each run.
    pub(crate) async fn burst(&mut self, clusters: &[SimCluster], edits: usize) -> Result<()> {
        self.random = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..edits {
            // The generator xorshift64.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let at = usize::try_from(self.random >> 16)? % self.sources.len().max(1);
            let source = self.sources.get_mut(at).context("there are no sources")?;
            let cluster = clusters.get(source.cluster).context("there are fewer clusters")?;
            source.counter += 1;
            let live = cluster.get("configmaps", &format!("default/{}", source.name));
            let mut live = live.with_context(|| format!("{} is gone", source.name))?;
            live["data"][COUNTER] = source.counter.to_string().into();
            cluster.update(live)?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Waits until each target has the counter of its source.
    pub(crate) async fn converged(&self, clusters: &[SimCluster]) -> Result<()> {
        let target = clusters.first().context("there is no cluster")?;
        let mut open: Vec<&Source> = self.sources.iter().collect();
        while let Some(source) = open.last() {
            let cluster = clusters.get(source.cluster).context("there are fewer clusters")?;
            let name = target_name(cluster.name(), &source.name);
            let found = target.get("configmaps", &format!("default/{name}"));
            let counter = source.counter.to_string();
            if found.is_some_and(|found| found["data"][COUNTER] == *counter) {
                open.pop();
            } else {
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    /// The requests so far, but for those that are no work of a sync, such as probes.
    pub(crate) fn requests(clusters: &[SimCluster]) -> Figures {
        let mut figures = Figures::new();
        for (at, cluster) in clusters.iter().enumerate() {
            let side = if at == 0 { "target" } else { "source" };
            let audit = cluster.audit();
            let own = audit
                .events()
                .filter(|event| event.resource == "configmaps" && event.is_start());
            for event in own {
                let verb = match event.verb.as_str() {
                    "get" => "gets",
                    "list" => "lists",
                    "watch" => "watches",
                    _ => "writes",
                };
                *figures.entry(format!("{side} {verb}")).or_default() += 1.0;
            }
        }
        figures
    }
}
