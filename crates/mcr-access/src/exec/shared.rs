//! One plugin shared by all clusters that ask it the same.

use std::{
    sync::{Arc, LazyLock, Mutex, MutexGuard, Weak},
    time::{Duration, SystemTime},
};

use dashmap::DashMap;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared as SharedFuture, WeakShared},
};
use tokio::time::Instant;

use super::{
    plan::Plan,
    run::{self, Failure},
};
use crate::{Credential, CredentialError, Fingerprint, Refresh, sync::lock};

/// What is left of its life must be worth handing a credential out.
const MARGIN: Duration = Duration::from_secs(10);
/// The least time between two runs that were asked for although there was a credential.
const PAUSE: Duration = Duration::from_secs(10);
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LAST_BACKOFF: Duration = Duration::from_secs(60);

static PLUGINS: LazyLock<DashMap<Fingerprint, Weak<Shared>>> = LazyLock::new(DashMap::new);

pub(super) struct Shared {
    key: Fingerprint,
    plan: Plan,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    issued: Option<Issued>,
    serial: u64,
    /// When the last run ended that was asked for although there was a credential.
    renewed: Option<Instant>,
    failure: Option<(Failure, Instant, u32)>,
    running: Option<WeakShared<Run>>,
}

type Run = BoxFuture<'static, Result<Issued, Failure>>;

/// A credential and its number, by which it is told whether a refused one is the one in the cache.
#[derive(Clone)]
pub(super) struct Issued {
    pub(super) credential: Credential,
    pub(super) serial: u64,
}

impl Shared {
    pub(super) fn of(plan: &Plan) -> Arc<Self> {
        let key = Fingerprint::of(plan);
        let mut entry = PLUGINS.entry(key).or_default();
        if let Some(shared) = entry.upgrade() {
            return shared;
        }
        let shared = Arc::new(Self {
            key,
            plan: plan.clone(),
            state: Mutex::default(),
        });
        *entry = Arc::downgrade(&shared);
        shared
    }

    /// Hands out the cached credential or the result of a run. Cancel safe: the plugin runs as long as someone waits.
    pub(super) async fn credential(
        self: &Arc<Self>,
        why: Refresh,
        last: u64,
    ) -> Result<Issued, CredentialError> {
        let run = match self.look(why, last) {
            Ok(issued) => return issued.map_err(Failure::into_error),
            Err(run) => run,
        };
        run.await.map_err(Failure::into_error)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn look(self: &Arc<Self>, why: Refresh, last: u64) -> Result<Result<Issued, Failure>, SharedFuture<Run>> {
        let mut state = self.state();
        let now = Instant::now();
        let mut renewal = false;
        if let Some(issued) = &state.issued {
            let alive = issued
                .credential
                .expires_at
                .is_none_or(|at| at > SystemTime::now() + MARGIN);
            let news = why == Refresh::First || issued.serial != last;
            let too_soon = state.renewed.is_some_and(|renewed| now < renewed + PAUSE);
            if alive && (news || too_soon) {
                return Ok(Ok(issued.clone()));
            }
            renewal = alive;
        }
        if let Some(run) = state.running.as_ref().and_then(WeakShared::upgrade) {
            return Err(run);
        }
        if let Some((failure, until, _)) = &state.failure
            && now < *until
        {
            return Ok(Err(failure.clone()));
        }
        let shared = self.clone();
        let run = async move {
            let result = run::run(&shared.plan).await;
            shared.ended(result, renewal)
        };
        let run = run.boxed().shared();
        state.running = run.downgrade();
        Err(run)
    }

    fn ended(&self, result: Result<Credential, Failure>, renewal: bool) -> Result<Issued, Failure> {
        let mut state = self.state();
        state.running = None;
        if renewal {
            state.renewed = Some(Instant::now());
        }
        match result {
            Ok(credential) => {
                state.serial += 1;
                let issued = Issued {
                    credential,
                    serial: state.serial,
                };
                state.issued = Some(issued.clone());
                state.failure = None;
                Ok(issued)
            }
            Err(failure) => {
                let failures = state.failure.as_ref().map_or(0, |(_, _, failures)| *failures);
                let pause = FIRST_BACKOFF
                    .saturating_mul(1 << failures.min(6))
                    .min(LAST_BACKOFF);
                let pause = pause.mul_f64(rand::random_range(0.8..1.2));
                state.failure = Some((
                    failure.clone(),
                    Instant::now() + pause,
                    failures.saturating_add(1),
                ));
                Err(failure)
            }
        }
    }
}

impl Failure {
    fn into_error(self) -> CredentialError {
        if self.permanent {
            CredentialError::permanent(self.message)
        } else {
            CredentialError::temporary(self.message)
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        PLUGINS.remove_if(&self.key, |_, shared| shared.strong_count() == 0);
    }
}
