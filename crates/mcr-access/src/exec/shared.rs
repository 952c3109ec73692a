//! One plugin, shared by all sources with the same configuration.

use std::{
    convert::Infallible,
    sync::{Arc, LazyLock, Mutex},
    time::{Duration, SystemTime},
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use tokio::time::Instant;

use super::{
    config::PluginConfig,
    run::{self, Failure},
};
use crate::{
    credential::{Credential, CredentialError, Refresh},
    fingerprint::Fingerprint,
    sync::lock,
    weak_cache::WeakCache,
};

/// A cached credential is returned only if it is valid at least this long.
const MIN_VALIDITY: Duration = Duration::from_secs(10);
/// The shortest time between two renewals. A renewal is a run although the cached credential is still valid.
const MIN_BETWEEN_RENEWALS: Duration = Duration::from_secs(10);
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LAST_BACKOFF: Duration = Duration::from_secs(60);

/// A plugin with its cached credential, its last failure and its current run.
pub(super) struct SharedPlugin {
    config: PluginConfig,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The cached credential.
    issued: Option<Issued>,
    /// The serial number of the last credential.
    serial: u64,
    /// The end of the last renewal.
    renewed: Option<Instant>,
    /// Since the last credential: the last failure, the end of its back-off, and the number of failures.
    failure: Option<(Failure, Instant, u32)>,
    /// The current run. The callers that wait for it hold the strong references: without them it ends.
    running: Option<WeakShared<Run>>,
}

type Run = BoxFuture<'static, Result<Issued, Failure>>;

/// A credential and its serial number. After a 401 the number shows whether the cache has a newer credential than the
/// refused one.
#[derive(Clone)]
pub(super) struct Issued {
    pub(super) credential: Credential,
    pub(super) serial: u64,
}

enum Lookup {
    /// The cached credential, or the last failure during its back-off.
    Cached(Result<Issued, Failure>),
    /// The run to wait for.
    Run(Shared<Run>),
}

impl SharedPlugin {
    /// Returns the plugin with this configuration.
    pub(super) fn of(config: &PluginConfig) -> Arc<Self> {
        static PLUGINS: LazyLock<WeakCache<SharedPlugin>> = LazyLock::new(WeakCache::default);
        let make = || {
            Ok::<_, Infallible>(Arc::new(Self {
                config: config.clone(),
                state: Mutex::default(),
            }))
        };
        let Ok(plugin) = PLUGINS.get_or_try_insert(Fingerprint::of(config), make);
        plugin
    }

    /// Returns the cached credential or the result of a run. `last` is the serial number of the last credential that
    /// the caller got.
    ///
    /// Cancel safe: the run continues while other callers wait for it, and is killed when the last one stops waiting.
    pub(super) async fn credential(
        self: &Arc<Self>,
        why: Refresh,
        last: u64,
    ) -> Result<Issued, CredentialError> {
        let result = match self.look_up(why, last) {
            Lookup::Cached(result) => result,
            Lookup::Run(run) => run.await,
        };
        result.map_err(Failure::into_error)
    }

    fn look_up(self: &Arc<Self>, why: Refresh, last: u64) -> Lookup {
        let mut state = lock(&self.state);
        let now = Instant::now();
        let mut renewal = false;
        if let Some(issued) = &state.issued {
            let valid = issued
                .credential
                .expires_at
                .is_none_or(|at| at > SystemTime::now() + MIN_VALIDITY);
            let new_to_caller = why == Refresh::First || issued.serial != last;
            let too_soon = state
                .renewed
                .is_some_and(|renewed| now < renewed + MIN_BETWEEN_RENEWALS);
            if valid && (new_to_caller || too_soon) {
                return Lookup::Cached(Ok(issued.clone()));
            }
            renewal = valid;
        }
        if let Some(run) = state.running.as_ref().and_then(WeakShared::upgrade) {
            return Lookup::Run(run);
        }
        if let Some((failure, until, _)) = &state.failure
            && now < *until
        {
            return Lookup::Cached(Err(failure.clone()));
        }
        let shared = self.clone();
        let run = async move {
            let result = run::run(&shared.config).await;
            shared.finish_run(result, renewal)
        };
        let run = run.boxed().shared();
        state.running = run.downgrade();
        Lookup::Run(run)
    }

    fn finish_run(&self, result: Result<Credential, Failure>, renewal: bool) -> Result<Issued, Failure> {
        let mut state = lock(&self.state);
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
