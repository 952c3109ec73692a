//! Fleets of this process, and a controller that counts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, BoxError, Cluster, ClusterSelector, Controller, Fleet, Request};
use parking_lot::Mutex;
use tokio::{sync::Notify, task::JoinHandle, time::timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The limit for any wait.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// A fleet that runs until this is dropped, and its controllers.
pub struct Runs {
    /// The fleet.
    pub fleet: Fleet,
    stop: CancellationToken,
    _guard: DropGuard,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Runs {
    /// Runs a fleet.
    pub(super) fn start(fleet: Fleet) -> Self {
        let stop = CancellationToken::new();
        let (runs, token) = (fleet.clone(), stop.clone());
        let task = tokio::spawn(async move { runs.run(token).await });
        Self {
            fleet,
            _guard: stop.clone().drop_guard(),
            stop,
            tasks: Mutex::new(vec![task]),
        }
    }

    /// Runs a controller over the ConfigMaps of all clusters that calls this for each.
    pub(super) fn reconcile<F>(&self, each: F) -> Result<()>
    where
        F: Fn(&Request<ConfigMap>) + Send + Sync + 'static,
    {
        let reconciler = |request: Request<ConfigMap>, each: Arc<F>| async move {
            each(&request);
            Ok::<_, BoxError>(Action::done())
        };
        let controller = Controller::<ConfigMap>::new("bench").clusters(ClusterSelector::all());
        let controller = controller.build(reconciler, Arc::new(each))?;
        let run = controller.run(self.fleet.clone(), self.stop.clone());
        // It ends with the fleet.
        self.tasks
            .lock()
            .push(tokio::spawn(async move { drop(run.await) }));
        Ok(())
    }

    /// Runs a controller that counts the ConfigMaps of all clusters.
    pub(super) fn count(&self) -> Result<Arc<Seen>> {
        let seen = Arc::<Seen>::default();
        let counted = seen.clone();
        self.reconcile(move |request| counted.add(request))?;
        Ok(seen)
    }

    /// Waits for the cluster of this name.
    pub(super) async fn engaged(&self, name: &str) -> Cluster {
        let mut events = self.fleet.subscribe();
        loop {
            if let Ok(cluster) = self.fleet.get(name) {
                return cluster;
            }
            events.next().await;
        }
    }

    /// Ends the fleet and its controllers, and waits for them.
    pub(super) async fn end(self) -> Result<()> {
        self.stop.cancel();
        for task in self.tasks.into_inner() {
            task.await?;
        }
        Ok(())
    }
}

/// What a controller has seen.
#[derive(Default)]
pub(super) struct Seen {
    reconciled: AtomicUsize,
    deleted: AtomicUsize,
    more: Notify,
}

impl Seen {
    fn add(&self, request: &Request<ConfigMap>) {
        if request.live().is_none() {
            self.deleted.fetch_add(1, Ordering::Relaxed);
        }
        self.reconciled.fetch_add(1, Ordering::Relaxed);
        self.more.notify_one();
    }

    pub(super) fn reconciled(&self) -> usize {
        self.reconciled.load(Ordering::Relaxed)
    }

    pub(super) fn deleted(&self) -> usize {
        self.deleted.load(Ordering::Relaxed)
    }

    /// Waits until so many objects are reconciled.
    pub(super) async fn at_least(&self, count: usize) -> Result<()> {
        let wait = async {
            while self.reconciled() < count {
                self.more.notified().await;
            }
        };
        let waited = timeout(PATIENCE, wait).await;
        waited.context("not all objects were reconciled within two minutes")
    }
}
