//! Promise 1 on a real API server: a hundred contexts, each a cluster with connections of its own, twenty of them
//! behind proxies that fail.
//!
//! They share the server, so each write is seen by all of them at once: the 99th percentile is over the clusters
//! that see it, too. The sick ones, well, take their share of the server's time, as k = 0 of N clusters do. To
//! compare with a fleet without them would measure what 20 clusters and proxies more cost this process.

use std::time::Duration;

use mcr_testkit::faults::{Fault, Match, Rule};

use crate::{
    fleet::{World, alone},
    promise_1_isolation::{HEALTHY, LATE, SICK, compare, show_and_recover},
};

fn faults() -> Vec<Rule> {
    vec![
        Fault::Refuse.into(),
        Fault::BlackHole.into(),
        Fault::Slow {
            first_byte: Duration::from_secs(5),
            bytes_per_second: Some(1024),
        }
        .into(),
        Fault::Unauthorized.into(),
        Fault::Forbidden.on(Match::any().resource("configmaps")),
    ]
}

/// Each fault in four clusters: the short form.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promise_1_isolation_on_a_real_api_server_with_five_faults_at_once() {
    let _alone = alone().await;
    let world = World::real(HEALTHY, LATE, SICK).await;
    compare(&world, &faults()).await;
    show_and_recover(&world, &faults()).await;
}
