//! One task per cluster name, for as long as anyone wants a cluster of that name.

use std::{
    collections::HashMap,
    sync::{Arc, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use super::{
    FleetShared,
    life::{End, Life},
};
use crate::{ClusterName, ClusterSpec};

/// What a provider wants a cluster to be. A new `claim` number means that it was taken back in between, so
/// that the cluster must end even if the same name comes again at once.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(super) provider: Arc<str>,
    pub(super) spec: Arc<ClusterSpec>,
    pub(super) claim: u64,
}

/// Where a supervisor is told what to do.
#[derive(Debug)]
pub(crate) struct Slot {
    wanted: watch::Sender<Option<Wanted>>,
    claim: u64,
}

type Slots = HashMap<ClusterName, Slot>;

fn slots(fleet: &FleetShared) -> MutexGuard<'_, Slots> {
    fleet.slots.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The cluster should be there and look like this.
pub(crate) fn set(fleet: &Arc<FleetShared>, provider: Arc<str>, spec: Arc<ClusterSpec>) {
    if fleet.token().is_cancelled() {
        return;
    }
    let provider = spec.announced_by.clone().unwrap_or(provider);
    let mut slots = slots(fleet);
    let name = spec.name.clone();
    if let Some(slot) = slots.get(&name) {
        slot.wanted.send_replace(Some(Wanted {
            provider,
            spec,
            claim: slot.claim,
        }));
        return;
    }
    let (wanted, changes) = watch::channel(Some(Wanted {
        provider,
        spec,
        claim: 0,
    }));
    slots.insert(name.clone(), Slot { wanted, claim: 0 });
    fleet.tasks.spawn(supervise(fleet.clone(), name, changes));
}

/// The cluster should not be there.
pub(crate) fn unset(fleet: &FleetShared, name: &ClusterName) {
    if let Some(slot) = slots(fleet).get_mut(name) {
        slot.claim += 1;
        slot.wanted.send_replace(None);
    }
}

async fn supervise(fleet: Arc<FleetShared>, name: ClusterName, mut changes: watch::Receiver<Option<Wanted>>) {
    loop {
        let wanted = changes.borrow_and_update().clone();
        let Some(wanted) = wanted else {
            let mut slots = slots(&fleet);
            if changes.borrow().is_none() {
                slots.remove(&name);
                return;
            }
            continue;
        };
        let end = Life::begin(&fleet, wanted, &mut changes).run().await;
        if end == End::Stopped {
            return;
        }
    }
}
