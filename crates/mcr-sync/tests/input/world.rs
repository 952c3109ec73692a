//! Two source clusters, two target clusters, and a sync of Widgets between them.

use std::time::Duration;

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mcr::{
    Access, BuiltController, ClusterName, ClusterSelector, ClusterSpec, ControllerHandle, FailingRequest,
    Manager, ManagerError,
};
use mcr_provider_clusters::{ClustersHandle, ClustersProvider};
use mcr_sync::{NameTemplate, ObjectSync};
use mcr_testkit::{
    sim::{SimCluster, SimRule, SimUser},
    waiting::{Background, eventually},
};
use serde_json::{Value, json};

/// A limit of virtual time.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);

pub(crate) const WIDGETS: &str = "widgets.example.com";

/// The token and the name of the user that the sync is in each cluster.
pub(crate) const USER: &str = "sync";

pub(crate) type Widgets = ObjectSync<DynamicObject, DynamicObject>;

/// The source clusters `team` and `other`, and the target clusters `berlin` and `lyon`.
pub(crate) struct World {
    pub(crate) team: SimCluster,
    pub(crate) other: SimCluster,
    pub(crate) berlin: SimCluster,
    pub(crate) lyon: SimCluster,
    pub(crate) clusters: ClustersHandle,
    running: Option<(ControllerHandle, Background<Result<(), ManagerError>>)>,
}

pub(crate) fn widgets() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"))
}

/// The kind has the status subresource, and `size` may be at most 10.
pub(crate) fn crd() -> Value {
    let schema = json!({"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"spec": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"size": {"type": "integer", "maximum": 10}},
        }},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": WIDGETS},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": schema}],
        },
    })
}

pub(crate) fn widget(namespace: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

pub(crate) fn name(cluster: &str) -> ClusterName {
    ClusterName::new(cluster).unwrap()
}

/// A sync from `team` and `other` that keeps names and the spec, and writes a condition.
pub(crate) fn sync() -> Widgets {
    Widgets::with("widgets", &widgets(), &widgets())
        .from(ClusterSelector::label("role", "source"))
        .to(name("berlin"))
        .name_by(NameTemplate::parse("{name}").unwrap())
        .project(|source, _| spec_of(source))
        .condition("Synced")
        .publish_events(true)
}

pub(crate) fn spec_of(source: &DynamicObject) -> DynamicObject {
    let mut target = DynamicObject::new("", &widgets());
    target.data = json!({"spec": source.data["spec"]});
    target
}

pub(crate) fn cluster(name: &str) -> SimCluster {
    let cluster = SimCluster::builder().name(name).managed_fields(false).build();
    allow(&cluster, &["*"]);
    cluster
}

fn user(rules: impl IntoIterator<Item = SimRule>) -> SimUser {
    rules.into_iter().fold(SimUser::new(USER), SimUser::rule)
}

/// Lets the sync do this with all objects of a cluster.
pub(crate) fn allow(cluster: &SimCluster, verbs: &[&str]) {
    cluster.set_user(USER, user([SimRule::new(["*"], ["*"], verbs.iter().copied())]));
}

/// Lets the sync do everything with these resources of a cluster.
pub(crate) fn allow_resources(cluster: &SimCluster, resources: &[&str]) {
    cluster.set_user(
        USER,
        user([SimRule::new(["*"], resources.iter().copied(), ["*"])]),
    );
}

pub(crate) fn spec(cluster: &SimCluster, role: &str) -> ClusterSpec {
    let access = Access::from(cluster.client_with_token(USER));
    ClusterSpec::named(cluster.name(), access)
        .unwrap()
        .label("role", role)
}

impl World {
    /// All clusters have the kind.
    pub(crate) fn new() -> Self {
        let world = Self::without_kind();
        for cluster in [&world.team, &world.other, &world.berlin, &world.lyon] {
            cluster.create(crd()).unwrap();
        }
        world
    }

    pub(crate) fn without_kind() -> Self {
        Self {
            team: cluster("team"),
            other: cluster("other"),
            berlin: cluster("berlin"),
            lyon: cluster("lyon"),
            clusters: ClustersProvider::new().handle(),
            running: None,
        }
    }

    pub(crate) fn start(&mut self, sync: Widgets) {
        self.start_with(sync.build().unwrap(), []);
    }

    /// Starts the sync with all clusters. `specs` replace those of the same name.
    pub(crate) fn start_with(
        &mut self,
        controller: BuiltController,
        specs: impl IntoIterator<Item = ClusterSpec>,
    ) {
        let provider = ClustersProvider::new();
        self.clusters = provider.handle();
        for (cluster, role) in [
            (&self.team, "source"),
            (&self.other, "source"),
            (&self.berlin, "target"),
            (&self.lyon, "target"),
        ] {
            self.clusters.add(spec(cluster, role));
        }
        for spec in specs {
            self.clusters.add(spec);
        }
        let handle = controller.handle();
        let manager = Manager::builder()
            .provider(provider)
            .controller(controller)
            .build()
            .unwrap();
        self.running = Some((handle, Background::start(|stop| manager.run_until(stop))));
    }

    pub(crate) async fn stop(&mut self) {
        self.running.take().unwrap().1.stop().await.unwrap();
    }

    pub(crate) fn failing(&self) -> Vec<FailingRequest> {
        let status = self.running.as_ref().unwrap().0.status();
        let clusters = status.clusters.into_iter();
        clusters.flat_map(|(_, status)| status.failing).collect()
    }

    /// Waits for a failure whose text has these words.
    pub(crate) async fn fails_with(&self, words: &str) -> FailingRequest {
        let find = || {
            self.failing()
                .into_iter()
                .find(|request| request.error.contains(words))
        };
        eventually(LIMIT, format!("a failure with {words:?}"), find).await
    }

    /// The condition of a source in `team`.
    pub(crate) fn condition(&self, name: &str) -> Option<(String, String)> {
        let widget = self.team.get(WIDGETS, &format!("default/{name}"))?;
        let condition = widget["status"]["conditions"][0].clone();
        let text = |field: &str| condition[field].as_str().map(str::to_owned);
        Some((text("reason")?, text("message")?))
    }

    /// Waits until the condition of a source in `team` has this reason, and a problem is an event with the same text too. Returns
    /// the message.
    pub(crate) async fn told(&self, name: &str, reason: &str) -> String {
        let find = || self.condition(name).filter(|(found, _)| found == reason);
        let message = eventually(LIMIT, format!("{reason} for {name}"), find).await.1;
        // kube names an event after its object, and adds up to 20 characters.
        if reason != "Synced" && name.len() <= 230 {
            let short: String = message.chars().take(1000).collect();
            let is_it = |event: &Value| {
                event["regarding"]["name"] == name
                    && event["reason"] == reason
                    && event["type"] == "Warning"
                    && event["note"]
                        .as_str()
                        .is_some_and(|note| note.starts_with(&short))
            };
            let events = || {
                self.team
                    .list("events.events.k8s.io", "default")
                    .into_iter()
                    .find(is_it)
            };
            eventually(LIMIT, format!("the event {reason} for {name}"), events).await;
        }
        message
    }

    /// Edits a source in `team`.
    pub(crate) fn edit(&self, name: &str, spec: Value) {
        let mut source = self.team.get(WIDGETS, &format!("default/{name}")).unwrap();
        source["spec"] = spec;
        self.team.update(source).unwrap();
    }
}

/// Waits until a cluster has a Widget of this name with this size. Returns it.
pub(crate) async fn is_there(cluster: &SimCluster, key: &str, size: u64) -> Value {
    let found = || {
        cluster
            .get(WIDGETS, key)
            .filter(|found| found["spec"]["size"] == size)
    };
    eventually(
        LIMIT,
        format!("{key} in {} of size {size}", cluster.name()),
        found,
    )
    .await
}

pub(crate) async fn is_gone(cluster: &SimCluster, key: &str) {
    let gone = || cluster.get(WIDGETS, key).is_none().then_some(());
    eventually(LIMIT, format!("no {key} in {}", cluster.name()), gone).await;
}
