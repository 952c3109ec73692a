//! A manager with a controller over the clusters of one test.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use mcr::{Action, Cluster, Controller, Epoch, Fleet, Manager, ManagerError, Request};
use mcr_provider_kind::KindProviderBuilder;
use mcr_testkit::waiting::Background;

use crate::{DEADLINE, announce, kind::Kind, until};

/// Which engagements of which clusters saw which ConfigMaps.
pub(crate) type Seen = Arc<Mutex<Vec<(String, Epoch, String)>>>;

pub(crate) async fn observe(request: Request<ConfigMap>, seen: Arc<Seen>) -> Result<Action, kube::Error> {
    if request.live().is_some() {
        let cluster = &request.cluster;
        let line = (
            cluster.name().to_string(),
            cluster.epoch(),
            request.name().to_owned(),
        );
        seen.lock().unwrap().push(line);
    }
    Ok(Action::await_change())
}

pub(crate) struct World {
    pub(crate) kind: Kind,
    pub(crate) fleet: Fleet,
    pub(crate) seen: Seen,
    pub(crate) running: Background<Result<(), ManagerError>>,
}

impl World {
    /// A manager over the clusters of a test, with a controller that watches ConfigMaps.
    pub(crate) fn start(kind: Kind, provider: KindProviderBuilder) -> Self {
        let provider = provider.prefix(&kind.prefix).build().unwrap();
        let seen = Seen::default();
        let controller = Controller::<ConfigMap>::new("look")
            .watch_request(|watch| watch.namespace("default"))
            .build(observe, Arc::new(seen.clone()));
        let manager = Manager::builder()
            .provider(provider)
            .controller(controller)
            .build()
            .unwrap();
        Self {
            kind,
            fleet: manager.fleet().clone(),
            seen,
            running: Background::start(|stop| manager.run_until(stop)),
        }
    }

    pub(crate) async fn is_asked(&self) {
        until("the engine was asked", || {
            self.fleet.is_discovered().then_some(())
        })
        .await;
    }

    /// The provider's error about its engine.
    pub(crate) async fn trouble(&self) -> String {
        until("the engine can't be asked", || {
            let snapshot = self.fleet.snapshot();
            let mut errors = snapshot.providers.iter();
            errors.find_map(|provider| provider.last_error.clone())
        })
        .await
    }

    pub(crate) async fn stop(self) {
        self.running.stop().await.unwrap();
    }

    pub(crate) fn state(&self, cluster: &str) -> Option<(&'static str, String)> {
        let name = self.kind.name(cluster);
        let snapshot = self.fleet.snapshot();
        let status = snapshot
            .clusters
            .iter()
            .find(|status| status.name == name.as_str())?;
        Some((
            status.state,
            status.reason.as_deref().unwrap_or_default().to_owned(),
        ))
    }

    pub(crate) async fn ready(&self, cluster: &str) -> Cluster {
        let name = self.kind.name(cluster);
        until(&format!("{name} is ready"), || {
            let cluster = self.fleet.get(name.as_str()).ok()?;
            cluster.state().is_ready().then_some(cluster)
        })
        .await
    }

    /// How long after `since` the cluster was gone.
    pub(crate) async fn gone(&self, cluster: &str, since: Instant) -> Duration {
        until(&format!("{cluster} is gone"), || {
            self.state(cluster).is_none().then_some(())
        })
        .await;
        since.elapsed()
    }

    pub(crate) async fn suspended(&self, cluster: &str) {
        let (_, reason) = until(&format!("{cluster} is suspended"), || {
            self.state(cluster).filter(|(state, _)| *state == "Suspended")
        })
        .await;
        assert_eq!(reason, "its node is stopped");
    }

    /// Makes a namespace and waits until the cluster has put into it what is in each.
    pub(crate) async fn controllers_work(&self, cluster: &Cluster, name: &str) {
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(name.into()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let start = Instant::now();
        cluster
            .api::<Namespace>()
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        let accounts = cluster.namespaced::<ServiceAccount>(name);
        while !matches!(accounts.get_opt("default").await, Ok(Some(_))) {
            assert!(start.elapsed() < DEADLINE, "nothing works in {}", cluster.name());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Creates a ConfigMap and waits for its reconcile.
    pub(crate) async fn reconciles(&self, cluster: &Cluster, name: &str) {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.into()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        let start = Instant::now();
        let maps = cluster.namespaced::<ConfigMap>("default");
        // A control plane that has just been started makes its namespaces a moment later.
        loop {
            match maps.create(&PostParams::default(), &map).await {
                Ok(_) => break,
                Err(error) => assert!(start.elapsed() < DEADLINE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let written = start.elapsed();
        let line = (cluster.name().to_string(), cluster.epoch(), name.to_owned());
        let reported = || self.seen.lock().unwrap().contains(&line).then_some(());
        until(&format!("{line:?} is reconciled"), reported).await;
        announce(&format!(
            "a ConfigMap could be written after {written:?} and was reconciled after {:?}",
            start.elapsed()
        ));
    }
}
