//! Checks of the program that hang, or that a cluster does not pass.

use std::{
    future::pending,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use kube::core::Status;
use mcr_core::{Cluster, ClusterSpec, ReadyCheck};
use mcr_doubles::scripted::{Answer, Server};
use mcr_testkit::log::Log;
use tokio::time::Instant;
use tracing::Level;

use crate::harness::*;

/// At first no check has failed, so those that hang are before the others: more of them than places.
#[tokio::test(start_paused = true)]
async fn checks_that_hang_do_not_keep_a_healthy_newcomer_waiting() {
    let server = Server::in_memory(serves_one_map);
    let check = ReadyCheck::new(|cluster: Cluster| async move {
        if cluster.name().starts_with("hangs") {
            pending::<()>().await;
        }
        Ok(())
    });
    let running = Running::with_builder(|fleet| fleet.settings(short_pauses).ready_check("check", check));
    for at in 0..100 {
        let spec = ClusterSpec::new(name(&format!("hangs-{at}")), server.access());
        running.clusters.add(spec);
    }
    let began = Instant::now();
    let good = running.join_by("good", server.access()).await;
    eventually("it passes", || good.passes("check")).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(6), "{took:?}");
    running.stop().await;
}

#[derive(Debug, thiserror::Error)]
#[error("can't read the widgets")]
struct Unread(#[source] kube::Error);

/// Clusters that are not meant to pass are no reason for a warning. The reason that is shown has the cause of the error.
#[tokio::test(start_paused = true)]
async fn the_log_warns_of_a_check_only_where_it_has_passed() {
    let log = Log::of_this_thread(Level::INFO);
    let server = Server::in_memory(serves_one_map);
    let runs = AtomicUsize::new(0);
    let check = ReadyCheck::new(move |cluster: Cluster| {
        let passes = *cluster.name() == "once" && runs.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            let forbidden = Status::failure("no", "Forbidden").with_code(403);
            let error = Unread(kube::Error::Api(forbidden.boxed()));
            if passes { Ok(()) } else { Err(error.into()) }
        }
    });
    let check = check.every(Duration::from_secs(1));
    let running = Running::with_builder(|fleet| fleet.settings(short_pauses).ready_check("check", check));
    for cluster in ["never", "once"] {
        running.join_by(cluster, server.access()).await;
    }
    eventually("it no longer passes", || {
        !log.lines_with("no longer passes").is_empty()
    })
    .await;
    for_millis(100_000).await;
    let lines = log.lines_with("pass");
    let levels = |cluster: &str| {
        let lines = lines.iter().filter(|line| line.contains(cluster));
        let levels = lines.filter_map(|line| line.split_whitespace().next());
        levels.collect::<Vec<_>>()
    };
    assert_eq!(
        (levels("cluster=never"), levels("cluster=once")),
        (vec!["INFO"], vec!["INFO", "WARN"]),
        "{lines:?}"
    );
    let warning = "it does not pass the check check: can't read the widgets: 403 Forbidden: no";
    for cluster in running.fleet.snapshot().clusters {
        assert_eq!(&*cluster.warnings[0], warning);
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_cluster_answers_to_the_check_for_crds_is_bounded_and_in_no_log() {
    let log = Log::of_this_thread(Level::DEBUG);
    let check = ReadyCheck::crds_established(["widgets.example.com"]);
    let running = Running::with_builder(|fleet| fleet.settings(short_pauses).ready_check("crds", check));
    let long = vec![r#"{"name": "sesame"}"#; 200_000].join(", ");
    let too_long = (
        "a",
        format!(r#"{{"groups": [{long}]}}"#),
        "GET /apis: the answer is larger than 3 MiB",
    );
    let of_another_shape = (
        "b",
        r#"{"groups": "sesame"}"#.to_owned(),
        "GET /apis: valid JSON of another shape",
    );
    for (at, (cluster, body, why)) in [too_long, of_another_shape].into_iter().enumerate() {
        let server = Server::in_memory(move |_| Answer::new(200, "application/json", &body));
        running.join_by(cluster, server.access()).await;
        let warning = || running.fleet.snapshot().clusters[at].warnings.join(", ");
        eventually(why, || warning().contains(why)).await;
    }
    assert!(log.lines_with("sesame").is_empty());
    running.stop().await;
}
