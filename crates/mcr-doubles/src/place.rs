//! An API server in memory that can fail in every way a list or a watch can.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::Request;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{
    InMemory, Query, after, answer, kube_system, page_metadata, page_of, query_of, status_object, version,
};

type Line = Result<Bytes, io::Error>;

/// The kinds that a place serves: one built in, one of a CRD.
pub const MAPS: &str = "configmaps";
/// The kind of a CRD.
pub const WIDGETS: &str = "widgets";

/// How a place fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nobody listens, and open watches are reset.
    Refuse,
    /// Nothing is answered, and open watches fall silent for ever.
    Hang,
    /// 401 to everything; open watches go on, as on a real server.
    Unauthorized,
    /// 403 to lists and watches.
    Forbidden,
    /// 404 to lists and watches.
    NotServed,
    /// 500 to everything.
    Internal,
    /// 429 with a Retry-After to lists and watches.
    Throttled,
    /// Lists are cut in the middle.
    TruncatedList,
    /// Lists have no resourceVersion.
    NoResourceVersion,
    /// Lists have no items.
    NoItems,
    /// The first list of a client is answered from a cache that is behind.
    StaleList,
    /// Watches end as soon as they have begun.
    WatchEnds,
    /// Watches answer 410 as their first event.
    WatchGone,
    /// Watches are reset as soon as they have begun.
    WatchReset,
    /// Watches send a line that is not JSON.
    GarbageLine,
    /// Watches break off in the middle of a line.
    HalfLine,
    /// One object can't be read, but named.
    Unreadable,
    /// One object can't even be named.
    Nameless,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Refuse,
        Self::Hang,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotServed,
        Self::Internal,
        Self::Throttled,
        Self::TruncatedList,
        Self::NoResourceVersion,
        Self::NoItems,
        Self::StaleList,
        Self::WatchEnds,
        Self::WatchGone,
        Self::WatchReset,
        Self::GarbageLine,
        Self::HalfLine,
        Self::Unreadable,
        Self::Nameless,
    ];
}

/// One object as the server has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stored {
    /// Its UID, which names its place.
    pub uid: String,
    /// Its resource version.
    pub version: String,
    /// Its only value.
    pub value: String,
}

/// The object that faults of single objects spoil.
const SPOILED: &str = "n/k1";

/// How many lists are being answered, in all the places that share it.
#[derive(Debug, Default)]
pub struct Gauge {
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl Gauge {
    /// The most lists that were being answered at once.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::SeqCst)
    }

    fn enter(self: &Arc<Self>) -> Entered {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(now, Ordering::SeqCst);
        Entered(self.clone())
    }
}

struct Entered(Arc<Gauge>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One API server. Clones are the same server.
#[derive(Clone)]
pub struct Place(Arc<Shared>);

struct Shared {
    id: u64,
    state: Mutex<State>,
    lists: Arc<Gauge>,
}

#[derive(Default)]
struct State {
    /// By plural and `namespace/name`.
    objects: BTreeMap<(&'static str, String), Stored>,
    log: Vec<Event>,
    version: u64,
    uids: u64,
    /// Watches can't go on from before this.
    compacted: u64,
    watchers: Vec<Watcher>,
    /// Watches that will never receive anything again and do not know it.
    silent: Vec<Watcher>,
    fault: Option<Fault>,
    latency: Duration,
    listed: u64,
    asked: u64,
    forbidden: Option<&'static str>,
    /// Whether the data was ever restored, so that what was deleted may be there again.
    restored: bool,
}

#[derive(Clone)]
struct Event {
    version: u64,
    verb: &'static str,
    plural: &'static str,
    key: String,
    stored: Stored,
}

/// Several in the life of a watch, as API servers do it.
const BOOKMARKS_EVERY: Duration = Duration::from_secs(20);

struct Watcher {
    plural: &'static str,
    metadata_only: bool,
    /// It is sent nothing that is not newer.
    from: u64,
    sender: mpsc::UnboundedSender<Line>,
}

impl Place {
    /// A server without objects.
    pub fn new(id: u64) -> Self {
        Self::with_gauge(id, Arc::default())
    }

    /// A server that counts its lists with others.
    pub fn with_gauge(id: u64, lists: Arc<Gauge>) -> Self {
        let state = State {
            // Places count alike, so that a position of one is taken for good by another.
            version: 100,
            compacted: 100,
            ..State::default()
        };
        Self(Arc::new(Shared {
            id,
            state: Mutex::new(state),
            lists,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// The UID of its `kube-system` namespace.
    pub fn uid(&self) -> String {
        format!("place-{}", self.0.id)
    }

    /// Which place an object is of.
    pub fn of_uid(uid: &str) -> Option<u64> {
        u64::from_str_radix(uid.split('-').next()?, 16).ok()
    }

    /// A client of this server.
    pub fn client(&self) -> Client {
        let place = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let place = place.clone();
            async move { place.answer(&request.map(drop)).await }
        });
        Client::new(service, "default")
    }

    /// Creates an object or changes it.
    pub fn put(&self, plural: &'static str, key: &str, value: &str) {
        let mut state = self.state();
        state.version += 1;
        let at = (plural, key.to_owned());
        let known = state.objects.get(&at).map(|stored| stored.uid.clone());
        let verb = if known.is_some() { "MODIFIED" } else { "ADDED" };
        let uid = known.unwrap_or_else(|| {
            state.uids += 1;
            format!("{:08x}-0000-4000-8000-{:012x}", self.0.id, state.uids)
        });
        let stored = Stored {
            uid,
            version: state.version.to_string(),
            value: value.to_owned(),
        };
        state.objects.insert(at, stored.clone());
        state.notify(verb, plural, key, stored);
    }

    /// Deletes an object if it is there.
    pub fn delete(&self, plural: &'static str, key: &str) {
        let mut state = self.state();
        let Some(mut stored) = state.objects.remove(&(plural, key.to_owned())) else {
            return;
        };
        state.version += 1;
        stored.version = state.version.to_string();
        state.notify("DELETED", plural, key, stored);
    }

    /// Forgets all history: who was not watching must list again.
    pub fn compact(&self) {
        let mut state = self.state();
        state.compacted = state.version;
    }

    /// Shows all objects in another way, at the versions that they have. Whoever watches has to list again.
    pub fn upgrade(&self) {
        let mut state = self.state();
        let State { objects, log, .. } = &mut *state;
        let stored = objects
            .values_mut()
            .chain(log.iter_mut().map(|event| &mut event.stored));
        stored.for_each(|stored| stored.value.push('+'));
        state.version += 1;
        state.compacted = state.version;
        state.watchers.clear();
    }

    /// Replaces the data by that of some versions ago, as from a backup. The server is away for a moment.
    pub fn restore(&self, ago: u64) {
        let mut state = self.state();
        let version = state.version.saturating_sub(ago).max(state.compacted);
        let then = [MAPS, WIDGETS].map(|plural| (plural, state.at(version, plural)));
        let then = then
            .into_iter()
            .flat_map(|(plural, all)| all.into_iter().map(move |(key, stored)| ((plural, key), stored)));
        state.objects = then.collect();
        state.log.retain(|event| event.version <= version);
        (state.version, state.restored) = (version, true);
        // All connections break, also those on which nothing came any more.
        let State { watchers, silent, .. } = &mut *state;
        for watcher in watchers.drain(..).chain(silent.drain(..)) {
            let _ = watcher.sender.send(Err(reset()));
        }
    }

    /// Whether its data was ever restored.
    pub fn was_restored(&self) -> bool {
        self.state().restored
    }

    /// Drops all of the history that nobody can ask for any more.
    pub fn forget(&self) {
        let mut state = self.state();
        state.watchers.clear();
        state.silent.clear();
        let version = state.version;
        state.log = state
            .objects
            .iter()
            .map(|((plural, key), stored)| Event {
                version,
                verb: "ADDED",
                plural,
                key: key.clone(),
                stored: stored.clone(),
            })
            .collect();
    }

    /// Ends all watches, as a server that is being updated does.
    pub fn end_watches(&self) {
        self.state().watchers.clear();
    }

    /// Sends every watch a bookmark.
    pub fn bookmark(&self) {
        let mut state = self.state();
        let version = state.version;
        let line = line(
            "BOOKMARK",
            &json!({"kind": "ConfigMap", "metadata": {"resourceVersion": version.to_string()}}),
        );
        for watcher in state.watchers.iter().filter(|watcher| watcher.from < version) {
            let _ = watcher.sender.send(Ok(line.clone()));
        }
        state.forget_closed();
    }

    /// From now on it fails like that, or not at all.
    pub fn fail(&self, fault: Option<Fault>) {
        let mut state = self.state();
        state.fault = fault;
        match fault {
            Some(Fault::Refuse) => {
                for watcher in state.watchers.drain(..) {
                    let _ = watcher.sender.send(Err(reset()));
                }
            }
            Some(Fault::Hang) => {
                let silenced = std::mem::take(&mut state.watchers);
                state.silent.extend(silenced);
            }
            None | Some(Fault::Unauthorized | Fault::Unreadable | Fault::Nameless) => {}
            // The others concern what begins, so something has to begin.
            Some(_) => state.watchers.clear(),
        }
    }

    /// From now on one kind may not be listed and watched, whatever else may be.
    pub fn forbid(&self, plural: Option<&'static str>) {
        let mut state = self.state();
        state.forbidden = plural;
        state.watchers.retain(|watcher| Some(watcher.plural) != plural);
    }

    /// Who still holds on to this server: clients, connections, and whoever tests.
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// How long lists take.
    pub fn slow(&self, latency: Duration) {
        self.state().latency = latency;
    }

    /// Whether it has an object.
    pub fn exists(&self, uid: &str) -> bool {
        self.state().objects.values().any(|stored| stored.uid == uid)
    }

    /// The objects of a kind, by `namespace/name`.
    pub fn objects(&self, plural: &'static str) -> BTreeMap<String, Stored> {
        self.state()
            .objects
            .iter()
            .filter(|((of, _), _)| *of == plural)
            .map(|((_, key), stored)| (key.clone(), stored.clone()))
            .collect()
    }

    /// How many requests came.
    pub fn requests(&self) -> u64 {
        self.state().asked
    }

    /// How many lists were begun.
    pub fn lists(&self) -> u64 {
        self.state().listed
    }

    /// Answers a request, if it answers.
    pub async fn answer(&self, request: &Request<()>) -> Result<InMemory, io::Error> {
        let fault = {
            let mut state = self.state();
            state.asked += 1;
            state.fault
        };
        match fault {
            Some(Fault::Refuse) => return Err(io::ErrorKind::ConnectionRefused.into()),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Unauthorized) => return Ok(status(401, "Unauthorized")),
            Some(Fault::Internal) => return Ok(status(500, "InternalError")),
            _ => {}
        }
        let path = request.uri().path();
        let plural = match path {
            "/api/v1/configmaps" => MAPS,
            "/apis/example.com/v1/widgets" => WIDGETS,
            "/version" => return Ok(whole(200, &version())),
            "/api/v1/namespaces/kube-system" => return Ok(whole(200, &kube_system(&self.uid()))),
            _ => return Ok(status(404, "NotFound")),
        };
        if self.state().forbidden == Some(plural) {
            return Ok(status(403, "Forbidden"));
        }
        match fault {
            Some(Fault::Forbidden) => return Ok(status(403, "Forbidden")),
            Some(Fault::NotServed) => return Ok(status(404, "NotFound")),
            Some(Fault::Throttled) => {
                let mut answer = status(429, "TooManyRequests");
                answer.headers_mut().insert("retry-after", 2.into());
                return Ok(answer);
            }
            _ => {}
        }
        let accept = request.headers().get("accept");
        let metadata_only = accept.is_some_and(|form| form.to_str().unwrap().contains("PartialObject"));
        let query = query_of(request.uri());
        if query.contains_key("watch") {
            return Ok(self.watch(plural, metadata_only, &query));
        }
        let _entered = self.0.lists.enter();
        let latency = {
            let mut state = self.state();
            // One object only shows the newest version.
            let is_list = query.get("limit").is_none_or(|limit| limit != "1");
            state.listed += u64::from(is_list);
            state.latency
        };
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        Ok(self.list(plural, metadata_only, &query))
    }

    fn list(&self, plural: &'static str, metadata_only: bool, query: &Query) -> InMemory {
        let state = self.state();
        let from_cache = query.get("resourceVersion").is_some_and(|version| version == "0");
        let newest = if from_cache && state.fault == Some(Fault::StaleList) {
            state.version.saturating_sub(5).max(state.compacted)
        } else {
            state.version
        };
        let (version, offset, limit) = page_of(query, newest);
        if version < state.compacted {
            return status(410, "Expired");
        }
        let all = state.at(version, plural);
        let page = all.iter().skip(offset).take(limit);
        let items: Vec<Value> = page
            .map(|(key, stored)| state.shown(plural, key, stored, metadata_only, false))
            .collect();
        let meta = page_metadata(version, offset + items.len(), all.len());
        let mut list = json!({"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items});
        match state.fault {
            Some(Fault::NoResourceVersion) => list["metadata"] = json!({}),
            Some(Fault::NoItems) => {
                list.as_object_mut().unwrap().remove("items");
            }
            Some(Fault::TruncatedList) => {
                let text = list.to_string();
                return body(200, text[..text.len() * 2 / 3].to_owned());
            }
            _ => {}
        }
        whole(200, &list)
    }

    fn watch(&self, plural: &'static str, metadata_only: bool, query: &Query) -> InMemory {
        let mut state = self.state();
        let from: u64 = query["resourceVersion"].parse().unwrap();
        if from < state.compacted {
            if from.is_multiple_of(2) {
                return status(410, "Expired");
            }
            return answer(200, stream::iter([Ok(gone())]));
        }
        // Without this answer the watch waits until the versions have passed that one, which real servers do, too.
        if from > state.version && from.is_multiple_of(2) {
            let message = format!("Too large resource version: {from}, current: {}", state.version);
            return whole(
                504,
                &json!({"kind": "Status", "code": 504, "reason": "Timeout", "message": message}),
            );
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        let own = sender.downgrade();
        let watcher = Watcher {
            plural,
            metadata_only,
            from,
            sender,
        };
        let mut lines: Vec<Bytes> = state
            .log
            .iter()
            .filter(|event| event.version > from && event.plural == plural)
            .map(|event| state.line(event, metadata_only))
            .collect();
        let mut end = None;
        match state.fault {
            Some(Fault::WatchGone) => {
                lines = vec![gone()];
                end = Some(None);
            }
            Some(Fault::WatchEnds) => end = Some(None),
            Some(Fault::WatchReset) => end = Some(Some(reset())),
            Some(Fault::GarbageLine) => {
                lines.push(Bytes::from_static(b"{\"type\":\"ADDED\",\"object\":{{\n"))
            }
            Some(Fault::HalfLine) => {
                let last = lines.pop().unwrap_or_else(|| line("BOOKMARK", &json!({})));
                lines.push(last.slice(..last.len() / 2));
                end = Some(None);
            }
            _ => {}
        }
        for line in lines {
            let _ = watcher.sender.send(Ok(line));
        }
        match end {
            None => state.watchers.push(watcher),
            Some(None) => {}
            Some(Some(error)) => {
                let _ = watcher.sender.send(Err(error));
            }
        }
        let place = Arc::downgrade(&self.0);
        let bookmark = move || {
            let (place, own) = (place.upgrade()?, own.upgrade()?);
            let state = place.state.lock().unwrap();
            // One that fell silent sends nothing any more.
            let reported = state
                .watchers
                .iter()
                .any(|watcher| watcher.sender.same_channel(&own) && watcher.from <= state.version);
            let version = state.version.to_string();
            reported.then(|| {
                line(
                    "BOOKMARK",
                    &json!({"kind": "ConfigMap", "metadata": {"resourceVersion": version}}),
                )
            })
        };
        let lines = stream::unfold((receiver, bookmark), |(mut receiver, bookmark)| async move {
            loop {
                let next = tokio::time::timeout(BOOKMARKS_EVERY, receiver.recv()).await;
                match next.map_err(|_| bookmark()) {
                    Ok(next) => return Some((next?, (receiver, bookmark))),
                    Err(Some(line)) => return Some((Ok(line), (receiver, bookmark))),
                    Err(None) => {}
                }
            }
        });
        let seconds = query["timeoutSeconds"].parse().unwrap();
        answer(
            200,
            lines.take_until(tokio::time::sleep(Duration::from_secs(seconds))),
        )
    }
}

impl State {
    fn notify(&mut self, verb: &'static str, plural: &'static str, key: &str, stored: Stored) {
        let event = Event {
            version: self.version,
            verb,
            plural,
            key: key.to_owned(),
            stored,
        };
        self.forget_closed();
        let wanted = |watcher: &&Watcher| watcher.plural == plural && watcher.from < event.version;
        for watcher in self.watchers.iter().filter(wanted) {
            let _ = watcher.sender.send(Ok(self.line(&event, watcher.metadata_only)));
        }
        self.log.push(event);
    }

    fn forget_closed(&mut self) {
        self.watchers.retain(|watcher| !watcher.sender.is_closed());
        self.silent.retain(|watcher| !watcher.sender.is_closed());
    }

    fn line(&self, event: &Event, metadata_only: bool) -> Bytes {
        let object = self.shown(event.plural, &event.key, &event.stored, metadata_only, true);
        line(event.verb, &object)
    }

    /// What there was at a resource version.
    fn at(&self, version: u64, plural: &str) -> BTreeMap<String, Stored> {
        let events = self.log.iter().filter(|event| event.plural == plural);
        let events = events.take_while(|event| event.version <= version);
        after(events.map(|event| (event.verb, &event.key, &event.stored)))
    }

    fn shown(&self, plural: &str, key: &str, stored: &Stored, metadata_only: bool, live: bool) -> Value {
        let (namespace, name) = key.split_once('/').unwrap();
        let mut object = json!({"metadata": {
            "name": name, "namespace": namespace, "uid": stored.uid, "resourceVersion": stored.version,
            "managedFields": [{"manager": "nobody reads this"}],
        }});
        if metadata_only {
            object["kind"] = json!("PartialObjectMetadata");
            object["apiVersion"] = json!("meta.k8s.io/v1");
        } else if plural == MAPS {
            object["data"] = json!({"value": stored.value});
            // Only what is built in comes without its type, and only in lists.
            if live {
                object["kind"] = json!("ConfigMap");
                object["apiVersion"] = json!("v1");
            }
        } else {
            object["spec"] = json!({"value": stored.value});
            object["kind"] = json!("Widget");
            object["apiVersion"] = json!("example.com/v1");
        }
        match self.fault {
            Some(Fault::Unreadable) if key == SPOILED => object["metadata"]["uid"] = json!(7),
            Some(Fault::Nameless) if key == SPOILED => object["metadata"]["name"] = json!(7),
            _ => {}
        }
        object
    }
}

fn line(verb: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": verb, "object": object})))
}

/// Without a line feed, as API servers often send it.
fn gone() -> Bytes {
    let status = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    Bytes::from(json!({"type": "ERROR", "object": status}).to_string())
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

fn whole(code: u16, value: &Value) -> InMemory {
    body(code, value.to_string())
}

fn status(code: u16, reason: &str) -> InMemory {
    whole(code, &status_object(code, reason, reason))
}

fn body(code: u16, text: String) -> InMemory {
    answer(code, stream::iter([Ok(Bytes::from(text))]))
}
