//! Swaps of the channel, `block`, `close`, and 401 responses.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use futures::FutureExt;
use http::{Request, StatusCode};
use kube::client::Body;
use mcr_testkit::waiting::hold_clock;
use tokio::time::{Instant, advance};

use super::{
    Settings, channel, get, next, rest, sending,
    server::{Server, begin, chunk, closed, respond},
    settings, transport, transport_with, until,
};
use crate::{
    link::{EndpointNumber, LinkState},
    transport::Transport,
};

const WATCH: &str = "/api/v1/pods?watch=true";

/// The default time limit for a line, and no delay before watches end.
fn ten_seconds_for_a_line() -> Settings {
    Settings {
        rotation_line_timeout: Duration::from_secs(10),
        ..settings()
    }
}

#[tokio::test(start_paused = true)]
async fn a_swap_ends_watches_at_a_line_and_no_request_uses_the_old_credentials() {
    let _clock = hold_clock();
    let (server, go_on) = Server::gated(|seen, mut stream, gate| async move {
        if !seen.line().contains("watch") {
            respond(&mut stream, "200 OK", "application/json", "{}").await;
            return Some(stream);
        }
        begin(&mut stream).await;
        chunk(&mut stream, "one\ntwo\nthr").await;
        gate.pass().await;
        chunk(&mut stream, "ee\nfour\nfi").await;
        closed(&mut stream).await;
        None
    })
    .await;
    let transport = transport(&server);
    // An idle connection in the pool.
    rest(transport.send(get("/version")).await.unwrap().body_mut()).await;
    let mut watch = transport.send(get(WATCH)).await.unwrap().into_body();
    assert_eq!(next(&mut watch).await, Some(Ok("one\ntwo\nthr".to_owned())));

    transport.swap(channel(&server, "two"));
    for _ in 0..3 {
        rest(transport.send(get("/version")).await.unwrap().body_mut()).await;
    }
    let tokens: Vec<_> = server.seen().iter().map(|seen| seen.token().to_owned()).collect();
    assert_eq!(tokens, ["one", "one", "two", "two", "two"]);
    // The watch ends after the line; the next watch receives the rest.
    assert!(next(&mut watch).now_or_never().is_none());
    go_on.add_permits(1);
    let (text, error) = rest(&mut watch).await;
    assert_eq!((text.as_str(), error), ("ee\nfour\n", None));
    // The old channel's connection is closed although the body still exists.
    until("only the new channel's connection is open", || server.open() == 1).await;
    drop(watch);
    assert!(format!("{transport:?}").contains("open_bodies: 0"));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_ends_at_once_and_a_stuck_line_is_broken_off() {
    let _clock = hold_clock();
    let written = Arc::new(AtomicUsize::new(0));
    let count = written.clone();
    let server = Server::start(None, move |seen, mut stream| {
        let count = count.clone();
        async move {
            begin(&mut stream).await;
            let stuck = seen.line().contains("stuck");
            chunk(&mut stream, if stuck { "one\ntw" } else { "one\n" }).await;
            count.fetch_add(1, Ordering::SeqCst);
            closed(&mut stream).await;
            None
        }
    })
    .await;
    let transport = transport_with(&server, ten_seconds_for_a_line());
    let mut quiet = transport.send(get(WATCH)).await.unwrap().into_body();
    let mut stuck = transport
        .send(get("/api/v1/pods?watch=true&stuck"))
        .await
        .unwrap()
        .into_body();
    let mut unread = transport.send(get(WATCH)).await.unwrap().into_body();
    assert_eq!(next(&mut quiet).await, Some(Ok("one\n".to_owned())));
    assert_eq!(next(&mut stuck).await, Some(Ok("one\ntw".to_owned())));
    until("all is on its way", || written.load(Ordering::SeqCst) == 3).await;
    transport.swap(channel(&server, "two"));
    assert_eq!(next(&mut quiet).await, None);
    // Data that has arrived is not lost.
    assert_eq!(rest(&mut unread).await, ("one\n".to_owned(), None));
    assert!(next(&mut stuck).now_or_never().is_none());
    advance(Duration::from_millis(9_900)).await;
    assert!(
        next(&mut stuck).now_or_never().is_none(),
        "the time limit for the line has not passed"
    );
    advance(Duration::from_millis(200)).await;
    assert_eq!(
        next(&mut stuck).await,
        Some(Err("cluster \"c1\": GET /api/v1/pods: the connection was closed because the cluster's credentials were \
                  replaced; try again"
            .to_owned()))
    );
    assert_eq!(next(&mut stuck).await, None);
    until("all old connections are closed", || server.open() == 0).await;
}

/// Credentials may have been revoked, so there is a limit with the default settings, too.
#[tokio::test(start_paused = true)]
async fn nothing_goes_on_with_replaced_credentials_for_more_than_thirty_seconds() {
    let _clock = hold_clock();
    let server = Server::that_stops_after("one\ntw").await;
    let transport = transport_with(&server, Settings::default());
    let mut bodies = Vec::new();
    for path in [WATCH, WATCH, WATCH, "/api/v1/pods", "/api/v1/pods"] {
        bodies.push(transport.send(get(path)).await.unwrap().into_body());
    }
    for body in bodies.iter_mut().step_by(2) {
        assert_eq!(next(body).await, Some(Ok("one\ntw".to_owned())));
    }
    transport.swap(channel(&server, "two"));
    // Some of the bodies are being read, others are not.
    for body in bodies.iter_mut().step_by(2) {
        assert!(next(body).now_or_never().is_none());
    }
    tokio::task::yield_now().await;
    let mut late = transport.send(get(WATCH)).await.unwrap().into_body();
    advance(Duration::from_secs(30)).await;
    until("all but the late one are closed", || server.open() == 1).await;
    for body in &mut bodies {
        let error = rest(body).await.1.unwrap();
        assert!(error.ends_with("credentials were replaced; try again"), "{error}");
    }
    transport.close();
    until("all are closed", || server.open() == 0).await;
    assert!(rest(&mut late).await.1.unwrap().ends_with("gone from the fleet"));
}

/// A reader takes the end of a list for the end of its objects.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_cut_off_behind_a_line_fails() {
    let _clock = hold_clock();
    let server = Server::that_stops_after("one\n").await;
    let transport = transport_with(&server, ten_seconds_for_a_line());
    let mut list = transport.send(get("/api/v1/pods")).await.unwrap().into_body();
    assert_eq!(next(&mut list).await, Some(Ok("one\n".to_owned())));
    transport.swap(channel(&server, "two"));
    assert!(next(&mut list).now_or_never().is_none());
    advance(Duration::from_millis(10_100)).await;
    let error = next(&mut list).await.unwrap().unwrap_err();
    assert!(error.ends_with("credentials were replaced; try again"), "{error}");
}

/// No task can close the connections later, so they close at once.
#[tokio::test]
async fn a_swap_outside_of_a_runtime_closes_the_old_connections() {
    let server = Server::start(None, |_, mut stream| async move {
        begin(&mut stream).await;
        closed(&mut stream).await;
        None
    })
    .await;
    let settings = Settings {
        rotation_spread: Duration::from_secs(3600),
        ..settings()
    };
    let old = super::channel_with(&server, "one", settings.clone());
    let new = super::channel_with(&server, "two", settings.clone());
    let begun = std::thread::spawn(move || {
        let transport =
            Transport::with_settings(mcr_access::ClusterName::new("c1").unwrap(), settings.into());
        transport.swap(old);
        transport
    });
    let transport = begun.join().unwrap();
    let watch = transport.send(get(WATCH)).await.unwrap();
    assert_eq!(server.open(), 1);
    let swapped = transport.clone();
    std::thread::spawn(move || swapped.swap(new)).join().unwrap();
    until("the old connection is closed", || server.open() == 0).await;
    drop((watch, transport));
}

#[tokio::test]
async fn a_busy_watch_ends_after_a_swap_too() {
    let server = Server::start(None, |_, mut stream| async move {
        begin(&mut stream).await;
        for number in 0..100_000 {
            chunk(&mut stream, &format!("{number}\n")).await;
        }
        None
    })
    .await;
    let transport = transport(&server);
    let mut watch = transport.send(get(WATCH)).await.unwrap().into_body();
    next(&mut watch).await.unwrap().unwrap();
    transport.swap(channel(&server, "two"));
    let (text, error) = rest(&mut watch).await;
    assert_eq!(error, None);
    assert!(text.ends_with('\n') && text.lines().count() < 50_000);
}

#[tokio::test]
async fn closing_ends_everything_for_good() {
    let server = Server::start(None, |seen, mut stream| async move {
        if seen.line().contains("watch") {
            begin(&mut stream).await;
            chunk(&mut stream, "one\n").await;
        }
        closed(&mut stream).await;
        None
    })
    .await;
    let transport = transport(&server);
    let client = transport.client("default");
    let mut watch = transport.send(get(WATCH)).await.unwrap().into_body();
    next(&mut watch).await.unwrap().unwrap();
    let [waiting] = sending(&transport, ["/hangs"]);
    until("it is asked", || server.seen().len() == 2).await;
    transport.close();
    let gone = "the cluster is gone from the fleet";
    assert_eq!(
        next(&mut watch).await,
        Some(Err(format!("cluster \"c1\": GET /api/v1/pods: {gone}")))
    );
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), format!("cluster \"c1\": GET /hangs: {gone}"));
    // A later swap does not reopen it.
    transport.swap(channel(&server, "two"));
    assert!(transport.send(get("/x")).await.unwrap_err().is_gone());
    let error = client.send(get("/x")).await.unwrap_err();
    let kube::Error::Service(error) = error else {
        panic!("{error:?}")
    };
    assert!(
        error
            .downcast_ref::<crate::error::TransportError>()
            .unwrap()
            .is_gone()
    );
    until("all connections are closed", || server.open() == 0).await;
    // No reference to it is left.
    let current = Arc::downgrade(&transport.current);
    drop((transport, client, watch));
    until("the transport is freed", || current.strong_count() == 0).await;
}

#[tokio::test]
async fn while_the_link_is_down_nothing_is_sent_and_the_error_has_the_reason() {
    let server = Server::json("200 OK", "{}").await;
    let transport = Transport::new(mcr_access::ClusterName::new("c1").unwrap());
    let fails = |transport: &Transport| {
        let sent = futures::FutureExt::now_or_never(transport.send(get("/x?token=canary")));
        sent.expect("at once").unwrap_err().to_string()
    };
    let not_connected = "cluster \"c1\": GET /x: the cluster is not connected: ";
    assert_eq!(
        fails(&transport),
        format!("{not_connected}it has not been connected yet")
    );
    transport.swap(channel(&server, "one"));
    transport.set_link(LinkState::down("hibernated"));
    assert_eq!(fails(&transport), format!("{not_connected}hibernated"));
    assert_eq!(transport.last_received(), None);
    transport.set_link(LinkState::Up(EndpointNumber::default()));
    // The time of the last byte is recorded in milliseconds.
    let short = Duration::from_millis(2);
    let (date, before) = (SystemTime::now() - short, Instant::now() - short);
    assert_eq!(transport.send(get("/x")).await.unwrap().status(), StatusCode::OK);
    assert!((date..=SystemTime::now() + short).contains(&transport.last_received().unwrap()));
    assert!((before..=Instant::now()).contains(&transport.last_received_at().unwrap()));
    assert_eq!(server.seen().len(), 1);
}

/// A server that accepts only the token "two".
async fn picky() -> Server {
    Server::start(None, |seen, mut stream| async move {
        let status = if seen.token() == "two" {
            "200 OK"
        } else {
            "401 Unauthorized"
        };
        respond(&mut stream, status, "application/json", "{}").await;
        Some(stream)
    })
    .await
}

#[tokio::test]
async fn a_401_is_tried_once_more_with_newer_credentials() {
    let server = picky().await;
    let transport = transport(&server);
    let asked = Arc::new(AtomicUsize::new(0));
    let refused = {
        let seen = server.seen.clone();
        move || {
            seen.lock()
                .unwrap()
                .iter()
                .filter(|seen| seen.token() == "one")
                .count()
        }
    };
    let supervisor = tokio::spawn({
        let (transport, asked, next) = (transport.clone(), asked.clone(), channel(&server, "two"));
        async move {
            loop {
                // A call after a cancelled one returns, too.
                let reported = tokio::time::timeout(Duration::ZERO, transport.unauthorized()).await;
                if reported.is_err() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    continue;
                }
                asked.fetch_add(1, Ordering::SeqCst);
                until("all are refused", || refused() == 20).await;
                transport.swap(next.clone());
            }
        }
    });
    let post = || Request::post("/x").body(Body::from(b"body".to_vec())).unwrap();
    let all = futures::future::join_all((0..20).map(|_| transport.send(post()))).await;
    assert!(
        all.iter()
            .all(|response| response.as_ref().unwrap().status() == StatusCode::OK)
    );
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let seen = server.seen();
    assert_eq!(seen.iter().filter(|seen| seen.token() == "one").count(), 20);
    assert_eq!(
        seen.iter()
            .filter(|seen| seen.token() == "two" && seen.body == "body")
            .count(),
        20
    );
    supervisor.abort();
}

#[tokio::test]
async fn a_401_is_passed_on_when_there_is_nothing_newer_and_never_in_a_loop() {
    let server = picky().await;
    let transport = transport(&server);
    let answered = {
        let (send, supervise) = (transport.send(get("/x")), async {
            transport.unauthorized().await;
            transport.refresh_done();
        });
        tokio::join!(send, supervise).0.unwrap()
    };
    assert_eq!(answered.status(), StatusCode::UNAUTHORIZED);
    // During the refresh pause no refresh starts. A refresh would take an hour here.
    assert_eq!(
        transport.send(get("/x")).await.unwrap().status(),
        StatusCode::UNAUTHORIZED
    );
    assert!(transport.unauthorized().now_or_never().is_none());
    assert_eq!(server.seen().len(), 2);
    // If the newer credential is refused, too, the request is not sent a third time.
    let other = Transport::with_settings(mcr_access::ClusterName::new("c2").unwrap(), settings().into());
    other.swap(channel(&server, "one"));
    let supervise = async {
        other.unauthorized().await;
        other.swap(channel(&server, "three"));
    };
    let answered = tokio::join!(other.send(get("/x")), supervise).0.unwrap();
    assert_eq!(answered.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(server.seen().len(), 4);
}
