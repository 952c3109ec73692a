//! An API server: a workspace or the service cluster, with the objects of the manifests.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::ByteString;
use kube::{
    Api, Client, Config,
    api::{DeleteParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

/// The longest that anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// A kind: group, version, kind, plural.
pub(crate) type Kind = (&'static str, &'static str, &'static str, &'static str);
pub(crate) const DATABASE: Kind = ("db.example.io", "v1", "Database", "databases");
pub(crate) const BINDING: Kind = ("apis.kcp.io", "v1alpha2", "APIBinding", "apibindings");
pub(crate) const SLICE: Kind = (
    "apis.kcp.io",
    "v1alpha1",
    "APIExportEndpointSlice",
    "apiexportendpointslices",
);
pub(crate) const SECRET: Kind = ("", "v1", "Secret", "secrets");
pub(crate) const EVENT: Kind = ("events.k8s.io", "v1", "Event", "events");
pub(crate) const MONGODB: Kind = (
    "mongodbcommunity.mongodb.com",
    "v1",
    "MongoDBCommunity",
    "mongodbcommunity",
);

/// The objects of a manifest.
pub(crate) fn objects(manifest: &str) -> Result<Vec<Value>> {
    Ok(serde_saphyr::from_multiple(manifest)?)
}

/// Asks until there is an answer.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask().await.with_context(|| what.to_owned())? {
            return Ok(answer);
        }
        if begin.elapsed() > PATIENCE {
            bail!("not within {PATIENCE:?}: {what}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The current context of a kubeconfig and nothing else, with another address and with a token instead of the user, where given.
pub(crate) fn context(
    kubeconfig: &Kubeconfig,
    server: Option<String>,
    token: Option<&str>,
) -> Result<Kubeconfig> {
    let mut kubeconfig = kubeconfig.clone();
    let current = kubeconfig.current_context.clone().context("no current context")?;
    kubeconfig.contexts.retain(|context| context.name == current);
    let context = kubeconfig
        .contexts
        .first()
        .and_then(|named| named.context.clone());
    let context = context.context("no such context")?;
    kubeconfig.clusters.retain(|named| named.name == context.cluster);
    kubeconfig
        .auth_infos
        .retain(|named| Some(&named.name) == context.user.as_ref());
    if let Some(server) = server {
        let cluster = kubeconfig
            .clusters
            .first_mut()
            .and_then(|named| named.cluster.as_mut());
        cluster.context("no such cluster")?.server = Some(server);
    }
    if let (Some(token), Some(user)) = (token, kubeconfig.auth_infos.first_mut()) {
        *user = serde_json::from_value(json!({"name": user.name, "user": {"token": token}}))?;
    }
    Ok(kubeconfig)
}

#[derive(Clone)]
pub(crate) struct Server(pub(crate) Client);

impl Server {
    pub(crate) async fn of(kubeconfig: Kubeconfig) -> Result<Self> {
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self(Client::try_from(config)?))
    }

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

    pub(crate) async fn get(&self, kind: Kind, key: &str) -> Result<Option<Value>> {
        let (api, name) = self.at(kind, key);
        let found = api.get_opt(name).await?;
        Ok(found.map(serde_json::to_value).transpose()?)
    }

    /// In a namespace, or without one.
    pub(crate) async fn list(&self, kind: Kind, namespace: &str) -> Result<Vec<Value>> {
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let found = self.api(kind, namespace).list(&Default::default()).await?;
        let found = found.items.into_iter().map(serde_json::to_value);
        Ok(found.collect::<Result<_, _>>()?)
    }

    pub(crate) async fn delete(&self, kind: Kind, key: &str) -> Result<()> {
        let (api, name) = self.at(kind, key);
        api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub(crate) async fn patch(&self, kind: Kind, key: &str, patch: Value) -> Result<()> {
        let (api, name) = self.at(kind, key);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Applies an object as kubectl does. A kind that has just been made may take a moment to be served.
    pub(crate) async fn apply(&self, object: Value) -> Result<()> {
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
            PatchParams::apply("kubectl").force(),
        );
        let what = format!("{kind} {name} is accepted");
        until(&what, async || {
            let applied = api.patch(&name, &params, &Patch::Apply(&object)).await;
            match applied {
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404 | 409) => Ok(None),
                applied => Ok(Some(applied.map(drop)?)),
            }
        })
        .await
    }
}

/// The workspace of a consumer, or that of the provider.
#[derive(Clone)]
pub(crate) struct Workspace {
    pub(crate) server: Server,
    pub(crate) id: String,
    pub(crate) path: String,
}

impl Workspace {
    /// The database `default/orders`, when it is as wanted.
    pub(crate) async fn orders(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let what = format!("orders in {}: {what}", self.path);
        until(&what, async || {
            let found = self.server.get(DATABASE, "default/orders").await?;
            Ok(found.filter(|object| wanted(object)))
        })
        .await
    }

    pub(crate) async fn phase(&self, phase: &str) -> Result<Value> {
        let wanted = |object: &Value| object["status"]["phase"] == phase;
        self.orders(phase, wanted).await
    }

    pub(crate) async fn runs_version(&self, version: &str) -> Result<Value> {
        let wanted = |object: &Value| object["status"]["version"] == version;
        self.orders(version, wanted).await
    }

    /// The condition `Synced` has this reason. Returns its message.
    pub(crate) async fn reported(&self, reason: &str) -> Result<String> {
        let message = |object: &Value| {
            let list = object["status"]["conditions"].as_array()?;
            let synced = list.iter().find(|condition| condition["type"] == "Synced")?;
            (synced["reason"] == reason).then(|| synced["message"].as_str().unwrap_or_default().to_owned())
        };
        let object = self.orders(reason, |object| message(object).is_some()).await?;
        Ok(message(&object).unwrap_or_default())
    }

    /// An event about the database.
    pub(crate) async fn event(&self, reason: &str, note: &str) -> Result<Value> {
        let what = format!("an event {reason} in {}", self.path);
        until(&what, async || {
            let events = self.server.list(EVENT, "default").await?;
            let is_it = |event: &Value| {
                event["reason"] == reason && event["note"] == note && event["regarding"]["name"] == "orders"
            };
            Ok(events.into_iter().find(is_it))
        })
        .await
    }

    pub(crate) async fn change(&self, spec: Value) -> Result<()> {
        let patch = json!({"spec": spec});
        self.server.patch(DATABASE, "default/orders", patch).await
    }

    /// The consumer chooses a password.
    pub(crate) async fn password(&self, password: &str) -> Result<()> {
        let patch = json!({"stringData": {"password": password}});
        self.server.patch(SECRET, "default/orders-password", patch).await
    }

    /// A Secret of the consumer, when it has this password.
    pub(crate) async fn secret(&self, name: &str, password: &str) -> Result<Value> {
        let wanted = json!(ByteString(password.as_bytes().to_vec()));
        let what = format!("{name} in {}", self.path);
        until(&what, async || {
            let found = self.server.get(SECRET, &format!("default/{name}")).await?;
            Ok(found.filter(|secret| secret["data"]["password"] == wanted))
        })
        .await
    }

    pub(crate) async fn delete_orders(&self) -> Result<()> {
        self.server.delete(DATABASE, "default/orders").await
    }

    pub(crate) async fn unbind(&self) -> Result<()> {
        self.server.delete(BINDING, "mongodb").await
    }

    pub(crate) async fn gone(&self, kind: Kind, key: &str) -> Result<()> {
        let what = format!("{key} is gone from {}", self.path);
        until(&what, async || {
            Ok(self.server.get(kind, key).await?.is_none().then_some(()))
        })
        .await
    }
}
