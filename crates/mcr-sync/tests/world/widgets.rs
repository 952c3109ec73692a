//! Widgets, and a sync of them that keeps their names.
//!
//! A name stands for an object in the namespace `default`, unless it has another one before a '/'.

pub use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

pub use kube::core::DynamicObject;
pub use mcr::{BoxError, BuiltController, ClusterSelector, ClusterSpec, FailingRequest};
use mcr_sync::{ABANDON, NameTemplate};
pub use mcr_testkit::sim::{SimAuditEvent, SimCluster};
use mcr_testkit::{
    sim::{SimRule, SimUser},
    waiting::{Answer, eventually},
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

/// The kind has the status subresource, and `size` may be at most 10.
pub fn crd() -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut spec = open.clone();
    spec["properties"] = json!({"size": {"type": "integer", "maximum": 10}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": WIDGETS},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {
                "openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": open}}}}],
        },
    })
}

/// Changes the schema of the spec in a cluster.
pub fn schema(cluster: &SimCluster, change: impl FnOnce(&mut Value)) {
    let mut crd = cluster.get(CRDS, WIDGETS).unwrap();
    change(&mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]);
    cluster.update(crd).unwrap();
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
    let user = rules
        .iter()
        .fold(SimUser::new("admin"), |user, (resource, verbs)| {
            user.rule(SimRule::new(["*"], [*resource], verbs.iter().copied()))
        });
    cluster.set_user(cluster.admin_token(), user);
}

/// A sync to `berlin` that keeps names and the spec, and tells all it can.
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
    let limited =
        sync.build_with(|controller| controller.watch_request(|request| request.labels("copy=yes")));
    limited.unwrap()
}

/// Counts the looks at sources.
pub fn counted(sync: Widgets) -> (Widgets, Arc<AtomicUsize>) {
    let looks = Arc::new(AtomicUsize::new(0));
    let counter = looks.clone();
    let count = move |_: &DynamicObject| counter.fetch_add(1, Ordering::Relaxed) < usize::MAX;
    (sync.filter(count), looks)
}

fn key(name: &str) -> String {
    match name.contains('/') {
        true => name.to_owned(),
        false => format!("default/{name}"),
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

pub fn change(cluster: &SimCluster, name: &str, change: impl FnOnce(&mut Value)) {
    let mut widget = get(cluster, name).unwrap();
    change(&mut widget);
    cluster.update(widget).unwrap();
}

pub fn size(cluster: &SimCluster, name: &str, size: u64) {
    change(cluster, name, |widget| widget["spec"]["size"] = size.into());
}

pub fn annotate(cluster: &SimCluster, name: &str, annotation: &str, text: &str) {
    let annotate = |widget: &mut Value| widget["metadata"]["annotations"][annotation] = text.into();
    change(cluster, name, annotate);
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
    change(cluster, name, |source| {
        source["metadata"]["finalizers"] = Value::Null
    });
    cluster.delete(WIDGETS, &key(name)).ok();
}

/// An object of the same contents.
pub fn anew(of: &Value) -> Value {
    let mut object = of.clone();
    let meta = object["metadata"].as_object_mut().unwrap();
    meta.retain(|field, _| ["name", "namespace", "labels", "annotations", "finalizers"].contains(&&**field));
    object
}

/// The requests with this verb, for objects and for their status.
pub fn requests(cluster: &SimCluster, verb: &str) -> [usize; 2] {
    let audit = cluster.audit();
    ["", "status"].map(|of| {
        let is_one = |resource: &str| resource == "widgets" || resource == "widgets/status";
        audit.count(|it| {
            it.verb == verb && is_one(&it.resource) && it.resource.ends_with("status") != of.is_empty()
        })
    })
}

#[track_caller]
pub fn until<A: Answer>(
    what: impl std::fmt::Display,
    ask: impl FnMut() -> A,
) -> impl Future<Output = A::Value> {
    eventually(LIMIT, what, ask)
}

/// Waits until a cluster has a Widget of this name with this size. Returns it.
#[track_caller]
pub fn is_there(cluster: &SimCluster, name: &str, size: u64) -> impl Future<Output = Value> {
    let found = move || get(cluster, name).filter(|found| found["spec"]["size"] == size);
    until(format!("{name} in {} of size {size}", cluster.name()), found)
}

#[track_caller]
pub fn is_gone(cluster: &SimCluster, name: &str) -> impl Future<Output = ()> {
    until(format!("no {name} in {}", cluster.name()), move || {
        get(cluster, name).is_none()
    })
}

#[track_caller]
pub fn has(text: &str, words: &[&str]) {
    assert!(
        words.iter().all(|words| text.contains(words)),
        "{text}, and not {words:?}"
    );
}

impl World {
    /// All clusters have the kind, and `team-a` has these sources.
    pub fn with(sources: &[&str]) -> Self {
        Self::without_kind_in("", sources)
    }

    pub fn without_kind_in(absent: &str, sources: &[&str]) -> Self {
        let world = Self::new();
        for cluster in [&world.team_a, &world.team_b, &world.berlin, &world.lyon] {
            if cluster.name() != absent {
                cluster.create(crd()).unwrap();
            }
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

    pub fn failing(&self) -> Vec<FailingRequest> {
        let clusters = self.handles.iter().flat_map(|handle| handle.status().clusters);
        clusters.flat_map(|(_, status)| status.failing).collect()
    }

    /// Waits for a failure whose text has these words.
    #[track_caller]
    pub fn fails(&self, words: &str) -> impl Future<Output = FailingRequest> {
        let is_it = move |failure: &FailingRequest| failure.error.contains(words);
        until(format!("a failure with {words:?}"), move || {
            self.failing().into_iter().find(is_it)
        })
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
        let mut events = self.team_a.list("events.events.k8s.io", "");
        events.retain(|event| {
            key(name).ends_with(&format!("/{}", event["regarding"]["name"].as_str().unwrap()))
        });
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
    pub async fn told(&self, name: &str, reason: &str, words: &str) -> String {
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
