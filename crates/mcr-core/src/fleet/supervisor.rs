//! The supervision of every announced name: by a task of its own, or as a member of a scope.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use super::{
    cluster::Cluster,
    context::FleetContext,
    description::{Claim, Description, DesiredCluster},
    engagement::Engagement,
    life::End,
    scoped::{MemberContext, Next, ScopeEndpoint, ScopeEndpoints, ScopeMember},
};
use crate::{access::Access, spec::ClusterSpec};
use mcr_access::ClusterName;

/// The supervision of all announced names.
pub(crate) struct Supervisors {
    pub(crate) fleet: Arc<FleetContext>,
    pub(crate) endpoints: ScopeEndpoints,
    /// All tasks of the fleet.
    pub(crate) tasks: TaskTracker,
    /// The tasks whose first cluster has not joined yet. Closed, so that it can be waited for.
    pub(crate) starting: TaskTracker,
    names: Mutex<Names>,
}

type Names = HashMap<ClusterName, Supervision>;

/// How a name is supervised.
enum Supervision {
    /// By a task, which receives the newest announcement through the channel.
    Task {
        desired: watch::Sender<Option<DesiredCluster>>,
        claim: Claim,
    },
    /// Without a task, because the cluster is in a scope.
    Member(ScopeMember),
}

impl Supervisors {
    pub(crate) fn new(fleet: Arc<FleetContext>) -> Self {
        let starting = TaskTracker::new();
        starting.close();
        Self {
            fleet,
            starting,
            endpoints: ScopeEndpoints::default(),
            tasks: TaskTracker::new(),
            names: Mutex::default(),
        }
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock()
    }

    /// Engages a cluster, or gives it a new spec.
    pub(crate) fn set(self: &Arc<Self>, provider: Arc<str>, spec: Arc<Description>) {
        if self.fleet.token().is_cancelled() {
            return;
        }
        let provider = spec.announced_by.clone().unwrap_or(provider);
        let name = spec.name.clone();
        let mut desired = DesiredCluster {
            provider,
            spec,
            claim: Claim::default(),
        };
        let mut names = self.names();
        match names.get_mut(&name) {
            Some(Supervision::Task {
                desired: sender,
                claim,
            }) => {
                desired.claim = *claim;
                sender.send_replace(Some(desired));
            }
            Some(Supervision::Member(member)) => {
                member.set(desired);
                self.apply(&mut names, &name);
            }
            None if desired.spec.scoped().is_some() => {
                names.insert(name.clone(), Supervision::Member(ScopeMember::new(desired)));
                self.apply(&mut names, &name);
            }
            None => self.start_task(&mut names, desired),
        }
    }

    /// Ends the engagement of a cluster.
    pub(crate) fn unset(self: &Arc<Self>, name: &ClusterName) {
        let mut names = self.names();
        match names.get_mut(name) {
            Some(Supervision::Task { desired, claim }) => {
                claim.removed();
                desired.send_replace(None);
            }
            Some(Supervision::Member(member)) => {
                member.unset();
                self.apply(&mut names, name);
            }
            None => {}
        }
    }

    /// Stops supervising the members of scopes when the fleet stops. They have no task that would notice it.
    pub(crate) async fn stop_members(self: Arc<Self>) {
        self.fleet.token().cancelled().await;
        let mut names = self.names();
        let all: Vec<ClusterName> = names.keys().cloned().collect();
        for name in all {
            self.apply(&mut names, &name);
        }
    }
}

/// Clusters with a task.
impl Supervisors {
    fn start_task(self: &Arc<Self>, names: &mut Names, desired: DesiredCluster) {
        let (name, claim) = (desired.spec.name.clone(), desired.claim);
        let (desired, changes) = watch::channel(Some(desired));
        names.insert(name.clone(), Supervision::Task { desired, claim });
        let starting = Some(self.starting.token());
        self.tasks.spawn(supervise(self.clone(), name, changes, starting));
    }

    /// Ends the task of a name that is not announced any more, or is announced in a scope now. Returns false if the
    /// name is announced for the task again.
    fn end_task(
        self: &Arc<Self>,
        name: &ClusterName,
        changes: &watch::Receiver<Option<DesiredCluster>>,
    ) -> bool {
        let mut names = self.names();
        let desired = changes.borrow().clone();
        match desired {
            None => {
                names.remove(name);
            }
            Some(desired) if desired.spec.scoped().is_some() => {
                names.insert(name.clone(), Supervision::Member(ScopeMember::new(desired)));
                self.apply(&mut names, name);
            }
            Some(_) => return false,
        }
        true
    }
}

/// The task of a name, which runs its engagements one after the other.
async fn supervise(
    supervisors: Arc<Supervisors>,
    name: ClusterName,
    mut changes: watch::Receiver<Option<DesiredCluster>>,
    mut starting: Option<TaskTrackerToken>,
) {
    loop {
        let desired = changes.borrow_and_update().clone();
        let Some(desired) = desired.filter(|desired| desired.spec.scoped().is_none()) else {
            if supervisors.end_task(&name, &changes) {
                return;
            }
            continue;
        };
        let engagement = Engagement::begin(&supervisors.fleet, desired, &mut changes, None);
        drop(starting.take());
        if engagement.run(|_| ()).await == End::Stopped {
            return;
        }
    }
}

/// Clusters in scopes.
impl Supervisors {
    /// Takes steps for a member until nothing more can be done at once.
    fn apply(self: &Arc<Self>, names: &mut Names, name: &ClusterName) {
        loop {
            let Some(Supervision::Member(member)) = names.get_mut(name) else {
                return;
            };
            let next = self.with_context(|context| member.step(context));
            if !self.follow(names, name, next) {
                return;
            }
        }
    }

    /// Replaces a cluster, because another server answers at its endpoint.
    fn replace(self: &Arc<Self>, cluster: &Cluster, endpoint: &ScopeEndpoint) {
        let name = cluster.name();
        let mut names = self.names();
        let Some(Supervision::Member(member)) = names.get_mut(name) else {
            return;
        };
        let next = self.with_context(|context| member.replace(context, cluster, endpoint));
        if self.follow(&mut names, name, next) {
            self.apply(&mut names, name);
        }
    }

    /// Does what a step of a member asks for. Returns whether another step has to follow.
    fn follow(self: &Arc<Self>, names: &mut Names, name: &ClusterName, next: Next) -> bool {
        match next {
            Next::Again => return true,
            Next::Done => {}
            Next::Forget => {
                names.remove(name);
            }
            Next::Supervise(desired) => {
                names.remove(name);
                self.start_task(names, desired);
            }
            Next::AwaitTasks(cluster, placement) => {
                let supervisors = self.clone();
                self.tasks.spawn(async move {
                    supervisors.fleet.wait_for_tasks(&cluster).await;
                    supervisors.with_context(|context| context.end_drain(&cluster, &placement));
                    let name = cluster.name();
                    let mut names = supervisors.names();
                    if let Some(Supervision::Member(member)) = names.get_mut(name) {
                        member.drained();
                    }
                    supervisors.apply(&mut names, name);
                });
            }
        }
        false
    }

    fn with_context<T>(self: &Arc<Self>, act: impl FnOnce(&MemberContext<'_>) -> T) -> T {
        let start_endpoint = |endpoint: &Arc<ScopeEndpoint>| {
            self.tasks
                .spawn(supervise_endpoint(self.clone(), endpoint.clone()));
        };
        act(&MemberContext {
            fleet: &self.fleet,
            endpoints: &self.endpoints,
            start_endpoint: &start_endpoint,
        })
    }
}

/// The task of a scope endpoint, which keeps it connected until its last cluster has left.
async fn supervise_endpoint(supervisors: Arc<Supervisors>, endpoint: Arc<ScopeEndpoint>) {
    let mut endpoints = endpoint.scope.subscribe();
    let mut access = endpoints.borrow_and_update().get(&endpoint.endpoint).cloned();
    let (desired, mut changes) = watch::channel(Some(desired_endpoint(&endpoint, access.as_deref()).await));
    let follow = async {
        while endpoints.changed().await.is_ok() {
            let now = endpoints.borrow_and_update().get(&endpoint.endpoint).cloned();
            // A change of another endpoint of the scope must not interrupt an attempt to connect this one.
            if now.as_ref().map(Arc::as_ptr) != access.as_ref().map(Arc::as_ptr) {
                desired.send_replace(Some(desired_endpoint(&endpoint, now.as_deref()).await));
                access = now;
            }
        }
        std::future::pending::<()>().await;
    };
    let run = async {
        loop {
            let desired = changes.borrow_and_update().clone();
            let Some(desired) = desired else { return };
            let engagement =
                Engagement::begin(&supervisors.fleet, desired, &mut changes, Some(endpoint.clone()));
            let replace_clusters = |end: End| {
                if end != End::Stopped {
                    for cluster in endpoint.clusters() {
                        supervisors.replace(&cluster, &endpoint);
                    }
                }
            };
            if engagement.run(replace_clusters).await == End::Stopped {
                return;
            }
        }
    };
    tokio::select! {
        () = run => {}
        () = follow => {}
    }
}

/// A scope endpoint as the provider of the scope announces it. It is suspended while the scope has no such endpoint.
async fn desired_endpoint(
    endpoint: &ScopeEndpoint,
    set: Option<&(Access, Option<Arc<str>>)>,
) -> DesiredCluster {
    let (name, scope, at) = (endpoint.name.clone(), &endpoint.scope, &endpoint.endpoint);
    let spec = match set {
        Some((access, identity)) => ClusterSpec {
            identity: identity.clone(),
            ..ClusterSpec::new(name, access.clone())
        },
        None => {
            let reason = format!("scope {} has no endpoint {at:?} at the moment", scope.name());
            ClusterSpec::new(name, scope.place(at.clone(), "")).suspended(reason)
        }
    };
    DesiredCluster {
        provider: scope.name().into(),
        spec: Arc::new(Description::parse(spec).await),
        claim: Claim::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::FleetSettings;
    use mcr_access::Trust;

    /// Every cluster that is not in a scope has such a task for its whole life.
    #[test]
    fn the_task_of_a_cluster_is_small() {
        let fleet = Arc::new(FleetContext::new(FleetSettings::default()));
        let spec = ClusterSpec::new(
            ClusterName::unchecked("a"),
            Access::kubeconfig("", Trust::Trusted),
        );
        let desired = DesiredCluster {
            provider: "test".into(),
            spec: Arc::new(spec.into()),
            claim: Claim::default(),
        };
        let (_sender, mut changes) = watch::channel(Some(desired.clone()));
        let supervisors = Arc::new(Supervisors::new(fleet.clone()));
        let starting = Some(supervisors.starting.token());
        let task = size_of_val(&supervise(
            supervisors,
            ClusterName::unchecked("a"),
            changes.clone(),
            starting,
        ));
        let engagement = size_of_val(&*Engagement::begin(&fleet, desired, &mut changes, None));
        assert!(
            task + engagement < 1_600,
            "{task} bytes for the task and {engagement} for what it keeps"
        );
    }
}
