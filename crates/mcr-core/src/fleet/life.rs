//! One engagement of one cluster: its states from joining to leaving.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use mcr_client::internal::{
    Backoff,
    user_code::{ANNOUNCED, catch_panic},
};
use mcr_watch::internal::Phase;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use super::{
    ClusterState, FleetShared,
    connect::{Link, NotConnected},
    host::Host,
    member,
    state::{KnownIdentity, Target, suspended},
    supervisor::Wanted,
};
use crate::{
    Cluster,
    cluster::{Facts, Standing},
};

/// Why an engagement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The cluster left, or came back as a new claim.
    Left,
    /// Another cluster stands where it stood.
    Replaced,
    /// The fleet stops.
    Stopped,
}

/// Counts a life for as long as it lasts.
pub(super) struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn one(lives: &'a AtomicUsize) -> Self {
        lives.fetch_add(1, Ordering::Relaxed);
        Self(lives)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One engagement of one cluster.
pub(super) struct Life<'a> {
    pub(super) _counted: Counted<'a>,
    pub(super) fleet: &'a Arc<FleetShared>,
    /// For the endpoint of a scope: who stands behind it.
    pub(super) host: Option<Arc<Host>>,
    pub(super) changes: &'a mut watch::Receiver<Option<Wanted>>,
    pub(super) wanted: Wanted,
    pub(super) cluster: Cluster,
    pub(super) identity: Option<KnownIdentity>,
    pub(super) link: Option<Link>,
    /// The place the cluster was found at last, also while there is no connection to it.
    pub(super) at: Option<Target>,
    /// Numbers the places the cluster was found at; see [`Phase::Up`].
    pub(super) endpoint: u64,
    pub(super) backoff: Backoff,
    /// A description that could not take the place of the one in use, to be tried again.
    pub(super) pending: Option<Instant>,
    pub(super) refused: bool,
    pub(super) last_probe: Instant,
    /// The place that watches were let begin at before it was known who answers there, and who was said to be there.
    pub(super) tried: Option<(Target, Option<Arc<str>>)>,
    /// When to find out who the cluster is, if that has been put off.
    pub(super) identify_at: Option<Instant>,
    /// Until when nothing is done for the cluster, after a panic.
    rests_until: Option<Instant>,
}
impl<'a> Life<'a> {
    pub(super) fn begin(
        fleet: &'a Arc<FleetShared>,
        wanted: Wanted,
        changes: &'a mut watch::Receiver<Option<Wanted>>,
        host: Option<Arc<Host>>,
    ) -> Box<Self> {
        let name = wanted.spec.name.clone();
        let epoch = fleet.next_epoch.fetch_add(1, Ordering::Relaxed);
        let facts = Facts::announced(&wanted.spec);
        let cluster = Cluster::new(
            name.clone(),
            wanted.provider.clone(),
            epoch,
            facts,
            fleet,
            if host.is_some() {
                Standing::Hidden
            } else {
                Standing::Own
            },
        );
        match &host {
            None => {
                tracing::info!(cluster = %name, provider = %wanted.provider, epoch, "cluster joins the fleet");
                fleet.registry.insert(name.clone(), cluster.clone());
                fleet.publish(&name);
            }
            Some(host) => {
                tracing::info!(endpoint = %name, "connecting the endpoint of a scope");
                host.begun(&cluster);
            }
        }
        // In a box: a future has room for what it is made from, and for that once more.
        Box::new(Self {
            _counted: Counted::one(&fleet.lives),
            fleet,
            host,
            changes,
            wanted,
            cluster,
            identity: None,
            link: None,
            at: None,
            endpoint: 0,
            backoff: Backoff::new(Duration::from_millis(500), fleet.settings().reconnect_cap),
            pending: None,
            refused: false,
            last_probe: Instant::now(),
            tried: None,
            identify_at: None,
            rests_until: None,
        })
    }

    pub(super) async fn run(mut self: Box<Self>) -> End {
        let end = loop {
            // Code of users may run and panic where nobody thinks of it, as when it is dropped. Whatever panics: the cluster is
            // looked after.
            match AssertUnwindSafe(self.live()).catch_unwind().await {
                Ok(end) => break end,
                Err(_) => self.has_panicked(),
            }
        };
        Box::pin(self.drain(end)).await;
        // With it go the last credentials and clients of the cluster, which are a user's.
        let name = self.cluster.name().clone();
        if let Err(error) = catch_panic(ANNOUNCED, || drop(self)) {
            tracing::error!(cluster = %name, %error, "the cluster has left");
        }
        end
    }

    /// Shows what happened, and lets the cluster be for a while.
    fn has_panicked(&mut self) {
        let pause = self.backoff.pause();
        tracing::error!(cluster = %self.cluster.name(), retry_in = ?pause, "looking after the cluster panicked");
        self.rests_until = Some(Instant::now() + pause);
        self.unreachable(NotConnected::new(
            "looking after it panicked, in mcr or in what a provider gave for it; what this process has written to its standard error says where",
        ));
    }

    /// Waits until it is time to go on.
    async fn rest(&mut self, until: Instant) -> Option<End> {
        let changed = tokio::select! {
            () = sleep_until(until) => false,
            _ = self.changes.changed() => true,
        };
        self.rests_until = None;
        if changed { self.take_change() } else { None }
    }

    pub(super) async fn live(&mut self) -> End {
        let stop = match &self.host {
            None => self.fleet.token().clone(),
            Some(host) => host.stop().clone(),
        };
        let mut taken_back = std::pin::pin!(taken_back(self.changes.clone(), self.wanted.claim));
        loop {
            if !self.cluster.state().is_ready() {
                self.use_default_namespace();
            }
            let step = async {
                if let Some(until) = self.rests_until {
                    self.rest(until).await
                } else if suspended(&self.wanted.spec).is_some() {
                    self.suspend();
                    self.change().await
                } else if self.cluster.state().is_ready() {
                    self.serve().await
                } else {
                    // In a box: a cluster connects for a moment, and its task would hold the room for it all its life.
                    Box::pin(self.connect()).await
                }
            };
            let end = tokio::select! {
                end = step => end,
                () = stop.cancelled() => Some(End::Stopped),
                // Whatever is being waited for, a probe of a silent server or an exec plugin, is in vain now.
                () = &mut taken_back => Some(End::Left),
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Gives clients that are taken from now on the default namespace that the provider said last. Not while the
    /// description before it is the one that the cluster is connected by.
    pub(super) fn use_default_namespace(&self) {
        if let Some(namespace) = &self.wanted.spec.default_namespace
            && self.cluster.set_default_namespace(namespace)
        {
            self.shown();
        }
    }

    pub(super) fn set_state(&self, state: ClusterState) {
        let before = self.cluster.state();
        if !self.cluster.set_state(state.clone()) {
            return;
        }
        let name = self.cluster.name();
        if before.same_kind(&state) {
            tracing::debug!(cluster = %name, %state, "still so, for another reason");
        } else {
            match &state {
                ClusterState::Unreachable { reason } => {
                    tracing::warn!(cluster = %name, from = before.as_str(), %reason, "cluster is unreachable");
                }
                _ => tracing::info!(cluster = %name, from = before.as_str(), %state, "cluster state"),
            }
        }
        self.shown();
    }

    /// Tells whoever follows the cluster.
    pub(super) fn shown(&self) {
        match &self.host {
            None => self.fleet.publish(self.cluster.name()),
            Some(host) => host.state_changed(),
        }
    }

    /// What stands before each path that is asked for.
    pub(super) fn prefix(&self) -> String {
        self.host.as_ref().map_or("", |host| host.prefix()).to_owned()
    }

    pub(super) fn suspend(&mut self) {
        let Some(reason) = suspended(&self.wanted.spec) else {
            return;
        };
        self.cluster.set_phase(Phase::Down);
        self.cluster
            .transport()
            .block(Some(format!("the cluster is suspended: {reason}").into()));
        self.link = None;
        self.set_state(ClusterState::Suspended { reason });
    }

    pub(super) fn unreachable(&mut self, why: NotConnected) {
        self.refused = why.unauthorized;
        self.cluster.set_phase(Phase::Down);
        self.cluster.transport().block(Some(why.reason.clone()));
        self.set_state(ClusterState::Unreachable { reason: why.reason });
    }

    /// Waits for what the provider says next.
    pub(super) async fn change(&mut self) -> Option<End> {
        if self.changes.changed().await.is_err() {
            return Some(End::Stopped);
        }
        self.take_change()
    }

    /// Takes what the provider says now. What it means for the connection is decided by the caller.
    pub(super) fn take_change(&mut self) -> Option<End> {
        let wanted = self.changes.borrow_and_update().clone();
        let Some(wanted) = wanted.filter(|wanted| wanted.claim == self.wanted.claim) else {
            return Some(End::Left);
        };
        let identity_changed = matches!(
            (&self.wanted.spec.identity, &wanted.spec.identity),
            (Some(old), Some(new)) if old != new
        );
        let facts_changed = self.wanted.spec.labels != wanted.spec.labels
            || self.wanted.spec.properties != wanted.spec.properties;
        self.wanted = wanted;
        let spec = self.wanted.spec.clone();
        self.cluster.change_facts(|facts| facts.spec.clone_from(&spec));
        if !self.cluster.state().is_ready() {
            self.use_default_namespace();
        }
        // In a scope it stands behind another connection, which is none of its own.
        if identity_changed || (self.host.is_none() && member::scoped(&self.wanted.spec).is_some()) {
            return Some(End::Replaced);
        }
        if facts_changed {
            self.shown();
        }
        None
    }

    /// Ends the engagement: no new work, running work gets its grace, then nothing is left.
    async fn drain(&self, end: End) {
        let (fleet, cluster) = (self.fleet, &self.cluster);
        cluster.set_phase(Phase::Down);
        match &self.host {
            None => {
                fleet.begin_drain(cluster, end);
                fleet.drained(cluster).await;
                fleet.end_drain(cluster);
            }
            Some(host) => {
                tracing::info!(endpoint = %cluster.name(), reason = ?end, "letting go of the endpoint of a scope");
                if end == End::Replaced {
                    cluster.cut();
                }
                cluster.close();
                host.ended(end);
                fleet.drained(cluster).await;
                cluster.cut();
                cluster.set_state(ClusterState::Gone);
            }
        }
    }
}

/// The end of a cluster.
impl FleetShared {
    /// No new work from now on.
    pub(super) fn begin_drain(&self, cluster: &Cluster, end: End) {
        let (name, epoch) = (cluster.name(), cluster.epoch());
        cluster.set_state(ClusterState::Draining);
        self.draining.insert((name.clone(), epoch), cluster.clone());
        if end == End::Replaced {
            // The place may be another cluster's already: not one more request may go there.
            cluster.cut();
        }
        // Before anyone can be told: who knows that the cluster has left must find none of its stores readable.
        cluster.close();
        self.registry
            .remove_if(name, |_, engaged| engaged.is_same(cluster));
        if cluster.is_seated() {
            tracing::debug!(cluster = %name, epoch, reason = ?end, "cluster leaves the fleet");
        } else {
            tracing::info!(cluster = %name, epoch, reason = ?end, "cluster leaves the fleet");
        }
        self.publish(name);
    }

    /// Waits for what still runs for the cluster.
    pub(super) async fn drained(&self, cluster: &Cluster) {
        // Whoever runs work for the cluster aborts it after the grace; a little more is given before that is
        // called a fault.
        let limit = self.settings().drain_grace + Duration::from_secs(5);
        if timeout(limit, cluster.tasks().wait()).await.is_err() {
            tracing::error!(cluster = %cluster.name(), epoch = cluster.epoch(), tasks = cluster.tasks().len(), "work for the cluster is still running {} s after it left", limit.as_secs());
        }
    }

    /// Nothing is left of it.
    pub(super) fn end_drain(&self, cluster: &Cluster) {
        let (name, epoch) = (cluster.name(), cluster.epoch());
        cluster.cut();
        self.draining.remove(&(name.clone(), epoch));
        cluster.set_state(ClusterState::Gone);
        if cluster.is_seated() {
            tracing::debug!(cluster = %name, epoch, "cluster is gone");
        } else {
            tracing::info!(cluster = %name, epoch, "cluster is gone");
        }
        self.publish(name);
    }
}

/// Waits until the cluster is no longer wanted, or only as a new one.
async fn taken_back(mut wanted: watch::Receiver<Option<Wanted>>, claim: u64) {
    let other = |wanted: &Option<Wanted>| wanted.as_ref().is_none_or(|wanted| wanted.claim != claim);
    if wanted.wait_for(other).await.is_err() {
        // The supervisor's own end; it is told otherwise.
        std::future::pending::<()>().await;
    }
}
