//! The clusters of a discovery. Decides what to announce and which admin.conf to read next. No I/O: the caller passes
//! the time.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use mcr_core::{BrokenCluster, Change, ClusterName, ClusterSpec, EndpointAccess, Fingerprint};

use crate::{
    containers::{Node, Role, State, by_name},
    engine::Engine,
    kubeconfig::{with_server, without_credentials},
};

/// The property that names the engine.
const ENGINE: &str = "engine";

/// All clusters, by name.
#[derive(Debug)]
pub(crate) struct Inventory {
    engine: Engine,
    prefix: String,
    refresh: Duration,
    clusters: BTreeMap<ClusterName, Cluster>,
    /// Labels that are not valid cluster names. Each is logged once.
    refused: BTreeSet<String>,
}

/// One cluster.
#[derive(Debug)]
struct Cluster {
    view: View,
    identity: Arc<str>,
    /// The control planes in the last observation. As long as one of them exists, it is the same cluster.
    control_planes: BTreeSet<String>,
    /// The last admin.conf that was read.
    conf: Option<Vec<u8>>,
    /// Why the admin.conf could not be read or used.
    trouble: Option<Arc<str>>,
    /// The node whose admin.conf is being read.
    reading: Option<String>,
    /// Since when reading the admin.conf has failed.
    failing_since: Option<Instant>,
    read_at: Option<Instant>,
    announced: Option<Announced>,
}

/// The state of a cluster, derived from its containers.
#[derive(Debug, Clone, PartialEq)]
enum View {
    /// The cluster can't be used, for this reason.
    Useless(Arc<str>),
    /// The cluster is stopped, for this reason.
    Off {
        endpoint: Option<String>,
        reason: &'static str,
    },
    /// The admin.conf of `node` can be read, and the API server listens at `endpoint`.
    On {
        node: String,
        name: String,
        endpoint: String,
    },
}

/// The last announcement of a cluster.
#[derive(Debug, PartialEq)]
enum Announced {
    Good {
        identity: Arc<str>,
        access: Fingerprint,
        off: Option<&'static str>,
    },
    Broken {
        object: String,
        error: Arc<str>,
    },
}

/// An admin.conf to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) cluster: ClusterName,
    /// The ID of the container.
    pub(crate) node: String,
    /// Whether reading has failed for so long that kind can't be creating the cluster any more.
    pub(crate) failing: bool,
}

/// While kind creates a cluster, the admin.conf appears within this time after the first failed reading.
const BEING_MADE: Duration = Duration::from_secs(60);
/// The most kubeconfigs that are read at once.
const READS_AT_ONCE: usize = 4;

/// The next read, if another one may run. Reads of failing clusters come last and use at most half of the slots,
/// because each may hang until its time limit.
pub(crate) fn next_read(waiting: &mut VecDeque<Read>, running: usize, failing: usize) -> Option<Read> {
    if running >= READS_AT_ONCE {
        return None;
    }
    let fine = waiting.iter().position(|read| !read.failing);
    let at = fine.or((failing < READS_AT_ONCE / 2).then_some(0))?;
    waiting.remove(at)
}

/// Why an admin.conf could not be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The node is gone or was stopped. The next observation shows which.
    Gone,
    /// The text completes "admin.conf of node x can't be read: ".
    Failed(String),
}

impl Inventory {
    pub(crate) fn new(engine: Engine, prefix: String, refresh: Duration) -> Self {
        Self {
            engine,
            prefix,
            refresh,
            clusters: BTreeMap::new(),
            refused: BTreeSet::new(),
        }
    }

    /// Applies an observation of all containers. Returns the changes that follow at once.
    pub(crate) fn observe(&mut self, nodes: Vec<Node>, now: Instant) -> Vec<Change> {
        let mut found: BTreeMap<ClusterName, Vec<Node>> = BTreeMap::new();
        for node in nodes {
            if !node.cluster.starts_with(&self.prefix) {
                continue;
            }
            match ClusterName::new(node.cluster.as_str()) {
                Ok(name) => found.entry(name).or_default().push(node),
                Err(error) if self.refused.insert(node.cluster.clone()) => {
                    tracing::warn!(container = %node.id, %error, "a container's label is no name of a cluster: left out");
                }
                Err(_) => {}
            }
        }
        let mut changes = Vec::new();
        self.clusters.retain(|name, cluster| {
            let stays = found.contains_key(name);
            if !stays && cluster.announced.is_some() {
                changes.push(Change::Remove(name.clone()));
            }
            stays
        });
        for (name, mut nodes) in found {
            nodes.sort_by(by_name);
            let control_planes: BTreeSet<String> = nodes
                .iter()
                .filter(|node| node.role == Role::ControlPlane)
                .map(|node| node.id.clone())
                .collect();
            let view = view(&nodes);
            match self.clusters.get_mut(&name) {
                Some(cluster) if cluster.continues(&control_planes) => {
                    cluster.update(view, control_planes, now)
                }
                known => {
                    // All control planes of the cluster are gone, so the cluster is gone, even if another cluster has
                    // its name.
                    if matches!(
                        known,
                        Some(Cluster {
                            announced: Some(Announced::Good { .. }),
                            ..
                        })
                    ) {
                        changes.push(Change::Remove(name.clone()));
                    }
                    let identity = nodes.iter().find(|node| node.role == Role::ControlPlane);
                    let identity = identity.map_or("", |node| node.id.as_str());
                    let cluster = Cluster::new(view, identity.into(), control_planes, now);
                    self.clusters.insert(name.clone(), cluster);
                }
            }
            changes.extend(self.announce(&name));
        }
        changes
    }

    /// The admin.conf files to read now. Each counts as being read until [`read`](Self::read) gets the result.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Read> {
        let mut reads = Vec::new();
        for (name, cluster) in &mut self.clusters {
            let View::On { node, .. } = &cluster.view else {
                continue;
            };
            if cluster.reading.is_none() && cluster.read_at.is_some_and(|at| at <= now) {
                cluster.reading = Some(node.clone());
                reads.push(Read {
                    cluster: name.clone(),
                    node: node.clone(),
                    failing: cluster
                        .failing_since
                        .is_some_and(|since| now > since + BEING_MADE),
                });
            }
        }
        reads
    }

    /// When the next reading is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let waiting = self
            .clusters
            .values()
            .filter(|cluster| cluster.reading.is_none() && matches!(cluster.view, View::On { .. }));
        waiting.filter_map(|cluster| cluster.read_at).min()
    }

    /// Applies the result of reading an admin.conf. `jitter` is between 0 and 1.
    pub(crate) fn read(
        &mut self,
        read: &Read,
        result: Result<Vec<u8>, ReadError>,
        now: Instant,
        jitter: f64,
    ) -> Option<Change> {
        let cluster = self.clusters.get_mut(&read.cluster)?;
        if cluster.reading.as_deref() != Some(&read.node) {
            return None; // another cluster of that name by now
        }
        cluster.reading = None;
        let View::On { node, name, endpoint } = &cluster.view else {
            return None;
        };
        if *node != read.node {
            // Meanwhile another node has replaced this node, and `read_at` belongs to the new one.
            return None;
        }
        let trouble = match result {
            Ok(yaml) => match with_server(&yaml, endpoint) {
                Ok(_) => {
                    cluster.conf = Some(yaml);
                    None
                }
                Err(error) => Some(format!("admin.conf of node {name} can't be used: {error}")),
            },
            Err(ReadError::Failed(why)) => Some(format!("admin.conf of node {name} can't be read: {why}")),
            Err(ReadError::Gone) => {
                cluster.read_at = Some(now + pause(Duration::ZERO, jitter));
                return None;
            }
        };
        match trouble {
            None => {
                cluster.failing_since = None;
                cluster.trouble = None;
                cluster.read_at = Some(now + self.refresh);
            }
            Some(trouble) => {
                let since = *cluster.failing_since.get_or_insert(now);
                cluster.trouble = Some(trouble.into());
                cluster.read_at = Some(now + pause(now.duration_since(since), jitter).min(self.refresh));
            }
        }
        self.announce(&read.cluster)
    }

    /// Whether every cluster has been announced.
    pub(crate) fn complete(&self) -> bool {
        self.clusters.values().all(|cluster| cluster.announced.is_some())
    }

    /// How many clusters there are.
    pub(crate) fn len(&self) -> usize {
        self.clusters.len()
    }

    fn announce(&mut self, name: &ClusterName) -> Option<Change> {
        let cluster = self.clusters.get_mut(name)?;
        let (announced, change) = cluster.announcement(name, self.engine)?;
        if cluster.announced.as_ref() == Some(&announced) {
            return None;
        }
        cluster.announced = Some(announced);
        Some(change)
    }
}

impl Cluster {
    fn new(view: View, identity: Arc<str>, control_planes: BTreeSet<String>, now: Instant) -> Self {
        Self {
            view,
            identity,
            control_planes,
            conf: None,
            trouble: None,
            reading: None,
            failing_since: None,
            read_at: Some(now),
            announced: None,
        }
    }

    fn continues(&self, control_planes: &BTreeSet<String>) -> bool {
        !self.control_planes.is_disjoint(control_planes)
            || (self.control_planes.is_empty() && control_planes.is_empty())
    }

    fn update(&mut self, view: View, control_planes: BTreeSet<String>, now: Instant) {
        let readable = |view: &View| match view {
            View::On { node, .. } => Some(node.clone()),
            _ => None,
        };
        if readable(&view).is_some() && readable(&view) != readable(&self.view) {
            // The node is another one, or was started again, so the last admin.conf may be outdated. It stays in use
            // until the new one was read.
            self.reading = None;
            self.trouble = None;
            self.failing_since = None;
            self.read_at = Some(now);
        }
        self.view = view;
        self.control_planes = control_planes;
    }

    /// The announcement of the cluster. `None` during the first reading.
    fn announcement(&self, name: &ClusterName, engine: Engine) -> Option<(Announced, Change)> {
        let object = format!("kind cluster {name} in {engine}");
        let broken = |error: Arc<str>| {
            let change = BrokenCluster::new(name.clone(), object.as_str(), &error);
            Some((
                Announced::Broken {
                    object: object.clone(),
                    error,
                },
                Change::Broken(change),
            ))
        };
        let (access, off) = match &self.view {
            View::Useless(why) => return broken(why.clone()),
            View::Off { endpoint, reason } => {
                // The admin.conf of a stopped node can't be read. The announcement contains the last one, or only the
                // address if there is none. The fleet does not connect to a suspended cluster.
                let known = self.conf_at(endpoint.as_deref());
                let access =
                    known.or_else(|| without_credentials(endpoint.as_deref().unwrap_or("127.0.0.1:6443")));
                match access {
                    Some(access) => (access, Some(*reason)),
                    None => return broken(Arc::from(*reason)),
                }
            }
            View::On { endpoint, .. } => {
                if let Some(trouble) = &self.trouble {
                    return broken(trouble.clone());
                }
                (self.conf_at(Some(endpoint))?, None)
            }
        };
        let announced = Announced::Good {
            identity: self.identity.clone(),
            access: access.fingerprint(),
            off,
        };
        let spec = ClusterSpec::new(name.clone(), access.into())
            .identity(self.identity.clone())
            .property(ENGINE, engine.program());
        let spec = match off {
            Some(reason) => spec.suspended(reason),
            None => spec,
        };
        Some((announced, Change::Upsert(spec)))
    }

    fn conf_at(&self, endpoint: Option<&str>) -> Option<EndpointAccess> {
        with_server(self.conf.as_ref()?, endpoint?).ok()
    }
}

/// `nodes` are the nodes of one cluster, in the order of kind.
fn view(nodes: &[Node]) -> View {
    let control_planes = || nodes.iter().filter(|node| node.role == Role::ControlPlane);
    let several = control_planes().count() > 1;
    let balancer = nodes.iter().find(|node| node.role == Role::LoadBalancer);
    if control_planes().next().is_none() {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        return View::Useless(
            format!(
                "it has no control-plane node, only {}: kind is making or deleting it, or somebody removed that container; if it \
                 stays so, the cluster {} is lost and can be removed with kind",
                names.join(", "),
                nodes.first().map_or("", |node| node.cluster.as_str()),
            )
            .into(),
        );
    }
    let running = control_planes().find(|node| node.state == State::Running);
    // If no control plane runs, any of their addresses will do, because the fleet does not connect.
    let front = balancer.or(running).or_else(|| control_planes().next());
    let endpoint = front.and_then(|node| node.endpoint.clone());
    let off = |reason| View::Off {
        endpoint: endpoint.clone(),
        reason,
    };
    let Some(running) = running else {
        let any = |state| control_planes().any(|node| node.state == state);
        return match several {
            _ if any(State::Restarting) => off("its node is restarting"),
            _ if any(State::Created) && !any(State::Stopped) && !any(State::Paused) => View::Useless(
                "its node was made and has not been started yet: kind is making the cluster, or was interrupted; if it stays \
                 so, delete the cluster and create it again"
                    .into(),
            ),
            false if any(State::Paused) => off("its node is paused"),
            false => off("its node is stopped"),
            true => off("its control-plane nodes are stopped"),
        };
    };
    if balancer.is_some_and(|node| node.state != State::Running) {
        return off("its load balancer is stopped");
    }
    match endpoint {
        Some(endpoint) => View::On {
            node: running.id.clone(),
            name: running.name.clone(),
            endpoint,
        },
        None => View::Useless(
            format!(
                "port 6443 of container {} is not mapped to a port of the host: kind is still making it, or it was not made by kind",
                front.map_or("", |node| node.name.as_str()),
            )
            .into(),
        ),
    }
}

/// The pause after a failed reading. It grows with the time since the first failure: a cluster that is being created
/// is complete within seconds, but a half-created one stays incomplete.
fn pause(failing: Duration, jitter: f64) -> Duration {
    const LEAST: Duration = Duration::from_millis(200);
    const MOST: Duration = Duration::from_secs(10);
    (failing / 30)
        .clamp(LEAST, MOST)
        .mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
#[path = "inventory_tests.rs"]
mod tests;
