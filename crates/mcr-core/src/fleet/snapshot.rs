//! The state of the fleet as data.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use super::ClusterState;
use crate::{Cluster, ClusterName, KindStatus, WatchRequest, WatchStatus};

/// The state of the whole fleet at one moment; made by [`Fleet::snapshot`](super::Fleet::snapshot).
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FleetSnapshot {
    /// The clusters, by name.
    pub clusters: Vec<ClusterStatus>,
    /// The providers, in the order they were given.
    pub providers: Vec<ProviderStatus>,
    /// The endpoints of scopes that clusters stand behind.
    pub scopes: Vec<ScopeStatus>,
}

/// The state of one cluster.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ClusterStatus {
    /// Its name.
    pub name: ClusterName,
    /// The provider that announced it.
    pub provider: Arc<str>,
    /// What makes it this cluster, as far as is known.
    pub identity: Option<Arc<str>>,
    /// `Discovered`, `Connecting`, `Ready`, `Unreachable`, `Suspended`, `Draining`, or `Broken` for a cluster
    /// whose description was never usable.
    pub state: &'static str,
    /// Since when.
    #[serde(serialize_with = "crate::time::rfc3339_option")]
    pub since: Option<SystemTime>,
    /// Why it is in this state, in words.
    pub reason: Option<Arc<str>>,
    /// What else is wrong: a new description that can't be used while the last good one goes on, credentials
    /// that can't be renewed, a removal that is held back.
    pub warnings: Vec<Arc<str>>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its properties.
    pub properties: BTreeMap<String, String>,
    /// When anything was last received from it.
    #[serde(serialize_with = "crate::time::rfc3339_option")]
    pub last_heard: Option<SystemTime>,
    /// When anything was last heard on one of its watches.
    #[serde(serialize_with = "crate::time::rfc3339_option")]
    pub last_event: Option<SystemTime>,
    /// When it was last asked whether it answers.
    #[serde(serialize_with = "crate::time::rfc3339_option")]
    pub last_probe: Option<SystemTime>,
    /// When its credentials expire.
    #[serde(serialize_with = "crate::time::rfc3339_option")]
    pub credential_expires: Option<SystemTime>,
    /// How many of its watches are listed.
    pub kinds_listed: usize,
    /// How many of its watches can't be listed before someone changes something.
    pub kinds_blocked: usize,
    /// How many objects are held of it.
    pub objects: usize,
    /// How many bytes of JSON are held of it.
    pub bytes: usize,
    /// Its watches.
    pub kinds: Vec<KindStatus>,
}

impl ClusterStatus {
    /// Whether it answers and every watch of it is listed and without a problem.
    pub fn is_healthy(&self) -> bool {
        self.state == "Ready"
            && self
                .kinds
                .iter()
                .all(|kind| kind.synced && kind.problem.is_none())
    }

    pub(crate) fn of(cluster: &Cluster) -> Self {
        let facts = cluster.facts();
        let state = cluster.state();
        let kinds = cluster.kinds();
        let connection = cluster.connection();
        let connected = connection.facts();
        Self {
            name: cluster.name().clone(),
            provider: cluster.provider().into(),
            identity: facts.identity.clone(),
            state: state.as_str(),
            since: Some(cluster.state_since()),
            reason: state.reason().map(Arc::from),
            warnings: facts.warning.iter().cloned().collect(),
            labels: facts.spec.labels.to_map(),
            properties: facts.spec.properties.to_map(),
            last_heard: connection.last_heard(),
            last_event: kinds.iter().filter_map(|kind| kind.last_event).max(),
            last_probe: connected.last_probe,
            credential_expires: connected.credential_expires,
            kinds_listed: kinds.iter().filter(|kind| kind.synced).count(),
            kinds_blocked: kinds.iter().filter(|kind| kind.blocked).count(),
            objects: kinds.iter().map(|kind| kind.objects).sum(),
            bytes: kinds.iter().map(|kind| kind.bytes).sum(),
            kinds,
        }
    }

    pub(crate) fn broken(name: ClusterName, provider: Arc<str>, reason: Arc<str>) -> Self {
        Self {
            name,
            provider,
            identity: None,
            state: "Broken",
            since: None,
            reason: Some(reason),
            warnings: Vec::new(),
            labels: BTreeMap::new(),
            properties: BTreeMap::new(),
            last_heard: None,
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

/// The state of a provider's discovery.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ProviderStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it has said everything at least once.
    pub synced: bool,
    /// How often its discovery ended and was started again.
    pub restarts: u64,
    /// Why it ended the last time.
    pub last_error: Option<String>,
}

/// The state of one endpoint of a scope.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ScopeStatus {
    /// The scope.
    pub scope: Arc<str>,
    /// The endpoint.
    pub endpoint: Arc<str>,
    /// As of a cluster: `Connecting`, `Ready`, `Unreachable`, or `Suspended` while the scope has no such endpoint.
    pub state: &'static str,
    /// Since when.
    #[serde(serialize_with = "crate::time::rfc3339_option")]
    pub since: Option<SystemTime>,
    /// Why it is in this state, in words.
    pub reason: Option<Arc<str>>,
    /// What else is wrong.
    pub warnings: Vec<Arc<str>>,
    /// How many clusters of the fleet stand behind it.
    pub clusters: usize,
    /// When anything was last received from it.
    #[serde(serialize_with = "crate::time::rfc3339_option")]
    pub last_heard: Option<SystemTime>,
    /// When it was last asked whether it answers.
    #[serde(serialize_with = "crate::time::rfc3339_option")]
    pub last_probe: Option<SystemTime>,
    /// When its credentials expire.
    #[serde(serialize_with = "crate::time::rfc3339_option")]
    pub credential_expires: Option<SystemTime>,
    /// Its watches, each for all clusters behind it.
    pub watches: Vec<ScopeWatchStatus>,
}

/// The state of one watch of an endpoint of a scope.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ScopeWatchStatus {
    /// What is watched: the kind and which of its objects.
    pub watch: String,
    /// Whether it has been listed completely.
    pub synced: bool,
    /// At how many places objects are held, those that are no cluster of the fleet included.
    pub places: usize,
    /// How many clusters read from it.
    pub clusters: usize,
    /// How many objects could not be read and belong to nobody known.
    pub skipped: u64,
    /// How many complete lists have been read.
    pub lists: u64,
    /// When something was last heard.
    #[serde(serialize_with = "crate::time::rfc3339_option")]
    pub last_event: Option<SystemTime>,
    /// What stands in the way, in words.
    pub problem: Option<String>,
}

impl ScopeStatus {
    pub(crate) fn of(
        scope: &str,
        endpoint: &Arc<str>,
        connection: Option<&Cluster>,
        clusters: usize,
        watches: Vec<ScopeWatchStatus>,
    ) -> Self {
        let state = connection.map_or(ClusterState::Connecting, Cluster::state);
        let facts = connection.map(Cluster::facts);
        let facts = facts.as_deref();
        Self {
            scope: scope.into(),
            endpoint: endpoint.clone(),
            state: state.as_str(),
            since: connection.map(Cluster::state_since),
            reason: state.reason().map(Arc::from),
            warnings: facts
                .and_then(|facts| facts.warning.clone())
                .into_iter()
                .collect(),
            clusters,
            last_heard: connection.and_then(Cluster::last_heard),
            last_probe: facts.and_then(|facts| facts.last_probe),
            credential_expires: facts.and_then(|facts| facts.credential_expires),
            watches,
        }
    }
}

impl ScopeWatchStatus {
    pub(crate) fn of(status: WatchStatus, request: &WatchRequest, places: usize, clusters: usize) -> Self {
        Self {
            watch: request.to_string(),
            synced: status.synced,
            places,
            clusters,
            skipped: status.skipped,
            lists: status.lists,
            last_event: status.last_event,
            problem: status.problem.map(|problem| problem.error.to_string()),
        }
    }
}
