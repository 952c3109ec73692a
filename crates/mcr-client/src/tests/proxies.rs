//! HTTP and SOCKS proxies.

use std::sync::Arc;

use mcr_access::{AccessPolicy, Credential, Endpoint, Trust};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    Settings, dialer, failure, get, rest,
    server::{Server, respond},
    settings,
};
use crate::{dialer::Dialer, proxies::ProxyEnvironment};

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

#[tokio::test]
async fn proxies_of_the_environment_are_used_where_the_endpoint_and_the_exceptions_leave_it_to_them() {
    let answer = |text: &'static str| {
        Server::start(None, move |seen, mut stream| async move {
            let body = if seen.line().starts_with("CONNECT ") {
                ""
            } else {
                text
            };
            respond(&mut stream, "200 OK", "text/plain", body).await;
            Some(stream)
        })
    };
    let (proxy, other) = (answer("through").await, answer("through the other").await);
    let url = format!("http://me:canary@{}", proxy.address);
    let environment = ProxyEnvironment::new(|name| match name {
        "HTTP_PROXY" => Some(url.clone()),
        "NO_PROXY" => Some("direct.example".into()),
        _ => None,
    });
    let with = |policy: &AccessPolicy| {
        let proxies = Some(Arc::new(environment.clone().unwrap()));
        Dialer::with_settings(
            policy,
            Settings {
                proxies,
                ..settings()
            }
            .into(),
        )
    };
    let endpoint = |server: &str| Endpoint::new(format!("http://{server}").parse().unwrap());
    let ask = async |dialer: &Dialer, endpoint: &Endpoint, trust| {
        let channel = dialer.channel(endpoint, &Credential::anonymous(), trust);
        let channel = channel.map_err(|error| error.to_string())?;
        let answer = channel
            .send(get("/version"))
            .await
            .map_err(|error| error.to_string())?;
        Ok::<_, String>(rest(&mut answer.into_body()).await.0)
    };
    let default = with(&AccessPolicy::default());
    assert_eq!(
        ask(&default, &endpoint("api.example"), Trust::Trusted)
            .await
            .as_deref(),
        Ok("through")
    );
    assert_eq!(proxy.seen()[0].line(), "CONNECT api.example:80 HTTP/1.1");

    // The proxy-url of the cluster comes first, and a cluster may be direct.
    let mut own = endpoint("api.example");
    own.proxy = Some(format!("http://{}", other.address).parse().unwrap());
    assert_eq!(
        ask(&default, &own, Trust::Trusted).await.as_deref(),
        Ok("through the other")
    );
    let mut direct = endpoint("no-such-host.invalid");
    direct.direct = true;
    for endpoint in [
        direct,
        endpoint("direct.example:1"),
        endpoint(&format!("{}", other.address)),
    ] {
        let _ = ask(&default, &endpoint, Trust::Trusted).await;
    }
    assert_eq!(proxy.seen().len(), 2, "none of them has used the proxy");

    // The proxy would resolve the names that an untrusted kubeconfig chooses.
    let refused = ask(&default, &endpoint("api.example"), Trust::Untrusted)
        .await
        .unwrap_err();
    assert!(
        refused.contains("AccessPolicy::allow_proxy") && !refused.contains("canary"),
        "{refused}"
    );
    let allowed =
        with(&AccessPolicy::default().allow_proxy(format!("http://{}", proxy.address).parse().unwrap()));
    assert_eq!(
        ask(&allowed, &endpoint("api.example"), Trust::Untrusted)
            .await
            .as_deref(),
        Ok("through")
    );
    let metadata = endpoint("169.254.169.254");
    assert!(
        ask(&allowed, &metadata, Trust::Untrusted).await.is_err(),
        "the address policy still applies"
    );
}
