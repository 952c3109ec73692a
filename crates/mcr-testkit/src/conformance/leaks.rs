//! Checks that a discovery leaves no task, thread or file behind.

use std::time::Duration;

use futures::StreamExt;
use mcr_core::Change;
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{Subject, stream::world};
use crate::suite::fail;

/// Enough rounds to distinguish a leak in each round from other activity of the process.
const ROUNDS: usize = 40;

pub(super) async fn a_discovery_leaves_nothing_behind<S: Subject>() {
    let (subject, _, _) = world::<S>(3).await;
    let provider = subject.provider();
    let round = async |number: usize| {
        let stop = CancellationToken::new();
        let mut discovery = provider.discover(stop.clone());
        match number % 4 {
            // Ends the discovery before its first poll, while it starts, or while it waits; with or without cancelling
            // its token.
            0 => {}
            1 => drop(futures::poll!(discovery.next())),
            kind => {
                let synced =
                    async { while !matches!(discovery.next().await, Some(Ok(Change::Synced)) | None) {} };
                if timeout(subject.patience(), synced).await.is_err() {
                    fail("the discovery should announce Synced");
                }
                if kind == 3 {
                    stop.cancel();
                }
            }
        }
    };
    // Some rounds before the count, so that everything that is created only once exists already.
    for number in 0..8 {
        round(number).await;
    }
    sleep(Duration::from_millis(200)).await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = (tasks(), entries("task"), entries("fd"));
    for number in 0..ROUNDS {
        round(number).await;
    }
    let deadline = Instant::now() + subject.patience();
    loop {
        let now = (tasks(), entries("task"), entries("fd"));
        // Tasks are counted in the runtime of this test, but threads and files in a process with other tests.
        let clean = now.0 <= before.0 && now.1 < before.1 + ROUNDS / 2 && now.2 < before.2 + ROUNDS / 2;
        if clean {
            return;
        }
        if Instant::now() > deadline {
            fail(format!(
                "{ROUNDS} discoveries were dropped, and left tasks, threads or files behind: {before:?} before, {now:?} after"
            ));
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// The number of threads or open files, if `/proc` exists, otherwise 0.
fn entries(of: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{of}")).map_or(0, Iterator::count)
}
