//! Deletions that may be the cleanup behind a cluster that moves to another endpoint.
//!
//! The endpoint that a cluster leaves may report the deletion of the objects before the provider announces the move. An
//! uncertain deletion therefore waits. If the cluster moves meanwhile, its watches take a copy of the objects along, and the
//! deletion only concerns the cache that they have left.

use std::{sync::Arc, time::Duration};

use mcr_store::Object;
use tokio::time::timeout;

use super::{Deletion, ScopeWatch, catch_panic};
use crate::health::Health;

impl ScopeWatch {
    /// Whether an object may leave this endpoint because its cluster moves.
    pub(super) fn deletions_are_uncertain(&self) -> bool {
        let certain = || self.places.deletions_are_certain();
        !catch_panic("deletions_are_certain", certain).unwrap_or(false)
    }

    /// Deletes an object: after some time if deletions are `uncertain` and the object was not being deleted.
    pub(super) fn remove(&self, place: &Arc<str>, last: Arc<Object>, uncertain: bool) {
        let stays = |held: Arc<Object>| {
            let outlives = held.incarnation().outlives(last.incarnation());
            !outlives && !held.is_deleting() && !last.is_deleting()
        };
        let held = || self.state().cache_in_use(place)?.store().get(last.key());
        if uncertain && held().is_some_and(stays) {
            let object = (place.clone(), last.key().clone());
            // A list that lacks the object does not prolong the time.
            let deletion = Deletion { last, due: false };
            self.state().uncertain.entry(object).or_insert(deletion);
            self.uncertain.notify_one();
            return;
        }
        self.apply_at(place, |store| store.delete(last.clone()));
        self.state().remove_if_idle(place);
    }

    /// Makes the deletions certain that nothing has disproved for `delay`, as long as the watch runs.
    ///
    /// The endpoint has to be connected all this time. The last cluster that moves away may take its endpoint along.
    pub(super) async fn confirm_deletions(&self, delay: Duration, health: &Health) {
        loop {
            self.uncertain.notified().await;
            loop {
                let endpoint = health.link.up().await;
                let connected = timeout(delay, health.link.left(endpoint)).await.is_err();
                if connected && !self.delay_passed() {
                    break;
                }
            }
        }
    }

    /// Applies the deletions that are due. Returns whether others wait.
    pub(super) fn delay_passed(&self) -> bool {
        let mut state = self.state();
        let is_due = |_: &_, deletion: &mut Deletion| std::mem::replace(&mut deletion.due, true);
        let due: Vec<_> = state.uncertain.extract_if(is_due).collect();
        state.uncertain.shrink_to_fit();
        let others = !state.uncertain.is_empty();
        drop(state);
        for ((place, _), deletion) in due {
            self.remove(&place, deletion.last, false);
        }
        others
    }
}
