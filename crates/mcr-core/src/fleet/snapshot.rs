//! The status of the fleet, as data.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use mcr_access::internal::rfc3339_option;
use mcr_watch::KindStatus;

use super::cluster::Cluster;
use crate::provider::BrokenCluster;
use mcr_access::ClusterName;

/// The status of the whole fleet at one moment. [`Fleet::snapshot`](super::Fleet::snapshot) returns it.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FleetSnapshot {
    /// The clusters, in the order of their names.
    pub clusters: Vec<ClusterStatus>,
    /// The providers, in the order in which they were added.
    pub providers: Vec<ProviderStatus>,
    /// The scope endpoints that have clusters.
    pub scopes: Vec<ScopeStatus>,
}

impl FleetSnapshot {
    /// What is not ready and why, as lines for people: providers that have not announced all their clusters yet, and
    /// clusters with a reason of [`ClusterStatus::not_ready`]. Empty if everything is ready.
    pub fn not_ready(&self) -> Vec<String> {
        let providers = self.providers.iter().filter(|provider| !provider.synced);
        let providers = providers.map(|ProviderStatus { name, last_error, .. }| {
            let why = last_error.as_deref().unwrap_or("its discovery has not ended");
            format!("provider {name} has not announced all its clusters: {why}")
        });
        let clusters = self.clusters.iter();
        let clusters = clusters.filter_map(|c| Some(format!("cluster {}: {}", c.name, c.not_ready()?)));
        providers.chain(clusters).collect()
    }
}

/// The status of one cluster.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ClusterStatus {
    /// The name of the cluster.
    pub name: ClusterName,
    /// The name of the provider that announced it.
    pub provider: Arc<str>,
    /// The identity of the cluster, if it is known: see [`Cluster::identity`].
    pub identity: Option<Arc<str>>,
    /// The cluster that this one is another name of, because both answer with the same UID of `kube-system`: the hub, or else
    /// the one that was engaged first. `None` for that one itself, which has a warning. Unless
    /// [`FleetSettings::allow_duplicates`](crate::FleetSettings::allow_duplicates) is set, this one is Suspended.
    pub same_as: Option<ClusterName>,
    /// The name of its [`ClusterState`](crate::ClusterState), or `Broken` for a cluster whose description was never usable.
    pub state: &'static str,
    /// The time at which the cluster entered its state.
    #[serde(serialize_with = "rfc3339_option")]
    pub since: Option<SystemTime>,
    /// Why the cluster is in this state, as text for people.
    pub reason: Option<Arc<str>>,
    /// Problems that do not interrupt the cluster: a new description that can't be used, credentials that can't be
    /// renewed, a removal that is held. Of a Ready cluster also why it does not pass a [check](crate::ReadyCheck).
    pub warnings: Vec<Arc<str>>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its properties.
    pub properties: BTreeMap<String, String>,
    /// When anything was last received from it.
    #[serde(serialize_with = "rfc3339_option")]
    pub last_received: Option<SystemTime>,
    /// When anything was last received on one of its watches.
    #[serde(serialize_with = "rfc3339_option")]
    pub last_event: Option<SystemTime>,
    /// When it was last probed.
    #[serde(serialize_with = "rfc3339_option")]
    pub last_probe: Option<SystemTime>,
    /// When its credentials expire.
    #[serde(serialize_with = "rfc3339_option")]
    pub credential_expires: Option<SystemTime>,
    /// The number of its watches that have read a complete list.
    pub kinds_listed: usize,
    /// The number of its watches that can't be listed before something is changed in the cluster.
    pub kinds_blocked: usize,
    /// The number of objects in its stores.
    pub objects: usize,
    /// The number of bytes of JSON in its stores.
    pub bytes: usize,
    /// Its watches.
    pub kinds: Vec<KindStatus>,
}

impl ClusterStatus {
    /// Whether the cluster answers, and every watch of it is listed and has no problem.
    pub fn is_healthy(&self) -> bool {
        let mut kinds = self.kinds.iter();
        self.state == "Ready" && kinds.all(|kind| kind.synced && kind.problem.is_none())
    }

    /// Why the cluster is not ready, as text for people: its state and the reason, or the kind that is not listed and
    /// the problem. `None` if it is ready.
    pub fn not_ready(&self) -> Option<String> {
        let (what, why) = if self.state == "Ready" {
            let kind = self.kinds.iter().find(|kind| !kind.synced)?;
            (format!("{} is not listed", kind.watch), kind.problem.as_deref())
        } else {
            (self.state.to_owned(), self.reason.as_deref())
        };
        Some(why.map_or_else(|| what.clone(), |why| format!("{what}: {why}")))
    }

    pub(crate) fn of(cluster: &Cluster) -> Self {
        let info = cluster.info();
        let state = cluster.state();
        let kinds = cluster.kinds();
        let connection = cluster.connection();
        let fails = info.checks.iter().filter(|_| state.is_ready());
        let fails = fails.filter_map(|(check, why)| {
            let why = why.as_deref()?;
            Some(format!("it does not pass the check {check}: {why}").into())
        });
        Self {
            name: cluster.name().clone(),
            provider: cluster.provider().into(),
            identity: info.identity.clone(),
            same_as: None,
            state: state.as_str(),
            since: Some(cluster.state_since()),
            reason: state.reason().map(Arc::from),
            warnings: info.warning.iter().cloned().chain(fails).collect(),
            labels: info.spec.labels.to_map(),
            properties: info.spec.properties.to_map(),
            last_received: connection.last_received,
            last_event: kinds.iter().filter_map(|kind| kind.last_event).max(),
            last_probe: connection.info.last_probe,
            credential_expires: connection.info.credential_expires,
            kinds_listed: kinds.iter().filter(|kind| kind.synced).count(),
            kinds_blocked: kinds.iter().filter(|kind| kind.blocked).count(),
            objects: kinds.iter().map(|kind| kind.objects).sum(),
            bytes: kinds.iter().map(|kind| kind.bytes).sum(),
            kinds,
        }
    }

    pub(crate) fn broken(broken: &BrokenCluster, provider: Arc<str>) -> Self {
        Self {
            name: broken.name.clone(),
            provider,
            identity: None,
            same_as: None,
            state: "Broken",
            since: None,
            reason: Some(broken.to_string().into()),
            warnings: Vec::new(),
            labels: BTreeMap::new(),
            properties: BTreeMap::new(),
            last_received: None,
            last_event: None,
            last_probe: None,
            credential_expires: None,
            kinds_listed: 0,
            kinds_blocked: 0,
            objects: 0,
            bytes: 0,
            kinds: Vec::new(),
        }
    }
}

/// Shows which clusters are one and the same: the first name of each, with its other names.
pub(crate) fn show_duplicates(
    clusters: &mut [ClusterStatus],
    duplicates: Vec<(ClusterName, Vec<ClusterName>)>,
) {
    const NAMED: usize = 3;
    let mut same_as = BTreeMap::new();
    let mut warnings = BTreeMap::new();
    for (first, others) in duplicates {
        let named: Vec<&str> = others.iter().take(NAMED).map(|name| &**name).collect();
        let more = others.len() - named.len();
        let more = if more == 0 {
            String::new()
        } else {
            format!(" and {more} more")
        };
        let warning = format!(
            "it has other names in the fleet, which answer with its kube-system UID: {}{more}",
            named.join(", ")
        );
        warnings.insert(first.clone(), Arc::from(warning));
        same_as.extend(others.into_iter().map(|other| (other, first.clone())));
    }
    for status in clusters {
        status.same_as = same_as.remove(&status.name);
        // The reason of a Suspended one says it already.
        if let Some(first) = status.same_as.as_ref().filter(|_| status.state != "Suspended") {
            let warning = format!("it is another name of {first}: both answer with one kube-system UID");
            status.warnings.push(warning.into());
        }
        status.warnings.extend(warnings.remove(&status.name));
    }
}

/// The status of a provider and its discovery.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ProviderStatus {
    /// The name of the provider.
    pub name: Arc<str>,
    /// Whether it has announced all its clusters at least once.
    pub synced: bool,
    /// How often its discovery ended and was started again.
    pub restarts: u64,
    /// Why its discovery ended the last time.
    pub last_error: Option<String>,
    /// When its discovery failed first, if it has not announced all its clusters since.
    #[serde(skip)]
    pub failing_since: Option<SystemTime>,
}

/// The status of one scope endpoint.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ScopeStatus {
    /// The name of the scope.
    pub scope: Arc<str>,
    /// The name of the endpoint.
    pub endpoint: Arc<str>,
    /// The name of a [`ClusterState`](crate::ClusterState). The endpoint is `Suspended` while the scope has no endpoint
    /// of that name.
    pub state: &'static str,
    /// The time at which the endpoint entered its state.
    #[serde(serialize_with = "rfc3339_option")]
    pub since: Option<SystemTime>,
    /// Why the endpoint is in this state, as text for people.
    pub reason: Option<Arc<str>>,
    /// Problems that do not interrupt the endpoint.
    pub warnings: Vec<Arc<str>>,
    /// The number of clusters in the fleet that use this endpoint.
    pub clusters: usize,
    /// When anything was last received from it.
    #[serde(serialize_with = "rfc3339_option")]
    pub last_received: Option<SystemTime>,
    /// When it was last probed.
    #[serde(serialize_with = "rfc3339_option")]
    pub last_probe: Option<SystemTime>,
    /// When its credentials expire.
    #[serde(serialize_with = "rfc3339_option")]
    pub credential_expires: Option<SystemTime>,
    /// Its watches. Each is for all clusters behind the endpoint.
    pub watches: Vec<ScopeWatchStatus>,
}

/// The status of one watch of a scope endpoint.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ScopeWatchStatus {
    /// The request of the watch, as text: the kind and its selectors.
    pub watch: String,
    /// Whether a complete list has been read.
    pub synced: bool,
    /// The number of places that have objects, also of those for which the fleet has no cluster.
    pub places: usize,
    /// The number of clusters that read from the watch.
    pub clusters: usize,
    /// The number of objects that could not be read and whose place is unknown.
    pub skipped: u64,
    /// The number of complete lists that have been read.
    pub lists: u64,
    /// When anything was last received on this watch.
    #[serde(serialize_with = "rfc3339_option")]
    pub last_event: Option<SystemTime>,
    /// The current problem of the watch, as text for people.
    pub problem: Option<String>,
}
