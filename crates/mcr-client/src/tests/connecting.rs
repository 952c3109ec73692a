//! Headers, addresses, and connections that fail.

use std::time::Duration;

use http::Request;
use kube::client::Body;
use mcr_access::{Basic, Credential, Endpoint, Impersonation, Trust};
use tokio::io::AsyncWriteExt;

use super::{Settings, dialer, dialer_with, failure, failure_with, get, reached, server::Server, settings};
use crate::error::TransportErrorKind;

#[tokio::test]
async fn requests_carry_the_credential_and_the_path_of_the_server() {
    let server = Server::json("200 OK", "{}").await;
    let mut credential = Credential::token(" secret\n");
    let mut impersonation = Impersonation::default();
    impersonation.user = "jane".into();
    impersonation.uid = Some("7".into());
    impersonation.groups = vec!["a".into(), "b".into()];
    let project = vec!["x".to_owned(), "y".to_owned()];
    impersonation.extra.insert("acme.com/Project".to_owned(), project);
    credential.impersonate = Some(impersonation);
    let endpoint = Endpoint::new(server.uri("http", "/clusters/root:org/"));
    let channel = dialer().channel(&endpoint, &credential, Trust::Trusted).unwrap();
    let request = Request::get("/api/v1/pods?limit=1")
        .header("authorization", "Bearer other")
        .header("impersonate-user", "admin")
        .header("accept", "application/json");
    channel.send(request.body(Body::empty()).unwrap()).await.unwrap();
    let seen = &server.seen()[0];
    assert_eq!(seen.line(), "GET /clusters/root:org/api/v1/pods?limit=1 HTTP/1.1");
    assert_eq!(seen.header("authorization"), ["Bearer secret"]);
    assert_eq!(seen.header("impersonate-user"), ["jane"]);
    assert_eq!(seen.header("impersonate-uid"), ["7"]);
    assert_eq!(seen.header("impersonate-group"), ["a", "b"]);
    assert_eq!(seen.header("impersonate-extra-acme.com%2f%50roject"), ["x", "y"]);
    let agent = seen.header("user-agent")[0];
    assert!(
        agent.contains(concat!(" mcr/", env!("CARGO_PKG_VERSION"), " (")),
        "{agent}"
    );
    assert_eq!(seen.header("accept"), ["application/json"]);
    assert_eq!(seen.header("host"), [server.address.to_string()]);

    let mut basic = Credential::default();
    basic.basic = Some(Basic::new("me", "pw"));
    dialer()
        .channel(&endpoint, &basic, Trust::Trusted)
        .unwrap()
        .send(get("/x"))
        .await
        .unwrap();
    assert_eq!(server.seen()[1].header("authorization"), ["Basic bWU6cHc="]);
    let unfit = dialer()
        .channel(&endpoint, &Credential::token("canary\nx"), Trust::Trusted)
        .err()
        .unwrap();
    assert_eq!(
        unfit.to_string(),
        "token: holds characters that don't fit into a header; copy it again"
    );
}

#[tokio::test]
async fn failures_to_connect_report_why() {
    let refused = Endpoint::new("https://127.0.0.1:1".parse().unwrap());
    let error = failure(&refused, Trust::Trusted).await;
    assert_eq!(
        error.to_string(),
        "GET /version: can't connect: connection refused: nothing listens at this address; the API server may be down"
    );
    assert!(matches!(error.kind(), TransportErrorKind::Connect { .. }));
    let unknown = Endpoint::new("https://no-such-host.invalid".parse().unwrap());
    let within = |seconds: f32| {
        dialer_with(Settings {
            connect_timeout: Duration::from_secs_f32(seconds),
            ..settings()
        })
    };
    let text = failure_with(&within(10.0), &unknown, Trust::Trusted)
        .await
        .to_string();
    let expected = "can't connect: the host name no-such-host.invalid can't be resolved; check its spelling, the DNS, and \
                    whether the cluster still exists";
    // Without DNS, the resolver may fail only after the time limit.
    assert!(
        text.contains(expected) || text.contains("no TCP connection within 10 s"),
        "{text}"
    );
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = plain.local_addr().unwrap().port();
    let answering = tokio::spawn(async move {
        let (mut connection, _) = plain.accept().await.unwrap();
        connection
            .write_all(b"HTTP/1.0 400 Bad Request\r\n\r\nspeak plainly")
            .await
            .unwrap();
        connection
    });
    let not_tls = Endpoint::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    assert_eq!(
        failure(&not_tls, Trust::Trusted).await.to_string(),
        "GET /version: can't connect: the server does not speak TLS on this port; check the port, or write http://"
    );
    drop(answering.await);
    let hole = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hole = Endpoint::new(format!("https://{}", hole.local_addr().unwrap()).parse().unwrap());
    assert_eq!(
        failure_with(&within(0.5), &hole, Trust::Trusted)
            .await
            .to_string(),
        "GET /version: can't connect: no TLS connection within 0.5 s, although TCP connects; the API server is paused or hangs, \
         or another program listens at this address"
    );
}

#[tokio::test]
async fn addresses_are_checked_when_names_are_resolved() {
    let server = Server::json("200 OK", "{}").await;
    let by_name: http::Uri = format!("http://localhost:{}", server.address.port())
        .parse()
        .unwrap();
    let text = failure(&Endpoint::new(by_name.clone()), Trust::Untrusted)
        .await
        .to_string();
    assert!(
        text.contains("can't connect: localhost leads to ")
            && text.contains("may not use loopback addresses"),
        "{text}"
    );
    let literal = dialer().channel(
        &Endpoint::new(server.uri("http", "")),
        &Credential::anonymous(),
        Trust::Untrusted,
    );
    assert!(
        literal
            .err()
            .unwrap()
            .to_string()
            .starts_with("server: the server is at 127.0.0.1, and untrusted access may not")
    );
    // Forms of an IP address that only the resolver parses.
    for odd in ["127.1", "2130706433", "0x7f000001"] {
        let uri = format!("http://{odd}:{}", server.address.port()).parse().unwrap();
        let text = failure(&Endpoint::new(uri), Trust::Untrusted).await.to_string();
        assert!(
            text.contains("may not use loopback addresses") || text.contains("can't be resolved"),
            "{odd}: {text}"
        );
    }
    assert_eq!(server.seen().len(), 0);
    reached(&Endpoint::new(by_name)).await;
}
