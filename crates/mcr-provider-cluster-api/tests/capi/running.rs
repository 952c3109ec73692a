//! A fleet over the provider, with a controller that answers ConfigMaps.

use std::io;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use mcr::{Action, Cluster, Controller, Fleet, Manager, ManagerError, Request};
use mcr_core::{AccessPolicy, AddressPolicy, ClusterState, FleetSettings, TransportSettings};
use mcr_provider_cluster_api::{ClusterApiProvider, ClusterApiProviderBuilder};
use mcr_testkit::waiting::{Background, OrFail, eventually};
use serde_json::json;

use crate::PATIENCE;
use crate::management::Hub;

/// All that this process has logged.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Logged;

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps the log.
pub(crate) fn subscribe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt()
            .with_env_filter("info,mcr=debug,mcr_core=debug,mcr_provider_cluster_api=debug")
            .with_ansi(false)
            .with_writer(|| Logged)
            .init();
    });
}

/// The lines logged so far that have this in them.
pub(crate) fn logged(part: &str) -> Vec<String> {
    let log = String::from_utf8_lossy(&LOG.lock().unwrap()).into_owned();
    log.lines()
        .filter(|line| line.contains(part))
        .map(Into::into)
        .collect()
}

/// The key of a cluster's answer.
pub(crate) fn key(cluster: &str) -> String {
    cluster.replace('/', "_")
}

/// What the reconciles of one fleet did.
#[derive(Default)]
pub(crate) struct Seen {
    /// Cluster and ConfigMap, once for each reconcile.
    pub(crate) reconciled: Mutex<Vec<(String, String)>>,
    pub(crate) failed: Mutex<Vec<String>>,
}

impl Seen {
    pub(crate) fn has(&self, cluster: &str, map: &str) -> bool {
        let reconciled = self.reconciled.lock().unwrap();
        reconciled
            .iter()
            .any(|(in_cluster, name)| in_cluster == cluster && name == map)
    }
}

async fn answer(request: Request<ConfigMap>, seen: Arc<Seen>) -> Result<Action, kube::Error> {
    let Some(map) = request.live() else {
        return Ok(Action::await_change());
    };
    let (cluster, namespace) = (
        request.cluster.name().to_string(),
        request.namespace().unwrap_or_default(),
    );
    let answered = map
        .data
        .as_ref()
        .is_some_and(|data| data.contains_key(&key(&cluster)));
    if !answered {
        let patch = Patch::Merge(json!({"data": {key(&cluster): request.cluster.epoch().to_string()}}));
        let maps = request.cluster.namespaced::<ConfigMap>(namespace);
        let written = maps.patch(request.name(), &PatchParams::default(), &patch).await;
        if let Err(why) = written {
            seen.failed
                .lock()
                .unwrap()
                .push(format!("{cluster} {}: {why}", request.name()));
            return Err(why);
        }
    }
    seen.reconciled
        .lock()
        .unwrap()
        .push((cluster, request.name().to_owned()));
    Ok(Action::await_change())
}

/// For many clusters that lead to one API server: each only looks.
async fn look(request: Request<ConfigMap>, seen: Arc<Seen>) -> Result<Action, kube::Error> {
    let seen_now = (request.cluster.name().to_string(), request.name().to_owned());
    seen.reconciled.lock().unwrap().push(seen_now);
    Ok(Action::await_change())
}

/// A manager with one controller.
pub(crate) struct Running {
    pub(crate) fleet: Fleet,
    pub(crate) seen: Arc<Seen>,
    background: Background<Result<(), ManagerError>>,
}

/// Short times where the defaults would have a test wait for half a minute.
pub(crate) fn brisk(settings: &mut FleetSettings) {
    settings.probe_after = Duration::from_secs(2);
    settings.reconnect_cap = Duration::from_secs(2);
    let mut transport = TransportSettings::default();
    transport.rotation_spread = Duration::from_secs(1);
    settings.transport = transport.into();
}

impl Running {
    /// Its controller answers the ConfigMaps with this tag.
    pub(crate) fn start(tag: &str, provider: ClusterApiProviderBuilder) -> Self {
        Self::with(tag, provider, brisk, true)
    }

    pub(crate) fn with(
        tag: &str,
        provider: ClusterApiProviderBuilder,
        settings: impl FnOnce(&mut FleetSettings),
        answers: bool,
    ) -> Self {
        let seen = Arc::new(Seen::default());
        let selector = format!("capi={tag}");
        let controller = Controller::<ConfigMap>::new("answer");
        let controller = controller.watch_request(|watch| watch.namespace("default").labels(selector));
        let controller = match answers {
            true => controller.build(answer, seen.clone()),
            false => controller.build(look, seen.clone()),
        };
        let manager = Manager::builder()
            .provider(provider.build().or_fail())
            .settings(|all| {
                let addresses = AddressPolicy::default().allow_loopback(true);
                all.access_policy = AccessPolicy::default().addresses(addresses);
                // The servers of this suite stand for many clusters.
                all.allow_duplicates = true;
                settings(all);
            })
            .controller(controller)
            .build()
            .or_fail();
        Self {
            fleet: manager.fleet().clone(),
            seen,
            background: Background::start(|stop| manager.run_until(stop)),
        }
    }

    pub(crate) async fn discovered(&self) {
        eventually(PATIENCE, "the provider has announced all", || {
            self.fleet.is_discovered()
        })
        .await;
    }

    pub(crate) async fn ready(&self, name: &str) -> Cluster {
        let started = tokio::time::Instant::now();
        loop {
            let cluster = self
                .fleet
                .get(name)
                .ok()
                .filter(|cluster| cluster.state() == ClusterState::Ready);
            if let Some(cluster) = cluster {
                return cluster;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "{name} is not ready within {PATIENCE:?}, but {:?}",
                self.shown(name)
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn is_gone(&self, name: &str) {
        let what = format!("{name} is not in the fleet");
        eventually(PATIENCE, what, || self.fleet.get(name).is_err()).await;
    }

    /// The names of the engaged clusters.
    pub(crate) fn names(&self) -> Vec<String> {
        let clusters = self.fleet.clusters();
        clusters
            .iter()
            .map(|cluster| cluster.name().to_string())
            .collect()
    }

    pub(crate) async fn names_are(&self, names: &[&str]) {
        let what = format!("the clusters are {names:?}");
        eventually(PATIENCE, &what, || self.names() == names).await;
    }

    /// The state, the reason and the warnings of a cluster, as `/clusters` shows them.
    pub(crate) fn shown(&self, name: &str) -> Option<(&'static str, String)> {
        let snapshot = self.fleet.snapshot();
        let status = snapshot
            .clusters
            .into_iter()
            .find(|status| status.name == *name)?;
        let reasons = status.reason.iter().chain(&status.warnings);
        Some((
            status.state,
            reasons.map(|text| &**text).collect::<Vec<_>>().join("; "),
        ))
    }

    /// Waits until a cluster is shown in this state with this in its reason or warnings.
    pub(crate) async fn shows(&self, name: &str, state: &str, part: &str) -> String {
        let started = tokio::time::Instant::now();
        loop {
            let shown = self.shown(name);
            if let Some((now, text)) = &shown
                && *now == state
                && text.contains(part)
            {
                return text.clone();
            }
            assert!(
                started.elapsed() < PATIENCE,
                "{name} is not {state} with {part:?}, but {shown:?}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until a cluster is known, with this in the reason why it is not engaged.
    pub(crate) async fn waits(&self, name: &str, part: &str) -> String {
        self.shows(name, "Suspended", part).await
    }

    pub(crate) fn failed(&self) -> Vec<String> {
        self.seen.failed.lock().unwrap().clone()
    }

    pub(crate) async fn stop(self) {
        self.background.stop().await.or_fail();
    }
}

impl Hub {
    /// A provider with exactly the rights of the manifest.
    pub(crate) async fn provider(&self) -> ClusterApiProviderBuilder {
        let client = self.robot.client().await.or_fail();
        ClusterApiProvider::builder()
            .client(client)
            .namespace(self.namespace())
    }
}
