//! HTTP and SOCKS proxies.

use mcr_access::{Credential, Endpoint, Trust};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    dialer, failure, get, rest,
    server::{Server, respond},
};

#[tokio::test]
async fn http_proxies() {
    let proxy = Server::start(None, |seen, mut stream| async move {
        let body = if seen.line().starts_with("CONNECT ") {
            ""
        } else {
            "through"
        };
        respond(&mut stream, "200 OK", "text/plain", body).await;
        Some(stream)
    })
    .await;
    let mut endpoint = Endpoint::new("http://api.example/base".parse().unwrap());
    endpoint.proxy = Some(format!("http://me:p%40w@{}", proxy.address).parse().unwrap());
    let channel = dialer()
        .channel(&endpoint, &Credential::anonymous(), Trust::Untrusted)
        .unwrap();
    let mut body = channel.send(get("/version")).await.unwrap().into_body();
    assert_eq!(rest(&mut body).await, ("through".to_owned(), None));
    let seen = proxy.seen();
    assert_eq!(seen[0].line(), "CONNECT api.example:80 HTTP/1.1");
    assert_eq!(seen[0].header("proxy-authorization"), ["Basic bWU6cEB3"]);
    assert_eq!(seen[1].line(), "GET /base/version HTTP/1.1");
    assert!(!format!("{endpoint:?}").contains("p%40w"));

    for scheme in ["http", "https", "socks5"] {
        endpoint.proxy = Some(format!("{scheme}://127.0.0.1:1").parse().unwrap());
        let text = failure(&endpoint, Trust::Trusted).await.to_string();
        assert!(
            text.contains("can't connect: connection refused"),
            "{scheme}: {text}"
        );
    }
}

#[tokio::test]
async fn socks_proxies() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let proxy = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut hello = [0; 3];
        connection.read_exact(&mut hello).await.unwrap();
        connection.write_all(&[5, 0]).await.unwrap();
        let mut wanted = [0; 4 + 1 + 11 + 2];
        connection.read_exact(&mut wanted).await.unwrap();
        connection
            .write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])
            .await
            .unwrap();
        let mut request = [0; 16];
        connection.read_exact(&mut request).await.unwrap();
        connection
            .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
            .await
            .unwrap();
        (wanted, request)
    });
    let mut endpoint = Endpoint::new("http://api.example".parse().unwrap());
    endpoint.proxy = Some(format!("socks5://{address}").parse().unwrap());
    let channel = dialer()
        .channel(&endpoint, &Credential::anonymous(), Trust::Trusted)
        .unwrap();
    assert_eq!(channel.send(get("/version")).await.unwrap().status(), 204);
    let (wanted, request) = proxy.await.unwrap();
    assert_eq!(&wanted, b"\x05\x01\x00\x03\x0bapi.example\x00\x50");
    assert!(request.starts_with(b"GET /version"));
}
