//! Ready clients: what panics is a service of the user's below them.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::client::Body;
use mcr_core::{Access, WatchRequest};
use mcr_doubles::{
    scripted::{Answer, Server},
    status_object,
};
use mcr_testkit::waiting::eventually;

use super::{At, CANARY, SOON, Trap, unreachable};
use crate::harness::{MAPS, Running, event, follow, gone, map, name, ready, serves_one_map};

/// The client of a cluster with the ConfigMap `a`, whose second watch says that there is `b`.
pub(super) struct Client {
    trap: Trap,
    server: Server,
}

impl Client {
    pub(super) fn at(at: At) -> Self {
        Self {
            trap: Trap::at(at),
            server: Server::in_memory(|asked| match (asked.is_watch(), asked.nth) {
                (true, 1..) => Answer::watch([&event("ADDED", map("b", 12))]),
                _ => serves_one_map(asked),
            }),
        }
    }

    pub(super) fn access(&self) -> Access {
        let (trap, client) = (self.trap.clone(), self.server.client());
        let service = tower::service_fn(move |request: Request<Body>| {
            trap.pass(At::Called);
            let (trap, client) = (trap.clone(), client.clone());
            async move {
                tokio::task::yield_now().await;
                trap.pass(At::Answering);
                if request.uri().path().ends_with("/secrets") {
                    trap.pass(At::AnsweringSecrets);
                }
                let watched = request
                    .uri()
                    .query()
                    .is_some_and(|query| query.contains("watch=true"));
                let answer = client.send(request).await?;
                let trap = if watched { trap } else { Trap::at(At::Nowhere) };
                Ok::<_, kube::Error>(answer.map(|body| Trapped { body, trap }))
            }
        });
        Access::from(kube::Client::new(service, "default"))
    }

    async fn is_watched(&self) {
        eventually(SOON, "it is watched", || self.server.live() > 0).await;
    }

    /// Ends the watches: what is watched expires.
    async fn expire(&self) {
        let gone = status_object(410, "Expired", "too old");
        self.server.send(MAPS, &event("ERROR", gone)).await;
    }
}

struct Trapped {
    body: Body,
    trap: Trap,
}

impl http_body::Body for Trapped {
    type Data = Bytes;
    type Error = kube::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, kube::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        self.trap.pass(At::Reading);
        Poll::Ready(frame)
    }
}

impl Drop for Trapped {
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
    client.is_watched().await;
    client.trap.set(At::Answering);
    client.expire().await;
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
    let maps = cluster.api::<ConfigMap>().list(&Default::default()).await;
    assert_eq!(maps.unwrap().items.len(), 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_whose_answer_panics_in_the_middle_begins_again_and_misses_nothing() {
    for at in [At::Reading, At::BodyDropped] {
        let running = Running::start();
        let client = Client::at(At::Nowhere);
        let cluster = running.join_by("a", client.access()).await;
        let (_watch, seen) = follow(&cluster, WatchRequest::of::<ConfigMap>());
        client.is_watched().await;
        client.trap.set(at);
        client.expire().await;
        // It may have panicked already.
        eventually(SOON, "it panics", || client.trap.panics() > 0).await;
        client.trap.set(At::Nowhere);
        seen.becomes(&["+a", "+b"]).await;
        ready(&cluster).await;
        running.stop().await;
    }
}

/// kube's client calls its service on a task of its own, which ends with a panic, and the client with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_has_ended_with_a_panic_is_distinguished_and_another_one_takes_its_place() {
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
