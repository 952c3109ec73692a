//! Clusters that do not answer: only a few reconciles wait for such a cluster at a time.

use std::{collections::HashMap, pin::pin, sync::Arc, time::Duration};

use mcr::ClusterName;
use parking_lot::Mutex;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};

/// How long each request for an object waits for its answer. If the cluster has answered no other request in that
/// time, it counts as silent.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// How many requests may wait longer for one silent cluster. Each blocks a reconcile, and so a slot in the queue of
/// its source cluster.
const PROBES: usize = 2;

/// How long these requests wait at first, and at most. The default timeout of a webhook is 10 seconds, and a webhook
/// may delay each write for that long.
const PATIENCE: Duration = Duration::from_secs(5);
const MOST_PATIENCE: Duration = Duration::from_secs(15);

/// How long a list may take.
pub(crate) const LIST: Duration = Duration::from_secs(30);

/// How long a cluster counts as silent after the last request that got no answer in time. It may have
/// recovered meanwhile, but only the answer to a write shows that.
const LASTS: Duration = Duration::from_secs(60);

/// The clusters that received requests of this sync.
#[derive(Default)]
pub(crate) struct Silent(Mutex<HashMap<ClusterName, Arc<Answering>>>);

/// How one cluster answers.
pub(crate) struct Answering {
    probes: Semaphore,
    state: Mutex<State>,
}

struct State {
    silence: Option<Silence>,
    patience: Duration,
    /// When the cluster last answered any request, and when it last answered a write.
    answered: [Instant; 2],
}

/// Since when a cluster has answered no write, and when a request last got no answer in time.
#[derive(Clone, Copy)]
struct Silence {
    since: Instant,
    last: Instant,
}

impl State {
    fn silence(&self) -> Option<Silence> {
        self.silence.filter(|silence| silence.last.elapsed() < LASTS)
    }

    fn note_timeout(&mut self, began: Instant) {
        let since = self.silence().map_or(began, |silence| silence.since);
        let last = Instant::now();
        self.silence = Some(Silence { since, last });
    }

    fn note_answer(&mut self, is_write: bool) {
        let now = Instant::now();
        self.answered[0] = now;
        if is_write {
            self.answered[1] = now;
            self.silence = None;
        }
    }
}

impl Silent {
    pub(crate) fn of(&self, cluster: &ClusterName) -> Arc<Answering> {
        let mut all = self.0.lock();
        let new = || {
            let state = State {
                silence: None,
                patience: PATIENCE,
                answered: [Instant::now(); 2],
            };
            Arc::new(Answering {
                probes: Semaphore::new(PROBES),
                state: Mutex::new(state),
            })
        };
        all.entry(cluster.clone()).or_insert_with(new).clone()
    }

    /// Since when a cluster has been silent.
    pub(crate) fn since(&self, cluster: &ClusterName) -> Option<Instant> {
        let known = self.0.lock().get(cluster).cloned();
        Some(known?.state.lock().silence()?.since)
    }

    /// Forgets a cluster that has left or is connected again.
    pub(crate) fn forget_cluster(&self, cluster: &ClusterName) {
        self.0.lock().remove(cluster);
    }
}

impl Answering {
    /// Waits for the answer to a request. `None` if it does not come in time, or if enough other requests
    /// wait for this cluster already. Then the request is dropped, but the cluster may carry it out.
    ///
    /// A cluster that answers other requests meanwhile is slow, but not silent. For a write, only answers to other
    /// writes show that, because a server may answer reads and no writes.
    pub(crate) async fn ask<A>(
        &self,
        soon: Duration,
        is_write: bool,
        is_answer: impl Fn(&A) -> bool,
        request: impl Future<Output = A>,
    ) -> Option<A> {
        let began = Instant::now();
        let mut request = pin!(request);
        while self.state.lock().silence().is_none() {
            if let Ok(answer) = timeout(soon, &mut request).await {
                if is_answer(&answer) {
                    self.state.lock().note_answer(is_write);
                }
                return Some(answer);
            }
            let mut state = self.state.lock();
            if state.answered[usize::from(is_write)].elapsed() >= soon {
                state.note_timeout(began);
            } else if began.elapsed() >= MOST_PATIENCE {
                return None;
            }
        }
        let _probe = self.probes.try_acquire().ok()?;
        let patience = self.state.lock().patience;
        let answer = timeout_at(began + patience, request).await.ok();
        let mut state = self.state.lock();
        match &answer {
            Some(answer) if is_answer(answer) => {
                state.note_answer(is_write);
                if is_write {
                    state.patience = (2 * began.elapsed()).clamp(PATIENCE, MOST_PATIENCE);
                }
            }
            Some(_) => {}
            None => {
                state.note_timeout(began);
                state.patience = (2 * patience).min(MOST_PATIENCE);
            }
        }
        answer
    }
}
