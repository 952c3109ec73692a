//! Health checks and routes of the program.
#![allow(clippy::unwrap_used)] // Clippy takes only functions marked as tests for tests.

use std::{
    future::pending,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use mcr::{
    BoxError,
    core::Change,
    server::{
        ServerAccess,
        axum::{Router, routing::get},
    },
};
use mcr_testkit::log::Log;
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    sync::Semaphore,
    time::{sleep, timeout},
};
use tracing::Level;

use crate::{
    harness::{PATIENCE, Served, ask, ask_with, serve_options, until_answer},
    support::Unshown,
};

#[tokio::test]
async fn a_check_that_fails_is_named_and_a_probe_runs_it_once_a_second_at_most() {
    let log = Log::of_this_thread(Level::INFO);
    let (fails, runs) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let served = serve_options(|options| {
        let (fails, runs) = (fails.clone(), runs.clone());
        let database = move || {
            runs.fetch_add(1, Ordering::Relaxed);
            let fails = fails.load(Ordering::Relaxed);
            async move {
                if fails {
                    return Err(BoxError::from("no route to db-1"));
                }
                Ok(())
            }
        };
        options
            .readyz_check("database", database)
            .healthz_check("loop", async || Ok(()))
    });
    served.announce(Change::Synced);
    let failing = until_answer(&served, |answer| answer.body.contains("database")).await;
    assert_eq!(failing.status, 503);
    assert_eq!(
        failing.json()["reason"],
        "the check database fails: no route to db-1"
    );
    assert_eq!(served.get("/healthz").await.body, "ok");
    let before = runs.load(Ordering::Relaxed);
    for _ in 0..50 {
        served.get("/readyz").await;
    }
    let after = runs.load(Ordering::Relaxed);
    assert!(after - before < 25, "{before} to {after} runs for 50 probes");
    fails.store(false, Ordering::Relaxed);
    until_answer(&served, |answer| answer.status == 200).await;
    assert_eq!(log.lines_with("a health check fails").len(), 1, "{}", log.text());
    assert_eq!(log.lines_with("succeeds again").len(), 1, "{}", log.text());
    served.end().await;
}

#[tokio::test]
async fn a_check_that_hangs_or_panics_fails() {
    let served = serve_options(|options| {
        options
            .healthz_check("hangs", pending)
            .readyz_check("panics", async || Err(Unshown.into()))
    });
    served.announce(Change::Synced);
    let panics = until_answer(&served, |answer| answer.body.contains("panics")).await;
    assert_eq!(
        panics.json()["reason"],
        "the check panics fails: the check panicked"
    );
    let hangs = timeout(PATIENCE, served.get("/healthz")).await.unwrap();
    assert_eq!(hangs.status, 503);
    assert_eq!(hangs.body, "the check hangs fails: no answer within 5 s");
    served.end().await;
}

#[tokio::test]
async fn routes_of_the_program_are_served_beside_those_of_mcr() {
    let own = Router::new()
        .route("/version", get(async || "1.2.3").post(async || "set"))
        .route("/clusters", get(async || "mine"))
        .fallback(async || "nothing");
    let served = serve_options(|options| options.merge_router(own));
    assert_eq!(served.get("/version").await.body, "1.2.3");
    assert_eq!(ask(served.address, "POST", "/version").await.body, "set");
    assert_eq!(served.get("/elsewhere").await.body, "nothing");
    assert!(served.get("/clusters").await.json()["clusters"].is_array());
    assert_eq!(ask(served.address, "TRACE", "/version").await.status, 405);
    served.end().await;
}

#[tokio::test]
async fn probes_have_an_address_of_their_own_and_nothing_else_is_served_there() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let probes = listener.local_addr().unwrap();
    let served = serve_options(|options| options.probes_on(listener));
    // The other address is full, and floods of connections that never ask take turns there.
    let mut held = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let request = b"GET /clusters HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request).await.unwrap();
        held.push(stream);
    }
    for _ in 0..100 {
        held.push(TcpStream::connect(served.address).await.unwrap());
    }
    for (path, status) in [
        ("/healthz", 200),
        ("/readyz", 503),
        ("/clusters", 404),
        ("/metrics", 404),
        ("/", 404),
    ] {
        let answer = timeout(PATIENCE, ask(probes, "GET", path)).await.unwrap();
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
    }
    assert_eq!(ask(probes, "POST", "/healthz").await.status, 405);
    served.end().await;
    assert!(TcpStream::connect(probes).await.is_err());
}

/// The address of probes has the same routes, so what one may show to this machine only is not shown if others reach the other.
#[tokio::test]
async fn texts_of_errors_are_shown_to_this_machine_only() {
    for (probes_at, shows) in [("127.0.0.1:0", true), ("0.0.0.0:0", false)] {
        for access in [None, Some(ServerAccess::open())] {
            let listener = TcpListener::bind(probes_at).unwrap();
            let port = listener.local_addr().unwrap().port();
            let served = serve_options(|options| {
                let options = match access {
                    Some(access) => options.access(access),
                    None => options,
                };
                options
                    .probes_on(listener)
                    .healthz_check("database", async || Err(BoxError::from("no route to db-1")))
            });
            for address in [served.address, SocketAddr::from(([127, 0, 0, 1], port))] {
                let failing = ask(address, "GET", "/healthz").await;
                assert_eq!(failing.status, 503);
                assert!(
                    failing.body.contains("the check database fails"),
                    "{}",
                    failing.body
                );
                assert_eq!(
                    failing.body.contains("db-1"),
                    shows,
                    "{probes_at}: {}",
                    failing.body
                );
            }
            served.end().await;
        }
    }
}

/// Sends a probe and goes away once the check runs.
async fn probe_and_leave(served: &Served, path: &str, begun: &AtomicBool) {
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let runs = async {
        while !begun.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, runs).await.unwrap();
}

/// A check that is slower than its callers are patient would never end, if each caller began it anew.
#[tokio::test]
async fn a_caller_that_leaves_does_not_end_a_check() {
    let log = Log::of_this_thread(Level::INFO);
    let (hangs, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (runs, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let served = serve_options(|options| {
        let (hangs, begun, runs, gate) = (hangs.clone(), begun.clone(), runs.clone(), gate.clone());
        let hanging = move || {
            hangs.store(true, Ordering::Relaxed);
            pending()
        };
        let slow = move || {
            runs.fetch_add(1, Ordering::Relaxed);
            begun.store(true, Ordering::Relaxed);
            let gate = gate.clone();
            async move {
                gate.acquire().await?.forget();
                Ok(())
            }
        };
        options
            .healthz_check("hanging", hanging)
            .readyz_check("slow", slow)
    });
    probe_and_leave(&served, "/healthz", &hangs).await;
    let logged = async {
        while log.lines_with("no answer within 5 s").is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, logged).await.expect("the log has the reason");

    served.announce(Change::Synced);
    served
        .clusters(|report| report["providers"][0]["synced"] == true)
        .await;
    for _ in 0..3 {
        probe_and_leave(&served, "/readyz", &begun).await;
    }
    let release = async { gate.add_permits(10) };
    let (ready, ()) = tokio::join!(served.get("/readyz"), release);
    assert_eq!(ready.status, 200, "{}", ready.body);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    served.end().await;
}

/// A page in a browser can send a POST anywhere, but not without its origin.
#[tokio::test]
async fn what_changes_something_is_refused_to_pages_of_others() {
    let own = Router::new().route("/set", get(async || "is").post(async || "set"));
    let served = serve_options(|options| options.merge_router(own));
    for (method, origins, status) in [
        ("POST", "", 200),
        ("POST", "origin: http://localhost:8080\r\n", 200),
        ("POST", "origin: https://LocalHost:8080\r\n", 200),
        ("POST", "origin: http://localhost\r\n", 403),
        ("POST", "origin: http://localhost:3000\r\n", 403),
        ("POST", "origin: http://evil.example\r\n", 403),
        ("POST", "origin: null\r\n", 403),
        (
            "POST",
            "origin: http://localhost:8080\r\norigin: http://evil.example\r\n",
            403,
        ),
        ("GET", "origin: http://evil.example\r\n", 200),
    ] {
        let headers = format!("host: localhost:8080\r\n{origins}");
        let answer = ask_with(served.address, method, "/set", &headers).await;
        assert_eq!(answer.status, status, "{method} {origins}: {}", answer.body);
    }
    served.end().await;
}
