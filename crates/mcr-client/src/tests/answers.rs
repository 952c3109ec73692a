//! Responses that are late, broken, or unfit for kube.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::ListParams, client::Body};
use mcr_access::{BoxError, ClusterName};
use mcr_testkit::{log::Log, waiting::hold_clock};
use tokio::{io::AsyncWriteExt, sync::Semaphore, time::advance};
use tracing::Level;

use super::{
    Settings, Transport, dialer_with, get, next, rest, sending,
    server::{Server, begin, chunk, closed, respond},
    settings, transport, transport_with, until,
};
use crate::{answer_body::AnswerBody, channel::Route, prefix::prefixed};

const CANARY: &str = "Y2FuYXJ5LTkx";

fn secrets() -> String {
    format!(
        r#"{{"kind":"SecretList","apiVersion":"v1","metadata":{{"resourceVersion":"1"}},"items":[{{"metadata":{{"name":"a"}},"data":{{"kubeconfig":"{CANARY}"}}}}"#
    )
}

/// Lists Secrets through kube and returns the error. Checks that neither the error nor the log quotes the response.
async fn list(status: &'static str, media: &'static str, body: String, cut: bool) -> String {
    let log = Log::of_this_thread(Level::TRACE);
    tracing::trace!("the log works");
    let server = Server::start(None, move |_, mut stream| {
        let body = body.clone();
        async move {
            if cut {
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: {media}\r\ncontent-length: {}\r\n\r\n",
                    body.len() + 9
                );
                stream.write_all(head.as_bytes()).await.unwrap();
                stream.write_all(body.as_bytes()).await.unwrap();
                return None;
            }
            respond(&mut stream, status, media, &body).await;
            Some(stream)
        }
    })
    .await;
    let transport = transport(&server);
    let api: Api<Secret> = Api::all(transport.client("default"));
    let error = api.list(&ListParams::default()).await.unwrap_err();
    let mut shown = format!("{error:?}");
    let mut next: Option<&dyn std::error::Error> = Some(&error);
    while let Some(error) = next {
        shown.push_str(&format!(" {error}"));
        next = error.source();
    }
    let log = log.text();
    assert!(log.contains("the log works"));
    for text in [&log, &shown] {
        assert!(!text.contains("Y2Fu"), "{text}");
        assert!(!text.contains("kubeconfig"), "{text}");
    }
    match error {
        kube::Error::Service(error) => error.to_string(),
        kube::Error::Api(status) => format!("{} {}: {}", status.code, status.reason, status.message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn no_broken_answer_reaches_kubes_log() {
    let json = "application/json";
    let list_of = "cluster \"c1\": GET /api/v1/secrets: ";
    let unusable = |problem: &str| format!("{list_of}the answer is not usable: {problem}");
    let length = secrets().len();
    assert_eq!(
        list("200 OK", json, secrets(), false).await,
        unusable(&format!("its JSON is cut off after {length} bytes"))
    );
    assert_eq!(
        list(
            "200 OK",
            "application/json; charset=utf-8",
            format!("{}]}}]", secrets()),
            false
        )
        .await,
        unusable(&format!("its JSON is damaged at line 1, column {}", length + 3))
    );
    assert_eq!(
        list("200 OK", json, secrets(), true).await,
        format!(
            "{list_of}the answer broke off: the connection was closed in the middle of an answer; the API server may be restarting"
        )
    );
    assert_eq!(
        list("200 OK", "text/html", format!("<html>{CANARY}"), false).await,
        unusable(
            "it is not JSON; something between this process and the API server may answer in its place, such as a proxy or login page"
        )
    );
    assert_eq!(
        list("502 Bad Gateway", "text/html", format!("<html>{CANARY}"), false).await,
        "502 BadGateway: 502 Bad Gateway, with an answer that is not a Kubernetes Status; it may come from something in \
         front of the API server"
    );
    assert_eq!(
        list("500 Internal Server Error", json, secrets(), false).await,
        "500 InternalServerError: 500 Internal Server Error, with an answer that is not a Kubernetes Status; it may \
         come from something in front of the API server"
    );
}

#[tokio::test]
async fn whole_answers_pass() {
    let server =
        Server::start(None, |seen, mut stream| async move {
            match seen.line().split(' ').nth(1).unwrap() {
                "/api/v1/secrets?" => {
                    respond(
                        &mut stream,
                        "200 OK",
                        "application/json",
                        r#"{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[]}"#,
                    )
                    .await
                }
                "/api/v1/namespaces/default/pods/a/log?" => {
                    respond(&mut stream, "200 OK", "text/plain", "{ not json").await
                }
                _ => respond(
                    &mut stream,
                    "404 Not Found",
                    "application/json",
                    r#"{"kind":"Status","status":"Failure","reason":"NotFound","message":"no","code":404}"#,
                )
                .await,
            }
            Some(stream)
        })
        .await;
    let client = transport(&server).client("default");
    let secrets: Api<Secret> = Api::all(client.clone());
    assert_eq!(secrets.list(&ListParams::default()).await.unwrap().items.len(), 0);
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::default_namespaced(client);
    assert_eq!(pods.logs("a", &Default::default()).await.unwrap(), "{ not json");
    let kube::Error::Api(status) = pods.get("a").await.unwrap_err() else {
        panic!()
    };
    assert_eq!(
        (status.code, status.reason.as_str(), status.message.as_str()),
        (404, "NotFound", "no")
    );
}

#[tokio::test]
async fn what_has_come_is_handed_over_in_few_pieces_and_before_what_went_wrong_after_it() {
    // 300 kB in batches of 60 kB, which fit into the buffers of a socket.
    const BATCHES: usize = 5;
    const CHUNKS: usize = 60;
    let line = "x".repeat(999) + "\n";
    let written = Arc::new(AtomicUsize::new(0));
    let count = written.clone();
    let (server, go) = Server::gated(move |_, mut stream, gate| {
        let count = count.clone();
        async move {
            begin(&mut stream).await;
            for batch in 1..=BATCHES {
                gate.pass().await;
                for _ in 0..CHUNKS {
                    chunk(&mut stream, &("x".repeat(999) + "\n")).await;
                }
                if batch == BATCHES {
                    stream.write_all(b"no chunk").await.unwrap();
                }
                count.store(batch, Ordering::SeqCst);
            }
            None
        }
    })
    .await;
    let transport = transport(&server);
    let mut body = transport
        .send(get("/api/v1/pods?watch=true"))
        .await
        .unwrap()
        .into_body();
    let (mut pieces, mut all) = (0, String::new());
    for batch in 1..=BATCHES {
        go.add_permits(1);
        until("it has come", || written.load(Ordering::SeqCst) == batch).await;
        while all.len() < batch * CHUNKS * line.len() {
            let piece = next(&mut body).await.unwrap().unwrap();
            assert!(piece.len() <= 80 << 10, "{}", piece.len());
            pieces += 1;
            all.push_str(&piece);
        }
    }
    assert_eq!(all, line.repeat(BATCHES * CHUNKS));
    assert!(next(&mut body).await.unwrap().is_err());
    assert_eq!(next(&mut body).await, None);
    assert!(pieces <= 10, "{pieces}");
}

/// Sends one line, and another one at a permit. Says nothing to `/head`.
async fn one_and_two() -> (Server, Arc<Semaphore>) {
    Server::gated(|seen, mut stream, gate| async move {
        if !seen.line().contains("/head") {
            begin(&mut stream).await;
            chunk(&mut stream, "one\n").await;
            gate.pass().await;
            chunk(&mut stream, "two\n").await;
        }
        closed(&mut stream).await;
        None
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn silence_ends_unary_requests_but_not_watches() {
    let _clock = hold_clock();
    let (server, go_on) = one_and_two().await;
    let settings = Settings {
        head_timeout: Duration::from_secs(6),
        read_timeout: Duration::from_millis(4_500),
        ..settings()
    };
    let transport = transport_with(&server, settings);
    let no_answer = |after: &str| {
        format!("no answer within {after} s; the API server or the network to it may be overloaded or down")
    };
    let [asking] = sending(&transport, ["/head?x=canary"]);
    until("it is asked", || server.seen().len() == 1).await;
    advance(Duration::from_millis(5_900)).await;
    assert!(!asking.is_finished());
    advance(Duration::from_millis(200)).await;
    let error = asking.await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cluster \"c1\": GET /head: {}", no_answer("6"))
    );
    assert!(error.is_retryable());
    let mut list = transport.send(get("/api/v1/pods")).await.unwrap().into_body();
    assert_eq!(next(&mut list).await, Some(Ok("one\n".to_owned())));
    advance(Duration::from_millis(4_400)).await;
    assert!(next(&mut list).now_or_never().is_none());
    advance(Duration::from_millis(200)).await;
    let expected = format!("cluster \"c1\": GET /api/v1/pods: {}", no_answer("4.5"));
    assert_eq!(rest(&mut list).await, (String::new(), Some(expected)));
    drop(list);
    go_on.add_permits(1);
    for stream in [
        "/api/v1/pods?watch=1",
        "/api/v1/namespaces/a/pods/b/log?follow=true",
    ] {
        let mut stream = transport.send(get(stream)).await.unwrap().into_body();
        assert_eq!(next(&mut stream).await, Some(Ok("one\n".to_owned())));
        assert!(next(&mut stream).now_or_never().is_none());
        advance(Duration::from_secs(1000)).await;
        go_on.add_permits(1);
        assert_eq!(next(&mut stream).await, Some(Ok("two\n".to_owned())));
    }
}

/// Puts the path of a workspace before the path of each request. The workspace is named like the root of the API.
struct Workspace(Transport);

impl Route for Workspace {
    fn send(&self, mut request: Request<Body>) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>> {
        let endpoint = self.0.clone();
        Box::pin(async move {
            *request.uri_mut() = prefixed("/clusters/api", request.uri())?;
            let response = endpoint.send(request).await?;
            Ok(response.map(AnswerBody::new))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_can_be_followed_in_a_scope_whatever_stands_before_its_path() {
    let _clock = hold_clock();
    let (server, go_on) = one_and_two().await;
    let settings = Settings {
        read_timeout: Duration::from_secs(4),
        ..settings()
    };
    let endpoint = transport_with(&server, settings.clone());
    let scoped = Transport::with_settings(ClusterName::new("c2").unwrap(), settings.clone().into());
    scoped.swap(dialer_with(settings).route_channel(Arc::new(Workspace(endpoint))));
    let log = get("/api/v1/namespaces/a/pods/b/log?follow=true");
    let mut log = scoped.send(log).await.unwrap().into_body();
    assert_eq!(next(&mut log).await, Some(Ok("one\n".to_owned())));
    assert!(next(&mut log).now_or_never().is_none());
    advance(Duration::from_secs(1000)).await;
    let asked = server.seen()[0].line().to_owned();
    assert!(asked.contains(" /clusters/api/api/v1/"), "{asked}");
    go_on.add_permits(1);
    assert_eq!(next(&mut log).await, Some(Ok("two\n".to_owned())));
}

#[tokio::test]
async fn answers_that_are_not_http_are_explained() {
    let server = Server::start(None, |_, mut stream| async move {
        stream.write_all(b"SSH-2.0-OpenSSH_9.7\r\n\r\n").await.unwrap();
        closed(&mut stream).await;
        None
    })
    .await;
    let error = transport(&server).send(get("/version")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cluster \"c1\": GET /version: the answer broke off: the server sent something that is not HTTP; check the port, \
         and whether the address needs https://"
    );
    let hangs_up = Server::start(None, |_, _| async { None }).await;
    let error = transport(&hangs_up).send(get("/version")).await.unwrap_err();
    assert!(
        error.to_string().ends_with(
            "the connection was closed in the middle of an answer; the API server may be restarting"
        ),
        "{error}"
    );
    assert!(std::error::Error::source(&error).is_some());
}

#[tokio::test]
async fn a_head_that_never_ends_is_explained() {
    let long = Server::start(None, |seen, mut stream| async move {
        let len = if seen.line().contains("/long") { 200 } else { 60 };
        let cookie = "x".repeat(len << 10);
        let head = format!("HTTP/1.1 200 OK\r\nset-cookie: {cookie}\r\ncontent-length: 0\r\n\r\n");
        let _ = stream.write_all(head.as_bytes()).await;
        if len > 64 {
            closed(&mut stream).await;
            return None;
        }
        Some(stream)
    })
    .await;
    for method in ["GET", "POST"] {
        let request = |path: &str| {
            let request = http::Request::builder().method(method).uri(path);
            request.body(kube::client::Body::empty()).unwrap()
        };
        assert!(transport(&long).send(request("/short")).await.is_ok(), "{method}");
        let error = transport(&long).send(request("/long")).await.unwrap_err();
        assert!(
            error
                .to_string()
                .contains("the head of the answer is longer than 64 KiB"),
            "{method}: {error}"
        );
    }
}
