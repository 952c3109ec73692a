//! A report of the fleet and its controllers.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use mcr_core::{ClusterStatus, DISPLAY_NAME, Fleet, ProviderStatus, ScopeStatus};
use mcr_lease::{Leadership, LeaseStatus};

use crate::controller::{
    ControllerClusterStatus, ControllerCounts, ControllerHandle, GatingWatch, QueueStatus,
};

/// The state of the fleet, its providers and its controllers at one moment, for people and programs. The HTTP server
/// serves it as JSON at `/clusters`.
///
/// The names of fields and states are stable. The report contains no credentials.
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
    /// The clusters, by name. A name appears twice while a cluster is leaving and the new spec under its name can't be
    /// used.
    pub clusters: Vec<ClusterReport>,
    /// The providers, in the order in which the fleet got them.
    pub providers: Vec<ProviderStatus>,
    /// The endpoints of scopes, each of which serves many clusters.
    pub scopes: Vec<ScopeStatus>,
    /// The controllers, in the order of the argument.
    pub controllers: Vec<ControllerReport>,
    /// Whether this process leads or is a standby. `None`, and missing in JSON, without leader election.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader_election: Option<LeaseStatus>,
}

/// One cluster in the fleet and in its controllers.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ClusterReport {
    /// The state of the cluster in the fleet.
    #[serde(flatten)]
    pub status: ClusterStatus,
    /// The name for people, if the provider gives one with the property [`DISPLAY_NAME`], such as the path of a kcp workspace.
    /// Missing in JSON otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The number of waiting requests in all controllers, ready or delayed.
    pub queue_depth: usize,
    /// The state of the cluster in each controller that works on it, by the name of the controller. Controllers of the same
    /// name get numbers: `name`, `name#2`.
    pub controllers: BTreeMap<Arc<str>, ControllerClusterStatus>,
}

/// One controller, in all clusters together.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ControllerReport {
    /// The name of the controller.
    pub name: Arc<str>,
    /// The number of clusters that the controller works on.
    pub clusters: usize,
    /// The gating watches that all its requests wait for: [`ControllerStatus::gated_by`](crate::ControllerStatus::gated_by).
    pub gated_by: Vec<GatingWatch>,
    /// The state of its queue.
    pub queue: QueueStatus,
    /// The counters since the controller was built.
    pub counts: ControllerCounts,
}

impl FleetReport {
    /// Reports the current state of a fleet and of controllers that run on it.
    pub fn of(fleet: &Fleet, controllers: &[ControllerHandle]) -> Self {
        let snapshot = fleet.snapshot();
        let names = distinct(controllers.iter().map(ControllerHandle::name));
        let mut clusters: Vec<ClusterReport> = snapshot
            .clusters
            .into_iter()
            .map(|status| ClusterReport {
                display_name: status.properties.get(DISPLAY_NAME).cloned(),
                status,
                queue_depth: 0,
                controllers: BTreeMap::new(),
            })
            .collect();
        // A draining cluster has left its controllers, so their status never belongs to it.
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
                gated_by: status.gated_by,
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
            leader_election: leadership(controllers).map(Leadership::status),
        }
    }
}

/// The leader election of the manager of these controllers.
pub(crate) fn leadership(controllers: &[ControllerHandle]) -> Option<&Leadership> {
    controllers.iter().find_map(ControllerHandle::leadership)
}

/// Makes names distinct: adds a number to each repetition.
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
