//! Code of users that panics at an endpoint of a scope: it costs the clusters behind that endpoint, for as long as it does.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use mcr_core::{AnswerBody, BoxError, Scope};

use mcr_doubles::shard::shard;

use crate::{
    harness::*,
    witness::Witness,
    workspaces::{WORKSPACES, scope_of},
};

/// Panics while it is told to.
#[derive(Clone)]
struct Panics(Arc<AtomicBool>);

impl Panics {
    fn now() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    fn stop(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    fn pass(&self) {
        assert!(!self.0.load(Ordering::SeqCst), "told to panic");
    }
}

#[test]
fn clusters_behind_an_endpoint_whose_client_panics_are_unreachable_until_it_no_longer_does() {
    paused(|| async {
        let shard = shard("a", 100, &["zoo"]);
        let running = Running::start();
        let scope = Scope::new(WORKSPACES);
        let (panics, client) = (Panics::now(), shard.client(String::new()));
        let service = tower::service_fn({
            let panics = panics.clone();
            move |request: Request<Body>| {
                let (panics, client) = (panics.clone(), client.clone());
                async move {
                    panics.pass();
                    client.send(request).await
                }
            }
        });
        scope.set_endpoint("a", kube::Client::new(service, "default"));
        let cluster = running.join(&scope, "a", "zoo").await;
        let seen = Witness::of(&cluster);
        unreachable(&cluster, "client given for the cluster panicked").await;
        panics.stop();
        seen.equals(&shard).await;

        // One that never gets well can be removed.
        let never = |_: Request<Body>| async { panic!("of a client") as Result<Response<Body>, BoxError> };
        scope.set_endpoint("b", kube::Client::new(tower::service_fn(never), "default"));
        for _ in 0..2 {
            let other = running.join(&scope, "b", "bar").await;
            unreachable(&other, "client given for the cluster panicked").await;
            running.clusters.remove(&name("bar"));
            gone(&other).await;
            assert_eq!(running.fleet.scopes().len(), 1);
        }
        running.stop().await;
    });
}

struct BadBody;

impl http_body::Body for BadBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        panic!("told to panic");
    }
}

/// Answers every request of a cluster with a body that panics.
const PANICKING: Layout = Layout {
    send: |_, _, _| {
        let answer = Response::builder().header("content-type", "application/json");
        Box::pin(async { Ok(answer.body(AnswerBody::new(BadBody))?) })
    },
    ..WORKSPACES
};

#[test]
fn an_answer_of_a_layout_that_panics_is_one_failed_request() {
    paused(|| async {
        let shard = shard("a", 100, &["zoo"]);
        let running = Running::start();
        let scope = scope_of(PANICKING, &[("a", &shard)]);
        let cluster = running.join(&scope, "a", "zoo").await;
        ready(&cluster).await;
        let maps = cluster.api::<ConfigMap>();
        let calling = tokio::spawn(async move { maps.list(&Default::default()).await });
        let error = calling
            .await
            .expect("the task that calls does not panic")
            .unwrap_err();
        let error = mcr_core::explain_error(&error);
        assert!(error.contains("the scope's layout panicked"), "{error}");
        assert!(cluster.state().is_ready());
        running.stop().await;
    });
}
