//! Widgets, and a sync of them that keeps their names.
//!
//! A name stands for an object in the namespace `default`, unless it has another one before a '/'.

use std::{fmt::Display, panic::Location};
pub use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

pub use kube::core::DynamicObject;
pub use mcr::{BoxError, BuiltController, ClusterSelector, ClusterSpec, FailingRequest};
use mcr_sync::{ABANDON, NameTemplate, SourceName};
pub use mcr_testkit::sim::{SimAuditEvent, SimCluster};
use mcr_testkit::{
    sim::{SimRule, SimUser},
    waiting::Answer,
};
pub use serde_json::{Value, json};
pub use tokio::time::{Instant, sleep};

pub use super::{Widgets, World, map, name, spec, widgets};

/// A limit of virtual time.
pub const LIMIT: Duration = secs(3600);
pub const WIDGETS: &str = "widgets.example.com";
pub const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
pub const RECORD: &str = "sync.mcr.dev/placed.widgets";

pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The schema of an object that may have other fields too.
pub fn open(fields: Value) -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": fields})
}

/// The schema of a spec whose `size` may be at most this.
pub fn sized(most: u64) -> Value {
    open(json!({"size": {"type": "integer", "maximum": most}}))
}

/// A kind with the status subresource, and this schema of its spec.
pub fn kind(spec: Value) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": open(json!({}))}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": WIDGETS},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]},
    })
}

pub fn crd() -> Value {
    kind(sized(10))
}

/// Changes the schema of the spec in a cluster.
pub fn schema(cluster: &SimCluster, spec: Value) {
    cluster.update(kind(spec)).unwrap();
}

pub fn cluster(name: &str) -> SimCluster {
    let cluster = SimCluster::builder().name(name).build();
    cluster.create(crd()).unwrap();
    cluster
}

/// Lets the sync do this with all objects of a cluster.
pub fn allow(cluster: &SimCluster, verbs: &[&str]) {
    allow_each(cluster, &[("*", verbs)]);
}

/// Lets the sync do this with these resources of a cluster.
pub fn allow_each(cluster: &SimCluster, rules: &[(&str, &[&str])]) {
    let mut user = SimUser::new("admin");
    for (resource, verbs) in rules {
        user = user.rule(SimRule::new(["*"], [*resource], verbs.iter().copied()));
    }
    cluster.set_user(cluster.admin_token(), user);
}

/// A sync to `berlin` that keeps names and the spec, and reports all it can.
pub fn sync() -> Widgets {
    Widgets::with("widgets", &widgets(), &widgets())
        .from(ClusterSelector::label("role", "source"))
        .to(name("berlin"))
        .name_by(NameTemplate::parse("{name}").unwrap())
        .project(|source, _| spec_of(source))
        .condition("Synced")
        .publish_events(true)
}

pub fn spec_of(source: &DynamicObject) -> DynamicObject {
    let mut target = DynamicObject::new("", &widgets());
    target.data = json!({"spec": source.data["spec"]});
    target
}

pub fn targets() -> ClusterSelector {
    ClusterSelector::label("role", "target")
}

pub fn to_each() -> Widgets {
    sync().to_each(targets())
}

/// The watch of sources has a selector, so no deletion of one is certain.
pub fn limited(sync: Widgets) -> BuiltController {
    let built = sync.build_with(|it| it.watch_request(|request| request.labels("copy=yes")));
    built.unwrap()
}

/// Counts the reconciles at sources.
pub fn counted(sync: Widgets) -> (Widgets, Arc<AtomicUsize>) {
    let reconciles = Arc::new(AtomicUsize::new(0));
    let counter = reconciles.clone();
    let count = move |_: &DynamicObject| counter.fetch_add(1, Ordering::Relaxed) < usize::MAX;
    (sync.filter(count), reconciles)
}

/// The name of a source in `team-a`.
pub fn source_name<'a>(namespace: Option<&'a str>, name: &'a str) -> SourceName<'a> {
    let cluster = "team-a";
    SourceName {
        cluster,
        namespace,
        name,
    }
}

fn key(name: &str) -> String {
    if name.contains('/') {
        name.to_owned()
    } else {
        format!("default/{name}")
    }
}

pub fn make(cluster: &SimCluster, name: &str, spec: Value) -> Value {
    let key = key(name);
    let (namespace, name) = key.split_once('/').unwrap();
    let meta = json!({"name": name, "namespace": namespace, "labels": {"copy": "yes"}});
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta, "spec": spec});
    cluster.create(widget).unwrap()
}

pub fn get(cluster: &SimCluster, name: &str) -> Option<Value> {
    cluster.get(WIDGETS, &key(name))
}

/// Sets the field at this path.
pub fn set(cluster: &SimCluster, name: &str, path: &[&str], value: impl Into<Value>) {
    let mut widget = get(cluster, name).unwrap();
    *path.iter().fold(&mut widget, |at, field| &mut at[*field]) = value.into();
    cluster.update(widget).unwrap();
}

pub fn size(cluster: &SimCluster, name: &str, size: u64) {
    set(cluster, name, &["spec", "size"], size);
}

pub fn annotate(cluster: &SimCluster, name: &str, annotation: &str, text: &str) {
    set(cluster, name, &["metadata", "annotations", annotation], text);
}

/// The owner of a source gives up its target in `berlin`.
pub fn give_up(cluster: &SimCluster, name: &str) {
    annotate(cluster, name, ABANDON, "berlin");
}

pub fn delete(cluster: &SimCluster, name: &str) {
    cluster.delete(WIDGETS, &key(name)).unwrap();
}

/// Ends a source although its targets are there.
pub fn end(cluster: &SimCluster, name: &str) {
    set(cluster, name, &["metadata", "finalizers"], Value::Null);
    cluster.delete(WIDGETS, &key(name)).ok();
}

/// An object of the same contents.
pub fn anew(of: &Value) -> Value {
    let mut object = of.clone();
    let meta = object["metadata"].as_object_mut().unwrap();
    meta.retain(|field, _| ["name", "namespace", "labels", "annotations", "finalizers"].contains(&&**field));
    object
}

/// How many requests for Widgets and their status have this verb.
pub fn count(cluster: &SimCluster, verb: &str) -> usize {
    let audit = cluster.audit();
    audit.count(|it| it.verb == verb && it.resource.starts_with("widgets"))
}

/// Asks again and again, later and later: in an hour of paused time, a thousand times and not a million.
#[track_caller]
pub fn until<A: Answer>(what: impl Display, mut ask: impl FnMut() -> A) -> impl Future<Output = A::Value> {
    let caller = Location::caller();
    async move {
        let began = Instant::now();
        loop {
            if let Some(value) = ask().value() {
                return value;
            }
            let waited = began.elapsed();
            assert!(waited < LIMIT, "not within {LIMIT:?}: {what} ({caller})");
            sleep((waited / 200).clamp(Duration::from_millis(5), secs(1))).await;
        }
    }
}

/// Waits until a cluster has a Widget of this name with this size. Returns it.
#[track_caller]
pub fn is_there(cluster: &SimCluster, name: &str, size: u64) -> impl Future<Output = Value> {
    let found = move || get(cluster, name).filter(|found| found["spec"]["size"] == size);
    until(format!("{name} in {} of size {size}", cluster.name()), found)
}

#[track_caller]
pub fn is_gone(cluster: &SimCluster, name: &str) -> impl Future<Output = ()> {
    let is_gone = move || get(cluster, name).is_none();
    until(format!("no {name} in {}", cluster.name()), is_gone)
}

#[track_caller]
pub fn has(text: &str, words: &[&str]) {
    let has_all = words.iter().all(|words| text.contains(words));
    assert!(has_all, "{text}, and not {words:?}");
}

impl World {
    /// All clusters have the kind, and `team-a` has these sources.
    pub fn with(sources: &[&str]) -> Self {
        let world = Self::new();
        for cluster in [&world.team_a, &world.team_b, &world.berlin, &world.lyon] {
            cluster.create(crd()).unwrap();
        }
        for source in sources {
            make(&world.team_a, source, json!({"size": 1}));
        }
        world
    }

    /// A world with these sources, whose targets are made.
    pub async fn of(sources: &[&str], sync: Widgets) -> Self {
        let mut world = Self::with(sources);
        world.begin(sync);
        for source in sources {
            world.synced(source).await;
        }
        world
    }

    pub fn begin(&mut self, sync: Widgets) {
        self.begin_with(sync.build().unwrap());
    }

    /// Starts a program with all clusters, with gates.
    pub fn begin_with(&mut self, controller: BuiltController) {
        self.run([controller], "");
        self.clusters.add(self.team_gate.before(&self.team_a, "source"));
        self.clusters.add(self.berlin_gate.before(&self.berlin, "target"));
    }

    /// Changes the size of a source in `team-a`.
    pub fn size(&self, name: &str, to: u64) {
        size(&self.team_a, name, to);
    }

    /// Deletes a source in `team-a`, and waits until it is released.
    pub async fn ends(&self, name: &str) {
        delete(&self.team_a, name);
        is_gone(&self.team_a, name).await;
    }

    pub fn failing(&self) -> Vec<FailingRequest> {
        let clusters = self.handles.iter().flat_map(|handle| handle.status().clusters);
        clusters.flat_map(|(_, status)| status.failing).collect()
    }

    /// Waits for a failure whose text has these words.
    #[track_caller]
    pub fn fails(&self, words: &str) -> impl Future<Output = FailingRequest> {
        let is_it = move |failure: &FailingRequest| failure.error.contains(words);
        let find = move || self.failing().into_iter().find(is_it);
        until(format!("a failure with {words:?}"), find)
    }

    /// Waits for a failure with these words, which is not tried again before something changes.
    pub async fn waits(&self, words: &str) -> FailingRequest {
        let failure = self.fails(words).await;
        assert_eq!(failure.retry_at, None, "{failure:?}");
        failure
    }

    /// Reason and message of the condition of a source in `team-a`.
    pub fn condition(&self, name: &str) -> Option<(String, String)> {
        let source = get(&self.team_a, name)?;
        let mut conditions = source["status"]["conditions"].as_array()?.iter();
        let condition = conditions.find(|condition| condition["type"] == "Synced")?;
        let text = |field: &str| condition[field].as_str().map(str::to_owned);
        Some((text("reason")?, text("message")?))
    }

    /// The events of a source in `team-a`.
    pub fn events(&self, name: &str) -> Vec<String> {
        let (key, mut events) = (key(name), self.team_a.list("events.events.k8s.io", ""));
        events.retain(|event| key.split_once('/').unwrap().1 == event["regarding"]["name"]);
        let text =
            |event: &Value| ["type", "reason", "note"].map(|field| event[field].as_str().unwrap().to_owned());
        events.iter().map(|event| text(event).join(" ")).collect()
    }

    /// Waits until a source in `team-a` has an event that begins so.
    #[track_caller]
    pub fn event(&self, name: &str, text: &str) -> impl Future<Output = ()> {
        let found = move || self.events(name).iter().any(|event| event.starts_with(text));
        until(format!("the event {text:?} of {name}"), found)
    }

    /// Waits until the condition of a source in `team-a` has this reason and these words. Returns the message.
    pub async fn condition_is(&self, name: &str, reason: &str, words: &str) -> String {
        let is_it = |(found, message): &(String, String)| found == reason && message.contains(words);
        let what = format!("{reason} for {name} with {words:?}");
        until(what, || self.condition(name).filter(is_it)).await.1
    }

    /// Waits for the condition of a problem, and for an event with the same text.
    pub async fn reported(&self, name: &str, reason: &str, words: &str) -> String {
        let message = self.condition_is(name, reason, words).await;
        // kube names an event after its object, and adds up to 20 characters.
        if name.len() <= 230 {
            let text: String = message.chars().take(1000).collect();
            self.event(name, &format!("Warning {reason} {text}")).await;
        }
        message
    }

    pub async fn synced(&self, name: &str) {
        self.condition_is(name, "Synced", "").await;
    }
}
