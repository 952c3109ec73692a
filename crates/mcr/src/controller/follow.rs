//! Follows the fleet: takes clusters in, lets them go, starts and ends their watches.

use std::{collections::HashMap, sync::Arc, time::Duration};

use mcr_core::{Cluster, ClusterName, FleetEvent, FleetEvents, WatchHandle};
use rand::Rng;
use serde::de::IgnoredAny;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    ClusterEnqueue,
    engine::{Engine, WatchSink},
    member::{Member, lock},
    plan::Plan,
    source,
};
use crate::queue::Priority;

/// Follows the fleet until told to stop.
pub(crate) async fn follow(engine: Arc<Engine>, stop: CancellationToken) {
    let mut events: FleetEvents = engine.fleet.subscribe();
    let mut follower = Follower {
        engine,
        local: HashMap::new(),
        epochs: 0,
        reapers: JoinSet::new(),
    };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => follower.take(&event),
            Some(_) = follower.reapers.join_next() => {}
        }
    }
}

struct Follower {
    engine: Arc<Engine>,
    local: HashMap<ClusterName, Local>,
    epochs: u64,
    /// End what still runs for clusters that were let go.
    reapers: JoinSet<()>,
}

/// What only the follower needs of a member.
struct Local {
    member: Arc<Member>,
    /// By the number of the watch.
    watches: Vec<Option<WatchHandle>>,
    /// Whether the controller itself is about this cluster, whichever of its watches.
    selected: bool,
    parked: bool,
    /// Whether it answered at some time.
    was_ready: bool,
}

/// Which parts of a controller are about a cluster.
struct Wanted {
    selected: bool,
    watches: Vec<bool>,
}

impl Wanted {
    fn any(&self) -> bool {
        self.selected || self.watches.contains(&true)
    }
}

impl Follower {
    fn take(&mut self, event: &FleetEvent) {
        match event {
            FleetEvent::Engaged(cluster) | FleetEvent::Updated(cluster) => self.consider(cluster),
            FleetEvent::Disengaged { name, epoch } => self.disengaged(name, *epoch),
            _ => {}
        }
        self.map(event);
    }

    fn disengaged(&mut self, name: &ClusterName, epoch: u64) {
        if self
            .local
            .get(name)
            .is_some_and(|local| local.member.cluster.epoch() == epoch)
        {
            self.let_go(name);
        }
    }

    fn map(&self, event: &FleetEvent) {
        let core = &self.engine.core;
        let name = match event {
            FleetEvent::Engaged(cluster) | FleetEvent::Updated(cluster) => cluster.name(),
            FleetEvent::Disengaged { name, .. } => name,
            _ => return,
        };
        for map in &core.plan.fleet_maps {
            let keys = core.guarded("a fleet mapper", name, || map(event, &self.engine.fleet));
            for key in keys.unwrap_or_default() {
                self.engine.enqueue(key, Priority::Live, Duration::ZERO);
            }
        }
    }

    fn wanted(&self, cluster: &Cluster) -> Wanted {
        let core = &self.engine.core;
        Wanted {
            selected: core.selects(cluster),
            watches: core
                .plan
                .watches
                .iter()
                .map(|watch| core.watches_in(watch, cluster))
                .collect(),
        }
    }

    fn consider(&mut self, cluster: &Cluster) {
        if self.engine.core.queue.is_closed() {
            return;
        }
        let name = cluster.name();
        if self
            .local
            .get(name)
            .is_some_and(|local| !local.member.cluster.is_same(cluster))
        {
            self.let_go(name);
        }
        let wanted = self.wanted(cluster);
        if !wanted.any() {
            if self.let_go(name) {
                tracing::info!(controller = %self.engine.core.plan.name, cluster = %name, "cluster no longer selected");
            }
            return;
        }
        match self.local.get(name) {
            None => self.take_in(cluster, &wanted),
            Some(local) if local.loses_primary(&self.engine.core.plan, &wanted) => {
                // Requests for objects that are no longer watched must go. The other watches have new handles
                // before the old ones are dropped, so nothing is listed again.
                let old = self.retire(name);
                self.take_in(cluster, &wanted);
                drop(old);
            }
            Some(_) => self.adjust(name, &wanted),
        }
        self.settle(cluster);
    }

    fn take_in(&mut self, cluster: &Cluster, wanted: &Wanted) {
        let core = self.engine.core.clone();
        let name = cluster.name();
        self.epochs += 1;
        let member = Arc::new(Member::new(cluster.clone(), self.epochs));
        tracing::debug!(controller = %core.plan.name, cluster = %name, epoch = cluster.epoch(), "cluster taken in");
        core.queue.engage(name.clone(), member.epoch);
        core.queue.park(name);
        core.members_mut().insert(name.clone(), member.clone());
        if core.queue.is_closed() {
            // The controller stops just now and may have told its members already.
            member.close();
        }
        self.local.insert(
            name.clone(),
            Local {
                member: member.clone(),
                watches: core.plan.watches.iter().map(|_| None).collect(),
                selected: false,
                parked: true,
                was_ready: false,
            },
        );
        self.adjust(name, wanted);
        core.deliver_held(name);
    }

    /// Starts the watches that are wanted and ends those that are not.
    fn adjust(&mut self, name: &ClusterName, wanted: &Wanted) {
        let engine = &self.engine;
        let core = &engine.core;
        let Some(local) = self.local.get_mut(name) else {
            return;
        };
        let starting: Vec<usize> = (0..wanted.watches.len())
            .filter(|at| wanted.watches[*at] && local.watches[*at].is_none())
            .collect();
        let ending: Vec<usize> = (0..wanted.watches.len())
            .filter(|at| !wanted.watches[*at] && local.watches[*at].is_some())
            .collect();
        {
            // All of them are expected before the first one can say that it is listed.
            let mut gate = lock(&local.member.gate);
            for at in &starting {
                if !core.plan.watches[*at].optional {
                    gate.expect(*at, core.plan.watches[*at].request.to_string());
                }
            }
            ending.iter().for_each(|at| gate.forget(*at));
            core.queue.set_gate(name, gate.is_open());
        }
        for at in ending {
            local.watches[at] = None;
        }
        for at in starting {
            local.watches[at] = start(engine, &local.member, at);
        }
        if wanted.selected && !local.selected {
            for run in &core.plan.cluster_sources {
                let enqueue = ClusterEnqueue {
                    engine: engine.clone(),
                    member: local.member.clone(),
                };
                source::spawn_in_cluster(enqueue, run.clone());
            }
        }
        local.selected = wanted.selected;
    }

    /// Parks or releases a cluster and weighs it.
    fn settle(&mut self, cluster: &Cluster) {
        let core = &self.engine.core;
        let name = cluster.name();
        let Some(local) = self.local.get_mut(name) else {
            return;
        };
        let ready = cluster.state().is_ready();
        if ready && local.parked {
            // A first connection is spread by the fleet already; those that come back come back together.
            let jitter = if local.was_ready {
                spread(core.plan.release_jitter)
            } else {
                Duration::ZERO
            };
            core.queue.unpark(name, jitter);
        } else if !ready && !local.parked {
            core.queue.park(name);
        }
        local.parked = !ready;
        local.was_ready |= ready;
        if let Some(weigh) = &core.plan.weigh
            && let Some(weight) = core.guarded("the weight function", name, || weigh(cluster))
        {
            core.queue.set_weight(name, weight);
        }
    }

    fn let_go(&mut self, name: &ClusterName) -> bool {
        self.retire(name).is_some()
    }

    /// Ends a membership. Its watches end when what is returned is dropped.
    fn retire(&mut self, name: &ClusterName) -> Option<Local> {
        let local = self.local.remove(name)?;
        let core = &self.engine.core;
        let member = &local.member;
        core.members_mut().remove(name);
        {
            let mut gate = lock(&member.gate);
            gate.closed = true;
            core.queue.disengage(name);
        }
        if member.close() {
            let (member, grace, core) = (member.clone(), self.engine.fleet.drain_grace(), core.clone());
            self.reapers.spawn(async move {
                tokio::time::sleep(grace).await;
                let aborted = member.abort();
                if aborted > 0 {
                    tracing::warn!(controller = %core.plan.name, cluster = %member.cluster.name(), aborted, "reconciles did not end within {} s after their cluster left; they are aborted", grace.as_secs_f32());
                }
            });
        }
        Some(local)
    }
}

/// The controller has stopped, or its future was dropped: whatever still runs ends here.
impl Drop for Follower {
    fn drop(&mut self) {
        let names: Vec<ClusterName> = self.local.keys().cloned().collect();
        for name in names {
            let Some(local) = self.local.remove(&name) else {
                continue;
            };
            let core = &self.engine.core;
            core.members_mut().remove(&name);
            lock(&local.member.gate).closed = true;
            core.queue.disengage(&name);
            local.member.close();
            local.member.abort();
        }
    }
}

impl Local {
    fn loses_primary(&self, plan: &Plan, wanted: &Wanted) -> bool {
        let primary =
            plan.has_primary && self.watches[Plan::PRIMARY].is_some() && !wanted.watches[Plan::PRIMARY];
        primary || (self.selected && !wanted.selected)
    }
}

fn start(engine: &Arc<Engine>, member: &Arc<Member>, at: usize) -> Option<WatchHandle> {
    let plan = &engine.core.plan;
    let request = &plan.watches[at].request;
    let cluster = &member.cluster;
    // A store must be there before its watch can open the gate, which a watch that others began long ago does
    // at once.
    let first = cluster.watch(request.clone(), None);
    if plan.has_primary && at == Plan::PRIMARY {
        member.set_primary(cluster.store_of::<IgnoredAny>(request).ok());
    }
    let sink = WatchSink {
        engine: engine.clone(),
        member: member.clone(),
        at,
    };
    let handle = cluster.watch(request.clone(), Some(Arc::new(sink)));
    drop(first);
    // The cluster has left already, which the fleet is about to tell.
    handle
        .inspect_err(|error| tracing::debug!(%error, "not watched"))
        .ok()
}

fn spread(most: Duration) -> Duration {
    most.mul_f64(rand::rng().random_range(0.0..=1.0))
}
