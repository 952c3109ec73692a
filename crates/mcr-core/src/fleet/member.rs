//! Clusters in scopes: engaged and let go of at once, without a task of their own.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use mcr_client::{
    AnswerBody, Route, Transport,
    internal::user_code::{CatchPanic, LAYOUT},
};
use mcr_watch::internal::SharedWatch;

use super::{
    ClusterState, FleetShared,
    description::Description,
    host::{Host, Upstream},
    life::End,
    state::suspended,
    supervisor::{self, Slots, Wanted},
};
use crate::{
    Access, BoxError, Cluster, ClusterName,
    cluster::{Facts, Standing},
    scope::{ScopeLayout, ScopedAccess},
};

/// Where a cluster stands: behind which endpoint, and at which place there.
pub(crate) struct Seat(Mutex<Spot>);

#[derive(Clone)]
struct Spot {
    host: Arc<Host>,
    place: Arc<str>,
}

impl Seat {
    fn spot(&self) -> MutexGuard<'_, Spot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn host(&self) -> Arc<Host> {
        self.spot().host.clone()
    }

    /// Asks the layout about the place.
    pub(crate) fn in_place<T>(&self, ask: impl FnOnce(&dyn ScopeLayout, &str) -> T) -> T {
        let Spot { host, place } = self.spot().clone();
        ask(&**host.scope().layout(), &place)
    }

    fn is_behind(&self, host: &Host) -> bool {
        std::ptr::eq(&*self.spot().host, host)
    }

    /// Lets a watch read what is at this place.
    pub(crate) fn join(&self, watch: &Arc<SharedWatch>) {
        watch.join_with(|| {
            let Spot { host, place } = self.spot().clone();
            host.join(watch, &place);
        });
    }
}

impl Route for Seat {
    fn send(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>> {
        let Spot { host, place } = self.spot().clone();
        let layout = host.scope().layout().clone();
        let sent = async move { layout.send(place, request, Upstream::new(host)).await };
        // It may run in a task that others depend on.
        let sent = CatchPanic::new(LAYOUT, Box::pin(sent));
        Box::pin(async move { sent.await? })
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spot = self.spot();
        f.debug_struct("Seat")
            .field("host", &spot.host)
            .field("place", &spot.place)
            .finish()
    }
}

/// A name that is, or was just now, that of a cluster in a scope.
#[derive(Debug, Default)]
pub(crate) struct Member {
    wanted: Option<Wanted>,
    claim: u64,
    held: Held,
}

#[derive(Debug, Default)]
enum Held {
    /// No cluster.
    #[default]
    Free,
    Engaged(Engaged),
    /// Its last work is ending.
    Leaving,
}

#[derive(Debug)]
struct Engaged {
    cluster: Cluster,
    seat: Arc<Seat>,
    /// As it was announced when it last changed.
    spec: Arc<Description>,
    claim: u64,
}

impl Member {
    pub(super) fn new(wanted: Option<Wanted>, claim: u64) -> Self {
        Self {
            wanted,
            claim,
            held: Held::Free,
        }
    }

    pub(super) fn set(&mut self, wanted: Wanted) {
        self.wanted = Some(Wanted {
            claim: self.claim,
            ..wanted
        });
    }

    pub(super) fn unset(&mut self) {
        self.claim += 1;
        self.wanted = None;
    }
}

/// The place that a description leads to, if it leads into a scope.
pub(super) fn scoped(spec: &Description) -> Option<&ScopedAccess> {
    match &spec.access {
        Access::Scoped(scoped) => Some(scoped),
        _ => None,
    }
}

/// What is to become of a name now.
enum Next {
    Nothing,
    Forget,
    Supervise(Wanted, u64),
    Again,
}

/// Makes a member what it is wanted to be, as far as that can be done at once.
pub(super) fn settle(fleet: &Arc<FleetShared>, slots: &mut Slots, name: &ClusterName) {
    loop {
        let Some(supervisor::Slot::Member(member)) = slots.get_mut(name) else {
            return;
        };
        match step(fleet, member) {
            Next::Again => {}
            Next::Nothing => return,
            Next::Forget => {
                slots.remove(name);
                return;
            }
            Next::Supervise(wanted, claim) => {
                slots.remove(name);
                supervisor::supervise_from(fleet, slots, wanted, claim);
                return;
            }
        }
    }
}

fn step(fleet: &Arc<FleetShared>, member: &mut Member) -> Next {
    let wanted = member.wanted.clone();
    match std::mem::take(&mut member.held) {
        Held::Leaving => {
            member.held = Held::Leaving;
            Next::Nothing
        }
        Held::Free => match wanted {
            None => Next::Forget,
            Some(_) if fleet.token().is_cancelled() => Next::Forget,
            Some(wanted) => match scoped(&wanted.spec) {
                None => Next::Supervise(wanted, member.claim),
                Some(at) => {
                    member.held = engage(fleet, &wanted, at);
                    Next::Nothing
                }
            },
        },
        Held::Engaged(mut engaged) => {
            let end = match &wanted {
                _ if fleet.token().is_cancelled() => End::Stopped,
                None => End::Left,
                Some(wanted) => match scoped(&wanted.spec) {
                    Some(now) if engaged.stays(wanted, now) => {
                        engaged.update(fleet, &wanted.spec, now);
                        member.held = Held::Engaged(engaged);
                        return Next::Nothing;
                    }
                    _ => End::Replaced,
                },
            };
            leave(fleet, member, engaged, end)
        }
    }
}

fn engage(fleet: &Arc<FleetShared>, wanted: &Wanted, at: &ScopedAccess) -> Held {
    let spec = &wanted.spec;
    let name = spec.name.clone();
    let epoch = fleet.next_epoch.fetch_add(1, Ordering::Relaxed);
    let facts = Facts::announced(&wanted.spec);
    let found = fleet.hosts.find(fleet, at);
    let seat = Arc::new(Seat(Mutex::new(Spot {
        host: found.host().clone(),
        place: at.place.clone(),
    })));
    let cluster = Cluster::new(
        name.clone(),
        wanted.provider.clone(),
        epoch,
        facts,
        fleet,
        Standing::Seated(seat.clone()),
    );
    let host = found.admit(&cluster);
    tracing::debug!(cluster = %name, provider = %wanted.provider, epoch, scope = at.scope.name(), endpoint = %at.endpoint, place = %at.place, "cluster joins the fleet");
    fleet.registry.insert(name.clone(), cluster.clone());
    show(fleet, &cluster, &host, spec);
    fleet.publish(&name);
    Held::Engaged(Engaged {
        cluster,
        seat,
        spec: spec.clone(),
        claim: wanted.claim,
    })
}

impl FleetShared {
    /// What the requests of a cluster in a scope go through.
    pub(crate) fn transport_to(&self, name: &ClusterName, seat: &Arc<Seat>) -> Transport {
        // Whoever is the first to send something need not be in a runtime.
        let _entered = self.runtime.get().map(tokio::runtime::Handle::enter);
        let transport = Transport::new(name.clone());
        transport.swap(self.dialer.route_channel(seat.clone()));
        transport
    }
}

/// Shows a cluster as its description says, or else as its endpoint is.
fn show(fleet: &Arc<FleetShared>, cluster: &Cluster, host: &Host, spec: &Description) {
    match suspended(spec) {
        Some(reason) => {
            let blocked = format!("the cluster is suspended: {reason}");
            cluster.block(Some(blocked.into()));
            if cluster.set_state(ClusterState::Suspended { reason }) {
                fleet.publish(cluster.name());
            }
        }
        None => {
            cluster.block(None);
            if matches!(cluster.state(), ClusterState::Suspended { .. }) {
                cluster.set_state(ClusterState::Connecting);
            }
            host.tell(cluster);
        }
    }
}

impl Engaged {
    /// Whether a description is one of the cluster that is there.
    fn stays(&self, wanted: &Wanted, now: &ScopedAccess) -> bool {
        let Some(at) = scoped(&self.spec).filter(|at| at.scope == now.scope) else {
            return false;
        };
        if self.claim != wanted.claim {
            return false;
        }
        match (&self.cluster.facts().identity, &wanted.spec.identity) {
            (Some(was), Some(is)) => was == is,
            // Who is not told apart by an identity is told apart by the place.
            _ => at == now,
        }
    }

    fn update(&mut self, fleet: &Arc<FleetShared>, spec: &Arc<Description>, now: &ScopedAccess) {
        let cluster = &self.cluster;
        let facts = cluster.facts();
        cluster.change_facts(|facts| {
            facts.spec.clone_from(spec);
            facts.identity.clone_from(&spec.identity);
        });
        if facts.spec.labels != spec.labels
            || facts.spec.properties != spec.properties
            || facts.identity != spec.identity
        {
            fleet.publish(cluster.name());
        }
        if scoped(&self.spec) != Some(now) {
            tracing::info!(cluster = %cluster.name(), endpoint = %now.endpoint, place = %now.place, "cluster moves within its scope");
            let host = fleet.hosts.find(fleet, now).admit(cluster);
            let spot = Spot {
                host: host.clone(),
                place: now.place.clone(),
            };
            let left = std::mem::replace(&mut *self.seat.spot(), spot);
            cluster.rejoin(&self.seat);
            if !Arc::ptr_eq(&left.host, &host) {
                fleet.hosts.dismiss(&left.host, cluster);
            }
        }
        self.spec = spec.clone();
        show(fleet, cluster, &self.seat.host(), spec);
    }
}

fn leave(fleet: &Arc<FleetShared>, member: &mut Member, engaged: Engaged, end: End) -> Next {
    let Engaged { cluster, seat, .. } = engaged;
    let name = cluster.name().clone();
    fleet.begin_drain(&cluster, end);
    // What still runs for the cluster needs its endpoint, so that is let go of afterwards.
    if cluster.tasks().is_empty() {
        fleet.hosts.dismiss(&seat.host(), &cluster);
        fleet.end_drain(&cluster);
        return Next::Again;
    }
    member.held = Held::Leaving;
    let fleet = fleet.clone();
    let tasks = fleet.tasks.clone();
    tasks.spawn(async move {
        fleet.drained(&cluster).await;
        fleet.hosts.dismiss(&seat.host(), &cluster);
        fleet.end_drain(&cluster);
        let mut slots = supervisor::slots(&fleet);
        if let Some(supervisor::Slot::Member(member)) = slots.get_mut(&name) {
            member.held = Held::Free;
        }
        settle(&fleet, &mut slots, &name);
    });
    Next::Nothing
}

/// Follows what its endpoint says, unless the cluster has moved to another one, is suspended itself, or leaves.
pub(super) fn follow(fleet: &Arc<FleetShared>, cluster: &Cluster, host: &Host) {
    // All of this can change in any moment, so it is looked at as the state is set.
    let follows = |now: &ClusterState| {
        let by_itself = matches!(
            now,
            ClusterState::Suspended { .. } | ClusterState::Draining | ClusterState::Gone
        );
        !by_itself && cluster.seat().is_some_and(|seat| seat.is_behind(host))
    };
    if cluster.set_state_if(host.cluster_state(), follows) {
        fleet.publish(cluster.name());
    }
}

/// Another server stands where the cluster's was: it ends, and is engaged anew as what it is there.
pub(super) fn replace(fleet: &Arc<FleetShared>, cluster: &Cluster, host: &Host) {
    let name = cluster.name();
    let mut slots = supervisor::slots(fleet);
    let Some(supervisor::Slot::Member(member)) = slots.get_mut(name) else {
        return;
    };
    match std::mem::take(&mut member.held) {
        // One that has just moved away is not concerned.
        Held::Engaged(engaged) if engaged.cluster.is_same(cluster) && engaged.seat.is_behind(host) => {
            if let Next::Again = leave(fleet, member, engaged, End::Replaced) {
                settle(fleet, &mut slots, name);
            }
        }
        held => member.held = held,
    }
}

/// The fleet stops: every cluster leaves.
pub(super) fn stop(fleet: &Arc<FleetShared>) {
    let mut slots = supervisor::slots(fleet);
    let names: Vec<ClusterName> = slots
        .iter()
        .filter(|(_, slot)| matches!(slot, supervisor::Slot::Member(_)))
        .map(|(name, _)| name.clone())
        .collect();
    for name in names {
        settle(fleet, &mut slots, &name);
    }
}
