//! A stand-in for the API server of a Gardener, and the objects of a seed.
//!
//! A custom resource can't have the subresources `adminkubeconfig` and `viewerkubeconfig` of a Shoot. A [`Garden`] stands in front of an
//! API server that has Shoots as a custom resource, real or simulated, and answers these two itself: as the test says.
//!
//! The crate is not published, because only the tests of the provider and of the CLI use it.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::time::Duration;
//! use mcr_garden_double::{Garden, Issued};
//! use mcr_testkit::sim::SimCluster;
//!
//! let server = SimCluster::builder().build();
//! server.create(Garden::crd())?;
//! server.create(serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "garden-dev"}}))?;
//! server.create(Garden::shoot("garden-dev", "one"))?;
//! let garden = Garden::new(|ask| async move {
//!     match &*ask.name {
//!         "one" => Issued::kubeconfig("apiVersion: v1", Duration::from_secs(ask.seconds)),
//!         _ => Issued::refused(429, "later"),
//!     }
//! });
//! let client = garden.client(server.client()); // hand it to the code under test
//! # let _ = client;
//! assert_eq!(garden.asked("garden-dev/one"), 0);
//! # Ok::<_, mcr_testkit::sim::SimError>(()) }).unwrap();
//! ```

#![forbid(unsafe_code)]
#![deny(missing_docs)]

use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Issue = dyn Fn(Ask) -> BoxFuture<'static, Issued> + Send + Sync;

/// A request for a kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ask {
    /// The namespace of the Shoot.
    pub namespace: String,
    /// The name of the Shoot.
    pub name: String,
    /// Whether the kubeconfig shall be that of a viewer.
    pub viewer: bool,
    /// How long it shall be valid, in seconds.
    pub seconds: u64,
}

/// The answer to a request for a kubeconfig.
#[derive(Debug, Clone)]
pub struct Issued(Outcome);

#[derive(Debug, Clone)]
enum Outcome {
    Kubeconfig(String, Duration),
    Refused(u16, String),
}

impl Issued {
    /// A kubeconfig that is valid for so long.
    pub fn kubeconfig(yaml: impl Into<String>, valid_for: Duration) -> Self {
        Self(Outcome::Kubeconfig(yaml.into(), valid_for))
    }

    /// A refusal with this status code and message. A code that HTTP does not know counts as 500.
    pub fn refused(code: u16, message: impl Into<String>) -> Self {
        Self(Outcome::Refused(code, message.into()))
    }
}

/// The stand-in. Clones are the same garden.
#[derive(Clone)]
pub struct Garden(Arc<Shared>);

struct Shared {
    issue: Box<Issue>,
    away: AtomicBool,
    asked: Mutex<HashMap<String, usize>>,
    running: AtomicUsize,
    most: AtomicUsize,
}

impl std::fmt::Debug for Garden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Garden")
            .field("away", &self.0.away)
            .finish_non_exhaustive()
    }
}

impl Garden {
    /// A garden that answers requests for kubeconfigs so. A future that waits is a garden that is slow, one that never ends is a
    /// garden that hangs.
    pub fn new<F>(issue: impl Fn(Ask) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Issued> + Send + 'static,
    {
        Self(Arc::new(Shared {
            issue: Box::new(move |ask| issue(ask).boxed()),
            away: AtomicBool::new(false),
            asked: Mutex::default(),
            running: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        }))
    }

    /// A client of the garden that has the rights of a client of the API server behind it. To ask for a kubeconfig, these must
    /// include the verb create on the subresource. It must be made within a Tokio runtime.
    pub fn client(&self, server: Client) -> Client {
        let (garden, namespace) = (self.clone(), server.default_namespace().to_owned());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (garden, server) = (garden.clone(), server.clone());
            async move { garden.answer(server, request).await }
        });
        Client::new(service, namespace)
    }

    /// Whether the garden is away: all requests fail as if nothing listened at its address. Watches that run go on.
    pub fn set_away(&self, away: bool) {
        self.0.away.store(away, SeqCst);
    }

    /// How often a kubeconfig was asked for, for the Shoot `namespace/name`. Requests while the garden is away don't count.
    pub fn asked(&self, shoot: &str) -> usize {
        self.0.asked.lock().get(shoot).copied().unwrap_or_default()
    }

    /// How many requests for kubeconfigs there were at the same time, at most.
    pub fn most_at_once(&self) -> usize {
        self.0.most.load(SeqCst)
    }

    /// The CRD of Shoots.
    pub fn crd() -> Value {
        crd("core.gardener.cloud", "v1beta1", "Namespaced", "Shoot", "shoots")
    }

    /// The CRD of the Clusters that a seed has for Gardener's extensions.
    pub fn cluster_crd() -> Value {
        crd(
            "extensions.gardener.cloud",
            "v1alpha1",
            "Cluster",
            "Cluster",
            "clusters",
        )
    }

    /// The Cluster of a Shoot in its seed. It has the name of the Shoot's control plane, `status.technicalID`.
    pub fn cluster(shoot: &Value) -> Value {
        json!({
            "apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Cluster",
            "metadata": {"name": shoot["status"]["technicalID"]},
            "spec": {"cloudProfile": {"kind": "CloudProfile"}, "seed": {"kind": "Seed"}, "shoot": shoot},
        })
    }

    /// The Secret with the kubeconfig of a Shoot, in the namespace of its control plane in a seed. Gardener will replace the token at
    /// this time.
    pub fn secret(control_plane: &str, kubeconfig: &str, renew: SystemTime) -> Value {
        let renew = jiff::Timestamp::try_from(renew).unwrap_or_default();
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {
                "name": "gardener", "namespace": control_plane,
                "annotations": {"serviceaccount.resources.gardener.cloud/token-renew-timestamp": format!("{renew:.0}")},
            },
            "data": {"kubeconfig": STANDARD.encode(kubeconfig)},
        })
    }

    /// A Shoot that is created and awake.
    pub fn shoot(namespace: &str, name: &str) -> Value {
        json!({
            "apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "cloudProfile": {"kind": "CloudProfile", "name": "local"},
                "kubernetes": {"version": "1.34.1"}, "provider": {"type": "local"}, "region": "local",
                "purpose": "evaluation", "seedName": "seed-a",
            },
            "status": {
                "advertisedAddresses": [{"name": "external", "url": format!("https://api.{name}.example.com")}],
                "hibernated": false, "seedName": "seed-a", "technicalID": format!("shoot--dev--{name}"),
                "lastOperation": {
                    "type": "Create", "state": "Succeeded", "progress": 100, "description": "Shoot cluster has been created.",
                    "lastUpdateTime": "2026-01-01T00:00:00Z",
                },
            },
        })
    }

    async fn answer(&self, server: Client, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        if self.0.away.load(SeqCst) {
            return Err("connection refused: the garden is away".into());
        }
        let Some((namespace, name, subresource)) = wanted(&request) else {
            return Ok(server.send(request).await?);
        };
        *self
            .0
            .asked
            .lock()
            .entry(format!("{namespace}/{name}"))
            .or_default() += 1;
        let _running = Running::new(&self.0);
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "group": "core.gardener.cloud", "version": "v1beta1", "resource": "shoots", "subresource": subresource,
                "verb": "create", "namespace": namespace, "name": name,
            }},
        });
        let review = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .header(header::CONTENT_TYPE, "application/json")
            .body(review.to_string().into_bytes())?;
        let review: Value = server.request(review).await?;
        if review["status"]["allowed"] != true {
            let message = format!("shoots/{subresource} {name:?} is forbidden in namespace {namespace:?}");
            return refusal(403, &message);
        }
        let body = request.into_body().collect().await?.to_bytes();
        let body: Value = serde_json::from_slice(&body)?;
        let seconds = body["spec"]["expirationSeconds"].as_u64().unwrap_or(3600);
        if seconds < 600 {
            return refusal(
                422,
                "spec.expirationSeconds: may not specify a duration less than 10 minutes",
            );
        }
        let viewer = subresource == "viewerkubeconfig";
        let ask = Ask {
            namespace,
            name,
            viewer,
            seconds,
        };
        match (self.0.issue)(ask).await.0 {
            Outcome::Refused(code, message) => refusal(code, &message),
            Outcome::Kubeconfig(yaml, valid_for) => {
                let expires = jiff::Timestamp::try_from(SystemTime::now() + valid_for)?;
                let answer = json!({
                    "apiVersion": body["apiVersion"], "kind": body["kind"], "spec": body["spec"],
                    "status": {
                        "kubeconfig": STANDARD.encode(yaml), "expirationTimestamp": format!("{expires:.0}"),
                    },
                });
                response(StatusCode::CREATED, &answer)
            }
        }
    }
}

fn crd(group: &str, version: &str, scope: &str, kind: &str, plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group, "scope": scope,
            "names": {
                "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase(),
            },
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// Counts a request while it runs.
struct Running<'a>(&'a Shared);

impl<'a> Running<'a> {
    fn new(shared: &'a Shared) -> Self {
        let now = shared.running.fetch_add(1, SeqCst) + 1;
        shared.most.fetch_max(now, SeqCst);
        Self(shared)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

/// Namespace, name and subresource, if this asks for a kubeconfig.
fn wanted(request: &Request<Body>) -> Option<(String, String, String)> {
    let path = request.uri().path();
    let rest = path.strip_prefix("/apis/core.gardener.cloud/v1beta1/namespaces/")?;
    let mut parts = rest.split('/');
    let (namespace, shoots, name, subresource) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let known = matches!(subresource, "adminkubeconfig" | "viewerkubeconfig");
    let is_it =
        shoots == "shoots" && known && parts.next().is_none() && request.method() == http::Method::POST;
    is_it.then(|| (namespace.to_owned(), name.to_owned(), subresource.to_owned()))
}

fn refusal(code: u16, message: &str) -> Result<Response<Body>, BoxError> {
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": message, "code": code.as_u16(),
    });
    response(code, &status)
}

fn response(code: StatusCode, body: &Value) -> Result<Response<Body>, BoxError> {
    let response = Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, "application/json");
    Ok(response.body(Body::from(body.to_string().into_bytes()))?)
}
