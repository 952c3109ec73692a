//! An API server in memory behind `kube::Client`, and a fleet of such servers.

#![allow(dead_code, unreachable_pub)] // Each test file uses its part.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy takes only functions marked as tests for tests.

pub mod maps;

use std::{
    collections::{BTreeMap, HashSet},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use mcr::{
    Access, BuiltController, Cluster, ClusterName, ClusterSpec, Controller, ControllerHandle, Fleet,
    FleetBuilder, FleetSettings, Reconciler,
    core::{Change, Discovery, Provider},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

type Frame = http_body::Frame<Bytes>;
type Answer = Result<Response<UnsyncBoxBody<Bytes, Infallible>>, std::io::Error>;

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
    lists: u64,
}

#[derive(Clone)]
struct Query {
    plural: String,
    namespace: Option<String>,
}

impl Query {
    fn matches(&self, plural: &str, object: &Value) -> bool {
        let namespace = self.namespace.as_deref();
        self.plural == plural && namespace.is_none_or(|of| object["metadata"]["namespace"] == *of)
    }
}

fn at(plural: &str, key: &str) -> (String, String, String) {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    (plural.to_owned(), namespace.to_owned(), name.to_owned())
}

fn respond(code: u16, body: Value) -> Answer {
    // API servers end each event of a stream with a line feed.
    let body = Full::new(Bytes::from(format!("{body}\n"))).boxed_unsync();
    let response = Response::builder().status(code);
    Ok(response
        .header("content-type", "application/json")
        .body(body)
        .unwrap())
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
        let at = at(plural, key);
        let mut state = self.state();
        state.version += 1;
        let old = state.objects.get(&at).map(|old| old["metadata"]["uid"].clone());
        let kind = if old.is_some() { "MODIFIED" } else { "ADDED" };
        let uid = old.unwrap_or_else(|| {
            state.uids += 1;
            json!(format!("{:032x}", state.uids))
        });
        let meta = &mut object["metadata"];
        meta["name"] = json!(at.2);
        if !at.1.is_empty() {
            meta["namespace"] = json!(at.1);
        }
        meta["uid"] = uid;
        meta["resourceVersion"] = json!((state.version + 1).to_string());
        state.objects.insert(at, object.clone());
        state.send(plural, kind, &object);
    }

    /// A ConfigMap with one entry.
    pub fn put_map(&self, key: &str, value: &str) {
        self.put("configmaps", key, json!({"data": {"value": value}}));
    }

    pub fn delete(&self, plural: &str, key: &str) {
        let mut state = self.state();
        state.version += 1;
        let mut object = state.objects.remove(&at(plural, key)).unwrap();
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

    fn answer(&self, request: Request<Body>) -> Answer {
        let mut state = self.state();
        if state.down {
            return Err(std::io::Error::other("connection refused"));
        }
        let parts: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
        let (namespace, plural) = match parts.as_slice() {
            ["api", "v1", "namespaces", "kube-system"] => {
                let metadata = json!({"name": "kube-system", "uid": format!("{:p}", Arc::as_ptr(&self.0))});
                return respond(
                    200,
                    json!({"kind": "Namespace", "apiVersion": "v1", "metadata": metadata}),
                );
            }
            ["version"] => {
                return respond(200, json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0"}));
            }
            ["api", _, "namespaces", namespace, plural] | ["apis", _, _, "namespaces", namespace, plural] => {
                (Some((*namespace).to_owned()), *plural)
            }
            ["api", _, plural] | ["apis", _, _, plural] => (None, *plural),
            _ => return respond(404, json!({"message": "no such path", "code": 404})),
        };
        if state.forbidden.contains(plural) {
            let message = format!("{plural} is forbidden");
            return respond(
                403,
                json!({"kind": "Status", "apiVersion": "v1", "message": message, "code": 403}),
            );
        }
        let (plural, version) = (plural.to_owned(), state.version + 1);
        let query = Query { plural, namespace };
        let parameter = |name: &str| {
            let mut pairs = request.uri().query().unwrap_or_default().split('&');
            pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        if !matches!(parameter("watch"), Some("1" | "true")) {
            state.lists += 1;
            let objects = state.objects.iter();
            let items = objects.filter(|((plural, ..), object)| query.matches(plural, object));
            let items: Vec<&Value> = items.map(|(_, object)| object).collect();
            let metadata = json!({"resourceVersion": version.to_string()});
            return respond(200, json!({"metadata": metadata, "items": items}));
        }
        // The server has no history: a watch that missed an event gets a 410 and lists again.
        if parameter("resourceVersion")
            .is_some_and(|from| from.parse::<u64>().is_ok_and(|from| from < version))
        {
            let status = json!({"kind": "Status", "code": 410, "reason": "Expired"});
            return respond(200, json!({"type": "ERROR", "object": status}));
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        state.watchers.push((query, sender));
        let lines = stream::unfold(receiver, |mut receiver| async move {
            let line: Value = receiver.recv().await?;
            let frame = Frame::data(Bytes::from(format!("{line}\n")));
            Some((Ok::<_, Infallible>(frame), receiver))
        });
        let response = Response::builder().header("content-type", "application/json");
        Ok(response.body(StreamBody::new(lines).boxed_unsync()).unwrap())
    }
}

impl State {
    fn send(&mut self, plural: &str, kind: &str, object: &Value) {
        let line = json!({"type": kind, "object": object});
        self.watchers.retain(|(_, watcher)| !watcher.is_closed());
        let watchers = self.watchers.iter();
        for (_, watcher) in watchers.filter(|(query, _)| query.matches(plural, object)) {
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
        Self::with_builder(|fleet| fleet.settings(change))
    }

    pub fn with_builder(change: impl FnOnce(FleetBuilder) -> FleetBuilder) -> Self {
        let (changes, provider) = Scripted::new();
        let fleet = change(Fleet::builder().provider(provider)).build();
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

    pub fn announce(&self, change: Change) {
        self.changes.send(Ok(change)).unwrap();
    }

    /// Adds a cluster, or changes its labels.
    pub fn add(&self, cluster: &str, api: &ApiAccess, labels: &[(&str, &str)]) {
        let spec = api.spec(cluster);
        let spec = labels
            .iter()
            .fold(spec, |spec, (key, value)| spec.label(*key, *value));
        self.announce(Change::Upsert(spec));
    }

    /// Adds a cluster with its own server.
    pub fn join(&self, cluster: &str) -> ApiAccess {
        let api = ApiAccess::default();
        self.add(cluster, &api, &[]);
        api
    }

    /// Announces a cluster with this name and this identity.
    pub fn identify(&self, cluster: &str, api: &ApiAccess, identity: &str) {
        self.announce(Change::Upsert(api.spec(cluster).identity(identity)));
    }

    pub fn suspend(&self, cluster: &str, api: &ApiAccess) {
        self.announce(Change::Upsert(api.spec(cluster).suspended("asleep")));
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

    /// Runs a controller whose reconciler records in the returned list.
    pub fn run_with<K, T>(
        &mut self,
        controller: Controller<K>,
        reconciler: impl Reconciler<K, Seen<T>>,
    ) -> (ControllerHandle, Seen<T>)
    where
        K: DeserializeOwned + Send + Sync + 'static,
        T: Send + 'static,
    {
        let seen = Seen::default();
        let controller = controller.build(reconciler, Arc::new(seen.clone())).unwrap();
        (self.run(controller), seen)
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

    pub fn spec(&self, cluster: &str) -> ClusterSpec {
        ClusterSpec::new(name(cluster), self.access.clone())
    }
}

impl From<Client> for ApiAccess {
    /// A cluster that is reached by this client, whatever its server is.
    fn from(client: Client) -> Self {
        let access = Access::from(client);
        Self {
            api: Api::default(),
            access,
        }
    }
}

impl Default for ApiAccess {
    fn default() -> Self {
        Self::new(Api::default())
    }
}

impl std::ops::Deref for ApiAccess {
    type Target = Api;
    fn deref(&self) -> &Api {
        &self.api
    }
}

/// Calls a function until it returns a value, with pauses that grow to 50 ms: in paused time, each call costs more than its pause.
/// `None` after two minutes.
async fn until_or_never<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    for attempt in 0..3_000 {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        sleep((2 + attempt / 10).min(50)).await;
    }
    None
}

/// Calls a function until it returns a value.
pub async fn until<T>(ask: impl FnMut() -> Option<T>) -> T {
    until_or_never(ask).await.expect("it never came")
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

    /// Waits for this number of lines.
    pub async fn wait_for(&self, count: usize) -> Vec<T> {
        let arrived = until_or_never(|| (self.len() >= count).then(|| self.all())).await;
        arrived.unwrap_or_else(|| panic!("{count} wanted, {:?} came", self.all()))
    }

    /// As [`wait_for`](Self::wait_for), in their order of `T`.
    pub async fn sorted(&self, count: usize) -> Vec<T>
    where
        T: Ord,
    {
        let mut all = self.wait_for(count).await;
        all.sort();
        all
    }
}

/// An error whose text panics.
#[derive(Debug)]
pub struct Unshown;

impl std::error::Error for Unshown {}

impl std::fmt::Display for Unshown {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("the text of an error")
    }
}

/// Records its drop.
pub struct Dropped(pub Arc<Seen<String>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.push("dropped");
    }
}
