//! Clusters that come, stop, start and go.

use std::time::{Duration, Instant};

use crate::support::{Received, ScriptedEngine, container};

/// At once: everything else that would notice a change has an interval of an hour.
#[tokio::test]
async fn events_are_noticed_at_once_and_silence_costs_little() {
    let engine = ScriptedEngine::start();
    let mut received = Received::of(&engine.reported().build().unwrap());
    received.until("synced").await;
    received.quiet(&engine).await;
    // Time to ask, for one that asks without an event.
    received.nothing_for(Duration::from_millis(500)).await;
    for (action, change, expected) in [
        ("start", "running", "+a is a1 at 127.0.0.1:1001"),
        ("die", "exited", "+a is a1 at 127.0.0.1:1001, its node is stopped"),
        ("start", "running", "+a is a1 at 127.0.0.1:1001"),
    ] {
        engine.up("a", "a1", 1001);
        engine.put("a1", &container("a", "a1", change, 1001));
        engine.event(action, "a");
        assert_eq!(received.next().await.unwrap(), expected);
    }
    // Events that are none of its business, its own commands' above all, cause no question.
    engine.event("exec_start: cat", "a");
    engine.event("exec_die", "a");
    engine.event("health_status: healthy", "a");
    received.nothing_for(Duration::from_millis(500)).await;
    engine.remove("a1");
    engine.event("destroy", "a");
    assert_eq!(received.next().await.unwrap(), "-a");
    // Two lists before there were events, one for each that mattered, and one reading for each start.
    assert_eq!(
        (engine.calls("ps"), engine.calls("exec")),
        (2 + 4, 2),
        "no event, no question"
    );
}

#[tokio::test]
async fn a_storm_of_events_is_a_few_questions() {
    let engine = ScriptedEngine::start();
    let mut received = Received::of(&engine.reported().build().unwrap());
    received.until("synced").await;
    received.quiet(&engine).await;
    let (before, at) = (engine.calls("ps"), Instant::now());
    for _ in 0..100 {
        for _ in 0..50 {
            engine.event("start", "a");
        }
        received.nothing_for(Duration::from_millis(10)).await;
    }
    received
        .nothing_until("it is asked", || engine.calls("ps") > before)
        .await;
    let lists = engine.calls("ps") - before;
    // No two are closer to each other than 200 ms.
    let most = 2 + usize::try_from(at.elapsed().as_millis() / 200).unwrap();
    assert!(lists <= most, "{lists} questions in {:?}", at.elapsed());
}

#[tokio::test]
async fn without_events_it_is_asked_more_often() {
    let engine = ScriptedEngine::start();
    std::fs::write(engine.at("no-events"), "").unwrap();
    let provider = engine
        .reported()
        .poll_interval_without_events(Duration::from_millis(100))
        .build()
        .unwrap();
    let begun = Instant::now();
    let mut received = Received::of(&provider);
    received.until("synced").await;
    engine.up("a", "a1", 1001);
    assert_eq!(received.next().await.unwrap(), "+a is a1 at 127.0.0.1:1001");
    received
        .nothing_until("it is tried three times to follow events", || {
            engine.calls("events") >= 3
        })
        .await;
    // At least 250 and 500 ms lie between them, and longer and longer pauses between the next ones.
    let (tries, passed) = (engine.calls("events"), begun.elapsed());
    let least = Duration::from_millis(250) * ((1 << (tries - 1)) - 1);
    assert!(passed >= least, "{tries} attempts to follow events in {passed:?}");
    // They are back.
    std::fs::remove_file(engine.at("no-events")).unwrap();
    received
        .nothing_until("events are followed again", || engine.followed() == 1)
        .await;
}

#[tokio::test]
async fn another_port_is_another_address_of_the_same_cluster() {
    let engine = ScriptedEngine::start();
    engine.up("a", "a1", 1001);
    let mut received = Received::of(&engine.asking().build().unwrap());
    received.until("synced").await;
    engine.put("a1", &container("a", "a1", "running", 1002));
    assert_eq!(received.next().await.unwrap(), "+a is a1 at 127.0.0.1:1002");
}
