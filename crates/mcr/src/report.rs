//! The fleet and its controllers as data.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use mcr_core::{ClusterStatus, Fleet, ProviderStatus, ScopeStatus};

use crate::{ControllerClusterStatus, ControllerCounts, ControllerHandle, QueueStatus};

/// The fleet, its providers and controllers at one moment, for people and programs. It is what `/clusters`
/// serves, as JSON.
///
/// Names of fields and states are stable. There are no credentials in it.
///
/// ```
/// use mcr::{BuiltController, Fleet, FleetReport};
///
/// fn print_what_is_wrong(fleet: &Fleet, controller: &BuiltController) {
///     for cluster in FleetReport::of(fleet, &[controller.handle()]).clusters {
///         if !cluster.status.is_healthy() {
///             println!("{}: {} {:?}", cluster.status.name, cluster.status.state, cluster.status.reason);
///         }
///     }
/// }
/// ```
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FleetReport {
    /// The clusters, by name. A name is there twice while a cluster is leaving and a new description under its
    /// name can't be used.
    pub clusters: Vec<ClusterReport>,
    /// The providers, in the order they were given.
    pub providers: Vec<ProviderStatus>,
    /// The endpoints of scopes, which carry many clusters each.
    pub scopes: Vec<ScopeStatus>,
    /// The controllers, in the order they were given.
    pub controllers: Vec<ControllerReport>,
}

/// One cluster as the fleet and the controllers see it.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ClusterReport {
    /// What the fleet knows of it.
    #[serde(flatten)]
    pub status: ClusterStatus,
    /// How many requests wait, ready or for their time, in all controllers.
    pub queue_depth: usize,
    /// How it stands with each controller that works on it, by the controller's name. Controllers of the same
    /// name are told apart by number: `name`, `name#2`.
    pub controllers: BTreeMap<Arc<str>, ControllerClusterStatus>,
}

/// One controller, all clusters together.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ControllerReport {
    /// Its name.
    pub name: Arc<str>,
    /// How many clusters it works on.
    pub clusters: usize,
    /// Its queue.
    pub queue: QueueStatus,
    /// What it did since it was built.
    pub counts: ControllerCounts,
}

impl FleetReport {
    /// The state of a fleet and of controllers that work on it.
    pub fn of(fleet: &Fleet, controllers: &[ControllerHandle]) -> Self {
        let snapshot = fleet.snapshot();
        let names = distinct(controllers.iter().map(ControllerHandle::name));
        let mut clusters: Vec<ClusterReport> = snapshot
            .clusters
            .into_iter()
            .map(|status| ClusterReport {
                status,
                queue_depth: 0,
                controllers: BTreeMap::new(),
            })
            .collect();
        // What controllers say of a name is never about a cluster that is leaving, which they have let go of.
        let at: HashMap<_, _> = clusters
            .iter()
            .enumerate()
            .filter(|(_, cluster)| cluster.status.state != "Draining")
            .map(|(at, cluster)| (cluster.status.name.clone(), at))
            .collect();
        let mut reports = Vec::with_capacity(controllers.len());
        for (name, controller) in names.into_iter().zip(controllers) {
            let status = controller.status();
            reports.push(ControllerReport {
                name: name.clone(),
                clusters: status.clusters.len(),
                queue: status.queue,
                counts: status.counts,
            });
            for (cluster, status) in status.clusters {
                let Some(report) = at.get(&cluster).and_then(|at| clusters.get_mut(*at)) else {
                    continue;
                };
                report.queue_depth += status.ready + status.delayed;
                report.controllers.insert(name.clone(), status);
            }
        }
        Self {
            clusters,
            providers: snapshot.providers,
            scopes: snapshot.scopes,
            controllers: reports,
        }
    }
}

/// Tells equal names apart by number.
pub(crate) fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Arc<str>> {
    let mut seen: HashMap<Arc<str>, usize> = HashMap::new();
    names
        .map(|name| {
            let times = seen.entry(name.into()).or_insert(0);
            *times += 1;
            if *times == 1 {
                name.into()
            } else {
                format!("{name}#{times}").into()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_told_apart() {
        let names = distinct(["a", "b", "a", "a"].into_iter());
        assert_eq!(
            names,
            ["a".into(), "b".into(), "a#2".into(), Arc::<str>::from("a#3")]
        );
    }
}
