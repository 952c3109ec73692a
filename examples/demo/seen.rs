//! The controller's reconciler, and what it has seen.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::bail;
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, BoxError, Cluster, Request, RequestObject};
use tokio::{sync::Notify, time::timeout};

/// Notes what it is asked to reconcile, and when. A real controller would do something about it.
pub(crate) async fn reconcile(request: Request<ConfigMap>, seen: Arc<Seen>) -> Result<Action, BoxError> {
    let now = Instant::now();
    let cluster = short_name(&request.cluster);
    seen.note(|state| {
        let of_cluster = state.clusters.entry(cluster.clone()).or_default();
        of_cluster.reconciles += 1;
        of_cluster.last = Some(now);
        let object = state
            .objects
            .entry((cluster, request.name().to_owned()))
            .or_default();
        match &request.object {
            RequestObject::Live(map) => {
                object.live.get_or_insert(now);
                let value = map.data.as_ref().and_then(|data| data.get("value")).cloned();
                if object.value != value {
                    object.value = value;
                    object.changed = Some(now);
                }
            }
            RequestObject::Deleted { .. } => {
                object.deleted = Some(now);
                of_cluster.deletions += 1;
            }
            _ => {}
        }
    });
    Ok(Action::done())
}

/// The name of the context, also where a cluster has another name.
pub(crate) fn short_name(cluster: &Cluster) -> String {
    cluster
        .properties()
        .remove("context")
        .unwrap_or_else(|| cluster.name().to_string())
}

/// What the reconciler was asked to do so far.
pub(crate) struct Seen {
    state: Mutex<State>,
    noted: Notify,
    /// How many times as long as usual everything may take.
    patience: u32,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) clusters: BTreeMap<String, OfCluster>,
    /// By cluster and name; the demo works in one namespace.
    objects: HashMap<(String, String), OfObject>,
}

#[derive(Default, Clone)]
pub(crate) struct OfCluster {
    pub(crate) reconciles: u64,
    pub(crate) deletions: u64,
    pub(crate) last: Option<Instant>,
}

#[derive(Default, Clone)]
pub(crate) struct OfObject {
    /// When it was reconciled first.
    pub(crate) live: Option<Instant>,
    pub(crate) value: Option<String>,
    /// When this value was reconciled first.
    pub(crate) changed: Option<Instant>,
    pub(crate) deleted: Option<Instant>,
}

impl State {
    pub(crate) fn object(&self, cluster: &str, name: &str) -> OfObject {
        self.objects
            .get(&(cluster.to_owned(), name.to_owned()))
            .cloned()
            .unwrap_or_default()
    }
}

impl Seen {
    pub(crate) fn new(patience: u32) -> Self {
        Self {
            state: Mutex::default(),
            noted: Notify::new(),
            patience,
        }
    }

    /// How long something may take here that usually may take so long.
    pub(crate) fn limit(&self, usual: Duration) -> Duration {
        usual * self.patience
    }

    fn note(&self, note: impl FnOnce(&mut State)) {
        note(&mut self.state());
        self.noted.notify_waiters();
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has been seen, at most for a [limit](Self::limit).
    pub(crate) async fn until<T>(
        &self,
        limit: Duration,
        what: &str,
        look: impl Fn(&State) -> Option<T>,
    ) -> anyhow::Result<T> {
        let seen = async {
            loop {
                let noted = self.noted.notified();
                tokio::pin!(noted);
                noted.as_mut().enable();
                if let Some(found) = look(&self.state()) {
                    return found;
                }
                noted.await;
            }
        };
        let limit = self.limit(limit);
        match timeout(limit, seen).await {
            Ok(found) => Ok(found),
            Err(_) => bail!("{what}: not within {} s", limit.as_secs()),
        }
    }
}
