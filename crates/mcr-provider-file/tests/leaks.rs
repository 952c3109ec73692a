//! A discovery that was dropped or stopped leaves nothing behind. Alone in its process, so that it can count.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{fs, time::Instant};

use futures::StreamExt;
use mcr_core::Provider;
use support::{DEADLINE, Folder, kubeconfig, reported};
use tokio_util::sync::CancellationToken;

fn watching_threads() -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = threads.map(|thread| fs::read_to_string(thread.path().join("comm")).unwrap_or_default());
    names.filter(|name| name.starts_with("notify")).count()
}

fn inotify_files() -> usize {
    let files = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = files.map(|file| fs::read_link(file.path()).unwrap_or_default());
    targets
        .filter(|target| target.to_string_lossy().contains("inotify"))
        .count()
}

#[tokio::test]
async fn nothing_is_left_of_a_discovery_that_was_dropped_or_stopped() {
    let folder = Folder::new();
    folder.write("a.kubeconfig", kubeconfig(&["one"]));
    let provider = reported().dir(folder.path()).build().unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for round in 0..60 {
        let stop = CancellationToken::new();
        let mut discovery = provider.discover(stop.clone());
        match round % 3 {
            // Ends the discovery before its first poll, while it reads, and while it waits.
            0 => {}
            1 => drop(futures::poll!(discovery.next())),
            _ => {
                assert!(discovery.next().await.unwrap().is_ok());
                assert!(discovery.next().await.unwrap().is_ok());
                assert_eq!((watching_threads() > 0, inotify_files() > 0), (true, true));
                stop.cancel();
                assert!(discovery.next().await.is_none());
            }
        }
    }
    let start = Instant::now();
    while (watching_threads(), inotify_files(), tasks()) != (0, 0, before) {
        assert!(
            start.elapsed() < DEADLINE,
            "{} threads, {} tasks",
            watching_threads(),
            tasks()
        );
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
