//! Watches whose head arrives only with their first event.

use std::{sync::Arc, time::Duration};

use mcr_testkit::waiting::hold_clock;
use tokio::{sync::Semaphore, time::advance};

use super::{
    Settings, channel_with, next, sending,
    server::{Server, begin, chunk, closed},
    settings, transport_with, until,
};

const WATCH: &str = "/api/v1/pods?watch=true";

/// A server that sends the head of a watch together with its first event, when it gets a permit.
async fn late() -> (Server, Arc<Semaphore>) {
    Server::gated(|_, mut stream, gate| async move {
        tokio::select! {
            () = gate.pass() => {}
            () = closed(&mut stream) => return None,
        }
        begin(&mut stream).await;
        chunk(&mut stream, "one\n").await;
        closed(&mut stream).await;
        None
    })
    .await
}

fn limits() -> Settings {
    Settings {
        head_timeout: Duration::from_secs(30),
        watch_head_timeout: Duration::from_secs(300),
        ..settings()
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_waits_longer_for_its_head_than_other_requests() {
    let _clock = hold_clock();
    let (server, event) = late().await;
    let transport = transport_with(&server, limits());
    let [watch, silent, list] = sending(&transport, [WATCH, WATCH, "/api/v1/pods"]);
    until("all are asked", || server.seen().len() == 3).await;
    advance(Duration::from_secs(31)).await;
    let error = list.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("no answer within 30 s"), "{error}");
    advance(Duration::from_secs(260)).await;
    assert!(!watch.is_finished() && !silent.is_finished());
    event.add_permits(1);
    until("one of them has its head", || {
        watch.is_finished() || silent.is_finished()
    })
    .await;
    advance(Duration::from_secs(10)).await;
    let (mut answered, mut failed) = (0, 0);
    for watch in [watch, silent] {
        match watch.await.unwrap() {
            Ok(response) => {
                assert_eq!(
                    next(&mut response.into_body()).await,
                    Some(Ok("one\n".to_owned()))
                );
                answered += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("no answer within 300 s"), "{error}");
                failed += 1;
            }
        }
    }
    assert_eq!((answered, failed), (1, 1));
    drop(transport);
    until("all connections are closed", || server.open() == 0).await;
}

#[tokio::test]
async fn a_watch_without_a_head_moves_to_the_new_credentials_at_once() {
    let (server, event) = late().await;
    // The rotation spreads the watches that have a head, not the ones that wait for it.
    let settings = Settings {
        rotation_spread: Duration::from_secs(3600),
        ..settings()
    };
    let transport = transport_with(&server, settings.clone());
    let [watch, get_one] = sending(&transport, [WATCH, "/api/v1/pods/a"]);
    until("both are asked", || server.seen().len() == 2).await;
    for (token, number) in [("two", 3), ("three", 4)] {
        transport.swap(channel_with(&server, token, settings.clone()));
        until("the watch is sent again", || server.seen().len() == number).await;
        let seen = server.seen();
        let last = seen.last().unwrap();
        assert_eq!(
            (last.token(), last.line()),
            (token, "GET /api/v1/pods?watch=true HTTP/1.1")
        );
        until("its old connection is closed", || server.open() == 2).await;
    }
    // A request that may change something is not sent twice.
    event.add_permits(2);
    let response = watch.await.unwrap().unwrap();
    assert_eq!(
        next(&mut response.into_body()).await,
        Some(Ok("one\n".to_owned()))
    );
    assert!(get_one.await.unwrap().is_ok());
    assert_eq!(server.seen().len(), 4);
}

#[tokio::test]
async fn a_watch_without_a_head_ends_when_it_is_dropped_or_its_cluster_leaves() {
    let (server, _event) = late().await;
    let transport = transport_with(&server, settings());
    let [dropped, left] = sending(&transport, [WATCH, WATCH]);
    until("both are asked", || server.open() == 2).await;
    dropped.abort();
    until("it is closed", || server.open() == 1).await;
    transport.close();
    assert!(left.await.unwrap().unwrap_err().is_gone());
    until("all connections are closed", || server.open() == 0).await;
}
