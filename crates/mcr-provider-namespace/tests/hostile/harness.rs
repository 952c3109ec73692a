//! Helpers of the tests in this folder.

use std::collections::BTreeMap;

use http::{Request, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
    client::Body,
};
use serde_json::{Value, json};

/// A request as it is written, however wrong.
#[derive(Debug, Clone, Default)]
pub(crate) struct Raw {
    pub(crate) method: String,
    pub(crate) uri: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

impl Raw {
    pub(crate) fn new(method: &str, uri: impl Into<String>) -> Self {
        Self {
            method: method.to_owned(),
            uri: uri.into(),
            ..Self::default()
        }
    }

    pub(crate) fn body(mut self, media: &str, body: impl ToString) -> Self {
        self.headers.push(("content-type", media.to_owned()));
        self.body = body.to_string();
        self
    }

    /// None: it can't even be written as a request.
    pub(crate) fn request(&self) -> Option<Request<Body>> {
        let mut request = Request::builder().method(&*self.method).uri(&*self.uri);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        request.body(Body::from(self.body.clone().into_bytes())).ok()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) code: StatusCode,
    pub(crate) text: String,
}

impl Reply {
    /// The body. A watch is a list of its events.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| {
            let lines = self
                .text
                .lines()
                .map(|line| serde_json::from_str(line).unwrap_or(Value::Null));
            Value::Array(lines.collect())
        })
    }
}

/// Sends a request and reads its answer to the end. None: the answer is not one, or the request can't be written.
pub(crate) async fn ask(client: &Client, raw: &Raw) -> Option<Reply> {
    let response = client.send(raw.request()?).await.ok()?;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.ok()?.to_bytes();
    Some(Reply {
        code: parts.status,
        text: String::from_utf8_lossy(&bytes).into_owned(),
    })
}

pub(crate) async fn namespace(client: &Client, name: &str) {
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let created = Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await;
    if let Err(error) = created {
        assert!(
            matches!(&error, kube::Error::Api(status) if status.code == 409),
            "{error}"
        );
    }
}

/// A kind in namespaces, or one that is not, with a status and a scale.
pub(crate) fn crd(plural: &str, kind: &str, scope: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": scope, "names": {"plural": plural, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
            }],
        },
    })
}

/// Every object of the host that can be listed, by kind, namespace and name: identity and version.
pub(crate) async fn snapshot(client: &Client) -> BTreeMap<String, String> {
    let mut kinds: Vec<(String, String)> = Vec::new();
    let groups = ask(client, &Raw::new("GET", "/apis")).await.unwrap().json();
    let mut roots = vec!["/api/v1".to_owned()];
    for group in groups["groups"].as_array().unwrap() {
        let version = group["preferredVersion"]["groupVersion"].as_str().unwrap();
        roots.push(format!("/apis/{version}"));
    }
    for root in roots {
        let list = ask(client, &Raw::new("GET", &root)).await.unwrap().json();
        for resource in list["resources"].as_array().unwrap() {
            let verbs = resource["verbs"].as_array().unwrap();
            let name = resource["name"].as_str().unwrap();
            if verbs.contains(&json!("list")) && !name.contains('/') && name != "componentstatuses" {
                kinds.push((root.clone(), name.to_owned()));
            }
        }
    }
    let mut objects = BTreeMap::new();
    for (root, plural) in kinds {
        let list = ask(client, &Raw::new("GET", format!("{root}/{plural}")))
            .await
            .unwrap()
            .json();
        for item in list["items"].as_array().into_iter().flatten() {
            let metadata = &item["metadata"];
            let text = |field: &str| metadata[field].as_str().unwrap_or_default();
            objects.insert(
                format!("{root}/{plural} {}/{}", text("namespace"), text("name")),
                format!("{} {}", text("uid"), text("resourceVersion")),
            );
        }
    }
    objects
}
