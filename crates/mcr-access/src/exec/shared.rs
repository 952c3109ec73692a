//! One plugin, shared by all sources with the same configuration.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, LazyLock},
    time::{Duration, SystemTime},
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::{
    config::PluginConfig,
    places::{Place, Places, SLOW_AFTER},
    run::{self, Failure},
};
use crate::{
    credential::{Credential, CredentialError, Refresh},
    fingerprint::Fingerprint,
    schedule::Line,
    weak_cache::WeakCache,
};

/// A cached credential is returned only if it is valid at least this long.
const MIN_VALIDITY: Duration = Duration::from_secs(10);
/// The shortest time between two renewals. A renewal is a run although the cached credential is still valid.
const MIN_BETWEEN_RENEWALS: Duration = Duration::from_secs(10);
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LAST_BACKOFF: Duration = Duration::from_secs(60);
/// A caller waits at most this long for a place. Its turn is kept.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// For so long it is known that a plugin fails, although no cluster uses it at the moment: between two attempts to connect.
const REMEMBERED: Duration = Duration::from_secs(300);
/// So many failures are remembered.
const MOST_REMEMBERED: usize = 4096;

/// A plugin with its cached credential, its last failure and its current run.
pub(super) struct SharedPlugin {
    config: Arc<PluginConfig>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The cached credential.
    issued: Option<Issued>,
    /// The serial number of the last credential.
    serial: u64,
    /// The failure of the last run.
    failure: Option<Failure>,
    /// How many runs in a row have failed, or issued a credential that had expired.
    failures: u32,
    /// No run starts before this time.
    next_run: Option<Instant>,
    /// Since when a run has waited for its place.
    waits_since: Option<Instant>,
    /// When the last run began.
    began: Option<Instant>,
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

impl Issued {
    /// How long the credential is still valid. None: it does not expire.
    fn left(&self) -> Option<Duration> {
        let at = self.credential.expires_at?;
        Some(at.duration_since(SystemTime::now()).unwrap_or_default())
    }
}

enum Lookup {
    /// The cached credential, or the result of the last run until the next one is due.
    Cached(Result<Issued, Failure>),
    /// The run to wait for.
    Run(Shared<Run>),
}

impl SharedPlugin {
    /// Returns the plugin with this configuration.
    pub(super) fn of(config: &Arc<PluginConfig>) -> Arc<Self> {
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

    /// When the last run began.
    pub(super) fn began(&self) -> Option<Instant> {
        self.state.lock().began
    }

    fn look_up(self: &Arc<Self>, why: Refresh, last: u64) -> Lookup {
        let mut state = self.state.lock();
        let now = Instant::now();
        let mut renewal = false;
        if let Some(issued) = &state.issued {
            renewal = issued.left().is_none_or(|left| left > MIN_VALIDITY);
            if renewal && (why == Refresh::First || issued.serial != last) {
                return Lookup::Cached(Ok(issued.clone()));
            }
        }
        if let Some(run) = state.running.as_ref().and_then(WeakShared::upgrade) {
            return Lookup::Run(run);
        }
        if state.next_run.is_some_and(|next| now < next) {
            match (&state.failure, &state.issued) {
                (Some(failure), _) => return Lookup::Cached(Err(failure.clone())),
                (None, Some(issued)) => return Lookup::Cached(Ok(issued.clone())),
                (None, None) => {}
            }
        }
        let line = match (state.failures, &state.issued) {
            (0, Some(_)) => Line::Healthy,
            (0, None) => Line::New,
            _ => Line::Failing,
        };
        let since = *state.waits_since.get_or_insert(now);
        let shared = self.clone();
        let run = async move {
            let place = timeout(LONGEST_WAIT, Places::shared().wait(line, since)).await;
            let Ok(Some(place)) = place else {
                shared.state.lock().running = None;
                return Err(Failure {
                    message: "exec plugins of many clusters hang, and this one waits for its turn; make the plugins answer, or \
                              lower AccessPolicy::plugin_deadline"
                        .to_owned(),
                    permanent: false,
                });
            };
            shared.run(&place, renewal).await
        };
        let run = run.boxed().shared();
        state.running = run.downgrade();
        Lookup::Run(run)
    }

    async fn run(self: &Arc<Self>, place: &Place, renewal: bool) -> Result<Issued, Failure> {
        {
            let mut state = self.state.lock();
            state.began = Some(Instant::now());
            state.waits_since = None;
        }
        let mut begun = Begun {
            plugin: self,
            at: Instant::now(),
            ended: false,
        };
        let result = run::run(&self.config, place).await;
        begun.ended = true;
        self.finish_run(result, renewal)
    }

    fn finish_run(
        self: &Arc<Self>,
        result: Result<Credential, Failure>,
        renewal: bool,
    ) -> Result<Issued, Failure> {
        let mut state = self.state.lock();
        state.running = None;
        let result = result.map(|credential| {
            state.serial += 1;
            let serial = state.serial;
            let issued = Issued { credential, serial };
            state.issued = Some(issued.clone());
            issued
        });
        state.failure = result.as_ref().err().cloned();
        let left = result.as_ref().map(Issued::left);
        match left {
            // What has expired on arrival may still be taken by a server with another clock. Another one is not better.
            Ok(Some(Duration::ZERO)) | Err(_) => self.failed(&mut state),
            Ok(left) => {
                state.failures = 0;
                let short = left.filter(|left| *left <= MIN_VALIDITY);
                let pause = match short {
                    Some(left) => Some((left / 2).max(FIRST_BACKOFF)),
                    None => renewal.then_some(MIN_BETWEEN_RENEWALS),
                };
                state.next_run = pause.map(|pause| Instant::now() + pause);
            }
        }
        result
    }

    /// Counts a run without a usable credential. The next one has to wait.
    fn failed(self: &Arc<Self>, state: &mut State) {
        /// Plugins that fail, and until when that is remembered.
        static FAILING: Mutex<VecDeque<(Instant, Arc<SharedPlugin>)>> = Mutex::new(VecDeque::new());
        let pause = FIRST_BACKOFF
            .saturating_mul(1 << state.failures.min(6))
            .min(LAST_BACKOFF);
        let pause = pause.mul_f64(rand::random_range(0.8..1.2));
        let now = Instant::now();
        state.failures = state.failures.saturating_add(1);
        state.next_run = Some(now + pause);
        let mut failing = FAILING.lock();
        failing.push_back((now + REMEMBERED, self.clone()));
        let mut forgotten = Vec::new();
        while failing.len() > MOST_REMEMBERED || failing.front().is_some_and(|(until, _)| *until < now) {
            forgotten.extend(failing.pop_front());
        }
        drop(failing);
        drop(forgotten);
    }
}

/// A run that has begun. One that is given up after a while has failed: its callers have waited long enough.
struct Begun<'a> {
    plugin: &'a Arc<SharedPlugin>,
    at: Instant,
    ended: bool,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.ended && self.at.elapsed() > SLOW_AFTER {
            self.plugin.failed(&mut self.plugin.state.lock());
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
