//! A shard as kcp has them: the API of many workspaces behind one endpoint, with its traps.
//!
//! What a workspace has is seen below `/clusters/<id>`, and of all that are bound to it below `/clusters/*`. What it
//! does was measured on a live kcp. It is in memory, for tests on a paused clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{InMemory, Query, after, answer, page_metadata, page_of, query_of, status_object, version};

/// The annotation that names the workspace of an object.
pub const CLUSTER: &str = "kcp.io/cluster";

/// A shard with an object in each of these workspaces.
pub fn shard(name: &str, version: u64, clusters: &[&str]) -> Shard {
    let shard = Shard::new(name, version);
    for cluster in clusters {
        shard.bind(cluster);
        shard.put(cluster, "default", &format!("of-{cluster}"), "1");
    }
    shard
}

/// What a test compares of an object: its UID, its resource version and its value.
pub type Seen = (String, String, String);

/// Clones are the same shard.
#[derive(Clone)]
pub struct Shard(Arc<Shared>);

struct Shared {
    name: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    version: u64,
    uids: u64,
    /// Watches can't go on from before this.
    compacted: u64,
    bound: BTreeSet<String>,
    objects: BTreeMap<Key, Value>,
    forgiven: BTreeSet<String>,
    history: Vec<Event>,
    watchers: Vec<Watcher>,
    /// They will never receive anything, and do not know it.
    dead: Vec<Watcher>,
    down: bool,
    lists_fail: bool,
    /// How long each answer takes.
    latency: Duration,
    /// Every watch is dead.
    mute: bool,
    asked: Vec<Asked>,
}

/// Cluster, namespace and name.
type Key = (String, String, String);

fn key(cluster: &str, namespace: &str, name: &str) -> Key {
    (cluster.to_owned(), namespace.to_owned(), name.to_owned())
}

struct Event {
    version: u64,
    verb: &'static str,
    key: Key,
    object: Value,
}

struct Watcher {
    /// None for all of them.
    cluster: Option<String>,
    lines: mpsc::UnboundedSender<String>,
}

/// A request that came.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its path, without the query.
    pub path: String,
    /// Its query.
    pub query: BTreeMap<String, String>,
}

impl Asked {
    fn lists(&self, path: &str) -> bool {
        self.path == path && !self.query.contains_key("watch")
    }
}

enum Reply {
    Whole(u16, Value),
    /// Lines until the sender is gone or the time is over.
    Watch(mpsc::UnboundedReceiver<String>, Duration),
    /// Nothing at all.
    Hang,
}

/// The ConfigMaps of all workspaces.
pub const ALL: &str = "/clusters/*/api/v1/configmaps";

impl Shard {
    /// One that begins to count its resource versions at a number.
    pub fn new(name: &str, version: u64) -> Self {
        let state = State {
            version,
            compacted: version,
            ..State::default()
        };
        Self(Arc::new(Shared {
            name: name.to_owned(),
            state: Mutex::new(state),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// A client in memory of what is below a path.
    pub fn client(&self, prefix: String) -> kube::Client {
        let shard = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (shard, uri) = (shard.clone(), format!("{prefix}{}", request.uri()));
            async move {
                let (down, latency) = {
                    let state = shard.state();
                    (state.down, state.latency)
                };
                if down {
                    return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
                }
                tokio::time::sleep(latency).await;
                let (head, body) = request.into_parts();
                let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
                Ok(match shard.answer(&head.method, &uri.parse().unwrap(), &body) {
                    Reply::Whole(code, value) => whole(code, &value),
                    Reply::Watch(lines, time) => streamed(lines, time),
                    Reply::Hang => std::future::pending().await,
                })
            }
        });
        kube::Client::new(service, "default")
    }

    /// Whether nobody answers.
    pub fn be_down(&self, down: bool) {
        self.state().down = down;
        if down {
            self.end_watches();
        }
    }
}

fn whole(code: u16, value: &Value) -> InMemory {
    // In pieces, as from a connection.
    let body = Bytes::from(value.to_string());
    let pieces = body.chunks(64 << 10).map(|piece| Ok(body.slice_ref(piece)));
    answer(code, stream::iter(pieces.collect::<Vec<_>>()))
}

fn streamed(lines: mpsc::UnboundedReceiver<String>, time: Duration) -> InMemory {
    let lines = stream::unfold(
        lines,
        |mut lines| async move { Some((lines.recv().await?, lines)) },
    );
    let lines = lines.take_until(tokio::time::sleep(time));
    answer(200, lines.map(|line| Ok(Bytes::from(line))))
}

/// What happens there.
impl Shard {
    /// A workspace is bound, so that what is in it is seen.
    pub fn bind(&self, cluster: &str) {
        let mut state = self.state();
        state.version += 1;
        state.bound.insert(cluster.to_owned());
    }

    /// A workspace is not bound any more. Its objects go; if it was the last one, whoever watches never receives that.
    pub fn unbind(&self, cluster: &str) {
        let mut state = self.state();
        state.bound.remove(cluster);
        if state.bound.is_empty() {
            state.die();
        }
        let keys: Vec<Key> = state
            .objects
            .keys()
            .filter(|key| key.0 == cluster)
            .cloned()
            .collect();
        for key in keys {
            state.delete(&key);
        }
    }

    /// Creates an object or changes it, from the inside of a workspace.
    pub fn put(&self, cluster: &str, namespace: &str, name: &str, value: &str) {
        let mut state = self.state();
        let key = key(cluster, namespace, name);
        let uid = state
            .objects
            .get(&key)
            .map(|object| object["metadata"]["uid"].clone());
        let uid = uid.unwrap_or_else(|| {
            state.uids += 1;
            format!("{}-{}", self.0.name, state.uids).into()
        });
        state.put(key, json!({"metadata": {"uid": uid}, "data": {"value": value}}));
    }

    /// Deletes an object.
    pub fn delete(&self, cluster: &str, namespace: &str, name: &str) {
        self.state().delete(&key(cluster, namespace, name));
    }

    /// Sets the deletion timestamp of an object, which stays because of a finalizer.
    pub fn begin_deletion(&self, cluster: &str, namespace: &str, name: &str) {
        let mut state = self.state();
        let key = key(cluster, namespace, name);
        let object = deleting(state.objects[&key].clone());
        state.put(key, object);
    }

    /// Sets the deletion timestamp and deletes the object at once.
    pub fn delete_with_timestamp(&self, cluster: &str, namespace: &str, name: &str) {
        let mut state = self.state();
        let key = key(cluster, namespace, name);
        let object = deleting(state.objects[&key].clone());
        state.objects.insert(key.clone(), object);
        state.delete(&key);
    }

    /// Takes a workspace over as it is on another shard, which goes on having it.
    pub fn adopt(&self, cluster: &str, from: &Self) {
        let objects: Vec<(Key, Value)> = {
            let from = from.state();
            let all = from.objects.iter().filter(|(key, _)| key.0 == cluster);
            all.map(|(key, object)| (key.clone(), object.clone())).collect()
        };
        self.bind(cluster);
        let mut state = self.state();
        for (key, object) in objects {
            state.put(key, object);
        }
    }

    /// Forgets its history and reports that to whoever watches.
    pub fn expire(&self) {
        let mut state = self.state();
        state.version += 1;
        state.compacted = state.version;
        let watchers = std::mem::take(&mut state.watchers);
        for watcher in watchers {
            let _ = watcher.lines.send(expired());
        }
    }

    /// Every watch that is open goes dead.
    pub fn kill_watches(&self) {
        self.state().die();
    }

    /// Every watch ends.
    pub fn end_watches(&self) {
        let mut state = self.state();
        state.watchers.clear();
        state.dead.clear();
    }

    /// Every watch is dead, those that are open and those to come.
    pub fn be_mute(&self, mute: bool) {
        let mut state = self.state();
        state.mute = mute;
        state.die();
    }

    /// How long each answer takes from now on.
    pub fn be_slow(&self, latency: Duration) {
        self.state().latency = latency;
    }

    /// Whether lists fail.
    pub fn fail_lists(&self, fail: bool) {
        self.state().lists_fail = fail;
    }

    /// Sends every watch a bookmark.
    pub fn bookmark(&self) {
        let state = self.state();
        for watcher in &state.watchers {
            let _ = watcher.lines.send(state.bookmark());
        }
    }
}

/// What a test wants to know.
impl Shard {
    /// What a workspace has, by `namespace/name`.
    pub fn has(&self, cluster: &str) -> BTreeMap<String, Seen> {
        let state = self.state();
        let own = state.objects.iter().filter(|(key, _)| key.0 == cluster);
        own.map(|((_, namespace, name), object)| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let seen = (
                text(&object["metadata"]["uid"]),
                text(&object["metadata"]["resourceVersion"]),
                text(&object["data"]["value"]),
            );
            (format!("{namespace}/{name}"), seen)
        })
        .collect()
    }

    /// Whether it has an object, and nobody may receive its deletion.
    pub fn surely_has(&self, uid: &str) -> bool {
        let state = self.state();
        let has = state
            .objects
            .values()
            .any(|object| object["metadata"]["uid"] == uid);
        has && !state.forgiven.contains(uid)
    }

    /// What a workspace has now may be reported as deleted: it was, once, and a new watch may receive that.
    pub fn forgive(&self, cluster: &str) {
        let uids: Vec<String> = self.has(cluster).into_values().map(|(uid, ..)| uid).collect();
        self.state().forgiven.extend(uids);
    }

    /// How many lists of all workspaces were asked for.
    pub fn lists(&self) -> usize {
        self.state().asked.iter().filter(|asked| asked.lists(ALL)).count()
    }

    /// The watches that are open and receive everything.
    pub fn watching(&self) -> usize {
        let mut state = self.state();
        state.watchers.retain(|watcher| !watcher.lines.is_closed());
        state.watchers.len()
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.state().asked.clone()
    }
}

impl State {
    fn put(&mut self, key: Key, mut object: Value) {
        self.version += 1;
        let verb = if self.objects.contains_key(&key) {
            "MODIFIED"
        } else {
            "ADDED"
        };
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.insert("name".into(), json!(key.2));
        metadata.insert("namespace".into(), json!(key.1));
        metadata.insert("resourceVersion".into(), json!(self.version.to_string()));
        metadata.insert("annotations".into(), json!({CLUSTER: key.0}));
        self.objects.insert(key.clone(), object.clone());
        self.happens(verb, key, object);
    }

    fn delete(&mut self, key: &Key) -> Option<Value> {
        let mut object = self.objects.remove(key)?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.happens("DELETED", key.clone(), object.clone());
        Some(object)
    }

    fn happens(&mut self, verb: &'static str, key: Key, object: Value) {
        let event = Event {
            version: self.version,
            verb,
            key,
            object,
        };
        self.watchers.retain(|watcher| !watcher.lines.is_closed());
        for watcher in self.watchers.iter().filter(|watcher| watcher.wants(&event)) {
            let _ = watcher.lines.send(event.line());
        }
        self.history.push(event);
    }

    fn die(&mut self) {
        let dead = std::mem::take(&mut self.watchers);
        self.dead.extend(dead);
        self.dead.retain(|watcher| !watcher.lines.is_closed());
    }

    /// What there was at a resource version.
    fn at(&self, version: u64) -> BTreeMap<Key, Value> {
        let events = self.history.iter().take_while(|event| event.version <= version);
        after(events.map(|event| (event.verb, &event.key, &event.object)))
    }

    fn bookmark(&self) -> String {
        let version = self.version.to_string();
        let object =
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": version}});
        format!("{}\n", json!({"type": "BOOKMARK", "object": object}))
    }

    fn list(&self, cluster: Option<&str>, namespace: Option<&str>, query: &Query) -> Reply {
        if self.lists_fail {
            return status(500, "InternalError", "etcd is sad");
        }
        if cluster.is_none() && self.bound.is_empty() {
            // No workspace serves the kind: an answer without any metadata.
            return Reply::Whole(
                200,
                json!({"kind": "ConfigMapList", "apiVersion": "v1", "items": []}),
            );
        }
        let asked: u64 = query
            .get("resourceVersion")
            .map_or(0, |version| version.parse().unwrap());
        if asked > self.version {
            return Reply::Hang;
        }
        let (version, offset, limit) = page_of(query, self.version);
        if version < self.compacted {
            return status(410, "Expired", "the continue token is too old");
        }
        let all: Vec<Value> = self
            .at(version)
            .into_iter()
            .filter(|(key, _)| cluster.is_none_or(|cluster| key.0 == cluster))
            .filter(|(key, _)| namespace.is_none_or(|namespace| key.1 == namespace))
            .map(|(_, object)| object)
            .collect();
        let items: Vec<&Value> = all.iter().skip(offset).take(limit).collect();
        let metadata = page_metadata(version, offset + items.len(), all.len());
        let list = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items});
        Reply::Whole(200, list)
    }

    fn watch(&mut self, cluster: Option<&str>, query: &Query) -> Reply {
        let seconds = query
            .get("timeoutSeconds")
            .map_or(300, |seconds| seconds.parse().unwrap());
        let (lines, receiver) = mpsc::unbounded_channel();
        let reply = Reply::Watch(receiver, Duration::from_secs(seconds));
        let watcher = Watcher {
            cluster: cluster.map(str::to_owned),
            lines,
        };
        let from: u64 = query["resourceVersion"].parse().unwrap();
        if from < self.compacted {
            let _ = watcher.lines.send(expired());
            return reply;
        }
        let unserved = cluster.is_none() && self.bound.is_empty();
        if unserved || self.mute || from > self.version {
            self.dead.push(watcher);
            return reply;
        }
        for event in self.history.iter().filter(|event| event.version > from) {
            if watcher.wants(event) {
                let _ = watcher.lines.send(event.line());
            }
        }
        self.watchers.push(watcher);
        reply
    }
}

fn deleting(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    object
}

impl Watcher {
    fn wants(&self, event: &Event) -> bool {
        self.cluster
            .as_ref()
            .is_none_or(|cluster| event.key.0 == *cluster)
    }
}

impl Event {
    fn line(&self) -> String {
        let mut object = self.object.clone();
        object["kind"] = json!("ConfigMap");
        object["apiVersion"] = json!("v1");
        format!("{}\n", json!({"type": self.verb, "object": object}))
    }
}

/// In the stream, where kcp reports it.
fn expired() -> String {
    let status = status_object(410, "Expired", "too old resource version");
    format!("{}\n", json!({"type": "ERROR", "object": status}))
}

fn status(code: u16, reason: &str, message: &str) -> Reply {
    Reply::Whole(code, status_object(code, reason, message))
}

impl Shard {
    fn answer(&self, method: &Method, uri: &http::Uri, body: &[u8]) -> Reply {
        let query = query_of(uri);
        let path = uri.path();
        self.state().asked.push(Asked {
            path: path.to_owned(),
            query: query.clone(),
        });
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        match segments.as_slice() {
            ["clusters", _, "apis"] => Reply::Whole(
                200,
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}),
            ),
            ["clusters", "*" | "%2A", rest @ ..] => self.of_all(rest, &query),
            ["clusters", cluster, rest @ ..] => {
                if !self.state().bound.contains(*cluster) {
                    return status(403, "Forbidden", "access denied");
                }
                self.of_one(cluster, method, rest, &query, body)
            }
            _ => status(403, "Forbidden", "Path not resolved to a valid virtual workspace"),
        }
    }

    fn of_all(&self, rest: &[&str], query: &Query) -> Reply {
        let watch = query.contains_key("watch");
        let mut state = self.state();
        match rest {
            ["version"] => Reply::Whole(200, version()),
            ["api", "v1", "configmaps"] if watch => state.watch(None, query),
            ["api", "v1", "configmaps"] => state.list(None, None, query),
            ["api", "v1", "namespaces", _, "configmaps"] if watch => {
                status(400, "BadRequest", "must be cross-namespace")
            }
            // Although there are some.
            ["api", "v1", "namespaces", _, "configmaps"] => {
                let metadata = json!({"resourceVersion": state.version.to_string()});
                Reply::Whole(
                    200,
                    json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": []}),
                )
            }
            _ => status(
                404,
                "NotFound",
                "the server could not find the requested resource",
            ),
        }
    }

    fn of_one(&self, cluster: &str, method: &Method, rest: &[&str], query: &Query, body: &[u8]) -> Reply {
        let mut state = self.state();
        let missing = || status(404, "NotFound", "not found");
        match (method.as_str(), rest) {
            ("GET", ["version"]) => Reply::Whole(200, version()),
            ("GET", ["api", "v1", "configmaps"]) if query.contains_key("watch") => {
                state.watch(Some(cluster), query)
            }
            ("GET", ["api", "v1", "configmaps"]) => state.list(Some(cluster), None, query),
            ("GET", ["api", "v1", "namespaces", namespace, "configmaps"]) => {
                state.list(Some(cluster), Some(namespace), query)
            }
            ("POST", ["api", "v1", "namespaces", namespace, "configmaps"]) => {
                let mut object: Value = serde_json::from_slice(body).unwrap();
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                state.uids += 1;
                object["metadata"]["uid"] = json!(format!("{}-{}", self.0.name, state.uids));
                let key = key(cluster, namespace, &name);
                state.put(key.clone(), object);
                Reply::Whole(201, state.objects[&key].clone())
            }
            (verb, ["api", "v1", "namespaces", namespace, "configmaps", name]) => {
                let key = key(cluster, namespace, name);
                let Some(mut object) = state.objects.get(&key).cloned() else {
                    return missing();
                };
                match verb {
                    "GET" => Reply::Whole(200, object),
                    "PATCH" => {
                        json_patch::merge(&mut object, &serde_json::from_slice(body).unwrap());
                        state.put(key.clone(), object);
                        Reply::Whole(200, state.objects[&key].clone())
                    }
                    "DELETE" => Reply::Whole(200, state.delete(&key).unwrap()),
                    _ => status(405, "MethodNotAllowed", "not this verb"),
                }
            }
            _ => missing(),
        }
    }
}
