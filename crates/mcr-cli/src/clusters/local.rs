//! Makes the report about a fleet that runs in this process.

use std::{collections::HashMap, time::Duration};

use anyhow::Context;
use futures::{StreamExt, stream};
use mcr_core::{Cluster, ClusterState, Epoch, Provider};
use tokio::time::timeout;

use super::report::{ProviderRow, Report};
use crate::{doctor::target, providers::Running};

/// The limit for the request of a version. At most [`AT_ONCE`] of these requests run at once.
const VERSION_WITHIN: Duration = Duration::from_secs(5);
const AT_ONCE: usize = 16;

/// The known versions, by cluster and engagement.
#[derive(Debug, Default)]
pub(super) struct Versions(HashMap<(String, Epoch), String>);

impl Versions {
    /// Requests the versions of ready clusters that are not known yet.
    async fn ask(&mut self, clusters: &[Cluster]) {
        let key = |cluster: &Cluster| (cluster.name().to_string(), cluster.epoch());
        let new = clusters
            .iter()
            .filter(|cluster| cluster.state() == ClusterState::Ready && !self.0.contains_key(&key(cluster)));
        let asked: Vec<_> = stream::iter(new)
            .map(|cluster| async move {
                let version = timeout(VERSION_WITHIN, cluster.client().apiserver_version()).await;
                (key(cluster), version)
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        for (key, version) in asked {
            if let Ok(Ok(version)) = version {
                self.0.insert(key, version.git_version);
            }
        }
    }
}

/// Makes the report. Requests the versions that are not known yet.
pub(super) async fn report(running: &Running, versions: &mut Versions) -> anyhow::Result<Report> {
    let clusters = running.fleet.clusters();
    versions.ask(&clusters).await;
    let snapshot = serde_json::to_value(running.fleet.snapshot())?;
    let mut report =
        Report::of(snapshot).context("the fleet's snapshot is not a report, which is a fault in mcr")?;
    report.is_local = true;
    for row in &mut report.clusters {
        let spec = running.spec(&row.name);
        row.address = spec.and_then(|spec| Some(target::of(&spec.access)?.address));
        if let Some(cluster) = clusters
            .iter()
            .find(|cluster| cluster.name().as_str() == row.name)
        {
            row.version = versions.0.get(&(row.name.clone(), cluster.epoch())).cloned();
        }
    }
    // The merging provider has one state for all its providers. The report shows the state of each instead.
    report.providers = running
        .taps
        .iter()
        .map(|tap| {
            let received = tap.received();
            ProviderRow {
                name: tap.name().to_owned(),
                synced: received.synced,
                last_error: received.error,
                rest: serde_json::Map::new(),
            }
        })
        .chain(running.failed.iter().map(|(linked, why)| ProviderRow {
            name: linked.name.clone(),
            synced: false,
            last_error: Some(why.clone()),
            rest: serde_json::Map::new(),
        }))
        .collect();
    Ok(report)
}
