//! Paths, probes and limits, and the start and the end of the server.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy takes only functions marked as tests for tests.

use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    time::Duration,
};

use mcr::{
    Manager, ManagerError,
    core::Change,
    server::{ServeError, ServerOptions},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    harness::{PATIENCE, ask, serve, serve_with, until_answer},
    series::Scrape,
    support::{Api, ApiAccess},
};

#[tokio::test]
async fn paths_methods_and_what_they_answer() {
    let served =
        serve(|builder| builder.serve(ServerOptions::from(TcpListener::bind("127.0.0.1:0").unwrap())));
    // The second options replace the first, so nothing listens on the first address.
    let first = served.address;
    served.stop.cancel();
    served.running.await.unwrap().unwrap();
    assert!(TcpStream::connect(first).await.is_err());

    let served = serve(|builder| builder);
    let healthy = served.get("/healthz").await;
    assert_eq!((healthy.status, healthy.body.as_str()), (200, "ok"));
    assert!(healthy.head.contains("content-type: text/plain"));
    assert!(healthy.head.contains("cache-control: no-store"));
    let metrics = served.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(
        metrics
            .head
            .contains("application/openmetrics-text; version=1.0.0")
    );
    assert_eq!(
        Scrape::parse(&metrics.body).get("mcr_reconciles_running", &[("controller", "animals")]),
        Some(0.0)
    );
    assert_eq!(served.get("/clusters").await.json()["clusters"], json!([]));
    let missing = served.get("/").await;
    assert_eq!(missing.status, 404);
    assert!(missing.json()["error"].as_str().unwrap().contains("/clusters"));
    for path in ["/healthz", "/metrics", "/clusters"] {
        let head = ask(served.address, "HEAD", path).await;
        assert_eq!((head.status, head.body.as_str()), (200, ""), "{path}");
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
            let refused = ask(served.address, method, path).await;
            assert_eq!(refused.status, 405, "{method} {path}");
            assert!(refused.head.contains("allow: get,head"), "{}", refused.head);
        }
    }
    for (query, word) in [("state=Redy", "Unreachable"), ("nmae=a", "name and state")] {
        let refused = served.get(&format!("/clusters?{query}")).await;
        assert_eq!(refused.status, 400);
        assert!(
            refused.json()["error"].as_str().unwrap().contains(word),
            "{}",
            refused.body
        );
    }
    served.end().await;
}

#[tokio::test]
async fn ready_once_every_provider_has_announced_everything() {
    let served = serve(|builder| builder);
    let before = served.get("/readyz").await;
    assert_eq!(before.status, 503);
    assert_eq!(
        before.json(),
        json!({"ready": false, "reason": "not every provider has announced all its clusters: told"})
    );
    assert_eq!(served.get("/healthz").await.status, 200, "not ready is not dead");
    served
        .announce
        .send(Err("the directory is missing".to_owned()))
        .unwrap();
    let failing = until_answer(&served, |answer| answer.body.contains("missing")).await;
    assert_eq!(failing.status, 503);
    // An unreachable cluster does not affect readiness.
    let dead = ApiAccess::new(Api::default());
    dead.down(true);
    served.join("dead", &dead);
    served.announce(Change::Synced);
    let ready = until_answer(&served, |answer| answer.status == 200).await;
    assert_eq!(ready.json(), json!({"ready": true}));
    let report = served
        .clusters(|report| report["clusters"][0]["state"] == "Unreachable")
        .await;
    assert!(
        report["clusters"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("refused"),
        "{report:#}"
    );
    assert_eq!(report["providers"][0]["restarts"], 1);
    assert_eq!(report["providers"][0]["lastError"], "the directory is missing");
    assert_eq!(served.get("/readyz").await.status, 200);
    served.end().await;
}

#[tokio::test]
async fn while_the_manager_stops_it_is_not_ready_but_alive() {
    let (release, wait) = tokio::sync::oneshot::channel::<()>();
    let served = serve(|builder| {
        builder.task("slow", |_, stop| async move {
            stop.cancelled().await;
            let _ = wait.await;
            Ok(())
        })
    });
    served.announce(Change::Synced);
    until_answer(&served, |answer| answer.status == 200).await;
    served.stop.cancel();
    let stopping = until_answer(&served, |answer| answer.status == 503).await;
    assert_eq!(stopping.json()["reason"], "the manager is stopping");
    assert_eq!(served.get("/healthz").await.body, "ok");
    assert_eq!(served.get("/clusters").await.status, 200);
    // A silent connection does not delay the end of the manager, although its timeout is an hour.
    let _idle = TcpStream::connect(served.address).await.unwrap();
    release.send(()).unwrap();
    timeout(PATIENCE, served.end()).await.expect("it ends");
}

#[tokio::test]
async fn an_address_in_use_is_named_before_anything_begins() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let began = Arc::new(Mutex::new(false));
    let manager = Manager::single(Api::default().client())
        .task("never", {
            let began = began.clone();
            move |_, _| async move {
                *began.lock().unwrap() = true;
                Ok(())
            }
        })
        .serve(address)
        .build()
        .unwrap();
    let error = manager.run_until(CancellationToken::new()).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("can't serve metrics and health at {address}: ")),
        "{text}"
    );
    assert!(text.contains("Choose another address"), "{text}");
    let ManagerError::Serve(ServeError::Bind {
        address: named,
        source,
    }) = error
    else {
        panic!("{error:?}")
    };
    assert_eq!((named, source.kind()), (address, std::io::ErrorKind::AddrInUse));
    assert!(!*began.lock().unwrap());
}

#[tokio::test]
async fn requests_are_bounded() {
    let head_within = Duration::from_secs(2);
    let served = serve_with(head_within, |builder| builder);
    // A request head that never ends runs into the timeout.
    let started = Instant::now();
    let mut slow = TcpStream::connect(served.address).await.unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.unwrap();
    let mut rest = Vec::new();
    timeout(PATIENCE, slow.read_to_end(&mut rest))
        .await
        .expect("it is closed")
        .unwrap();
    assert!(started.elapsed() >= head_within, "{:?}", started.elapsed());
    // A request head that is too large is refused.
    let mut large = TcpStream::connect(served.address).await.unwrap();
    let head = format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(100 << 10));
    let _ = large.write_all(head.as_bytes()).await;
    let mut status = [0; 12];
    if large.read_exact(&mut status).await.is_ok() {
        assert_eq!(&status, b"HTTP/1.1 431");
    }
    // Connections beyond the limit wait until others end.
    let mut held = Vec::new();
    for _ in 0..80 {
        held.push(TcpStream::connect(served.address).await.unwrap());
    }
    let waiting = ask(served.address, "GET", "/healthz");
    let answer = timeout(PATIENCE, waiting)
        .await
        .expect("idle connections are closed");
    assert_eq!(answer.status, 200);
    served.end().await;
}

/// With limits of an hour nothing but the reserve lets the probe through.
#[tokio::test]
async fn probes_are_answered_whatever_others_hold() {
    let served = serve(|builder| builder);
    let mut held = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream
            .write_all(b"GET /clusters HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        held.push(stream);
    }
    for _ in 0..200 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost:").await.unwrap();
        held.push(stream);
    }
    for (path, status) in [
        ("/healthz", 200),
        ("/readyz", 503),
        ("/clusters", 503),
        ("/healthz", 200),
    ] {
        let answer = timeout(PATIENCE, served.get(path))
            .await
            .expect("a probe waits for nobody");
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
    }
    held.clear();
    let answered = async { while served.get("/clusters").await.status != 200 {} };
    timeout(PATIENCE, answered).await.expect("there is room again");
    served.end().await;
}

/// Metrics that the program registers are served with the others.
#[tokio::test]
async fn own_metrics_are_served() {
    let mine = mcr::metrics::prometheus_client::metrics::counter::Counter::<u64>::default();
    let counter = mine.clone();
    let options = ServerOptions::from(SocketAddr::from(([127, 0, 0, 1], 0)));
    assert!(format!("{options:?}").contains("127.0.0.1:0"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let options =
        ServerOptions::from(listener).register(move |registry| registry.register("mine", "Mine", counter));
    let manager = Manager::single(Api::default().client())
        .serve(options)
        .build()
        .unwrap();
    assert!(manager.report().clusters.is_empty());
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run_until(stop.clone()));
    mine.inc_by(3);
    let scrape = Scrape::parse(&ask(address, "GET", "/metrics").await.body);
    assert_eq!(scrape.get("mine_total", &[]), Some(3.0));
    stop.cancel();
    running.await.unwrap().unwrap();
}
