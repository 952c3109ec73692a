//! Responses without end.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::FutureExt;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use mcr_access::BoxError;
use tokio::io::AsyncWriteExt;

use super::{
    Settings, get,
    server::Server,
    settings, transport_with, until,
};
use crate::{
    answer_body::AnswerBody,
    body::ResponseBody,
    error::{TransportError, TransportErrorKind},
    guard::guard,
    request::RequestInfo,
};

/// What the server sends at most, so that a client without a limit fails too.
const MUCH: usize = 128 << 20;
/// More than the limits of the tests and the buffers of a socket.
const BOUNDED: usize = 32 << 20;

/// A server that sends a list whose items never end, with this status. Counts the bytes that it has sent.
async fn endless(status: &'static str) -> (Server, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let server = Server::start(None, move |_, mut stream| {
        let count = count.clone();
        async move {
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.ok()?;
            let items = "{},".repeat(20_000);
            let chunk = format!("{:x}\r\n{items}\r\n", items.len());
            stream.write_all(b"a\r\n{\"items\":[\r\n").await.ok()?;
            while count.load(Ordering::SeqCst) < MUCH {
                stream.write_all(chunk.as_bytes()).await.ok()?;
                count.fetch_add(chunk.len(), Ordering::SeqCst);
            }
            None
        }
    })
    .await;
    (server, sent)
}

async fn list(server: &Server, settings: Settings) -> kube::Error {
    let api: Api<ConfigMap> = Api::all(transport_with(server, settings).client("default"));
    api.list(&ListParams::default()).await.unwrap_err()
}

fn limited() -> Settings {
    Settings {
        body_limit: 3 << 19,
        ..settings()
    }
}

fn transport_error(error: &kube::Error) -> &TransportError {
    let kube::Error::Service(error) = error else {
        panic!("{error:?}")
    };
    error.downcast_ref().unwrap()
}

#[tokio::test]
async fn an_answer_without_end_is_given_up_at_the_limit() {
    let (server, sent) = endless("200 OK").await;
    let error = list(&server, limited()).await;
    let error = transport_error(&error);
    assert_eq!(error.kind(), &TransportErrorKind::TooLarge { limit: 3 << 19 });
    assert!(!error.is_retryable());
    assert_eq!(
        error.to_string(),
        "cluster \"c1\": GET /api/v1/configmaps: the answer is larger than 1.5 MiB, the limit of an answer that is read as a \
         whole; ask for less: list in pages (ListParams::limit) or with a selector, or use a watch of the fleet"
    );
    until("the connection is closed", || server.open() == 0).await;
    assert!(sent.load(Ordering::SeqCst) < BOUNDED);
}

#[tokio::test]
async fn an_error_without_end_is_replaced() {
    let (server, sent) = endless("500 Internal Server Error").await;
    let kube::Error::Api(status) = list(&server, settings()).await else {
        panic!()
    };
    assert_eq!(
        (status.code, status.reason.as_str()),
        (500, "InternalServerError")
    );
    until("the connection is closed", || server.open() == 0).await;
    assert!(sent.load(Ordering::SeqCst) < BOUNDED);
}

/// The server announces the length and sends nothing: the limit needs no byte of the body.
#[tokio::test]
async fn an_announced_length_over_the_limit_is_refused_at_once() {
    let server = Server::start(None, |_, mut stream| async move {
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1572865\r\n\r\n";
        stream.write_all(head).await.unwrap();
        super::server::closed(&mut stream).await;
        None
    })
    .await;
    let api: Api<ConfigMap> = Api::default_namespaced(transport_with(&server, limited()).client("default"));
    // hyper reads the answer to a POST.
    let (listed, created) = (list(&server, limited()), async {
        let created = api.create(&PostParams::default(), &ConfigMap::default()).await;
        created.unwrap_err()
    });
    let answered = tokio::time::timeout(Duration::from_secs(60), async { [listed.await, created.await] });
    for error in answered.await.expect("an error before the body comes") {
        assert!(matches!(
            transport_error(&error).kind(),
            TransportErrorKind::TooLarge { .. }
        ));
    }
}

/// A body of a known length that never comes.
struct Announced(u64);

impl http_body::Body for Announced {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Pending
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0)
    }
}

/// The guard's verdict on a JSON answer to a list, if it is found without waiting.
fn guarded(
    body: impl FnOnce(RequestInfo) -> ResponseBody,
    limit: usize,
) -> Option<Result<ResponseBody, TransportErrorKind>> {
    let body = body(RequestInfo::of(&get("/api/v1/configmaps")));
    let response = http::Response::builder().header("content-type", "application/json");
    let guarded = guard(response.body(body).unwrap(), limit).now_or_never()?;
    Some(match guarded {
        Ok(response) => Ok(response.into_body()),
        Err(error) => Err(error.kind().clone()),
    })
}

#[tokio::test]
async fn an_announced_length_counts_wherever_a_body_comes_from() {
    let client = async |announced| {
        let answers = tower::service_fn(move |_: http::Request<kube::client::Body>| async move {
            Ok::<_, BoxError>(http::Response::new(Announced(announced)))
        });
        let response = kube::Client::new(answers, "default").send(get("/")).await;
        let body = response.unwrap().into_body();
        guarded(|info| ResponseBody::client(body, info, None), 100)
    };
    let routed = |announced| {
        let body = AnswerBody::new(Announced(announced));
        guarded(|info| ResponseBody::routed(body, info, None), 100)
    };
    for refused in [client(101).await, routed(101)] {
        let Some(Err(kind)) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(kind, TransportErrorKind::TooLarge { limit: 100 });
    }
    assert!(
        client(100).await.is_none() && routed(100).is_none(),
        "the body may come"
    );
}

/// A chunked answer ends with a piece of its own, which may come late.
#[tokio::test]
async fn an_answer_of_exactly_the_limit_passes_if_its_end_comes_alone() {
    let text = r#"{"items":[]}"#;
    let in_one_frame = || {
        let frame = Ok::<_, BoxError>(Frame::data(Bytes::from(text)));
        let body = StreamBody::new(futures::stream::iter([frame]));
        assert!(!http_body::Body::is_end_stream(&body));
        AnswerBody::new(body)
    };
    let answer = |limit| guarded(|info| ResponseBody::routed(in_one_frame(), info, None), limit).unwrap();
    let passed = answer(text.len()).unwrap();
    assert_eq!(
        passed.size_hint().exact(),
        Some(text.len() as u64),
        "it was read, so its length is known"
    );
    assert_eq!(passed.collect().await.unwrap().to_bytes(), text);
    assert_eq!(
        answer(text.len() - 1).unwrap_err(),
        TransportErrorKind::TooLarge {
            limit: text.len() - 1
        }
    );
}
