//! Responses without end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::ListParams};
use tokio::io::AsyncWriteExt;

use super::{
    Settings,
    server::{Server, begin, respond},
    settings, transport, transport_with, until,
};
use crate::{TransportError, TransportErrorKind};

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
    let listed = tokio::time::timeout(Duration::from_secs(60), list(&server, limited()));
    let error = listed.await.expect("an error before the body comes");
    assert!(matches!(
        transport_error(&error).kind(),
        TransportErrorKind::TooLarge { .. }
    ));
}

#[tokio::test]
async fn an_answer_of_exactly_the_limit_passes() {
    let text = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[]}"#;
    for (limit, fits) in [(text.len(), true), (text.len() - 1, false)] {
        for chunked in [false, true] {
            let server = Server::start(None, move |_, mut stream| async move {
                if chunked {
                    begin(&mut stream).await;
                    super::server::chunk(&mut stream, text).await;
                    stream.write_all(b"0\r\n\r\n").await.ok()?;
                } else {
                    respond(&mut stream, "200 OK", "application/json", text).await;
                }
                Some(stream)
            })
            .await;
            let settings = Settings {
                body_limit: limit,
                ..settings()
            };
            let api: Api<ConfigMap> = Api::all(transport_with(&server, settings).client("default"));
            assert_eq!(
                api.list(&ListParams::default()).await.is_ok(),
                fits,
                "{limit} {chunked}"
            );
            let api: Api<ConfigMap> = Api::all(transport(&server).client("default"));
            assert!(api.list(&ListParams::default()).await.is_ok());
        }
    }
}
