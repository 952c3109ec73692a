use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use mcr_kcp_double::{Kcp, KcpMove, KcpServer, KcpUser};
use serde_json::{Value, json};

const LONG: Duration = Duration::from_secs(60);

/// A kcp: the double, or a real one.
pub(crate) struct World {
    kcp: Option<Kcp>,
    /// The double behind TLS.
    server: Option<KcpServer>,
    real: Option<Real>,
    /// Comes before the names of workspaces, so that tests do not meet on a real kcp.
    prefix: String,
}

struct Real {
    kubeconfig: kube::config::Kubeconfig,
    config: kube::Config,
    base: String,
}

#[derive(Clone)]
pub(crate) struct Workspace {
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) client: kube::Client,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) text: String,
    pub(crate) json: Value,
}

/// An open watch.
pub(crate) struct Watch {
    body: Body,
    buffer: Vec<u8>,
}

/// The double with this many shards, and the real kcp if one is named.
pub(crate) async fn worlds(shards: usize) -> Vec<World> {
    let kcp = Kcp::builder().shards(shards).build();
    of_both(kcp, None).await
}

/// As [`worlds`], with the double behind TLS.
pub(crate) async fn served_worlds(shards: usize) -> Vec<World> {
    let server = Kcp::builder().shards(shards).serve().await.unwrap();
    of_both(server.kcp().clone(), Some(server)).await
}

async fn of_both(kcp: Kcp, server: Option<KcpServer>) -> Vec<World> {
    let double = World {
        kcp: Some(kcp),
        server,
        real: None,
        prefix: String::new(),
    };
    let mut worlds = vec![double];
    if let Some(path) = std::env::var_os("MCR_KCP_KUBECONFIG") {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let kubeconfig = kube::config::Kubeconfig::read_from(path).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &Default::default())
            .await
            .unwrap();
        let server = config.cluster_url.to_string();
        let base = server
            .split("/clusters/")
            .next()
            .unwrap()
            .trim_end_matches('/')
            .to_owned();
        let real = Real {
            kubeconfig,
            config,
            base,
        };
        worlds.push(World {
            kcp: None,
            server: None,
            real: Some(real),
            prefix: format!("t{}-{number}-", std::process::id()),
        });
    }
    worlds
}

impl World {
    /// A client of the admin at a URL of this kcp.
    pub(crate) fn at(&self, url: &str) -> kube::Client {
        match (&self.kcp, &self.real) {
            (Some(kcp), _) => kcp.client_at(url, kcp.admin_token()).unwrap(),
            (_, Some(real)) => {
                let mut config = real.config.clone();
                config.cluster_url = url.parse().unwrap();
                config.read_timeout = None;
                kube::Client::try_from(config).unwrap()
            }
            _ => unreachable!(),
        }
    }

    pub(crate) fn double(&self) -> Option<&Kcp> {
        self.kcp.as_ref()
    }

    pub(crate) fn is_real(&self) -> bool {
        self.real.is_some()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        match (&self.kcp, &self.real) {
            (Some(kcp), _) => kcp.url(path),
            (_, Some(real)) => format!("{}/clusters/{path}", real.base),
            _ => unreachable!(),
        }
    }

    /// A kubeconfig for a workspace: of the admin, or of the user of a token. The double has to be behind TLS.
    pub(crate) fn kubeconfig(&self, path: &str, token: Option<&str>) -> String {
        let Some(real) = &self.real else {
            let server = self.server.as_ref().expect("a served world");
            let token = token.unwrap_or(server.kcp().admin_token());
            return server.kubeconfig_with_token(path, token);
        };
        let mut kubeconfig = serde_json::to_value(&real.kubeconfig).unwrap();
        for cluster in kubeconfig["clusters"].as_array_mut().unwrap() {
            cluster["cluster"]["server"] = self.url(path).into();
        }
        for user in kubeconfig["users"].as_array_mut().unwrap() {
            if let Some(token) = token {
                user["user"] = json!({ "token": token });
            }
        }
        kubeconfig.to_string()
    }

    /// The token of a user with the least rights that the provider of `widgets` needs.
    pub(crate) async fn provider_token(&self, provider: &Workspace) -> String {
        let rules = json!([
            { "apiGroups": ["apis.kcp.io"], "resources": ["apiexportendpointslices"], "verbs": ["get", "list", "watch"] },
            { "apiGroups": ["apis.kcp.io"], "resources": ["apiexports/content"], "resourceNames": ["widgets"], "verbs": ["*"] },
        ]);
        let user = KcpUser::new("provider").provider(&provider.id, "widgets");
        self.token_of(provider, user, rules).await
    }

    /// The token of a user of the double, or of a ServiceAccount in a workspace with the same rules.
    pub(crate) async fn token_of(&self, provider: &Workspace, user: KcpUser, rules: Value) -> String {
        if let Some(kcp) = &self.kcp {
            kcp.set_user("least", user);
            return "least".to_owned();
        }
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let version = "rbac.authorization.k8s.io/v1";
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        let named = json!({ "name": "provider", "namespace": "default" });
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": named });
        create(&provider.client, accounts, &account).await;
        let role = json!({
            "apiVersion": version, "kind": "ClusterRole", "metadata": { "name": "provider" },
            "rules": rules,
        });
        create(&provider.client, &format!("{rbac}/clusterroles"), &role).await;
        let bound = json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": { "name": "provider" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "provider" },
            "subjects": [{ "kind": "ServiceAccount", "name": "provider", "namespace": "default" }],
        });
        create(&provider.client, &format!("{rbac}/clusterrolebindings"), &bound).await;
        let asked = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
        let made = create(&provider.client, &format!("{accounts}/provider/token"), &asked).await;
        made.json["status"]["token"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn has_two_shards(&self) -> bool {
        let shards = get(&self.at(&self.url("root")), "/apis/core.kcp.io/v1alpha1/shards").await;
        self.kcp.is_some() || names(&shards).len() > 1
    }

    /// The URL of the root shard among those of all shards.
    pub(crate) async fn of_root(&self, urls: Vec<String>) -> String {
        let root = get(
            &self.at(&self.url("root")),
            "/apis/core.kcp.io/v1alpha1/shards/root",
        )
        .await;
        let base = root.json["spec"]["virtualWorkspaceURL"]
            .as_str()
            .unwrap_or_default();
        let found = urls.iter().find(|url| url.starts_with(base));
        found.expect("the root shard has a URL").clone()
    }

    /// Moves a workspace to another shard. `false` if this kcp does not do that.
    pub(crate) async fn move_to(&self, workspace: &Workspace, shard: &str) -> bool {
        if let Some(kcp) = &self.kcp {
            kcp.move_workspace(&workspace.id, shard, KcpMove::NewFirst)
                .unwrap();
            return true;
        }
        const MOVES: &str = "/apis/migration.kcp.io/v1alpha1/logicalclustermigrations";
        let from = self.workspace(&format!("moves-{}", workspace.id)).await;
        let mut binding = binding(&from, json!([]));
        binding["spec"]["reference"]["export"] = json!({ "path": "root", "name": "migration.kcp.io" });
        if post(&from.client, BINDINGS, &binding).await.code != 201 {
            return false;
        }
        let object = json!({
            "apiVersion": "migration.kcp.io/v1alpha1", "kind": "LogicalClusterMigration", "metadata": { "name": "move" },
            "spec": { "logicalCluster": workspace.id, "destinationShard": shard },
        });
        create(&from.client, MOVES, &object).await;
        // Nothing happens without the feature gate LogicalClusterMigration.
        let at = format!("{MOVES}/move");
        let end = tokio::time::Instant::now() + Duration::from_secs(10);
        while get(&from.client, &at).await.json["status"]["originShard"].is_null() {
            if tokio::time::Instant::now() > end {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        until(&from.client, &at, |answer| {
            answer.json["status"]["phase"] == "Completed"
        })
        .await;
        true
    }

    pub(crate) async fn workspace(&self, name: &str) -> Workspace {
        self.workspace_with(name, json!({})).await
    }

    /// On the root shard, unless the spec names another one.
    pub(crate) async fn workspace_with(&self, name: &str, mut spec: Value) -> Workspace {
        let name = format!("{}{name}", self.prefix);
        if spec["location"].is_null() {
            spec["location"] = on_shard("root")["location"].clone();
        }
        let root = self.at(&self.url("root"));
        let object = json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": { "name": name }, "spec": spec,
        });
        create(&root, "/apis/tenancy.kcp.io/v1alpha1/workspaces", &object).await;
        let at = format!("/apis/tenancy.kcp.io/v1alpha1/workspaces/{name}");
        let ready = until(&root, &at, |answer| {
            // Nobody may enter a workspace of a real kcp before it is ready.
            let phase = answer.json["status"]["phase"].as_str();
            (phase == Some("Ready") || phase == Some("Initializing") && !self.is_real())
                && answer.json["spec"]["cluster"].is_string()
        })
        .await;
        let id = ready.json["spec"]["cluster"].as_str().unwrap().to_owned();
        let path = format!("root:{name}");
        let client = self.at(&self.url(&path));
        until(&client, "/api/v1/namespaces/default", |answer| answer.code == 200).await;
        Workspace { id, path, client }
    }

    /// A provider workspace with the export `widgets` and these claims.
    pub(crate) async fn provider(&self, name: &str, claims: Value) -> Workspace {
        let provider = self.workspace(name).await;
        create(
            &provider.client,
            "/apis/apis.kcp.io/v1alpha1/apiresourceschemas",
            &schema("v1"),
        )
        .await;
        create(
            &provider.client,
            "/apis/apis.kcp.io/v1alpha2/apiexports",
            &export(claims),
        )
        .await;
        provider
    }

    /// The first URL of the endpoint slice `widgets`.
    pub(crate) async fn endpoint(&self, provider: &Workspace) -> String {
        let slice = until(&provider.client, SLICE, |answer| {
            answer.json["status"]["endpoints"].is_array()
        })
        .await;
        slice.json["status"]["endpoints"][0]["url"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// A workspace with a bound `widgets`, and the URL of the virtual workspace.
    pub(crate) async fn consumer(
        &self,
        name: &str,
        provider: &Workspace,
        claims: Value,
    ) -> (Workspace, String) {
        let consumer = self.workspace(name).await;
        bind(&consumer, provider, claims).await;
        (consumer, self.endpoint(provider).await)
    }
}

pub(crate) const SLICE: &str = "/apis/apis.kcp.io/v1alpha1/apiexportendpointslices/widgets";
pub(crate) const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
pub(crate) const BINDING: &str = "/apis/apis.kcp.io/v1alpha2/apibindings/widgets";
pub(crate) const WIDGETS: &str = "/apis/example.io/v1/widgets";
pub(crate) const IN_DEFAULT: &str = "/apis/example.io/v1/namespaces/default/widgets";

pub(crate) fn schema(prefix: &str) -> Value {
    let properties = json!({
        "spec": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    });
    json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": { "name": format!("{prefix}.widgets.example.io") },
        "spec": {
            "group": "example.io", "scope": "Namespaced",
            "names": { "kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "type": "object", "properties": properties },
            }],
        },
    })
}

pub(crate) fn export(claims: Value) -> Value {
    json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": { "name": "widgets" },
        "spec": {
            "resources": [{
                "name": "widgets", "group": "example.io", "schema": "v1.widgets.example.io", "storage": { "crd": {} },
            }],
            "permissionClaims": claims,
        },
    })
}

pub(crate) fn binding(provider: &Workspace, claims: Value) -> Value {
    json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": { "name": "widgets" },
        "spec": { "reference": { "export": { "path": provider.path, "name": "widgets" } }, "permissionClaims": claims },
    })
}

pub(crate) fn widget(name: &str) -> Value {
    json!({
        "apiVersion": "example.io/v1", "kind": "Widget", "metadata": { "name": name, "namespace": "default" },
        "spec": { "size": 1 },
    })
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "default" }, "data": { "a": "1" },
    })
}

const TYPES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes";

/// A workspace with the type `waits` with these fields, and the URL of its virtual workspace.
pub(crate) async fn of_type(world: &World, name: &str, fields: Value) -> (Workspace, String) {
    let home = world.workspace(name).await;
    let universal = json!({ "name": "universal", "path": "root" });
    let url = add_type(world, &home, "waits", universal, fields).await;
    (home, url)
}

/// A type that extends another one, and the URL of its virtual workspace.
pub(crate) async fn add_type(
    world: &World,
    home: &Workspace,
    name: &str,
    extends: Value,
    fields: Value,
) -> String {
    let mut spec = fields;
    spec["extend"] = json!({ "with": [extends] });
    let stage = if spec["initializer"] == true {
        "initializing"
    } else {
        "terminating"
    };
    let object = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": { "name": name }, "spec": spec,
    });
    create(&home.client, TYPES, &object).await;
    let at = format!("{TYPES}/{name}");
    let written = until(&home.client, &at, |answer| {
        answer.json["status"]["virtualWorkspaces"].is_array()
    })
    .await;
    let urls = written.json["status"]["virtualWorkspaces"].as_array().unwrap();
    let of_stage = urls.iter().filter(|url| url["type"] == stage);
    let urls = of_stage
        .map(|url| url["url"].as_str().unwrap().to_owned())
        .collect();
    world.of_root(urls).await
}

/// Makes a workspace of the type `waits`. One that is being initialized cannot be entered, so only its id is known.
pub(crate) async fn waiting(world: &World, name: &str, home: &Workspace) -> (String, String) {
    waiting_of(world, name, home, "waits").await
}

pub(crate) async fn waiting_of(
    world: &World,
    name: &str,
    home: &Workspace,
    of_type: &str,
) -> (String, String) {
    let root = world.at(&world.url("root"));
    let name = format!("{}-{name}", home.path.strip_prefix("root:").unwrap());
    let object = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": { "name": name },
        "spec": { "type": { "name": of_type, "path": home.path }, "location": on_shard("root")["location"] },
    });
    create(&root, "/apis/tenancy.kcp.io/v1alpha1/workspaces", &object).await;
    let at = format!("/apis/tenancy.kcp.io/v1alpha1/workspaces/{name}");
    let made = until(&root, &at, |answer| answer.json["spec"]["cluster"].is_string()).await;
    (made.json["spec"]["cluster"].as_str().unwrap().to_owned(), at)
}

/// The spec of a workspace that is to be on a shard.
pub(crate) fn on_shard(shard: &str) -> Value {
    json!({ "location": { "selector": { "matchLabels": { "name": shard } } } })
}

/// The claim on config maps in an export, and as a binding accepts it.
pub(crate) fn claim() -> (Value, Value) {
    let claim = json!({ "group": "", "resource": "configmaps", "verbs": ["*"] });
    let mut accepted = claim.clone();
    accepted["state"] = "Accepted".into();
    accepted["selector"] = json!({ "matchAll": true });
    (json!([claim]), json!([accepted]))
}

/// Binds `widgets` and waits until it is served.
pub(crate) async fn bind(consumer: &Workspace, provider: &Workspace, claims: Value) {
    create(&consumer.client, BINDINGS, &binding(provider, claims)).await;
    until(&consumer.client, BINDING, |answer| {
        answer.json["status"]["phase"] == "Bound"
    })
    .await;
    until(&consumer.client, WIDGETS, |answer| answer.code == 200).await;
}

pub(crate) async fn call(
    client: &kube::Client,
    method: &str,
    path: &str,
    media: &str,
    accept: &str,
    body: &Value,
) -> Answer {
    let mut request = http::Request::builder().method(method).uri(path);
    if !accept.is_empty() {
        request = request.header("accept", accept);
    }
    let bytes = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    if !body.is_null() {
        request = request.header("content-type", media);
    }
    let response = client
        .send(request.body(Body::from(bytes)).unwrap())
        .await
        .unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let json = serde_json::from_str(&text).unwrap_or_default();
    Answer { code, text, json }
}

pub(crate) async fn get(client: &kube::Client, path: &str) -> Answer {
    call(client, "GET", path, "", "", &Value::Null).await
}

pub(crate) async fn post(client: &kube::Client, path: &str, body: &Value) -> Answer {
    call(client, "POST", path, "application/json", "", body).await
}

pub(crate) async fn merge(client: &kube::Client, path: &str, body: &Value) -> Answer {
    call(client, "PATCH", path, "application/merge-patch+json", "", body).await
}

pub(crate) async fn delete(client: &kube::Client, path: &str) -> Answer {
    call(client, "DELETE", path, "", "", &Value::Null).await
}

/// Creates an object. A kind that was bound just now may not be served at once.
pub(crate) async fn create(client: &kube::Client, path: &str, body: &Value) -> Answer {
    let end = tokio::time::Instant::now() + LONG;
    loop {
        let answer = post(client, path, body).await;
        if answer.code == 201 {
            return answer;
        }
        let again = matches!(answer.code, 403 | 404) && tokio::time::Instant::now() < end;
        assert!(again, "POST {path}: {answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Reads a path until the answer is as expected.
pub(crate) async fn until(client: &kube::Client, path: &str, expected: impl Fn(&Answer) -> bool) -> Answer {
    let end = tokio::time::Instant::now() + LONG;
    loop {
        let answer = get(client, path).await;
        if expected(&answer) {
            return answer;
        }
        assert!(
            tokio::time::Instant::now() < end,
            "GET {path} is not as expected: {answer:?}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn watch(client: &kube::Client, path: &str) -> Watch {
    let request = http::Request::get(path).body(Body::empty()).unwrap();
    let response = client.send(request).await.unwrap();
    assert_eq!(response.status().as_u16(), 200, "{path}");
    Watch {
        body: response.into_body(),
        buffer: Vec::new(),
    }
}

impl Watch {
    /// The next event; `None` at the end of the watch.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        tokio::time::timeout(LONG, self.read())
            .await
            .expect("the watch tells something")
    }

    async fn read(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.buffer.extend_from_slice(frame.data_ref().unwrap());
        }
    }

    /// The next event that is as expected, after others.
    pub(crate) async fn find(&mut self, expected: impl Fn(&Value) -> bool) -> Value {
        loop {
            let event = self.next().await.expect("the watch goes on");
            if expected(&event) {
                return event;
            }
        }
    }
}

pub(crate) fn names(list: &Answer) -> Vec<String> {
    let items = list.json["items"].as_array().cloned().unwrap_or_default();
    let mut names: Vec<String> = items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let all = object["status"]["conditions"].as_array();
    let found = all.and_then(|all| all.iter().find(|condition| condition["type"] == kind));
    found.map_or(&Value::Null, |condition| &condition["status"])
}
