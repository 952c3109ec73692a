//! A kcp with a provider and two consumers, a service cluster, the controller, and the simulated operator.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use k8s_openapi::ByteString;
use kube::{
    Api, Client, Config,
    api::{DeleteParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use mcr::{Access, Fleet, HUB, Manager, ManagerBuilder, ManagerError, Trust};
use mcr_provider_single::SingleProvider;
use mcr_testkit::{
    kcp::{Kcp, KcpServer},
    sim::{SimAuditEvent, SimCluster, SimRule, SimUser},
    waiting::{Background, OrFail},
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::{controller, operator};
use crate::kcp::{Example, PATIENCE, requests, texts};

pub(super) const EXAMPLE: Example = Example("kcp-mongodb");
pub(super) const ROLE: &str = "mongodb-controller";
const REAL: &str = "MCR_KCP_KUBECONFIG";

/// A kind: group, version, kind, plural.
type Kind = (&'static str, &'static str, &'static str, &'static str);
pub(super) const DATABASE: Kind = ("db.example.io", "v1", "Database", "databases");
pub(super) const BINDING: Kind = ("apis.kcp.io", "v1alpha2", "APIBinding", "apibindings");
pub(super) const SLICE: Kind = (
    "apis.kcp.io",
    "v1alpha1",
    "APIExportEndpointSlice",
    "apiexportendpointslices",
);
pub(super) const SECRET: Kind = ("", "v1", "Secret", "secrets");
pub(super) const EVENT: Kind = ("events.k8s.io", "v1", "Event", "events");
pub(super) const MONGODB: Kind = (
    "mongodbcommunity.mongodb.com",
    "v1",
    "MongoDBCommunity",
    "mongodbcommunity",
);

/// An API server: a workspace or the service cluster.
#[derive(Clone)]
pub(super) struct Server(pub(super) Client);

impl Server {
    fn api(&self, kind: Kind, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version, name, plural) = kind;
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, name), plural);
        match namespace {
            Some(namespace) => Api::namespaced_with(self.0.clone(), namespace, &resource),
            None => Api::all_with(self.0.clone(), &resource),
        }
    }

    /// Of a key `namespace/name` or `name`.
    fn at<'a>(&self, kind: Kind, key: &'a str) -> (Api<DynamicObject>, &'a str) {
        match key.split_once('/') {
            Some((namespace, name)) => (self.api(kind, Some(namespace)), name),
            None => (self.api(kind, None), key),
        }
    }

    pub(super) async fn get(&self, kind: Kind, key: &str) -> Option<Value> {
        let (api, name) = self.at(kind, key);
        let found = api.get_opt(name).await.or_fail();
        found.map(|object| serde_json::to_value(object).unwrap())
    }

    pub(super) async fn list(&self, kind: Kind, namespace: &str) -> Vec<Value> {
        let found = self.api(kind, Some(namespace)).list(&Default::default()).await;
        let found = found.or_fail().items.into_iter();
        found
            .map(|object| serde_json::to_value(object).unwrap())
            .collect()
    }

    pub(super) async fn delete(&self, kind: Kind, key: &str) {
        let (api, name) = self.at(kind, key);
        api.delete(name, &DeleteParams::default()).await.or_fail();
    }

    pub(super) async fn patch(&self, kind: Kind, key: &str, patch: Value) {
        let (api, name) = self.at(kind, key);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .or_fail();
    }

    /// Applies an object as kubectl does. A kind that has just been made may take a moment to be served.
    pub(super) async fn apply(&self, object: Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let (group, version) = version.rsplit_once('/').unwrap_or(("", &version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.0.clone(), namespace, &resource),
            None => Api::all_with(self.0.clone(), &resource),
        };
        let (name, params) = (
            text(&object["metadata"]["name"]),
            PatchParams::apply("test").force(),
        );
        let what = format!("{kind} {name} is accepted");
        until(&what, async || {
            let applied = api.patch(&name, &params, &Patch::Apply(&object)).await;
            match applied {
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => None,
                applied => Some(applied.or_fail()),
            }
        })
        .await;
    }
}

/// Asks until there is an answer.
pub(super) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begin.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A workspace.
#[derive(Clone)]
pub(super) struct Workspace {
    pub(super) server: Server,
    pub(super) id: String,
    pub(super) path: String,
}

impl Workspace {
    /// The database `default/orders`, when it is as wanted.
    pub(super) async fn orders(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let what = format!("orders in {}: {what}", self.path);
        until(&what, async || {
            let found = self.server.get(DATABASE, "default/orders").await;
            found.filter(|object| wanted(object))
        })
        .await
    }

    pub(super) async fn phase(&self, phase: &str) -> Value {
        self.orders(phase, |object| object["status"]["phase"] == phase)
            .await
    }

    /// The condition `Synced` has this reason. Returns its message.
    pub(super) async fn told(&self, reason: &str) -> String {
        let message = |object: &Value| {
            let list = object["status"]["conditions"].as_array()?;
            let synced = list.iter().find(|condition| condition["type"] == "Synced")?;
            (synced["reason"] == reason).then(|| synced["message"].as_str().unwrap().to_owned())
        };
        let object = self.orders(reason, |object| message(object).is_some()).await;
        message(&object).unwrap()
    }

    pub(super) async fn change(&self, spec: Value) {
        let patch = json!({"spec": spec});
        self.server.patch(DATABASE, "default/orders", patch).await;
    }

    /// The consumer chooses a password.
    pub(super) async fn password(&self, password: &str) {
        let patch = json!({"stringData": {"password": password}});
        self.server.patch(SECRET, "default/orders-password", patch).await;
    }

    /// A Secret of the consumer, when it has this password.
    pub(super) async fn secret(&self, name: &str, password: &str) -> Value {
        let wanted = json!(ByteString(password.as_bytes().to_vec()));
        let what = format!("{name} in {}", self.path);
        until(&what, async || {
            let found = self.server.get(SECRET, &format!("default/{name}")).await;
            found.filter(|secret| secret["data"]["password"] == wanted)
        })
        .await
    }

    pub(super) async fn gone(&self, kind: Kind, key: &str) {
        let what = format!("{key} is gone from {}", self.path);
        until(&what, async || {
            self.server.get(kind, key).await.is_none().then_some(())
        })
        .await;
    }
}

/// Where kcp is.
enum Home {
    Double(KcpServer),
    /// A kubeconfig of its admin.
    Real(Kubeconfig),
}

pub(super) struct World {
    home: Home,
    pub(super) mongodb: Workspace,
    pub(super) shop: Workspace,
    pub(super) bank: Workspace,
    pub(super) sim: SimCluster,
    pub(super) service: Server,
    token: String,
    controller: Option<(Fleet, Background<Result<(), ManagerError>>)>,
    operator: Option<Background<Result<(), ManagerError>>>,
}

impl World {
    /// The workspace of the API, two workspaces without a binding, and a service cluster with the operator. The controller
    /// does not run yet.
    pub(super) async fn new() -> Self {
        Self::with_shards(1).await
    }

    pub(super) async fn with_shards(shards: usize) -> Self {
        let home = match std::env::var_os(REAL) {
            Some(path) => Home::Real(Kubeconfig::read_from(path).or_fail()),
            None => Home::Double(Kcp::builder().shards(shards).serve().await.or_fail()),
        };
        static WORLDS: AtomicUsize = AtomicUsize::new(0);
        let world = WORLDS.fetch_add(1, Ordering::Relaxed);
        let mut workspaces = Vec::new();
        for (number, object) in EXAMPLE.manifest("workspaces.yaml").into_iter().enumerate() {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            workspaces.push(match &home {
                Home::Double(server) => {
                    let path = format!("root:{name}");
                    // The consumers are on different shards if there are two.
                    let shard = if number == 2 && shards > 1 {
                        "shard-1"
                    } else {
                        "root"
                    };
                    let made = server.kcp().create_workspace_on(&path, shard).or_fail();
                    Workspace {
                        server: Server(server.kcp().client(&path)),
                        id: made.id().to_owned(),
                        path,
                    }
                }
                Home::Real(kubeconfig) => {
                    let name = format!("{name}-{}-{world}", std::process::id());
                    real_workspace(kubeconfig, &name, object).await
                }
            });
        }
        let [mongodb, shop, bank] = workspaces.try_into().ok().unwrap();
        let sim = SimCluster::builder().name("service").build();
        let mut service = SimUser::new("database-service");
        for object in EXAMPLE.manifest("service-rbac.yaml") {
            let namespace = object["metadata"]["namespace"].as_str();
            for rule in object["rules"].as_array().into_iter().flatten() {
                let of = |field: &str| texts(&rule[field]);
                let rule = SimRule::new(of("apiGroups"), of("resources"), of("verbs"));
                let rule = match namespace {
                    Some(namespace) => rule.in_namespace(namespace),
                    None => rule,
                };
                service = service.rule(rule);
            }
        }
        sim.set_user("least", service);
        let mut world = Self {
            home,
            mongodb,
            shop,
            bank,
            service: Server(sim.client()),
            sim,
            token: "least".into(),
            controller: None,
            operator: None,
        };
        for manifest in ["service-rbac.yaml", "service-crd.yaml"] {
            for object in EXAMPLE.manifest(manifest) {
                world.sim.create(object).or_fail();
            }
        }
        for manifest in ["export.yaml", "rbac.yaml"] {
            for object in EXAMPLE.manifest(manifest) {
                world.mongodb.server.apply(object).await;
            }
        }
        world.issue_token().await;
        world.operate(operator::Mood::Quick).await;
        world
    }

    /// As [`new`](Self::new), with both consumers bound, each with a database, and the controller.
    pub(super) async fn ready() -> Self {
        let mut world = Self::new().await;
        world.start();
        for workspace in [&world.shop, &world.bank] {
            world.bind(workspace).await;
            world.order(workspace).await;
        }
        for workspace in [&world.shop, &world.bank] {
            workspace.phase("Ready").await;
        }
        world
    }

    async fn issue_token(&mut self) {
        match &self.home {
            Home::Double(server) => {
                let workspace = server.kcp().workspace(&self.mongodb.path).unwrap();
                let user = EXAMPLE.user(&workspace, ROLE);
                server.kcp().set_user("least", user);
            }
            Home::Real(_) => {
                let server = &self.mongodb.server;
                let token = until("a token", async || {
                    let secret = server.get(SECRET, "default/mongodb-controller-token").await?;
                    secret["data"]["token"].as_str().map(str::to_owned)
                })
                .await;
                let token: ByteString = serde_json::from_value(token.into()).unwrap();
                self.token = String::from_utf8(token.0).unwrap();
            }
        }
    }

    /// The double, unless the tests run on a real kcp.
    pub(super) fn double(&self) -> Option<&KcpServer> {
        match &self.home {
            Home::Double(server) => Some(server),
            Home::Real(_) => None,
        }
    }

    fn kcp_access(&self) -> Access {
        let kubeconfig = match &self.home {
            Home::Double(server) => server.kubeconfig_with_token(&self.mongodb.path, &self.token),
            Home::Real(kubeconfig) => {
                let mut least = at(kubeconfig, &self.mongodb.path);
                let user = least.auth_infos.first_mut().unwrap();
                *user = serde_json::from_value(json!({"name": user.name, "user": {"token": self.token}}))
                    .unwrap();
                serde_json::to_string(&least).unwrap()
            }
        };
        Access::kubeconfig(kubeconfig, Trust::Trusted)
    }

    /// Starts the controller, with the rights of the manifests.
    pub(super) fn start(&mut self) {
        self.start_at(Access::from(self.least()));
    }

    /// As [`start`](Self::start), with this way to the service cluster.
    pub(super) fn start_at(&mut self, service: Access) {
        let manager = self.program(Manager::builder(), service).build().or_fail();
        let fleet = manager.fleet().clone();
        self.controller = Some((fleet, Background::start(|stop| manager.run_until(stop))));
    }

    /// A controller that can be killed: its runtime ends at once, whatever runs.
    pub(super) fn victim(&self, manager: impl FnOnce() -> ManagerBuilder) -> Runtime {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let _entered = runtime.enter();
        let manager = self
            .program(manager(), Access::from(self.least()))
            .build()
            .or_fail();
        runtime.spawn(manager.run_until(CancellationToken::new()));
        drop(_entered);
        runtime
    }

    /// The service cluster with the rights of the manifest.
    pub(super) fn least(&self) -> Client {
        self.sim.client_with_token("least")
    }

    fn program(&self, manager: ManagerBuilder, service: Access) -> ManagerBuilder {
        let consumers = controller::consumers(self.kcp_access(), "mongodb".into()).or_fail();
        let service = SingleProvider::named(HUB, service).or_fail();
        controller::manager(manager, consumers, service).or_fail()
    }

    pub(super) async fn stop(&mut self) {
        let (_, running) = self.controller.take().unwrap();
        running.stop().await.or_fail();
    }

    pub(super) fn fleet(&self) -> &Fleet {
        &self.controller.as_ref().unwrap().0
    }

    /// Replaces the operator by one that behaves like this.
    pub(super) async fn operate(&mut self, mood: operator::Mood) {
        if let Some(former) = self.operator.take() {
            former.stop().await.or_fail();
        }
        let cluster = SingleProvider::named("service", self.sim.client()).or_fail();
        let manager = Manager::builder()
            .provider(cluster)
            .controller(operator::operator(mood))
            .build()
            .or_fail();
        self.operator = Some(Background::start(|stop| manager.run_until(stop)));
    }

    /// The workspace binds the export.
    pub(super) async fn bind(&self, workspace: &Workspace) {
        for mut object in EXAMPLE.manifest("binding.yaml") {
            object["spec"]["reference"]["export"]["path"] = self.mongodb.path.clone().into();
            workspace.server.apply(object).await;
        }
        let what = format!("the binding in {} is ready", workspace.path);
        until(&what, async || {
            let binding = workspace.server.get(BINDING, "mongodb").await?;
            (binding["status"]["phase"] == "Bound").then_some(())
        })
        .await;
    }

    /// The workspace orders the database of the manifest.
    pub(super) async fn order(&self, workspace: &Workspace) {
        for object in EXAMPLE.manifest("database.yaml") {
            workspace.server.apply(object).await;
        }
    }

    /// The name on the service cluster of what `orders` in a workspace became.
    pub(super) fn name(&self, workspace: &Workspace) -> String {
        let source = mcr_sync::SourceName {
            cluster: &workspace.id,
            namespace: Some("default"),
            name: "orders",
        };
        mcr_sync::hashed(source)
    }

    /// What `orders` in a workspace became.
    pub(super) async fn placed(&self, workspace: &Workspace) -> Option<Value> {
        let key = format!("mongodb/{}", self.name(workspace));
        self.service.get(MONGODB, &key).await
    }

    /// The same, when it is as wanted.
    pub(super) async fn runs(
        &self,
        workspace: &Workspace,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let what = format!("the database of {}: {what}", workspace.path);
        until(&what, async || {
            self.placed(workspace).await.filter(|object| wanted(object))
        })
        .await
    }

    /// It is gone.
    pub(super) async fn ended(&self, workspace: &Workspace) {
        let what = format!("the database of {} is gone", workspace.path);
        until(&what, async || {
            self.placed(workspace).await.is_none().then_some(())
        })
        .await;
    }

    /// The writes of the controller to the service cluster, without those to its Lease.
    pub(super) fn writes(&self) -> usize {
        self.sim.audit().count(|event| {
            let counts = event.is_start() && event.user == "database-service" && event.resource != "leases";
            counts && is_write(event)
        })
    }

    /// The writes of the controller to kcp. None on a real one.
    pub(super) fn writes_to_kcp(&self) -> usize {
        let all = self.double().map(requests).unwrap_or_default();
        all.iter().filter(|event| is_write(event)).count()
    }
}

fn is_write(event: &SimAuditEvent) -> bool {
    ["create", "update", "patch", "delete"].contains(&&*event.verb)
}

/// The kubeconfig with another workspace.
fn at(kubeconfig: &Kubeconfig, path: &str) -> Kubeconfig {
    let mut kubeconfig = kubeconfig.clone();
    let current = kubeconfig.current_context.clone().unwrap();
    kubeconfig.contexts.retain(|context| context.name == current);
    let context = kubeconfig.contexts[0].context.clone().unwrap();
    kubeconfig
        .clusters
        .retain(|cluster| cluster.name == context.cluster);
    let user = context.user.unwrap();
    kubeconfig.auth_infos.retain(|info| info.name == user);
    let cluster = kubeconfig.clusters[0].cluster.as_mut().unwrap();
    let server = cluster.server.take().unwrap();
    let base = server.split("/clusters/").next().unwrap();
    cluster.server = Some(format!("{base}/clusters/{path}"));
    kubeconfig
}

async fn real_client(kubeconfig: &Kubeconfig, path: &str) -> Server {
    let config = Config::from_custom_kubeconfig(at(kubeconfig, path), &KubeConfigOptions::default()).await;
    Server(Client::try_from(config.or_fail()).or_fail())
}

async fn real_workspace(kubeconfig: &Kubeconfig, name: &str, mut object: Value) -> Workspace {
    let root = real_client(kubeconfig, "root").await;
    object["metadata"]["name"] = name.into();
    root.apply(object).await;
    let kind = ("tenancy.kcp.io", "v1alpha1", "Workspace", "workspaces");
    let workspace = until("a workspace", async || {
        let workspace = root.get(kind, name).await?;
        (workspace["status"]["phase"] == "Ready").then_some(workspace)
    })
    .await;
    let path = format!("root:{name}");
    Workspace {
        server: real_client(kubeconfig, &path).await,
        id: workspace["spec"]["cluster"].as_str().unwrap().to_owned(),
        path,
    }
}
