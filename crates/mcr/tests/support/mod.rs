//! An API server in memory behind `kube::Client`, and a fleet of such servers.

#![allow(dead_code, unreachable_pub)] // Each test file uses its part.
#![allow(clippy::unwrap_used)] // Clippy takes only functions marked as tests for tests.

pub mod maps;

use std::{
    collections::{BTreeMap, HashSet},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use mcr::{
    Access, BuiltController, Cluster, ClusterName, ClusterSpec, ControllerHandle, Fleet, FleetSettings,
    core::{Change, Discovery, Provider},
};
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

type Frame = http_body::Frame<Bytes>;

/// One API server. Clones are the same server.
#[derive(Clone, Default)]
pub struct Api(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// By plural, namespace and name.
    objects: BTreeMap<(String, String, String), Value>,
    version: u64,
    uids: u64,
    watchers: Vec<(Query, mpsc::UnboundedSender<Value>)>,
    forbidden: HashSet<String>,
    down: bool,
    pub lists: u64,
}

#[derive(Clone, Default)]
struct Query {
    plural: String,
    namespace: Option<String>,
    labels: Vec<(String, String)>,
}

impl Query {
    fn matches(&self, plural: &str, object: &Value) -> bool {
        let meta = &object["metadata"];
        self.plural == plural
            && self
                .namespace
                .as_deref()
                .is_none_or(|namespace| meta["namespace"] == *namespace)
            && self
                .labels
                .iter()
                .all(|(key, value)| meta["labels"][key] == *value)
    }
}

impl Api {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// A client of this server.
    pub fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { api.answer(request) }
        });
        Client::new(service, "default")
    }

    /// Creates or replaces an object; `metadata` is filled in.
    pub fn put(&self, plural: &str, key: &str, mut object: Value) {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let mut state = self.state();
        state.version += 1;
        let at = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        let uid = match state.objects.get(&at) {
            Some(old) => old["metadata"]["uid"].clone(),
            None => {
                state.uids += 1;
                json!(format!("{:032x}", state.uids))
            }
        };
        let version = (state.version + 1).to_string();
        let old = state.objects.contains_key(&at);
        if !object.is_object() {
            object = json!({});
        }
        let meta = object
            .as_object_mut()
            .unwrap()
            .entry("metadata")
            .or_insert(json!({}));
        meta["name"] = json!(name);
        if !namespace.is_empty() {
            meta["namespace"] = json!(namespace);
        }
        meta["uid"] = uid;
        meta["resourceVersion"] = json!(version);
        state.objects.insert(at, object.clone());
        state.send(plural, if old { "MODIFIED" } else { "ADDED" }, &object);
    }

    /// A ConfigMap with one entry.
    pub fn put_map(&self, key: &str, value: &str) {
        self.put("configmaps", key, json!({"data": {"value": value}}));
    }

    pub fn delete(&self, plural: &str, key: &str) {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let mut state = self.state();
        state.version += 1;
        let mut object = state
            .objects
            .remove(&(plural.to_owned(), namespace.to_owned(), name.to_owned()))
            .unwrap();
        object["metadata"]["resourceVersion"] = json!((state.version + 1).to_string());
        state.send(plural, "DELETED", &object);
    }

    pub fn forbid(&self, plural: &str) {
        self.state().forbidden.insert(plural.to_owned());
    }

    pub fn allow(&self, plural: &str) {
        self.state().forbidden.remove(plural);
    }

    /// Stops the server: requests get no response, and open watches end.
    pub fn down(&self, down: bool) {
        let mut state = self.state();
        state.down = down;
        state.watchers.clear();
    }

    pub fn lists(&self) -> u64 {
        self.state().lists
    }

    pub fn watches(&self) -> usize {
        let mut state = self.state();
        state.watchers.retain(|(_, watcher)| !watcher.is_closed());
        state.watchers.len()
    }

    fn answer(
        &self,
        request: Request<Body>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, std::io::Error> {
        let mut state = self.state();
        if state.down {
            return Err(std::io::Error::other("connection refused"));
        }
        let path = request.uri().path().trim_matches('/').to_owned();
        let full = |code: StatusCode, body: Value| {
            // API servers end each event of a stream with a line feed.
            let body = Full::new(Bytes::from(format!("{body}\n"))).boxed_unsync();
            Ok(Response::builder()
                .status(code)
                .header("content-type", "application/json")
                .body(body)
                .unwrap())
        };
        let rest: Vec<&str> = path.split('/').collect();
        let rest = match rest.as_slice() {
            ["api", "v1", "namespaces", "kube-system"] => {
                let uid = format!("{:p}", Arc::as_ptr(&self.0));
                return full(
                    StatusCode::OK,
                    json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "kube-system", "uid": uid}}),
                );
            }
            ["version"] => {
                return full(
                    StatusCode::OK,
                    json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0"}),
                );
            }
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
            _ => {
                return full(
                    StatusCode::NOT_FOUND,
                    json!({"message": "no such path", "code": 404}),
                );
            }
        };
        let (namespace, plural) = match rest {
            ["namespaces", namespace, plural] => (Some((*namespace).to_owned()), (*plural).to_owned()),
            [plural] => (None, (*plural).to_owned()),
            _ => {
                return full(
                    StatusCode::NOT_FOUND,
                    json!({"message": "no such path", "code": 404}),
                );
            }
        };
        if state.forbidden.contains(&plural) {
            return full(
                StatusCode::FORBIDDEN,
                json!({"kind": "Status", "apiVersion": "v1", "message": format!("{plural} is forbidden"), "code": 403}),
            );
        }
        let mut query = Query {
            plural,
            namespace,
            labels: Vec::new(),
        };
        let mut watch_from = None;
        let mut is_watch = false;
        for pair in request.uri().query().unwrap_or_default().split('&') {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("watch", value) => is_watch = value == "1" || value == "true",
                ("resourceVersion", version) => watch_from = version.parse::<u64>().ok(),
                ("labelSelector", selector) => {
                    let selector = selector.replace("%3D", "=").replace("%2C", ",");
                    query.labels = selector
                        .split(',')
                        .filter_map(|part| part.split_once('='))
                        .map(|(key, value)| (key.to_owned(), value.to_owned()))
                        .collect();
                }
                _ => {}
            }
        }
        if !is_watch {
            state.lists += 1;
            let items: Vec<&Value> = state
                .objects
                .iter()
                .filter(|((plural, ..), object)| query.matches(plural, object))
                .map(|(_, object)| object)
                .collect();
            let version = (state.version + 1).to_string();
            return full(
                StatusCode::OK,
                json!({"metadata": {"resourceVersion": version}, "items": items}),
            );
        }
        // The server has no history: a watch that missed an event gets a 410 and lists again.
        if watch_from.is_some_and(|from| from < state.version + 1) {
            let line =
                json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}});
            return full(StatusCode::OK, line);
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        state.watchers.push((query, sender));
        let lines = stream::unfold(receiver, |mut receiver| async move {
            let line: Value = receiver.recv().await?;
            Some((
                Ok::<_, Infallible>(Frame::data(Bytes::from(format!("{line}\n")))),
                receiver,
            ))
        });
        let body = StreamBody::new(lines).boxed_unsync();
        Ok(Response::builder()
            .header("content-type", "application/json")
            .body(body)
            .unwrap())
    }
}

impl State {
    fn send(&mut self, plural: &str, kind: &str, object: &Value) {
        let line = json!({"type": kind, "object": object});
        self.watchers.retain(|(_, watcher)| !watcher.is_closed());
        for (_, watcher) in self
            .watchers
            .iter()
            .filter(|(query, _)| query.matches(plural, object))
        {
            let _ = watcher.send(line.clone());
        }
    }
}

pub type Announced = Result<Change, String>;

/// A provider that sends the changes and errors of the test. After an error, it continues with the next change.
pub struct Scripted(Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Announced>>>);

impl Scripted {
    pub fn new() -> (mpsc::UnboundedSender<Announced>, Self) {
        let (announce, announced) = mpsc::unbounded_channel();
        (announce, Self(Arc::new(tokio::sync::Mutex::new(announced))))
    }
}

impl Provider for Scripted {
    fn name(&self) -> &str {
        "told"
    }
    fn discover(&self, stop: CancellationToken) -> Discovery {
        stream::unfold(self.0.clone(), |receiver| async move {
            let announced = receiver.lock().await.recv().await?;
            Some((announced.map_err(Into::into), receiver))
        })
        .take_until(stop.cancelled_owned())
        .boxed()
    }
}

/// A running fleet. The test adds and removes its clusters.
pub struct World {
    pub fleet: Fleet,
    changes: mpsc::UnboundedSender<Announced>,
    stop_fleet: CancellationToken,
    stop: CancellationToken,
    running: Vec<JoinHandle<()>>,
}

pub fn name(name: &str) -> ClusterName {
    ClusterName::new(name).unwrap()
}

impl World {
    /// With the cluster `a`.
    pub fn with_a() -> (Self, ApiAccess) {
        let world = Self::new();
        let a = world.join("a");
        (world, a)
    }

    /// With the ConfigMap `ns/x` of the value `1` in the cluster `a`.
    pub fn with_map() -> (Self, ApiAccess) {
        let with_a = Self::with_a();
        with_a.1.put_map("ns/x", "1");
        with_a
    }

    pub fn new() -> Self {
        Self::with_settings(|_| {})
    }

    pub fn with_settings(change: impl FnOnce(&mut FleetSettings)) -> Self {
        let (changes, provider) = Scripted::new();
        let fleet = Fleet::builder().provider(provider).settings(change).build();
        let stop_fleet = CancellationToken::new();
        let running = tokio::spawn({
            let (fleet, stop) = (fleet.clone(), stop_fleet.clone());
            async move { fleet.run(stop).await }
        });
        Self {
            fleet,
            changes,
            stop_fleet,
            stop: CancellationToken::new(),
            running: vec![running],
        }
    }

    fn announce(&self, change: Change) {
        self.changes.send(Ok(change)).unwrap();
    }

    /// Adds a cluster, or changes its labels.
    pub fn add(&self, cluster: &str, api: &ApiAccess, labels: &[(&str, &str)]) {
        let mut spec = ClusterSpec::new(name(cluster), api.access.clone());
        for (key, value) in labels {
            spec = spec.label(*key, *value);
        }
        self.announce(Change::Upsert(spec));
    }

    /// Adds a cluster with its own server.
    pub fn join(&self, cluster: &str) -> ApiAccess {
        let api = ApiAccess::new(Api::default());
        self.add(cluster, &api, &[]);
        api
    }

    /// Announces a cluster with this name and this identity.
    pub fn identify(&self, cluster: &str, api: &ApiAccess, identity: &str) {
        let spec = ClusterSpec::new(name(cluster), api.access.clone()).identity(identity);
        self.announce(Change::Upsert(spec));
    }

    /// Adds a cluster, or changes its property `tier`.
    pub fn tier(&self, cluster: &str, api: &ApiAccess, tier: &str) {
        let spec = ClusterSpec::new(name(cluster), api.access.clone()).property("tier", tier);
        self.announce(Change::Upsert(spec));
    }

    pub fn suspend(&self, cluster: &str, api: &ApiAccess) {
        let spec = ClusterSpec::new(name(cluster), api.access.clone()).suspended("asleep");
        self.announce(Change::Upsert(spec));
    }

    pub fn remove(&self, cluster: &str) {
        self.announce(Change::Remove(name(cluster)));
    }

    pub fn run(&mut self, controller: BuiltController) -> ControllerHandle {
        let handle = controller.handle();
        let (fleet, stop) = (self.fleet.clone(), self.stop.clone());
        self.running.push(tokio::spawn(
            async move { controller.run(fleet, stop).await.unwrap() },
        ));
        handle
    }

    pub async fn cluster(&self, name: &str) -> Cluster {
        until(|| self.fleet.get(name).ok()).await
    }

    /// Stops the controllers, then the fleet, and waits for both.
    pub async fn end(mut self) {
        self.stop.cancel();
        for controller in self.running.split_off(1) {
            controller.await.unwrap();
        }
        self.stop_fleet.cancel();
        for fleet in self.running {
            fleet.await.unwrap();
        }
    }
}

/// A server and the access of the fleet to it.
#[derive(Clone)]
pub struct ApiAccess {
    pub api: Api,
    pub access: Access,
}

impl ApiAccess {
    pub fn new(api: Api) -> Self {
        let access = Access::from(api.client());
        Self { api, access }
    }
}

impl std::ops::Deref for ApiAccess {
    type Target = Api;
    fn deref(&self) -> &Api {
        &self.api
    }
}

/// Calls a function until it returns a value.
pub async fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    for _ in 0..60_000 {
        if let Some(answer) = ask() {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("it never came");
}

pub async fn until_true(mut ask: impl FnMut() -> bool) {
    until(|| ask().then_some(())).await;
}

pub async fn sleep(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// Collects the lines of reconcilers, in order.
pub struct Seen<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Seen<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone + PartialEq + std::fmt::Debug> Seen<T> {
    pub fn push(&self, item: impl Into<T>) {
        self.0.lock().unwrap().push(item.into());
    }

    pub fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// Waits for this number of lines. Panics if there are more.
    pub async fn wait_for(&self, count: usize) -> Vec<T> {
        for _ in 0..60_000 {
            if self.len() >= count {
                return self.all();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("{count} wanted, {:?} came", self.all());
    }
}
