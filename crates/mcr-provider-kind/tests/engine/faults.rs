//! An engine that fails, and nodes that do.

use std::time::{Duration, Instant};

use crate::support::{DEADLINE, NEVER, Received, ScriptedEngine};

#[tokio::test]
async fn what_is_wrong_with_the_engine_is_reported_with_what_to_do() {
    let engine = ScriptedEngine::start();
    let hasty = || engine.reported().command_deadline(Duration::from_millis(500));
    for (fault, provider, expected) in [
        ("denied", engine.reported(), "usermod -aG docker"),
        (
            "garbage",
            engine.reported(),
            "ps -a -q …` printed what can't be read: it should be IDs of containers",
        ),
        ("hang", hasty(), "did not finish within 500ms and was killed"),
        ("endless", hasty(), "was killed"),
    ] {
        engine.fault(fault);
        // One after another that failed waits for the engine, so each has a provider of its own.
        let error = Received::of(&provider.build().unwrap()).error().await;
        assert!(error.contains(expected), "{fault}: {error}");
        assert!(!error.contains("c4nary"), "{error}");
    }
    engine.fault("");
    engine.stop();
    let error = Received::of(&engine.reported().build().unwrap()).error().await;
    assert!(error.contains("start the engine"), "{error}");
}

#[tokio::test]
async fn an_engine_that_stops_ends_the_discovery_and_the_next_one_waits_for_it() {
    let engine = ScriptedEngine::start();
    engine.up("a", "a1", 1001);
    let provider = engine.reported().build().unwrap();
    let mut received = Received::of(&provider);
    received.until("synced").await;
    received.quiet(&engine).await;
    // Nothing is asked within the hour, so the end of the events is what shows it.
    engine.stop();
    let error = received.error().await;
    assert!(error.contains("start the engine"), "{error}");

    let mut received = Received::of(&provider);
    let before = engine.calls("ps");
    received
        .nothing_until("it is tried again", || engine.calls("ps") >= before + 2)
        .await;
    engine.run();
    assert_eq!(
        received.until("synced").await,
        ["+a is a1 at 127.0.0.1:1001", "synced"]
    );
}

#[tokio::test]
async fn a_node_in_which_commands_hang_delays_nobody() {
    let engine = ScriptedEngine::start();
    for number in 0..9 {
        engine.up(&format!("c{number}"), &format!("id{number}"), 1001);
    }
    for sick in ["id0", "id1", "id2"] {
        std::fs::write(engine.at("hang-exec").join(sick), "").unwrap();
    }
    // The others are there although the commands in these would hang for an hour.
    let mut received = Received::of(&engine.reported().command_deadline(NEVER).build().unwrap());
    for _ in 0..6 {
        assert!(received.next().await.unwrap().starts_with('+'));
    }
    drop(received);
    // And for no longer than is allowed.
    let provider = engine
        .reported()
        .command_deadline(Duration::from_secs(3))
        .build()
        .unwrap();
    let mut announced = Received::of(&provider).until("synced").await;
    announced.sort();
    assert_eq!(announced.len(), 10, "{announced:?}");
    assert!(
        announced[..3]
            .iter()
            .all(|announced| announced.starts_with("!c") && announced.contains("did not finish within 3s")),
        "{announced:?}"
    );
}

#[tokio::test]
async fn a_discovery_that_is_dropped_or_stopped_kills_what_it_runs() {
    let engine = ScriptedEngine::start();
    engine.up("a", "a1", 1001);
    std::fs::write(engine.at("hang-exec/a1"), "").unwrap();
    let provider = engine.reported().build().unwrap();
    for round in 0..6 {
        let mut received = Received::of(&provider);
        received
            .nothing_until("a command hangs", || engine.calls("exec") > round)
            .await;
        if round % 2 == 0 {
            received.stop.cancel();
        }
    }
    let folder = engine.folder().display().to_string();
    let start = Instant::now();
    loop {
        let left = processes_with(&folder);
        if left.is_empty() {
            break;
        }
        assert!(start.elapsed() < DEADLINE, "{left:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Command lines of all processes that name this folder. None where there is no /proc.
fn processes_with(folder: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(folder)).collect()
}
