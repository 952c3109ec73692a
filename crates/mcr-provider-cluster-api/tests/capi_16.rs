//! A hub whose versions go backwards and whose objects have no UIDs, and clusters whose `kube-system` has none, as Cluster API's
//! in-memory provider makes them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use mcr_core::{Change, ClusterState, Fleet, ObjectKey, Store, WatchRequest};
use mcr_testkit::{
    sim::SimCluster,
    waiting::{self, Background},
};
use serde_json::{Value, json};
use support::{PATIENCE, Received, builder, cluster, hub, initialized, kubeconfig, locally, secret};
use tokio::{net::TcpListener, task::JoinSet};

async fn eventually(what: &str, so: impl FnMut() -> bool) {
    waiting::eventually(PATIENCE, what, so).await;
}

/// An API server without UIDs, which another one can replace at the same address.
#[derive(Clone)]
struct Faked(Arc<Mutex<SimCluster>>);

impl Faked {
    fn new(cluster: &SimCluster) -> Self {
        Self(Arc::new(Mutex::new(cluster.clone())))
    }

    fn replace(&self, old: &SimCluster, new: &SimCluster) {
        *self.0.lock().unwrap() = new.clone();
        old.end_watches();
    }

    async fn answer<B: http_body::Body<Data = Bytes>>(&self, request: Request<B>) -> Response<Answer> {
        let cluster = self.0.lock().unwrap().clone();
        if let Some(asked) = watched_from(request.uri()).filter(|asked| *asked > cluster.resource_version()) {
            return too_large(asked, cluster.resource_version());
        }
        let service = cluster.service().with_token(&cluster.admin_token());
        let (mut head, body) = service.answer(request).await.into_parts();
        head.headers.remove("content-length");
        let body = body.map_frame(|frame| frame.map_data(|data| Bytes::from(without_uids(&data))));
        Response::from_parts(head, body.boxed())
    }

    fn client(&self) -> kube::Client {
        let faked = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let faked = faked.clone();
            async move { Ok::<_, Infallible>(faked.answer(request).await) }
        });
        kube::Client::new(service, "default")
    }

    /// Serves it, as long as the result lives, at this address.
    async fn serve(&self) -> (SocketAddr, Background<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let faked = self.clone();
        let serving = Background::start(|stop| async move {
            let mut connections = JoinSet::new();
            while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
                let faked = faked.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let faked = faked.clone();
                    async move { Ok::<_, Infallible>(faked.answer(request).await) }
                });
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        (address, serving)
    }
}

type Answer = BoxBody<Bytes, Infallible>;

/// The version after which a watch asks for events.
fn watched_from(uri: &Uri) -> Option<u64> {
    let query = uri.query().filter(|query| query.contains("watch="))?;
    let version = query
        .split('&')
        .find_map(|part| part.strip_prefix("resourceVersion="))?;
    version.parse().ok()
}

/// The answer of an API server that has not come to this version.
fn too_large(asked: u64, current: u64) -> Response<Answer> {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 504, "reason": "Timeout",
        "message": format!("Timeout: Too large resource version: {asked}, current: {current}"),
    });
    let response = Response::builder()
        .status(504)
        .header("content-type", "application/json");
    response
        .body(Full::new(Bytes::from(status.to_string())).boxed())
        .unwrap()
}

/// The simulator sends whole lines.
fn without_uids(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in data.split_inclusive(|byte| *byte == b'\n') {
        match serde_json::from_slice::<Value>(line) {
            Ok(mut value) => {
                strip(&mut value);
                out.extend(value.to_string().into_bytes());
                if line.ends_with(b"\n") {
                    out.push(b'\n');
                }
            }
            Err(_) => out.extend_from_slice(line),
        }
    }
    out
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("uid");
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})
}

fn member(name: &str, map_name: &str) -> SimCluster {
    let member = SimCluster::builder().name(name).build();
    member.create(map(map_name)).unwrap();
    member
}

fn at(address: SocketAddr, token: &str) -> String {
    kubeconfig(token).replace("https://192.0.2.1:6443", &format!("http://{address}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capi_16_clusters_without_uids_stay_apart_and_survive_versions_that_go_backwards() {
    let hub = hub();
    let (a, b) = (member("a", "of-a"), member("b", "of-b"));
    for n in 0..50 {
        a.create(map(&format!("more-{n}"))).unwrap();
    }
    let (fake_a, fake_b) = (Faked::new(&a), Faked::new(&b));
    let (at_a, serving_a) = fake_a.serve().await;
    let (at_b, serving_b) = fake_b.serve().await;
    for (member, address) in [(&a, at_a), (&b, at_b)] {
        let name = member.name();
        hub.create(secret("default", name, at(address, &member.admin_token())))
            .unwrap();
        hub.create(initialized(cluster("default", name))).unwrap();
    }
    // The hub has no UIDs either, so nothing tells the clusters apart but their names and addresses.
    let provider = builder(&hub).client(Faked::new(&hub).client()).build().unwrap();
    let fleet = Fleet::builder()
        .provider(provider)
        .settings(|settings| settings.access_policy = locally())
        .build();
    let running = Background::start({
        let fleet = fleet.clone();
        |stop| async move { fleet.run(stop).await }
    });
    let state = |name: &str| fleet.get(name).map(|cluster| cluster.state());
    eventually("both are ready", || {
        ["a", "b"]
            .iter()
            .all(|name| matches!(state(name), Ok(ClusterState::Ready)))
    })
    .await;
    let request = || WatchRequest::of::<ConfigMap>().namespace("default");
    let [in_a, in_b] = ["a", "b"].map(|name| fleet.get(name).unwrap().watch(request(), None).unwrap());
    let has = |cluster: &str, map: &str| {
        let store: Store<ConfigMap> = fleet.get(cluster).unwrap().store_of(&request()).unwrap();
        store
            .get(&ObjectKey::namespaced("default", map))
            .is_ok_and(|map| map.is_some())
    };
    eventually("both are listed", || has("a", "of-a") && has("b", "of-b")).await;
    assert!(!has("a", "of-b") && !has("b", "of-a"));

    // The API server of `a` is made again from nothing: its versions are lower than those that were seen.
    let again = SimCluster::builder().admin_token(a.admin_token()).build();
    again.create(map("of-a-again")).unwrap();
    assert!(again.resource_version() < a.resource_version());
    fake_a.replace(&a, &again);
    eventually("what is there now is known", || {
        has("a", "of-a-again") && !has("a", "of-a")
    })
    .await;
    assert!(has("b", "of-b"));
    assert!(
        matches!(state("b"), Ok(ClusterState::Ready)),
        "the other has noticed nothing"
    );
    drop((in_a, in_b));
    running.stop().await;
    serving_a.stop().await;
    serving_b.stop().await;
}

#[tokio::test]
async fn capi_16_a_hub_without_uids_that_is_restored_is_followed() {
    let old = hub();
    for n in 0..50 {
        old.create(map(&format!("more-{n}"))).unwrap();
    }
    old.create(secret("default", "a", kubeconfig("one"))).unwrap();
    old.create(initialized(cluster("default", "a"))).unwrap();
    old.create(cluster("default", "b")).unwrap();
    let faked = Faked::new(&old);
    let mut received = Received::of(&builder(&old).client(faked.client()).build().unwrap());
    let Change::Upsert(spec) = received.next().await else {
        panic!()
    };
    assert_eq!(spec.identity, None);
    received.until("synced").await;

    let new = hub();
    new.create(secret("default", "a", kubeconfig("two"))).unwrap();
    new.create(initialized(cluster("default", "a"))).unwrap();
    assert!(new.resource_version() < old.resource_version());
    faked.replace(&old, &new);
    // In any order.
    let mut announced = vec![received.line().await, received.line().await];
    announced.sort();
    assert_eq!(announced, ["+a", "-b"]);
}
