//! A connection and the content of its responses, over a stream whose other end the test writes.
#![allow(clippy::unwrap_used)]

use std::{
    future::poll_fn,
    pin::pin,
    task::{Context, Poll, Waker},
};

use http_body::Body;
use http_body_util::BodyExt;
use mcr_h1::{Connection, Content, Error, MAX_HEAD, RequestFailed};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

fn connection() -> (Connection<DuplexStream>, DuplexStream) {
    let (client, server) = duplex(1 << 20);
    (Connection::new(client), server)
}

/// Sends a request whose response has already been written. Returns the response and the server's end of the stream.
async fn answered(
    answer: &str,
) -> (
    Result<http::Response<Content<DuplexStream>>, RequestFailed>,
    DuplexStream,
) {
    let (connection, mut server) = connection();
    server.write_all(answer.as_bytes()).await.unwrap();
    (connection.send(REQUEST).await, server)
}

#[tokio::test]
async fn the_connection_comes_back_after_the_content() {
    let (response, mut server) = answered("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc").await;
    let mut content = response.unwrap().into_body();
    assert_eq!(content.size_hint().exact(), Some(6));
    assert!(content.take_connection().is_none());
    server.write_all(b"def").await.unwrap();
    assert_eq!((&mut content).collect().await.unwrap().to_bytes(), "abcdef");
    assert!(content.is_end_stream());
    let mut connection = content.take_connection().unwrap();
    assert!(connection.is_usable());

    let mut request = [0; REQUEST.len()];
    server.read_exact(&mut request).await.unwrap();
    assert_eq!(request, REQUEST);
    server
        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
        .await
        .unwrap();
    let mut content = connection.send(REQUEST).await.unwrap().into_body();
    assert!(content.is_end_stream() && content.take_connection().is_some());
}

#[tokio::test]
async fn a_connection_is_not_given_back_that_can_not_be_used_again() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\nx",
        "HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        // Bytes after the response belong to no request.
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n",
    ] {
        let (response, _server) = answered(answer).await;
        let mut content = response.unwrap().into_body();
        assert_eq!(
            (&mut content).collect().await.unwrap().to_bytes(),
            "x",
            "{answer}"
        );
        assert!(content.take_connection().is_none(), "{answer}");
    }
}

#[tokio::test]
async fn a_closed_or_talking_connection_is_not_usable() {
    let (mut connection, server) = connection();
    assert!(connection.is_usable());
    drop(server);
    assert!(!connection.is_usable());

    let (client, mut server) = duplex(64);
    let mut connection = Connection::new(client);
    server.write_all(b"x").await.unwrap();
    assert!(!connection.is_usable());
}

#[tokio::test]
async fn a_response_that_is_cut_off_is_an_error_unless_it_ends_with_the_connection() {
    for (answer, whole) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc", false),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
            false,
        ),
        ("HTTP/1.1 200 OK\r\n\r\nabc", true),
    ] {
        let (response, server) = answered(answer).await;
        drop(server);
        let mut content = response.unwrap().into_body();
        let first = content.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, "abc", "{answer}");
        match content.frame().await {
            None => assert!(whole, "{answer}"),
            Some(Err(Error::Truncated)) => assert!(!whole, "{answer}"),
            other => panic!("{answer}: {other:?}"),
        }
        assert!(content.frame().await.is_none() && content.take_connection().is_none());
    }
}

#[tokio::test]
async fn a_failed_request_reports_whether_a_response_began() {
    for (answer, began) in [("", false), ("HTTP/1.1 2", true)] {
        let (connection, mut server) = connection();
        server.write_all(answer.as_bytes()).await.unwrap();
        server.shutdown().await.unwrap();
        let failed = connection.send(REQUEST).await.err().unwrap();
        assert!(matches!(failed.error, Error::Truncated), "{failed:?}");
        assert_eq!(failed.response_began, began);
    }
    let (response, _server) = answered("SSH-2.0-OpenSSH_9.7\r\n").await;
    assert!(matches!(response.err().unwrap().error, Error::Malformed(_)));
}

#[tokio::test]
async fn a_head_has_an_upper_bound_with_all_that_comes_before_it() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(MAX_HEAD));
    let (response, _server) = answered(&long).await;
    assert!(matches!(response.err().unwrap().error, Error::HeadTooLong));
    let interim = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(MAX_HEAD / 28 + 1);
    let (response, _server) =
        answered(&format!("{interim}HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")).await;
    assert!(matches!(response.err().unwrap().error, Error::HeadTooLong));
}

#[tokio::test]
async fn content_is_appended_as_it_arrives() {
    let (response, mut server) =
        answered("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n").await;
    let mut content = pin!(response.unwrap().into_body());
    let mut all = Vec::new();
    poll_fn(|context| content.poll_append(context, &mut all))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(all, b"a");
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(
        content.poll_append(&mut context, &mut all),
        Poll::Pending
    ));
    server.write_all(b"2\r\nbc\r\n0\r\nx: y\r\n\r\n").await.unwrap();
    poll_fn(|context| content.poll_append(context, &mut all))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(all, b"abc");
    assert!(
        poll_fn(|context| content.poll_append(context, &mut all))
            .await
            .is_none()
    );
    assert!(content.take_connection().is_some());
}
