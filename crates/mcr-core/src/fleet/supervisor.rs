//! One task per cluster name, for as long as anyone wants a cluster of that name.

use std::{
    collections::HashMap,
    sync::{Arc, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use super::{
    FleetShared,
    description::Description,
    life::{End, Life},
    member::{self, Member},
};
use crate::{ClusterName, ClusterSpec};

/// What a provider wants a cluster to be. A new `claim` number means that it was taken back in between, so
/// that the cluster must end even if the same name comes again at once.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(super) provider: Arc<str>,
    pub(super) spec: Arc<Description>,
    pub(super) claim: u64,
}

impl Wanted {
    /// An endpoint of a scope, which is nobody's claim.
    pub(super) fn of_endpoint(scope: &str, spec: ClusterSpec) -> Self {
        Self {
            provider: scope.into(),
            spec: Arc::new(spec.into()),
            claim: 0,
        }
    }
}

/// Where a name is looked after.
#[derive(Debug)]
pub(crate) enum Slot {
    /// By a task of its own, which is told here what to do.
    Supervised {
        wanted: watch::Sender<Option<Wanted>>,
        claim: u64,
    },
    /// As one of many behind an endpoint.
    Member(Member),
}

pub(crate) type Slots = HashMap<ClusterName, Slot>;

pub(super) fn slots(fleet: &FleetShared) -> MutexGuard<'_, Slots> {
    fleet.slots.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The cluster should be there and look like this.
pub(crate) fn set(fleet: &Arc<FleetShared>, provider: Arc<str>, spec: Arc<Description>) {
    if fleet.token().is_cancelled() {
        return;
    }
    let provider = spec.announced_by.clone().unwrap_or(provider);
    let name = spec.name.clone();
    let mut wanted = Wanted {
        provider,
        spec,
        claim: 0,
    };
    let mut slots = slots(fleet);
    match slots.get_mut(&name) {
        Some(Slot::Supervised { wanted: told, claim }) => {
            wanted.claim = *claim;
            told.send_replace(Some(wanted));
        }
        Some(Slot::Member(member)) => {
            member.set(wanted);
            member::settle(fleet, &mut slots, &name);
        }
        None if member::scoped(&wanted.spec).is_some() => {
            slots.insert(name.clone(), Slot::Member(Member::new(Some(wanted), 0)));
            member::settle(fleet, &mut slots, &name);
        }
        None => supervise_from(fleet, &mut slots, wanted, 0),
    }
}

/// The cluster should not be there.
pub(crate) fn unset(fleet: &Arc<FleetShared>, name: &ClusterName) {
    let mut slots = slots(fleet);
    match slots.get_mut(name) {
        Some(Slot::Supervised { wanted, claim }) => {
            *claim += 1;
            wanted.send_replace(None);
        }
        Some(Slot::Member(member)) => {
            member.unset();
            member::settle(fleet, &mut slots, name);
        }
        None => {}
    }
}

/// Gives a name a task of its own.
pub(super) fn supervise_from(fleet: &Arc<FleetShared>, slots: &mut Slots, wanted: Wanted, claim: u64) {
    let name = wanted.spec.name.clone();
    let (wanted, changes) = watch::channel(Some(Wanted { claim, ..wanted }));
    slots.insert(name.clone(), Slot::Supervised { wanted, claim });
    fleet.tasks.spawn(supervise(fleet.clone(), name, changes));
}

async fn supervise(fleet: Arc<FleetShared>, name: ClusterName, mut changes: watch::Receiver<Option<Wanted>>) {
    loop {
        let wanted = changes.borrow_and_update().clone();
        let has_life = wanted
            .as_ref()
            .is_some_and(|wanted| member::scoped(&wanted.spec).is_none());
        let (Some(wanted), true) = (wanted, has_life) else {
            if give_up(&fleet, &name, &changes) {
                return;
            }
            continue;
        };
        let end = Life::begin(&fleet, wanted, &mut changes, None).run().await;
        if end == End::Stopped {
            return;
        }
    }
}

/// Ends the task of a name that nobody wants, or that is wanted in a scope; false if that has changed meanwhile.
fn give_up(fleet: &Arc<FleetShared>, name: &ClusterName, changes: &watch::Receiver<Option<Wanted>>) -> bool {
    let mut slots = slots(fleet);
    let wanted = changes.borrow().clone();
    match wanted {
        None => {
            slots.remove(name);
        }
        Some(wanted) if member::scoped(&wanted.spec).is_some() => {
            let claim = wanted.claim;
            slots.insert(name.clone(), Slot::Member(Member::new(Some(wanted), claim)));
            member::settle(fleet, &mut slots, name);
        }
        Some(_) => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Fleet, Trust};

    /// Every cluster that is not in a scope has such a task for as long as it is there.
    #[test]
    fn the_task_of_a_cluster_is_small() {
        let fleet = Fleet::builder().build();
        let spec = ClusterSpec::new(
            ClusterName::unchecked("a"),
            Access::kubeconfig("", Trust::Trusted),
        );
        let wanted = Wanted::of_endpoint("test", spec);
        let (_wanted, mut changes) = watch::channel(Some(wanted.clone()));
        let task = size_of_val(&supervise(
            fleet.0.clone(),
            ClusterName::unchecked("a"),
            changes.clone(),
        ));
        let life = size_of_val(&*Life::begin(&fleet.0, wanted, &mut changes, None));
        assert!(
            task + life < 1_600,
            "{task} bytes for the task and {life} for what it keeps"
        );
    }
}
