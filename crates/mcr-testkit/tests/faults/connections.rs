//! Faults of the connection.

use std::time::Duration;

use mcr_testkit::faults::{Fault, FaultProxy, Match, Upstream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{LIST, Raw, Watch, server::Server, silent, soon, stand};

async fn works(raw: &Raw, proxy: &FaultProxy) {
    let answer = soon(raw.get(proxy, LIST)).await.unwrap();
    assert_eq!(answer.json()["items"].as_array().unwrap().len(), 2);
}

/// A server, its proxy, a client and a watch of the client.
async fn watched() -> (Server, FaultProxy, Raw, Watch) {
    let (server, proxy, raw) = stand().await;
    let watch = raw.watch(&proxy).await;
    (server, proxy, raw, watch)
}

#[track_caller]
fn is_reset<T>(result: Result<T, String>) {
    let error = result.err().unwrap();
    assert!(error.contains("reset"), "{error}");
}

/// All watches and connections end.
async fn ends(server: &Server, proxy: &FaultProxy) {
    soon(async {
        while server.watches() > 0 || proxy.stats().open > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn without_faults_everything_passes() {
    let (server, proxy, raw) = stand().await;
    works(&raw, &proxy).await;
    let mut watch = raw.watch(&proxy).await;
    server.send("ADDED", "c");
    assert_eq!(watch.brief().await, "ADDED c");
    assert_eq!(
        server.seen(),
        [
            "/api/v1/configmaps Bearer secret",
            "/api/v1/configmaps?watch=true Bearer secret"
        ]
    );
    let stats = proxy.stats();
    assert_eq!((stats.requests, stats.hits), (2, 0));
    // The end of the client's watch is the end of the upstream's.
    drop((watch, raw));
    ends(&server, &proxy).await;
}

#[tokio::test]
async fn a_refusing_proxy_refuses_and_resets() {
    let (_server, proxy, raw, mut watch) = watched().await;
    proxy.set(Fault::Refuse).await;
    let error = TcpStream::connect(proxy.address()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(soon(watch.line()).await.unwrap().is_err());
    proxy.clear().await;
    works(&raw, &proxy).await;
}

#[tokio::test]
async fn a_black_hole_swallows_connections_and_gives_them_back() {
    let (server, proxy, raw, mut watch) = watched().await;
    proxy.set(Fault::BlackHole).await;
    server.send("ADDED", "c");
    silent(watch.line()).await;
    // Linux drops the SYN.
    #[cfg(target_os = "linux")]
    silent(TcpStream::connect(proxy.address())).await;
    let address = proxy.address();
    let late = tokio::spawn(async move { TcpStream::connect(address).await });
    silent(raw.get(&proxy, LIST)).await;
    proxy.clear().await;
    assert_eq!(watch.brief().await, "ADDED c");
    // The client's kernel has gone on trying.
    soon(late).await.unwrap().unwrap();
    works(&Raw::new(&proxy), &proxy).await;
}

#[tokio::test]
async fn a_silent_proxy_accepts_and_reports_nothing() {
    let (server, proxy, _raw, mut watch) = watched().await;
    proxy.set(Fault::Silent).await;
    server.send("ADDED", "c");
    let mut tcp = soon(TcpStream::connect(proxy.address())).await.unwrap();
    tcp.write_all(b"hello?").await.unwrap();
    silent(tcp.read_u8()).await;
    silent(watch.line()).await;
    let waiting = Raw::new(&proxy);
    let mut waiting = std::pin::pin!(waiting.get(&proxy, LIST));
    silent(&mut waiting).await;
    proxy.clear().await;
    assert_eq!(watch.brief().await, "ADDED c");
    soon(waiting).await.unwrap();
}

#[tokio::test]
async fn a_client_that_has_gone_is_noticed_in_the_silence() {
    let (server, proxy, raw, watch) = watched().await;
    proxy.set(Fault::Silent).await;
    drop((watch, raw));
    ends(&server, &proxy).await;
}

#[tokio::test]
async fn half_open_connections_stay_dead_and_new_ones_work() {
    let (server, proxy, _raw, mut watch) = watched().await;
    proxy.set(Fault::HalfOpen).await;
    server.send("ADDED", "c");
    silent(watch.line()).await;
    let other = Raw::new(&proxy);
    works(&other, &proxy).await;
    let mut young = other.watch(&proxy).await;
    proxy.clear().await;
    server.send("ADDED", "d");
    assert_eq!(young.brief().await, "ADDED d");
    silent(watch.line()).await;
}

#[tokio::test]
async fn connections_are_reset() {
    let (_server, proxy, raw, mut watch) = watched().await;
    proxy.set(Fault::Reset).await;
    is_reset(soon(watch.line()).await.unwrap());
    is_reset(soon(raw.get(&proxy, LIST)).await);
    proxy.clear().await;
    works(&raw, &proxy).await;
    let mut watch = raw.watch(&proxy).await;
    proxy.reset_connections().await;
    is_reset(soon(watch.line()).await.unwrap());
    works(&raw, &proxy).await;
}

#[tokio::test]
async fn certificates_are_wrong_in_three_ways() {
    let (_server, proxy, raw, mut watch) = watched().await;
    for (fault, words) in [
        (Fault::WrongCa, "UnknownIssuer"),
        (Fault::ExpiredCertificate, "expired"),
        (Fault::WrongHost, "not valid for name"),
    ] {
        proxy.set(fault.clone()).await;
        let error = soon(raw.get(&proxy, LIST)).await.err().unwrap();
        assert!(error.contains(words), "{fault}: {error}");
    }
    assert!(
        soon(watch.line()).await.unwrap().is_err(),
        "open connections are reset"
    );
    proxy.clear().await;
    works(&raw, &proxy).await;
}

#[tokio::test]
async fn the_address_changes() {
    let (_server, proxy, raw) = stand().await;
    let old = proxy.address();
    let mut watch = raw.watch(&proxy).await;
    proxy.set(Fault::AddressChange).await;
    assert_ne!(proxy.address(), old);
    assert!(TcpStream::connect(old).await.is_err());
    assert!(soon(watch.line()).await.unwrap().is_err());
    works(&raw, &proxy).await;
    proxy.clear().await;
    works(&raw, &proxy).await;
    // A proxy that moves while it must not listen does not start to listen.
    proxy.set(Fault::Refuse).await;
    proxy.add(Fault::AddressChange).await;
    assert!(TcpStream::connect(proxy.address()).await.is_err());
    proxy.clear().await;
    works(&raw, &proxy).await;
}

#[tokio::test]
async fn of_several_faults_each_ends_by_itself() {
    let (_server, proxy, raw) = stand().await;
    let silence = proxy.add(Fault::Silent).await;
    let refusal = proxy.add(Fault::Refuse).await;
    proxy
        .add(Fault::Forbidden.on(Match::any().resource("secrets")))
        .await;
    assert!(soon(raw.get(&proxy, LIST)).await.is_err());
    proxy.remove(refusal).await;
    silent(raw.get(&proxy, LIST)).await;
    proxy.remove(silence).await;
    works(&raw, &proxy).await;
    assert_eq!(
        soon(raw.get(&proxy, "/api/v1/secrets")).await.unwrap().status,
        403
    );
    assert_eq!(proxy.rules().len(), 1);
}

#[tokio::test]
async fn what_is_no_upstream_is_refused_in_words() {
    for (upstream, words) in [
        (Upstream::new("nonsense"), "not an address"),
        (Upstream::new("https://127.0.0.1:1"), "CA"),
        (Upstream::new("https://127.0.0.1:1").ca_pem("nonsense"), "CA"),
    ] {
        let error = FaultProxy::start(upstream).await.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let upstream = Upstream::new("http://127.0.0.1:1").client_certificate("canary", "canary");
    assert!(!format!("{upstream:?}").contains("canary"));
}
