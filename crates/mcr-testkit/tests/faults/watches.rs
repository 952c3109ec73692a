//! Faults in watches that run.

use std::time::{Duration, Instant};

use mcr_testkit::faults::{Fault, Match};

use crate::{Raw, soon, stand};

#[tokio::test]
async fn a_running_watch_ends_with_410() {
    let (server, proxy, raw) = stand().await;
    let mut watch = raw.watch(&proxy).await;
    server.send("ADDED", "c");
    assert_eq!(watch.brief().await, "ADDED c");
    proxy.set(Fault::GoneEvent.on(Match::any().times(1))).await;
    let event = watch.event().await;
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&"ERROR".into(), &410.into())
    );
    assert_eq!(event["object"]["reason"], "Expired");
    assert!(soon(watch.line()).await.is_none());
    // It happened once.
    let mut watch = raw.watch(&proxy).await;
    server.send("ADDED", "d");
    assert_eq!(watch.brief().await, "ADDED d");
    // Without a limit new watches get it as well.
    proxy.set(Fault::GoneEvent).await;
    assert_eq!(watch.brief().await, "ERROR ");
    assert_eq!(raw.watch(&proxy).await.brief().await, "ERROR ");
}

#[tokio::test]
async fn running_watches_outlive_refused_credentials() {
    let (server, proxy, raw) = stand().await;
    let mut watch = raw.watch(&proxy).await;
    proxy.set(Fault::Unauthorized).await;
    server.send("ADDED", "c");
    assert_eq!(watch.brief().await, "ADDED c");
    assert_eq!(soon(raw.get(&proxy, crate::WATCH)).await.unwrap().status, 401);
}

#[tokio::test]
async fn a_running_watch_ends_in_half_a_line() {
    let (_server, proxy, _) = stand().await;
    let mut watch = Raw::new(&proxy).watch(&proxy).await;
    proxy.set(Fault::Truncated).await;
    let half = soon(watch.line()).await.unwrap().unwrap();
    assert!(half.starts_with(b"{\"type\"") && serde_json::from_slice::<serde_json::Value>(&half).is_err());
    assert!(soon(watch.line()).await.is_none());
}

#[tokio::test]
async fn a_running_watch_is_cut_off() {
    let (_server, proxy, _) = stand().await;
    let mut watch = Raw::new(&proxy).watch(&proxy).await;
    proxy.set(Fault::CutOff).await;
    assert!(soon(watch.line()).await.unwrap().is_err());
}

#[tokio::test]
async fn garbage_comes_at_once_and_for_every_line() {
    let (server, proxy, _) = stand().await;
    let mut watch = Raw::new(&proxy).watch(&proxy).await;
    proxy.set(Fault::Garbage.on(Match::any().times(2))).await;
    let garbage = soon(watch.line()).await.unwrap().unwrap();
    assert!(std::str::from_utf8(&garbage).is_err());
    server.send("ADDED", "c");
    assert_eq!(soon(watch.line()).await.unwrap().unwrap(), garbage);
    server.send("ADDED", "d");
    assert_eq!(watch.brief().await, "ADDED d");
}

#[tokio::test]
async fn events_are_lost_doubled_and_spoilt() {
    let (server, proxy, _) = stand().await;
    let mut watch = Raw::new(&proxy).watch(&proxy).await;
    proxy.set(Fault::SkipEvents.on(Match::any().times(1))).await;
    for name in ["lost", "kept"] {
        server.send("ADDED", name);
    }
    assert_eq!(watch.brief().await, "ADDED kept");

    proxy.set(Fault::SkipEvents).await;
    server.send("ADDED", "lost");
    server.send("BOOKMARK", "");
    assert_eq!(watch.brief().await, "BOOKMARK ");

    proxy.set(Fault::DuplicateEvents).await;
    server.send("MODIFIED", "c");
    assert_eq!([watch.brief().await, watch.brief().await], ["MODIFIED c"; 2]);

    proxy.set(Fault::Undecodable { name: None }).await;
    server.send("ADDED", "first");
    server.send("ADDED", "second");
    assert_eq!(watch.event().await["object"]["metadata"]["labels"], 7);
    assert!(watch.event().await["object"]["metadata"]["labels"].is_null());

    let name = Some("bad".to_owned());
    proxy.set(Fault::Undecodable { name }).await;
    for (name, labels) in [
        ("good", serde_json::Value::Null),
        ("bad", 7.into()),
        ("bad", 7.into()),
    ] {
        server.send("ADDED", name);
        assert_eq!(
            watch.event().await["object"]["metadata"]["labels"],
            labels,
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_running_watch_becomes_slow_and_fast_again() {
    let (server, proxy, _) = stand().await;
    let mut watch = Raw::new(&proxy).watch(&proxy).await;
    proxy
        .set(Fault::Slow {
            first_byte: Duration::ZERO,
            bytes_per_second: Some(300),
        })
        .await;
    let started = Instant::now();
    server.send("ADDED", "c");
    assert_eq!(watch.brief().await, "ADDED c");
    assert!(started.elapsed() > Duration::from_millis(350));
    proxy.clear().await;
    server.send("ADDED", "d");
    assert_eq!(watch.brief().await, "ADDED d");
}

#[tokio::test]
async fn faults_of_one_kind_leave_the_others_alone() {
    let (server, proxy, raw) = stand().await;
    let mut watch = raw.watch(&proxy).await;
    proxy
        .set(Fault::GoneEvent.on(Match::any().resource("secrets")))
        .await;
    proxy.add(Fault::CutOff.on(Match::any().verb("list"))).await;
    server.send("ADDED", "c");
    assert_eq!(watch.brief().await, "ADDED c");
}
