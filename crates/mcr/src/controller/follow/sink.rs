//! Turns the changes of one watch in one cluster into requests.

use std::{sync::Arc, time::Duration};

use mcr_core::{ChangeSink, ObjectChange, ObjectKey, WatchStatus};

use crate::{
    controller::{
        engine::{Engine, plan::WatchPlan},
        member::Member,
    },
    queue::Priority,
    reconciler::LeftObject,
};

/// The sink of one watch in one cluster.
pub(crate) struct WatchSink {
    pub(crate) engine: Arc<Engine>,
    pub(crate) member: Arc<Member>,
    /// The number of the watch.
    pub(crate) at: usize,
}

impl WatchSink {
    fn passes(&self, watch: &WatchPlan, change: &ObjectChange) -> bool {
        let all_pass = || watch.predicates.iter().all(|predicate| predicate.passes(change));
        // After a panic the change passes: an unneeded request does no harm, a missing one does.
        self.engine
            .core
            .guarded("a predicate", self.member.cluster.name(), all_pass)
            .unwrap_or(true)
    }

    /// Whether an object that leaves this watch was deleted for certain. A watch with a selector also loses objects that no
    /// longer match.
    fn deletions_are_certain(&self, watch: &WatchPlan) -> bool {
        let cluster = &self.member.cluster;
        let has_selector =
            watch.request.label_selector().is_some() || watch.request.field_selector().is_some();
        let by_layout = || cluster.deletions_are_certain();
        !has_selector
            && self
                .engine
                .core
                .guarded("the layout of the scope", cluster.name(), by_layout)
                .unwrap_or(false)
    }

    fn primary_changed(
        &self,
        watch: &WatchPlan,
        key: &ObjectKey,
        change: &ObjectChange,
        passes: bool,
        priority: Priority,
    ) {
        let (core, member) = (&self.engine.core, &self.member);
        if change.new.is_some() {
            member.appeared(key, change.old.is_none());
        } else {
            let unseen = member.gate.lock().left_unseen(key) || !core.gating.is_open();
            // On a standby, another replica reconciles the deletion. Otherwise nothing is lost with a key that no reconcile can
            // have seen. Kept, such keys would pile up.
            if core.is_standby() || (unseen && !passes) {
                return self.forget(key);
            }
            if passes && let Some(old) = &change.old {
                let (object, deleted) = (old.clone(), self.deletions_are_certain(watch));
                if !member.add_tombstone(
                    key,
                    LeftObject {
                        object,
                        deleted,
                        unseen,
                    },
                ) {
                    core.overflow(
                        member,
                        "deletions of objects that it can't have reconciled are forgotten",
                    );
                    return self.forget(key);
                }
            }
        }
        if passes {
            self.engine.enqueue_object(member, key.clone(), priority);
        }
    }

    /// Forgets the request of an object that is gone.
    fn forget(&self, key: &ObjectKey) {
        self.engine.core.queue.forget(self.member.cluster.name(), key);
        self.member.forget(key);
    }
}

impl ChangeSink for WatchSink {
    fn changed(&self, change: &ObjectChange) {
        if self.member.token.is_cancelled() {
            return;
        }
        let core = &self.engine.core;
        let (Some(watch), Some(key)) = (core.plan.watches.get(self.at), change.key()) else {
            return;
        };
        let priority = if change.initial {
            Priority::Initial
        } else {
            Priority::Live
        };
        let passes = self.passes(watch, change);
        let Some(map) = &watch.map else {
            return self.primary_changed(watch, key, change, passes, priority);
        };
        if !passes {
            return;
        }
        let cluster = &self.member.cluster;
        match core.guarded("a mapper", cluster.name(), || {
            map(&self.engine.fleet, cluster, change)
        }) {
            Some(Ok(targets)) => {
                for target in targets {
                    self.engine
                        .enqueue_from(&self.member, target, priority, Duration::ZERO);
                }
            }
            Some(Err(error)) => {
                core.counters.add(|counts| counts.undecodable += 1);
                tracing::warn!(controller = %core.plan.settings.name, cluster = %cluster.name(), %error, "a change led to no request: the object can't be decoded");
            }
            None => {}
        }
    }

    fn status_changed(&self, status: &WatchStatus) {
        let mut gate = self.member.gate.lock();
        let is_back = gate.update_watch(self.at, status);
        if !gate.retired {
            let (core, name) = (&self.engine.core, self.member.cluster.name());
            core.gating.reported(self.at, status);
            let is_open = gate.opens();
            // Set under the lock of the gate, so that the queue gets the changes of the gate in order.
            core.queue.set_gate(name, is_open);
            if is_back {
                // Requests that have failed because of it need not wait for the end of their back-off.
                core.queue.retry_now(name);
            }
            if is_open {
                core.reopened();
            }
        }
    }
}

#[cfg(test)]
mod tests;
