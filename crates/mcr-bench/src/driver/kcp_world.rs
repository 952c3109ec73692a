//! A provider workspace with an export of widgets, and its consumers, on a kcp that someone brings.

use std::{
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
    core::{DynamicObject, WatchEvent},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use crate::subject::message::now;

/// The longest that kcp may take for one step.
const LIMIT: Duration = Duration::from_secs(120);

const SCHEMAS: &str = "/apis/apis.kcp.io/v1alpha1/apiresourceschemas";
const EXPORTS: &str = "/apis/apis.kcp.io/v1alpha2/apiexports";
const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
const SLICE: &str = "/apis/apis.kcp.io/v1alpha1/apiexportendpointslices/widgets";
const WIDGETS: &str = "/apis/example.io/v1/namespaces/default/widgets";
const WORKSPACES: &str = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces";

/// The workspaces on a kcp. They stay when this is dropped, and are used again.
pub struct World {
    /// All requests, below `/clusters/`.
    client: Client,
    config: Config,
    provider: String,
    kubeconfig: PathBuf,
    _folder: TempDir,
}

/// A workspace that may bind the export.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// Its path, such as `root:bench-7`.
    pub path: String,
    /// The id of its logical cluster.
    pub id: String,
}

/// The answer to a request.
struct Answer {
    code: u16,
    json: Value,
}

impl World {
    /// The kcp of a kubeconfig of its admin, with a provider workspace whose name begins with `prefix`.
    ///
    /// # Errors
    ///
    /// When the kubeconfig can't be used, or kcp refuses something.
    pub async fn on(kubeconfig: &Path, prefix: &str) -> Result<Self> {
        let mut file = Kubeconfig::read_from(kubeconfig)?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(file.clone(), &options).await?;
        let server = config.cluster_url.to_string();
        let (base, _) = server
            .split_once("/clusters/")
            .with_context(|| format!("{server} is no workspace of kcp"))?;
        config.cluster_url = base.parse()?;
        config.read_timeout = None;
        let provider = format!("root:{prefix}provider");
        let context = file.current_context.clone();
        file.contexts
            .retain(|known| Some(&known.name) == context.as_ref());
        for named in &mut file.clusters {
            if let Some(cluster) = &mut named.cluster {
                cluster.server = Some(format!("{base}/clusters/{provider}"));
            }
        }
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, serde_json::to_vec(&file)?)?;
        let world = Self {
            client: Client::try_from(config.clone())?,
            config,
            provider,
            kubeconfig: path,
            _folder: folder,
        };
        world.workspace(&format!("{prefix}provider")).await?;
        let at = format!("/clusters/{}", world.provider);
        world.create(&format!("{at}{SCHEMAS}"), &schema()).await?;
        world.create(&format!("{at}{EXPORTS}"), &export()).await?;
        world
            .until(&format!("{at}{SLICE}"), |answer| answer.code == 200)
            .await?;
        Ok(world)
    }

    /// A kubeconfig for the provider workspace.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Consumer workspaces, made where they are missing. None of them has a binding.
    ///
    /// # Errors
    ///
    /// When kcp refuses one.
    pub async fn consumers(&self, prefix: &str, count: usize) -> Result<Vec<Consumer>> {
        let made = stream::iter(0..count).map(async |number| {
            let consumer = self.workspace(&format!("{prefix}{number}")).await?;
            self.unbind(&consumer).await?;
            anyhow::Ok(consumer)
        });
        made.buffered(4).try_collect().await
    }

    async fn workspace(&self, name: &str) -> Result<Consumer> {
        let object = json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name},
        });
        self.create(WORKSPACES, &object).await?;
        let at = format!("{WORKSPACES}/{name}");
        let ready = self
            .until(&at, |answer| answer.json["status"]["phase"] == "Ready")
            .await?;
        let id = ready.json["spec"]["cluster"]
            .as_str()
            .context("a workspace has no id")?;
        let path = format!("root:{name}");
        self.until(&format!("/clusters/{path}/api/v1/namespaces/default"), |answer| {
            answer.code == 200
        })
        .await?;
        Ok(Consumer {
            id: id.to_owned(),
            path,
        })
    }

    /// Binds the export. Returns when the binding was seen to be bound and ready.
    ///
    /// # Errors
    ///
    /// When kcp refuses, or does not bind.
    pub async fn bind(&self, consumer: &Consumer) -> Result<u64> {
        let at = format!("/clusters/{}{BINDINGS}", consumer.path);
        let watch = http::Request::get(format!("{at}?watch=true&fieldSelector=metadata.name%3Dwidgets"));
        let events = self
            .client
            .request_events::<DynamicObject>(watch.body(Vec::new())?)
            .await?;
        let mut events = pin!(events);
        let binding = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "widgets"},
            "spec": {"reference": {"export": {"path": self.provider, "name": "widgets"}}},
        });
        self.create(&at, &binding).await?;
        let ready = async {
            while let Some(event) = events.try_next().await? {
                if let WatchEvent::Added(binding) | WatchEvent::Modified(binding) = event
                    && is_ready(&binding.data["status"])
                {
                    return Ok(now());
                }
            }
            bail!("the watch of a binding has ended")
        };
        let ready = timeout(LIMIT, ready).await;
        ready.with_context(|| format!("{} is not bound", consumer.path))?
    }

    /// Removes the binding, and with it the widgets. Returns when it is gone.
    ///
    /// # Errors
    ///
    /// When kcp refuses.
    pub async fn unbind(&self, consumer: &Consumer) -> Result<()> {
        let at = format!("/clusters/{}{BINDINGS}/widgets", consumer.path);
        self.call("DELETE", &at, &Value::Null).await?;
        self.until(&at, |answer| answer.code == 404).await?;
        Ok(())
    }

    /// Creates a widget. Returns when kcp had answered.
    ///
    /// # Errors
    ///
    /// When kcp refuses.
    pub async fn create_widget(&self, consumer: &Consumer, name: &str, stamp: u64) -> Result<u64> {
        let widget = json!({
            "apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": name, "namespace": "default"},
            "spec": {"stamp": stamp, "size": "small"},
        });
        self.create(&format!("/clusters/{}{WIDGETS}", consumer.path), &widget)
            .await
    }

    /// Writes a stamp into a widget. Returns when kcp had answered.
    ///
    /// # Errors
    ///
    /// When kcp refuses.
    pub async fn write_stamp(&self, consumer: &Consumer, name: &str, stamp: u64) -> Result<u64> {
        let at = format!("/clusters/{}{WIDGETS}/{name}", consumer.path);
        let answer = self
            .call("PATCH", &at, &json!({"spec": {"stamp": stamp}}))
            .await?;
        if answer.code != 200 {
            bail!("PATCH {at}: {} {}", answer.code, answer.json["message"]);
        }
        Ok(now())
    }

    /// How long kcp takes for one list of all widgets of all consumers.
    ///
    /// # Errors
    ///
    /// When the list has another number of widgets.
    pub async fn list(&self, expected: usize) -> Result<Duration> {
        let at = format!("/clusters/{}{SLICE}", self.provider);
        let slice = self
            .until(&at, |answer| answer.json["status"]["endpoints"].is_array())
            .await?;
        let url = slice.json["status"]["endpoints"][0]["url"]
            .as_str()
            .context("an endpoint has no URL")?;
        let mut config = self.config.clone();
        config.cluster_url = format!("{url}/clusters/*").parse()?;
        let shard = Client::try_from(config)?;
        let all = http::Request::get("/apis/example.io/v1/widgets");
        let begun = Instant::now();
        let response = shard.send(all.body(Body::empty())?).await?;
        let body = response.into_body().collect().await?.to_bytes();
        let took = begun.elapsed();
        let list: Value = serde_json::from_slice(&body)?;
        let listed = list["items"].as_array().map(Vec::len);
        if listed != Some(expected) {
            bail!("a list of all widgets has {listed:?} of {expected}");
        }
        Ok(took)
    }

    /// Creates an object unless there is one. Returns when kcp had answered. A kind that was bound just now may not be served
    /// at once.
    async fn create(&self, at: &str, object: &Value) -> Result<u64> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let answer = self.call("POST", at, object).await?;
            match answer.code {
                201 | 409 => return Ok(now()),
                403 | 404 if Instant::now() < deadline => sleep(Duration::from_millis(10)).await,
                code => bail!("POST {at}: {code} {}", answer.json["message"]),
            }
        }
    }

    async fn until(&self, at: &str, wanted: impl Fn(&Answer) -> bool) -> Result<Answer> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let answer = self.call("GET", at, &Value::Null).await?;
            if wanted(&answer) {
                return Ok(answer);
            }
            if Instant::now() >= deadline {
                bail!(
                    "GET {at} is after {LIMIT:?} still {} {}",
                    answer.code,
                    answer.json
                );
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn call(&self, method: &str, at: &str, body: &Value) -> Result<Answer> {
        let media = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let bytes = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let request = http::Request::builder()
            .method(method)
            .uri(at)
            .header(http::header::CONTENT_TYPE, media)
            .body(Body::from(bytes))?;
        let response = self
            .client
            .send(request)
            .await
            .with_context(|| format!("{method} {at}"))?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        let json = serde_json::from_slice(&bytes).unwrap_or_default();
        Ok(Answer { code, json })
    }
}

fn is_ready(status: &Value) -> bool {
    let conditions = status["conditions"].as_array();
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    status["phase"] == "Bound" && conditions.is_some_and(|conditions| conditions.iter().any(ready))
}

fn schema() -> Value {
    json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": {"name": "v1.widgets.example.io"},
        "spec": {
            "group": "example.io", "scope": "Namespaced",
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "stamp": {"type": "integer", "format": "int64"}, "size": {"type": "string"},
                    }},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }},
            }],
        },
    })
}

fn export() -> Value {
    json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "widgets"},
        "spec": {"resources": [{
            "name": "widgets", "group": "example.io", "schema": "v1.widgets.example.io", "storage": {"crd": {}},
        }]},
    })
}
