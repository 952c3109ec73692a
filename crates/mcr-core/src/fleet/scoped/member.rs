//! A cluster in a scope: the fleet engages, moves and drains it at once, without a task of its own.

use std::sync::Arc;

use super::{endpoint::ScopeEndpoint, endpoints::ScopeEndpoints, placement::ClusterPlacement};
use crate::{
    fleet::{
        cluster::{Attachment, Cluster, ScopePlacement},
        context::FleetContext,
        description::{Description, DesiredCluster},
        life::End,
        state::{ClusterState, Published},
    },
    scope::ScopedAccess,
};

/// The record of one cluster name in scopes: from the first announcement by a provider until its last cluster has
/// drained.
pub(crate) struct ScopeMember {
    desired: Option<DesiredCluster>,
    state: MemberState,
}

#[derive(Default)]
enum MemberState {
    /// There is no cluster.
    #[default]
    Absent,
    Engaged(EngagedMember),
    /// The cluster has left, and tasks of it are still running.
    Draining,
}

impl MemberState {
    fn is(&self) -> Is {
        match self {
            Self::Absent => Is::Absent,
            Self::Engaged(_) => Is::Engaged,
            Self::Draining => Is::Draining,
        }
    }
}

/// The state of a member, for a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    Absent,
    Engaged,
    Draining,
}

/// What is announced of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Announced {
    Nothing,
    /// The cluster that is engaged, perhaps at another place.
    Same,
    /// Another cluster in a scope.
    Place,
    /// A cluster that is in no scope.
    OwnConnection,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Wait,
    Engage,
    Update,
    Leave(End),
    Supervise,
    Forget,
}

/// Decides about the next step. No I/O.
fn decide(is: Is, announced: Announced, fleet_stops: bool) -> Step {
    match (is, announced) {
        // Work for the cluster that has left is still running.
        (Is::Draining, _) => Step::Wait,
        (Is::Absent, _) if fleet_stops => Step::Forget,
        (Is::Absent, Announced::Nothing) => Step::Forget,
        (Is::Absent, Announced::OwnConnection) => Step::Supervise,
        (Is::Absent, Announced::Same | Announced::Place) => Step::Engage,
        (Is::Engaged, _) if fleet_stops => Step::Leave(End::Stopped),
        (Is::Engaged, Announced::Nothing) => Step::Leave(End::Left),
        (Is::Engaged, Announced::Same) => Step::Update,
        (Is::Engaged, Announced::Place | Announced::OwnConnection) => Step::Leave(End::Replaced),
    }
}

struct EngagedMember {
    cluster: Cluster,
    placement: Arc<ClusterPlacement>,
    /// The newest spec.
    spec: Arc<Description>,
}

/// The parts of a fleet that its members use.
pub(crate) struct MemberContext<'a> {
    pub(crate) fleet: &'a FleetContext,
    pub(crate) endpoints: &'a ScopeEndpoints,
    /// Starts the task that connects a new scope endpoint.
    pub(crate) start_endpoint: &'a dyn Fn(&Arc<ScopeEndpoint>),
}

/// The next step for a name, after a step of its member.
pub(crate) enum Next {
    /// Nothing is to do.
    Done,
    /// Take another step at once.
    Again,
    /// Forget the name.
    Forget,
    /// Supervise the cluster, which has left the scope, by a task of its own.
    Supervise(DesiredCluster),
    /// Wait for the tasks of the cluster, then call [`ScopeMember::drained`].
    AwaitTasks(Cluster, Arc<ClusterPlacement>),
}

impl ScopeMember {
    pub(crate) fn new(desired: DesiredCluster) -> Self {
        Self {
            desired: Some(desired),
            state: MemberState::Absent,
        }
    }

    /// Notes what the provider announces. [`step`](Self::step) has to follow.
    pub(crate) fn set(&mut self, desired: DesiredCluster) {
        self.desired = Some(desired);
    }

    /// Notes that the provider removes the cluster. [`step`](Self::step) has to follow.
    pub(crate) fn unset(&mut self) {
        self.desired = None;
    }

    /// Takes one step towards the desired cluster.
    pub(crate) fn step(&mut self, context: &MemberContext<'_>) -> Next {
        let (desired, state) = (self.desired.clone(), std::mem::take(&mut self.state));
        let at = desired.as_ref().and_then(|desired| desired.spec.scoped());
        let (is, announced) = match (&state, &desired, at) {
            (_, None, _) => (state.is(), Announced::Nothing),
            (_, Some(_), None) => (state.is(), Announced::OwnConnection),
            (MemberState::Engaged(engaged), Some(desired), Some(at)) if engaged.is_same(desired, at) => {
                (Is::Engaged, Announced::Same)
            }
            _ => (state.is(), Announced::Place),
        };
        let step = decide(is, announced, context.fleet.token().is_cancelled());
        match (step, state, &desired, at) {
            (Step::Forget, ..) => Next::Forget,
            (Step::Supervise, _, Some(desired), _) => Next::Supervise(desired.clone()),
            (Step::Engage, _, Some(desired), Some(at)) => {
                self.state = MemberState::Engaged(engage(context, desired, at));
                Next::Done
            }
            (Step::Update, MemberState::Engaged(mut engaged), Some(desired), Some(at)) => {
                engaged.update(context, &desired.spec, at);
                self.state = MemberState::Engaged(engaged);
                Next::Done
            }
            (Step::Leave(end), MemberState::Engaged(engaged), ..) => self.leave(context, engaged, end),
            (_, state, ..) => {
                self.state = state;
                Next::Done
            }
        }
    }

    /// Ends the engagement of a cluster, because another server answers at its endpoint. The next step engages the cluster
    /// again.
    ///
    /// Does nothing if the cluster has moved to another endpoint or has left.
    pub(crate) fn replace(
        &mut self,
        context: &MemberContext<'_>,
        cluster: &Cluster,
        endpoint: &ScopeEndpoint,
    ) -> Next {
        match std::mem::take(&mut self.state) {
            MemberState::Engaged(engaged)
                if engaged.cluster.is_same(cluster) && engaged.placement.is_behind(endpoint.address()) =>
            {
                self.leave(context, engaged, End::Replaced)
            }
            state => {
                self.state = state;
                Next::Done
            }
        }
    }

    fn leave(&mut self, context: &MemberContext<'_>, engaged: EngagedMember, end: End) -> Next {
        let EngagedMember {
            cluster, placement, ..
        } = engaged;
        context.fleet.begin_drain(&cluster, end);
        if cluster.tasks().is_empty() {
            context.end_drain(&cluster, &placement);
            return Next::Again;
        }
        self.state = MemberState::Draining;
        Next::AwaitTasks(cluster, placement)
    }

    /// Notes that its draining cluster is gone. [`step`](Self::step) has to follow.
    pub(crate) fn drained(&mut self) {
        self.state = MemberState::Absent;
    }
}

impl MemberContext<'_> {
    /// Ends the draining of a cluster. Its tasks have ended, so nothing needs its endpoint any more.
    pub(crate) fn end_drain(&self, cluster: &Cluster, placement: &ClusterPlacement) {
        self.endpoints.leave(&placement.endpoint(), cluster);
        self.fleet.end_drain(cluster);
    }
}

fn engage(context: &MemberContext<'_>, desired: &DesiredCluster, at: &ScopedAccess) -> EngagedMember {
    let fleet = context.fleet;
    let epoch = fleet.registry.next_epoch();
    let join = |endpoint: &Arc<ScopeEndpoint>| {
        let placement = Arc::new(ClusterPlacement::new(endpoint.clone(), at));
        let attachment = Attachment::Scoped(placement.clone());
        let cluster = Cluster::new(desired, epoch, &fleet.resources, attachment);
        endpoint.add_cluster(&cluster);
        (cluster, placement)
    };
    let start = context.start_endpoint;
    let (cluster, placement) = context.endpoints.join(&fleet.resources, at, start, join);
    let name = cluster.name();
    tracing::info!(cluster = %name, display_name = cluster.property(crate::spec::DISPLAY_NAME), provider = %desired.provider, %epoch, scope = at.scope.name(), endpoint = %at.endpoint, place = %at.place, "cluster joins the fleet");
    fleet.registry.insert(&cluster);
    update_state(fleet, &cluster, &placement.endpoint(), &desired.spec);
    fleet.publish(name);
    EngagedMember {
        cluster,
        placement,
        spec: desired.spec.clone(),
    }
}

/// Suspends a cluster if its spec says so. Otherwise makes it take over the state of its endpoint.
fn update_state(fleet: &FleetContext, cluster: &Cluster, endpoint: &ScopeEndpoint, spec: &Description) {
    match spec.suspended() {
        Some(reason) => {
            if cluster.publish(Published::suspended(reason)).is_some() {
                fleet.publish(cluster.name());
            }
        }
        None => {
            if matches!(cluster.state(), ClusterState::Suspended { .. }) {
                cluster.publish(Published::behind(ClusterState::Connecting));
            }
            endpoint.update_cluster(cluster);
        }
    }
}

impl EngagedMember {
    /// Whether an announcement is of the engaged cluster, and not of another one.
    fn is_same(&self, desired: &DesiredCluster, now: &ScopedAccess) -> bool {
        let Some(at) = self.spec.scoped().filter(|at| at.scope == now.scope) else {
            return false;
        };
        match (&self.cluster.info().identity, &desired.spec.identity) {
            (Some(was), Some(is)) => was == is,
            // Without a declared identity, another place or endpoint is another cluster.
            _ => at.is_at(now),
        }
    }

    /// Follows a new spec, and moves the cluster if the spec names another place or endpoint.
    fn update(&mut self, context: &MemberContext<'_>, spec: &Arc<Description>, now: &ScopedAccess) {
        let fleet = context.fleet;
        let cluster = &self.cluster;
        let before = cluster.info();
        cluster.change_info(|info| {
            info.spec.clone_from(spec);
            info.identity.clone_from(&spec.identity);
        });
        if before.spec.labels != spec.labels
            || before.spec.properties != spec.properties
            || before.identity != spec.identity
        {
            fleet.publish(cluster.name());
        }
        let at = self.spec.scoped();
        if at != Some(now) {
            if at.is_none_or(|at| !at.is_at(now)) {
                tracing::info!(cluster = %cluster.name(), display_name = cluster.property(crate::spec::DISPLAY_NAME), endpoint = %now.endpoint, place = %now.place, "cluster moves within its scope");
            }
            let join = |endpoint: &Arc<ScopeEndpoint>| {
                endpoint.add_cluster(cluster);
                endpoint.clone()
            };
            let start = context.start_endpoint;
            let endpoint = context.endpoints.join(&fleet.resources, now, start, join);
            let left = self.placement.change(endpoint.clone(), now);
            cluster.rejoin();
            if !Arc::ptr_eq(&left, &endpoint) {
                context.endpoints.leave(&left, cluster);
            }
        }
        self.spec = spec.clone();
        update_state(fleet, cluster, &self.placement.endpoint(), spec);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_with_every_announcement_leads_to_its_step() {
        use Announced::{Nothing, OwnConnection, Place, Same};
        use End::{Left, Replaced, Stopped};
        let all = [Nothing, Same, Place, OwnConnection];
        let steps = |is, stops| all.map(|announced| decide(is, announced, stops));
        let (engage, leave) = (Step::Engage, Step::Leave);
        assert_eq!(
            steps(Is::Absent, false),
            [Step::Forget, engage, engage, Step::Supervise]
        );
        assert_eq!(steps(Is::Absent, true), [Step::Forget; 4]);
        let engaged = [leave(Left), Step::Update, leave(Replaced), leave(Replaced)];
        assert_eq!(steps(Is::Engaged, false), engaged);
        assert_eq!(steps(Is::Engaged, true), [leave(Stopped); 4]);
        for stops in [false, true] {
            assert_eq!(steps(Is::Draining, stops), [Step::Wait; 4]);
        }
    }
}
