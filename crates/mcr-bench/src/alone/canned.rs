//! An API server with fixed answers: without sockets and TLS, so that its own work does not show in the figures.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{
    future::{Ready, ready},
    stream::{self, BoxStream, StreamExt},
};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::{Client, client::Body};
use mcr::{ClusterName, ClusterSpec, Fleet};
use mcr_provider_clusters::ClustersProvider;
use serde_json::{Value, json};
use tower::Service;

use super::Runs;

type Answer = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// The fixed answers of a server.
#[derive(Clone)]
pub struct Canned {
    list: Arc<dyn Fn() -> Bytes + Send + Sync>,
    watch: Arc<dyn Fn() -> BoxStream<'static, Bytes> + Send + Sync>,
}

impl Canned {
    /// Answers every list with these bytes. Watches stay open without events.
    pub fn listing(list: impl Fn() -> Bytes + Send + Sync + 'static) -> Self {
        Self {
            list: Arc::new(list),
            watch: Arc::new(|| stream::pending().boxed()),
        }
    }

    /// Answers watches with these bytes.
    #[must_use]
    pub fn watching(mut self, watch: impl Fn() -> BoxStream<'static, Bytes> + Send + Sync + 'static) -> Self {
        self.watch = Arc::new(watch);
        self
    }

    /// A client of this server.
    pub fn client(self) -> Client {
        Client::new(self, "default")
    }
}

impl Service<Request<Body>> for Canned {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let watch = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        let once = |bytes: Bytes| stream::once(ready(bytes)).boxed();
        let bytes = match request.uri().path() {
            "/version" => once(r#"{"major":"1","minor":"36","gitVersion":"v1.36.1"}"#.into()),
            "/api/v1/namespaces/kube-system" => {
                let metadata = json!({ "name": "kube-system", "uid": "canned" });
                let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
                once(namespace.to_string().into())
            }
            _ if watch => (self.watch)(),
            _ => once((self.list)()),
        };
        let frames = bytes.map(|bytes| Ok(Frame::data(bytes))).boxed();
        let mut response = Response::new(StreamBody::new(frames));
        let json = http::HeaderValue::from_static("application/json");
        response.headers_mut().insert(http::header::CONTENT_TYPE, json);
        ready(Ok(response))
    }
}

/// Adds the fields that an API server sets: a UID, a version and `managedFields`.
pub fn stored(mut object: Value, number: usize) -> Value {
    let mut managed = json!({ "f:metadata": { "f:labels": { ".": {} } }, "f:data": { ".": {}, "f:application.properties": {} } });
    for label in object["metadata"]["labels"].as_object().into_iter().flatten() {
        managed["f:metadata"]["f:labels"][format!("f:{}", label.0)] = json!({});
    }
    object["metadata"]["uid"] = format!("{number:08x}-5f0c-4a5b-9d52-{:012x}", number * 7919).into();
    object["metadata"]["resourceVersion"] = (1_000_000 + number).to_string().into();
    object["metadata"]["creationTimestamp"] = "2026-05-11T08:17:42Z".into();
    object["metadata"]["managedFields"] = json!([{
        "manager": "helm", "operation": "Update", "apiVersion": object["apiVersion"], "time": "2026-05-11T08:17:42Z",
        "fieldsType": "FieldsV1", "fieldsV1": managed,
    }]);
    object
}

/// JSON of objects that differ only in name, namespace, UID and version. Making one takes few instructions, for
/// programs whose instructions are counted.
pub struct Alike(Vec<String>);

impl Default for Alike {
    /// Objects like `config_map(0)`.
    fn default() -> Self {
        let mut object = stored(crate::objects::config_map(0), 0);
        for field in ["name", "namespace", "uid", "resourceVersion"] {
            object["metadata"][field] = format!("<{field}>").into();
        }
        Self(object.to_string().split(['<', '>']).map(str::to_owned).collect())
    }
}

impl Alike {
    /// Writes one object.
    pub fn write(&self, to: &mut Vec<u8>, name: &str, namespace: &str, version: &str) {
        const UID: &str = "7f3c1a20-5f0c-4a5b-9d52-000000000000";
        for part in &self.0 {
            let text = match part.as_str() {
                "name" => name,
                "namespace" => namespace,
                "uid" => {
                    let same = UID.len().saturating_sub(version.len());
                    to.extend_from_slice(UID.get(..same).unwrap_or_default().as_bytes());
                    version
                }
                "resourceVersion" => version,
                text => text,
            };
            to.extend_from_slice(text.as_bytes());
        }
    }

    /// The answer to a list of `count` objects, in these namespaces.
    pub fn list(&self, count: usize, namespace: impl Fn(usize) -> String) -> Bytes {
        let objects = (0..count).map(|number| {
            let mut object = Vec::new();
            let name = format!("map-{number}");
            self.write(&mut object, &name, &namespace(number), &number.to_string());
            object
        });
        joined(objects)
    }
}

fn joined(objects: impl Iterator<Item = Vec<u8>>) -> Bytes {
    let mut bytes =
        br#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"2000000"},"items":["#.to_vec();
    for (at, object) in objects.enumerate() {
        if at > 0 {
            bytes.push(b',');
        }
        bytes.extend(object);
    }
    bytes.extend(b"]}");
    bytes.into()
}

/// The answer to a list, as an API server writes it: without `apiVersion` and `kind` in the items.
pub fn list(objects: impl Iterator<Item = Value>) -> Bytes {
    joined(objects.map(|mut object| {
        if let Some(fields) = object.as_object_mut() {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        object.to_string().into_bytes()
    }))
}

/// Runs a fleet of canned clusters, called by their numbers.
///
/// # Errors
///
/// Never, because numbers are valid names of clusters.
pub fn run(servers: impl IntoIterator<Item = Canned>) -> Result<Runs, mcr::InvalidClusterName> {
    let mut provider = ClustersProvider::builder();
    for (number, server) in servers.into_iter().enumerate() {
        let name = ClusterName::new(number.to_string())?;
        provider = provider.cluster(ClusterSpec::new(name, server.client().into()));
    }
    // All answer with one UID.
    let fleet = Fleet::builder().provider(provider.build());
    let fleet = fleet.settings(|settings| settings.allow_duplicates = true);
    Ok(Runs::start(fleet.build()))
}
