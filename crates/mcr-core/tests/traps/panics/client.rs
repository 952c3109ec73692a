//! Ready clients: what panics is a service of the user's below them.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::client::Body;
use mcr_core::{Access, WatchRequest};
use mcr_testkit::waiting::eventually;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{At, CANARY, SOON, Trap, unreachable};
use crate::harness::{MAPS, Running, bookmark, event, follow, gone, list_object, map, name, ready};

type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// The client of a cluster with one ConfigMap, `a`, whose watches say what the test does.
#[derive(Clone)]
pub(super) struct Client {
    trap: Trap,
    watches: Arc<Mutex<Vec<mpsc::UnboundedSender<Value>>>>,
    began: Arc<AtomicUsize>,
}

impl Client {
    pub(super) fn at(at: At) -> Self {
        Self {
            trap: Trap::at(at),
            watches: Arc::default(),
            began: Arc::default(),
        }
    }

    pub(super) fn access(&self) -> Access {
        let client = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            client.trap.pass(At::Called);
            let client = client.clone();
            async move {
                tokio::task::yield_now().await;
                client.trap.pass(At::Answering);
                if request.uri().path().ends_with("/secrets") {
                    client.trap.pass(At::AnsweringSecrets);
                }
                Ok::<_, io::Error>(client.answer(&request))
            }
        });
        Access::from(kube::Client::new(service, "default"))
    }

    fn answer(&self, request: &Request<Body>) -> Answer {
        let watched = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        if watched {
            return self.watch();
        }
        whole(&match request.uri().path() {
            "/version" => json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0"}),
            "/api/v1/namespaces/kube-system" => {
                json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "kube-system", "uid": "u"}})
            }
            MAPS => list_object(10, [map("a", 1)]),
            _ => list_object(10, []),
        })
    }

    fn watch(&self) -> Answer {
        let (sender, lines) = mpsc::unbounded_channel();
        self.watches.lock().unwrap().push(sender);
        self.began.fetch_add(1, Ordering::SeqCst);
        let body = Lines {
            lines,
            trap: self.trap.clone(),
        };
        Response::new(UnsyncBoxBody::new(body))
    }

    fn say(&self, line: &Value) {
        self.watches
            .lock()
            .unwrap()
            .retain(|watch| watch.send(line.clone()).is_ok());
    }

    fn end_watches(&self) {
        self.watches.lock().unwrap().clear();
    }
}

fn whole(value: &Value) -> Answer {
    let body = Full::new(Bytes::from(value.to_string()));
    Response::builder()
        .header("content-type", "application/json")
        .body(body.map_err(|never| match never {}).boxed_unsync())
        .unwrap()
}

struct Lines {
    lines: mpsc::UnboundedReceiver<Value>,
    trap: Trap,
}

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, io::Error>>> {
        let line = std::task::ready!(self.lines.poll_recv(context));
        self.trap.pass(At::Reading);
        Poll::Ready(line.map(|line| Ok(http_body::Frame::data(format!("{line}\n").into()))))
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.trap.pass(At::BodyDropped);
    }
}

const OF_THE_CLIENT: &str = "client given for the cluster panicked";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_answers_panic_makes_its_cluster_unreachable_until_they_no_longer_do() {
    let log = mcr_testkit::log::Log::of_this_process();
    let running = Running::start();
    let client = Client::at(At::Answering);
    let cluster = running.join_by("a", client.access()).await;
    let (watch, seen) = follow(&cluster, WatchRequest::of::<ConfigMap>());
    unreachable(&cluster, OF_THE_CLIENT).await;
    client.trap.panics_again(2).await;
    client.trap.set(At::Nowhere);
    ready(&cluster).await;
    seen.becomes(&["+a"]).await;
    // Later, when its watch has to begin anew and it is probed for that.
    eventually(SOON, "it is watched", || client.began.load(Ordering::SeqCst) > 0).await;
    client.trap.set(At::Answering);
    client.end_watches();
    unreachable(&cluster, OF_THE_CLIENT).await;
    client.trap.set(At::Nowhere);
    ready(&cluster).await;
    eventually(SOON, "the watch goes on", || watch.status().problem.is_none()).await;
    client.trap.set(At::Answering);
    running.clusters.remove(&name("a"));
    gone(&cluster).await;
    running.stop().await;
    assert_eq!(log.lines_with(CANARY), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_a_user_through_a_client_that_panics_is_an_error_and_the_cluster_stays() {
    let running = Running::start();
    let client = Client::at(At::AnsweringSecrets);
    let cluster = running.join_by("a", client.access()).await;
    ready(&cluster).await;
    let calling = tokio::spawn({
        let secrets = cluster.api::<Secret>();
        async move { secrets.list(&Default::default()).await }
    });
    let error = calling
        .await
        .expect("the task that calls does not panic")
        .unwrap_err();
    let error = mcr_core::explain_error(&error);
    assert!(
        error.contains(OF_THE_CLIENT) && !error.contains(CANARY),
        "{error}"
    );
    assert!(cluster.state().is_ready());
    assert_eq!(
        cluster
            .api::<ConfigMap>()
            .list(&Default::default())
            .await
            .unwrap()
            .items
            .len(),
        1
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_whose_answer_panics_in_the_middle_begins_again_and_misses_nothing() {
    for at in [At::Reading, At::BodyDropped] {
        let running = Running::start();
        let client = Client::at(At::Nowhere);
        let cluster = running.join_by("a", client.access()).await;
        let (_watch, seen) = follow(&cluster, WatchRequest::of::<ConfigMap>());
        eventually(SOON, "it is watched", || client.began.load(Ordering::SeqCst) > 0).await;
        client.trap.set(at);
        match at {
            At::Reading => client.say(&bookmark(11)),
            _ => client.end_watches(),
        }
        // It may have panicked already.
        eventually(SOON, "it panics", || client.trap.panics() > 0).await;
        client.trap.set(At::Nowhere);
        eventually(SOON, "it is watched again", || {
            client.say(&event("ADDED", map("b", 12)));
            seen.lines().contains(&"+b".to_owned())
        })
        .await;
        ready(&cluster).await;
        running.stop().await;
    }
}

/// kube's client calls its service on a task of its own, which ends with a panic, and the client with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_has_ended_with_a_panic_is_told_apart_and_another_one_takes_its_place() {
    let running = Running::start();
    let dead = Client::at(At::Called);
    let cluster = running.join_by("a", dead.access()).await;
    unreachable(&cluster, "announce the cluster with a new client").await;
    running.join_by("a", Client::at(At::Nowhere).access()).await;
    // Nobody knows where the dead one led, so this is another engagement.
    eventually(SOON, "another client takes its place", || {
        let now = running.fleet.get("a").ok()?;
        now.state().is_ready().then_some(())
    })
    .await;
    running.stop().await;
}
