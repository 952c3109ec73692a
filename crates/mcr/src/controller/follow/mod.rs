//! Follows the fleet: adds and removes the members of a controller, and starts and ends their watches.

mod deselected;
mod failed_maps;
mod sink;
pub(crate) mod source;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use mcr_core::{Cluster, ClusterName, FleetEvent, FleetEvents, WatchHandle, internal::jitter};
use serde::de::IgnoredAny;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::{deselected::CleanUps, failed_maps::FailedMaps, sink::WatchSink, source::RunClusterSource};
use super::{
    engine::{Engine, enqueue::ClusterEnqueue, plan::Plan},
    member::Member,
};
use crate::{failure::Failure, queue::Priority};

/// How long a controller may select no cluster of the fleet before the log has a warning.
const PATIENCE: Duration = Duration::from_secs(10);

/// Follows the fleet until the first token is cancelled. The second one ends the work in clusters that are not selected.
pub(crate) async fn follow(
    engine: Arc<Engine>,
    sources: Vec<RunClusterSource>,
    (stop, stop_work): (CancellationToken, CancellationToken),
) {
    let mut events: FleetEvents = engine.fleet.subscribe();
    let core = engine.core.clone();
    let mut follower = Follower {
        clean_ups: CleanUps::new(&engine, stop_work),
        failed_maps: FailedMaps::default(),
        engine,
        sources,
        members: HashMap::new(),
        draining: JoinSet::new(),
        warn_at: None,
        warned: false,
    };
    loop {
        let (idle, again) = (until(follower.warn_at), until(follower.failed_maps.due));
        tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => follower.handle(&event),
            () = core.wait_reopened() => follower.make_anew(),
            Some(_) = follower.draining.join_next() => {}
            () = idle => follower.warn_if_none_selected(),
            () = again => follower.map_again(),
            Some(name) = deselected::ended(&mut follower.clean_ups) => follower.clean_up_ended(&name),
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The only one that adds and removes members. Their work carries them, so nobody else finds them by name but the queue.
struct Follower {
    engine: Arc<Engine>,
    sources: Vec<RunClusterSource>,
    members: HashMap<ClusterName, Followed>,
    /// Abort the tasks of members that have left, after the grace period.
    draining: JoinSet<()>,
    clean_ups: Option<CleanUps>,
    failed_maps: FailedMaps,
    /// When to warn if no cluster is selected then. `None`: a cluster was selected since, or the warning is logged.
    warn_at: Option<Instant>,
    /// Whether the log has the warning. Until a cluster is selected, it gets no other.
    warned: bool,
}

/// A member with the state that only the follower needs.
struct Followed {
    member: Arc<Member>,
    /// By the number of the watch.
    watches: Vec<Option<WatchHandle>>,
    /// Whether the selector of the controller chooses this cluster.
    selected: bool,
    parked: bool,
    /// Whether the cluster has been Ready since it joined.
    was_ready: bool,
}

/// The selectors of a controller that choose a cluster.
struct Selection {
    /// The selector of the controller.
    controller: bool,
    /// The selectors of the watches, by number.
    watches: Vec<bool>,
}

impl Selection {
    fn any(&self) -> bool {
        self.controller || self.watches.contains(&true)
    }
}

impl Follower {
    fn handle(&mut self, event: &FleetEvent) {
        match event {
            FleetEvent::Engaged(cluster) | FleetEvent::Updated(cluster) => {
                let was = self.members.get(cluster.name());
                let was = was.filter(|was| was.selected && was.member.cluster.is_same(cluster));
                let was = was.map(|was| was.member.clone());
                self.update(cluster);
                let selected = self.members.get(cluster.name());
                let selected = selected.is_some_and(|followed| followed.selected);
                if let Some(clean_ups) = &mut self.clean_ups {
                    clean_ups.update(cluster, selected, was);
                }
            }
            FleetEvent::Disengaged { name, epoch } => {
                self.failed_maps.left(name);
                self.clean_ups.iter_mut().for_each(|all| all.left(name));
                let member = self.members.get(name).map(|followed| &followed.member);
                if member.is_some_and(|member| member.cluster.epoch() == *epoch) {
                    self.remove(name);
                }
            }
            _ => {}
        }
        for mapper in 0..self.engine.core.plan.settings.fleet_maps.len() {
            self.map(mapper, event);
        }
    }

    fn map(&mut self, mapper: usize, event: &FleetEvent) {
        let core = self.engine.core.clone();
        let (name, map) = match (event, core.plan.settings.fleet_maps.get(mapper)) {
            (FleetEvent::Engaged(of) | FleetEvent::Updated(of), Some(map)) => (of.name(), map),
            (FleetEvent::Disengaged { name, .. }, Some(map)) => (name, map),
            _ => return,
        };
        let mapped = core.guarded("a fleet mapper", name, || {
            map(event, &self.engine.fleet).map_err(|error| Failure::of(error.as_ref()).text)
        });
        match mapped {
            Some(Ok(keys)) => {
                for key in keys {
                    self.engine.enqueue(key, Priority::Live, Duration::ZERO);
                }
            }
            Some(Err(error)) => {
                if let Some(pause) = self.failed_maps.add(mapper, name, event) {
                    tracing::warn!(controller = %core.plan.settings.name, cluster = %name, %error, retry_in = ?pause, "a fleet mapper failed; it is asked again");
                }
            }
            None => {}
        }
    }

    fn map_again(&mut self) {
        for (mapper, event) in self.failed_maps.take() {
            self.map(mapper, &event);
        }
        self.failed_maps.reset();
    }

    fn selection(&self, cluster: &Cluster) -> Selection {
        let core = &self.engine.core;
        Selection {
            controller: core.selects(cluster),
            watches: core
                .plan
                .watches
                .iter()
                .map(|watch| core.watches_in(watch, cluster))
                .collect(),
        }
    }

    /// Logs that the controller selects none of the clusters, because nothing else shows it: no error, no request. Clusters that
    /// a watch selects by a selector of its own are no reason to warn, because the controller may want no others.
    fn warn_if_none_selected(&mut self) {
        self.warn_at = None;
        if self.members.values().any(|followed| followed.selected) {
            return;
        }
        let clusters = self.engine.fleet.clusters();
        let Some(other) = clusters
            .iter()
            .find(|cluster| !self.members.contains_key(cluster.name()))
        else {
            return;
        };
        self.warned = true;
        let plan = &self.engine.core.plan;
        tracing::warn!(
            controller = %plan.settings.name,
            selector = %plan.settings.clusters,
            example = format_args!("cluster {} of provider {} with labels {:?}", other.name(), other.provider(), other.labels()),
            "the controller selects 0 of {} clusters after {} s, so it does nothing in them: compare its selector with the \
             names, providers and labels of the clusters",
            clusters.len(),
            PATIENCE.as_secs(),
        );
    }

    /// Adds, updates or removes a member after an event of its cluster.
    fn update(&mut self, cluster: &Cluster) {
        if self.engine.core.queue.is_closed() {
            return;
        }
        let name = cluster.name();
        let known = self.members.get(name).map(|followed| &followed.member);
        if known.is_some_and(|member| !member.cluster.is_same(cluster)) {
            self.remove(name);
        }
        let selection = self.selection(cluster);
        if selection.controller {
            (self.warn_at, self.warned) = (None, false);
            // Before anything is dispatched there.
            self.clean_ups.iter_mut().for_each(|all| all.end(name));
        } else if self.warn_at.is_none() && !self.warned {
            self.warn_at = Some(Instant::now() + PATIENCE);
        }
        if !selection.any() {
            if self.remove(name).is_some() {
                tracing::info!(controller = %self.engine.core.plan.settings.name, cluster = %name, "cluster no longer selected");
            }
            return;
        }
        match self.members.get(name) {
            None => self.add(cluster, &selection),
            Some(followed)
                if followed.loses_primary(&self.engine.core.plan, &selection)
                    || (selection.controller && !followed.member.accepts) =>
            {
                // A new membership drops the requests for objects that are no longer watched, and gets those that were refused. The
                // other watches get their new handles before the old ones are dropped, so that no kind is listed again.
                let old = self.remove(name);
                self.add(cluster, &selection);
                drop(old);
            }
            Some(_) => self.update_watches(name, &selection),
        }
        self.update_dispatch(cluster);
    }

    fn add(&mut self, cluster: &Cluster, selection: &Selection) {
        let core = self.engine.core.clone();
        let name = cluster.name();
        let accepts = core.accepts(cluster, selection.controller);
        let member = Arc::new(Member::new(cluster.clone(), accepts));
        tracing::debug!(controller = %core.plan.settings.name, cluster = %name, epoch = %cluster.epoch(), "cluster joined the controller");
        core.queue.engage(name.clone(), member.clone());
        core.queue.park(name);
        core.gating.joined(name, &cluster.state());
        if core.queue.is_closed() {
            // The controller is stopping, and may have closed its members before this one was added.
            member.close();
        }
        self.members.insert(
            name.clone(),
            Followed {
                member: member.clone(),
                watches: core.plan.watches.iter().map(|_| None).collect(),
                selected: false,
                parked: true,
                was_ready: false,
            },
        );
        self.update_watches(name, selection);
        core.queue_deferred(&member);
    }

    /// Starts the selected watches and sources, and ends the watches that are no longer selected.
    fn update_watches(&mut self, name: &ClusterName, selection: &Selection) {
        let engine = &self.engine;
        let core = &engine.core;
        let Some(followed) = self.members.get_mut(name) else {
            return;
        };
        let changed = (0..selection.watches.len())
            .filter(|at| selection.watches[*at] != followed.watches[*at].is_some());
        let (starting, ending): (Vec<_>, Vec<_>) = changed.partition(|at| selection.watches[*at]);
        {
            // The gate gets all watches before the first one can report that it has listed.
            let mut gate = followed.member.gate.lock();
            for at in &starting {
                if !core.plan.watches[*at].optional {
                    gate.add_watch(*at, core.plan.watches[*at].request.to_string());
                }
            }
            ending.iter().for_each(|at| gate.remove_watch(*at));
            let is_open = gate.opens();
            core.queue.set_gate(name, is_open);
        }
        for at in ending {
            followed.watches[at] = None;
        }
        for at in starting {
            followed.watches[at] = start(engine, &followed.member, at);
        }
        if selection.controller && !followed.selected {
            for run in &self.sources {
                let enqueue = ClusterEnqueue {
                    engine: engine.clone(),
                    member: followed.member.clone(),
                };
                source::spawn_in_cluster(enqueue, run.clone());
            }
        }
        followed.selected = selection.controller;
    }

    /// Parks or releases a cluster in the queue, and sets its weight.
    fn update_dispatch(&mut self, cluster: &Cluster) {
        let core = &self.engine.core;
        let name = cluster.name();
        let Some(followed) = self.members.get_mut(name) else {
            return;
        };
        let state = cluster.state();
        core.gating.joined(name, &state);
        let is_cleaned = self.clean_ups.as_ref().is_some_and(|all| all.is_ending(name));
        let ready = state.is_ready() && !is_cleaned;
        if ready && followed.parked {
            // The fleet spreads the first connections. Clusters that are reachable again need a spread here.
            let jitter = if followed.was_ready {
                jitter(core.plan.settings.release_jitter)
            } else {
                Duration::ZERO
            };
            core.queue.unpark(name, jitter);
            core.reopened();
        } else if !ready && !followed.parked {
            core.queue.park(name);
        }
        followed.parked = !ready;
        {
            let mut gate = followed.member.gate.lock();
            gate.parked = !ready;
            gate.opens();
        }
        followed.was_ready |= ready;
        if let Some(weigh) = &core.plan.settings.weigh
            && let Some(weight) = core.guarded("the weight function", name, || weigh(cluster))
        {
            core.queue.set_weight(name, weight);
        }
    }

    /// A clean-up has ended in a cluster that may be selected again.
    fn clean_up_ended(&mut self, name: &ClusterName) {
        if let Some(followed) = self.members.get(name) {
            let cluster = followed.member.cluster.clone();
            self.update_dispatch(&cluster);
        }
    }

    /// Maps all objects again, if requests were left out in a cluster that dispatches now. Objects of other clusters may map to
    /// requests there, so those are mapped too. In a later term, objects of the primary kind are reconciled again too: another
    /// replica may have failed with them. Costs no list.
    fn make_anew(&mut self) {
        let core = self.engine.core.clone();
        let dispatches = |followed: &Followed| {
            let depth = core.queue.depth(followed.member.cluster.name());
            depth.is_some_and(|depth| !depth.gated && !depth.parked)
        };
        let again = core.leads_again.swap(false, Ordering::SeqCst);
        self.clean_ups
            .iter_mut()
            .filter(|_| again)
            .for_each(CleanUps::repeat);
        let mut any = false;
        for followed in self.members.values().filter(|_| !core.is_idle()) {
            any |= dispatches(followed) && followed.member.overflowed.swap(false, Ordering::SeqCst);
        }
        if any {
            tracing::info!(controller = %core.plan.settings.name, "requests were left out while nothing was dispatched; they are made anew from the stores");
        } else if !again {
            return;
        }
        for followed in self.members.values_mut() {
            for at in 0..followed.watches.len() {
                if (again || core.plan.watches[at].map.is_some()) && followed.watches[at].is_some() {
                    // The old handle is dropped after the new one exists, so the kind is not listed again.
                    followed.watches[at] = start(&self.engine, &followed.member, at);
                }
            }
        }
    }

    /// Ends a membership. Its watches end when the caller drops the returned value.
    fn remove(&mut self, name: &ClusterName) -> Option<Followed> {
        let followed = self.members.remove(name)?;
        if followed.selected {
            self.warn_at = Some(Instant::now() + PATIENCE);
        }
        let core = &self.engine.core;
        let member = &followed.member;
        {
            let mut gate = member.gate.lock();
            gate.retired = true;
            core.gating.left(name);
            core.queue.disengage(name);
        }
        if member.close() {
            let (member, grace, core) = (member.clone(), self.engine.fleet.drain_grace(), core.clone());
            self.draining.spawn(async move {
                tokio::time::sleep(grace).await;
                let aborted = member.abort();
                if aborted > 0 {
                    tracing::warn!(controller = %core.plan.settings.name, cluster = %member.cluster.name(), aborted, "reconciles did not end within {} s after their cluster left; they are aborted", grace.as_secs_f32());
                }
            });
        }
        Some(followed)
    }
}

/// Aborts the tasks of all members when the controller has stopped or its future was dropped.
impl Drop for Follower {
    fn drop(&mut self) {
        let core = &self.engine.core;
        for (name, followed) in self.members.drain() {
            followed.member.gate.lock().retired = true;
            core.queue.disengage(&name);
            followed.member.close();
            followed.member.abort();
        }
    }
}

impl Followed {
    /// Whether the primary watch or the sources are no longer selected.
    fn loses_primary(&self, plan: &Plan, selection: &Selection) -> bool {
        let primary =
            plan.has_primary && self.watches[Plan::PRIMARY].is_some() && !selection.watches[Plan::PRIMARY];
        primary || (self.selected && !selection.controller)
    }
}

fn start(engine: &Arc<Engine>, member: &Arc<Member>, at: usize) -> Option<WatchHandle> {
    let plan = &engine.core.plan;
    let request = &plan.watches[at].request;
    let cluster = &member.cluster;
    // The store must exist before its watch opens the gate. A watch that is shared and has listed opens it at once.
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
    // An error means that the cluster has left; its fleet event follows.
    handle
        .inspect_err(|error| tracing::debug!(%error, "a kind is not watched"))
        .ok()
}
