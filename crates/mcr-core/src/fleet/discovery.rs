//! Runs the providers and turns what they say into clusters that are there or not.

use std::{
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use mcr_client::internal::{
    Backoff,
    user_code::{ANNOUNCED, catch_panic},
};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    FleetShared, RunningProvider,
    desired::{Desired, Effect, ProviderId},
    supervisor,
};
use crate::{Access, Change, Provider, attempt::Attempt, rounds::Held};

impl FleetShared {
    pub(crate) fn desired(&self) -> MutexGuard<'_, Desired> {
        self.desired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one provider, over and over, until the fleet stops.
    pub(crate) async fn run_provider(self: Arc<Self>, id: ProviderId) {
        let RunningProvider { name, provider, .. } = &self.providers[id];
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(60));
        loop {
            self.desired().begin_round(id);
            let started = Instant::now();
            let error = tokio::select! {
                error = self.listen(id, &**provider) => error,
                () = self.token().cancelled() => return,
            };
            if self.token().is_cancelled() {
                return;
            }
            if started.elapsed() > Duration::from_secs(60) {
                backoff.reset();
            }
            let pause = backoff.pause();
            tracing::warn!(provider = %name, %error, retry_in = ?pause, "discovery ended, starting it again");
            self.providers[id].update(|status| {
                status.restarts += 1;
                status.last_error = Some(error);
            });
            tokio::select! {
                () = sleep(pause) => {}
                () = self.token().cancelled() => return,
            }
        }
    }

    /// Takes what a provider says, until its discovery ends; returns why.
    async fn listen(self: &Arc<Self>, id: ProviderId, provider: &dyn Provider) -> String {
        let mut attempt = match Attempt::begin(provider, self.token().child_token()) {
            Ok(attempt) => attempt,
            Err(error) => return error,
        };
        loop {
            let change = match attempt.next().await {
                Ok(change) => change,
                Err(error) => return error,
            };
            if let Change::Upsert(spec) = &change {
                self.read(&spec.access).await;
            }
            // What it takes the place of is dropped, and is a user's. Once everything has been said anew, nothing is lost.
            if let Err(panicked) = catch_panic(ANNOUNCED, || self.take(id, change)) {
                return panicked.to_string();
            }
        }
    }

    /// Reads a kubeconfig before its cluster joins: a client can be taken from then on, and has to know the default
    /// namespace.
    async fn read(&self, access: &Access) {
        const PATIENCE: Duration = Duration::from_secs(1);
        if !access.is_unread() {
            return;
        }
        let (read, policy) = (access.clone(), self.settings.access_policy.clone());
        // Off the executor, since it may be long.
        let reading = tokio::task::spawn_blocking(move || read.read(&policy));
        if timeout(PATIENCE, reading).await.is_err() {
            // The threads there are for such things wait for files that don't come; the other clusters must not.
            access.read(&self.settings.access_policy);
        }
    }

    fn take(self: &Arc<Self>, id: ProviderId, change: Change) {
        let name = &self.providers[id].name;
        match change {
            Change::Upsert(mut spec) => {
                spec.access = spec.access.settled(&self.settings.access_policy);
                self.change_desired(|desired| desired.upsert(id, spec));
            }
            Change::Broken(broken) => {
                let told = self
                    .desired()
                    .broken_of(&broken.name)
                    .is_some_and(|known| known.error == broken.error);
                if !told {
                    tracing::warn!(provider = %name, cluster = %broken.name, object = %broken.object, error = %broken.error, "the description of a cluster can't be used");
                }
                self.change_desired(|desired| desired.broken(id, broken));
            }
            Change::Remove(cluster) => self.change_desired(|desired| desired.remove(id, &cluster)),
            Change::Synced => {
                self.providers[id].update(|status| status.synced = true);
                let grace = self.settings().removal_grace;
                self.change_desired(|desired| desired.synced(id, Instant::now(), grace));
            }
        }
        self.sweep_changed.notify_one();
    }

    /// Changes what should be and does what follows, as one step: two providers must not overtake each other
    /// between the two.
    pub(crate) fn change_desired(self: &Arc<Self>, change: impl FnOnce(&mut Desired) -> Vec<Effect>) {
        let _acting = self.acting.lock().unwrap_or_else(PoisonError::into_inner);
        // Clusters in scopes leave and move at once, on whichever thread says so.
        let _entered = self.runtime.get().map(tokio::runtime::Handle::enter);
        let effects = change(&mut self.desired());
        // Not under the lock of what is desired: this waits for sinks, which may look for a cluster.
        self.apply(effects);
    }

    /// Removes what has been missing for long enough, until the fleet stops.
    pub(crate) async fn run_sweeper(self: Arc<Self>) {
        loop {
            let next = self.desired().next_sweep();
            let due = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {
                    let sweep = || self.change_desired(|desired| desired.sweep(Instant::now()));
                    if let Err(error) = catch_panic(ANNOUNCED, sweep) {
                        tracing::error!(%error, "a cluster that is gone may stay");
                    }
                }
                () = self.sweep_changed.notified() => {}
                () = self.token().cancelled() => return,
            }
        }
    }

    fn apply(self: &Arc<Self>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Set(provider, spec) => {
                    let provider = self.providers[provider].name.clone();
                    supervisor::set(self, provider, spec);
                }
                Effect::Unset(name) => supervisor::unset(self, &name),
                Effect::Shown(name) => self.publish(&name),
                Effect::Clash { name, holder, late } => {
                    let (holder, late) = (&self.providers[holder].name, &self.providers[late].name);
                    tracing::error!(cluster = %name, %holder, provider = %late, "two providers announce a cluster of the same name: the first keeps it and the second waits. Put a prefix layer on one of them");
                }
                Effect::Held(provider, Held { missing, of }) => tracing::error!(
                    provider = %self.providers[provider].name,
                    missing,
                    of,
                    "a restarted discovery no longer names most clusters of its provider: none is removed. If they are really gone, call Fleet::release_held"
                ),
            }
        }
    }
}
