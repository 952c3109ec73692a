//! A cluster without a fleet, and what the tests share.

use std::{fmt::Display, panic::Location, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use mcr_access::{AccessPolicy, ClusterName};
use mcr_client::{Dialer, EndpointNumber, LinkState, Transport};
use mcr_watch::{
    ChangeSink, Store, StoreError, WatchHandle, WatchRequest, WatchSettings,
    internal::{CountersByKind, DriverEnv, Health, KindTables, ListBudget, SharedWatch, Watches, drive},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use crate::log::Log;
pub(crate) use mcr_doubles::scripted::{
    MAPS, SECRETS, bookmark, event, list, list_object, lists, map, page, quiet, serves_one_map,
};
use mcr_doubles::{
    scripted::{Answer, Asked, Server},
    status_object,
};

/// A cluster that is connected, as its supervisor would have it.
pub(crate) struct Cluster {
    name: ClusterName,
    transport: Transport,
    health: Arc<Health>,
    settings: Arc<WatchSettings>,
    budget: Arc<ListBudget>,
    counts: CountersByKind,
    pub(crate) kinds: KindTables,
    pub(crate) watches: Arc<Watches>,
    stop: CancellationToken,
}

impl Cluster {
    /// Pauses are short; everything else is as by default, or as the test changes it.
    pub(crate) fn with(server: &Server, change: impl FnOnce(&mut WatchSettings)) -> Self {
        Self::by_default(server, |settings| {
            settings.retry_cap = Duration::from_millis(100);
            change(settings);
        })
    }

    pub(crate) fn by_default(server: &Server, change: impl FnOnce(&mut WatchSettings)) -> Self {
        Self::behind(server.client(), change)
    }

    /// A cluster that is reached through a client.
    pub(crate) fn behind(client: kube::Client, change: impl FnOnce(&mut WatchSettings)) -> Self {
        let mut settings = WatchSettings::default();
        change(&mut settings);
        let budget = Arc::new(ListBudget::new(&settings));
        Self::new("a", client, Arc::new(settings), budget)
    }

    /// As [`with`](Self::with), and its lists may be compressed.
    pub(crate) fn accepting_gzip(server: &Server, change: impl FnOnce(&mut WatchSettings)) -> Self {
        let cluster = Self::with(server, change);
        let mut settings = mcr_client::Settings::default();
        settings.gzip_lists = true;
        let dialer = Dialer::with_settings(&AccessPolicy::default(), settings.into());
        cluster.transport.swap(dialer.client_channel(server.client()));
        cluster
    }

    /// Another cluster of the same fleet.
    pub(crate) fn beside(&self, name: &str, server: &Server) -> Self {
        Self::new(name, server.client(), self.settings.clone(), self.budget.clone())
    }

    fn new(name: &str, client: kube::Client, settings: Arc<WatchSettings>, budget: Arc<ListBudget>) -> Self {
        let name = ClusterName::new(name).unwrap();
        let transport = Transport::new(name.clone());
        let cluster = Self {
            health: Arc::new(Health::new(transport.link())),
            transport,
            settings,
            budget,
            counts: CountersByKind::default(),
            kinds: KindTables::default(),
            watches: Arc::new(Watches::new(name.clone())),
            stop: CancellationToken::new(),
            name,
        };
        cluster.connect(client, 1);
        cluster
    }

    /// The cluster is at this endpoint from now on.
    pub(crate) fn connect(&self, client: kube::Client, endpoint: u64) {
        let dialer = Dialer::new(&AccessPolicy::default());
        self.transport.swap(dialer.client_channel(client));
        self.transport.set_link(LinkState::Up(EndpointNumber(endpoint)));
    }

    /// The supervisor has found that the cluster does not answer.
    pub(crate) fn disconnect(&self) {
        self.transport.set_link(LinkState::down("it does not answer"));
    }

    pub(crate) fn client(&self) -> kube::Client {
        self.transport.client("default")
    }

    pub(crate) fn watch(&self, request: WatchRequest, sink: Arc<dyn ChangeSink>) -> WatchHandle {
        let start = |watch: &Arc<SharedWatch>| {
            let request = watch.request().clone();
            for (name, indexer) in self.kinds.indexers(&request) {
                watch.cache().store().add_index(name, indexer);
            }
            let env = DriverEnv {
                cluster: self.name.clone(),
                transport: self.transport.clone(),
                health: self.health.clone(),
                list_budget: self.budget.clone(),
                settings: self.settings.clone(),
                counts: self.counts.of(&request),
                templates: self.kinds.templates(&request),
            };
            tokio::spawn(drive(watch.clone(), request, watch.stopped().clone(), env));
        };
        self.watches
            .watch(request, Some(sink), &self.stop, start)
            .unwrap()
    }

    /// Watches, and writes down what happens.
    pub(crate) fn follow(&self, request: WatchRequest) -> (WatchHandle, Arc<Log>) {
        let log = Arc::new(Log::default());
        (self.watch(request, log.clone()), log)
    }

    pub(crate) fn store<K: Resource<DynamicType = ()>>(&self) -> Result<Store<K>, StoreError> {
        self.watches.store(&WatchRequest::of::<K>())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.watches.close();
    }
}

/// A cluster whose ConfigMaps are watched.
pub(crate) struct One {
    pub(crate) cluster: Cluster,
    pub(crate) watch: WatchHandle,
    pub(crate) log: Arc<Log>,
}

impl One {
    pub(crate) fn of(server: &Server) -> Self {
        Self::with(server, |_| {})
    }

    /// A server that answers so, and its cluster.
    pub(crate) fn on(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> (Server, Self) {
        let server = Server::in_memory(script);
        let one = Self::of(&server);
        (server, one)
    }

    pub(crate) fn with(server: &Server, change: impl FnOnce(&mut WatchSettings)) -> Self {
        Self::in_cluster(Cluster::with(server, change))
    }

    pub(crate) fn by_default(server: &Server) -> Self {
        Self::in_cluster(Cluster::by_default(server, |_| {}))
    }

    pub(crate) fn in_cluster(cluster: Cluster) -> Self {
        let (watch, log) = cluster.follow(WatchRequest::of::<ConfigMap>());
        Self { cluster, watch, log }
    }

    pub(crate) async fn listed(&self, times: u64) {
        eventually("it is listed", || self.watch.status().lists == times).await;
    }
}

/// The text of the first problem, once there is one. It may be over by now.
pub(crate) async fn problem(log: &Log) -> String {
    eventually("there is a problem", || !log.problems().is_empty()).await;
    log.problems().remove(0)
}

pub(crate) async fn synced(watch: &WatchHandle) {
    eventually("it is listed", || watch.status().synced).await;
}

/// No limit of the driver is longer, but those that [`within`] is for.
const PATIENCE: Duration = Duration::from_secs(60);

#[track_caller]
pub(crate) fn eventually(what: &str, ask: impl FnMut() -> bool) -> impl Future<Output = ()> {
    within(PATIENCE, what, ask)
}

/// Asks again and again until it is true. Time is paused: nothing but the limit depends on the machine.
#[track_caller]
pub(crate) fn within(
    limit: Duration,
    what: impl Display,
    mut ask: impl FnMut() -> bool,
) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move {
        let started = Instant::now();
        while !ask() {
            assert!(
                started.elapsed() < limit,
                "not within {limit:?}: {what} ({caller})"
            );
            tokio::time::sleep(limit / 10_000).await;
        }
    }
}

pub(crate) async fn for_millis(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

pub(crate) fn large_map(name: &str, version: u32, bytes: usize) -> Value {
    let mut map = map(name, version);
    map["data"] = json!({"value": "x".repeat(bytes)});
    map
}

pub(crate) fn too_old() -> Answer {
    Answer::status(410, "Expired", "too old")
}

/// A page that expired, with the token that continues the list at a newer version.
pub(crate) fn expired(token: &str) -> Answer {
    let mut status = status_object(410, "Expired", "the token is too old");
    status["metadata"] = json!({"continue": token});
    Answer::new(410, "application/json", status.to_string())
}

/// A page that fails, and asks to wait for so long that much may happen meanwhile.
pub(crate) fn busy() -> Answer {
    let status = status_object(503, "ServiceUnavailable", "busy").to_string();
    let headers = [("content-type", "application/json"), ("retry-after", "60")];
    Answer::with_headers(503, &headers, status)
}
