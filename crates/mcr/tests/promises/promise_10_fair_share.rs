//! Promise 10: a cluster with a hundred times the events does not raise the others' p99 beyond 2x.
//!
//! Reconciles take a while and few may run at once, so that the queue is what everybody waits for. The noisy
//! cluster alone has more work than there is room for. In paused time, in which nothing but this takes any: what it costs a
//! machine is measured by the suite `fairness` of mcr-bench.

use std::{convert::Infallible, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, ClusterName, ClusterSpec, Controller, Request, core::Access};
use mcr_testkit::sim::SimCluster;
use tokio::time::Instant;

use crate::fleet::{OrFail, PATIENCE, Running, Seen, p99, write};

const QUIET: usize = 9;
const WORK: Duration = Duration::from_millis(40);
/// How many reconciles run at once: 200 per second.
const SLOTS: usize = 8;
const DURATION: Duration = Duration::from_secs(5);
/// Between two events of a quiet cluster.
const PAUSE: Duration = Duration::from_millis(400);
/// Between two events of the noisy one, which begins with many at once.
const NOISE: Duration = Duration::from_millis(4);
const BURST: usize = 300;

async fn work(request: Request<ConfigMap>, seen: Arc<Seen>) -> Result<Action, Infallible> {
    // Of different lengths in the noisy cluster: all slots becoming free at the same moment, again and again, would
    // be a second bottleneck that has nothing to do with who is served first.
    let digit = request.name().bytes().last().unwrap_or_default() % 10;
    let duration = if request.name().starts_with("noise") {
        WORK.mul_f64(0.55 + f64::from(digit) / 10.0)
    } else {
        WORK
    };
    tokio::time::sleep(duration).await;
    seen.note(&request);
    Ok(Action::await_change())
}

/// The others' p99 from a write to the end of its reconcile.
async fn others(noisy: bool, weight: u32) -> Duration {
    let clusters: Vec<SimCluster> = (0..=QUIET)
        .map(|i| SimCluster::builder().name(format!("c{i}")).build())
        .collect();
    let specs = clusters.iter().map(|cluster| {
        write(cluster, "hello", 0);
        let name = ClusterName::new(cluster.name()).or_fail();
        ClusterSpec::new(name, Access::from(cluster.client()))
    });
    let controller = |seen| {
        Controller::<ConfigMap>::new("working")
            .watch_request(|watch| watch.namespace("default"))
            .concurrency(SLOTS)
            .cluster_concurrency(2 * SLOTS)
            .weight_by(move |cluster| if cluster.name() == "c0" { weight } else { 1 })
            .build(work, seen)
    };
    let running = Running::start(specs, controller, |_| {});
    for cluster in &clusters {
        running.reconciled(cluster.name(), "hello", 0, PATIENCE).await;
    }
    let (started, mut events, mut written) = (Instant::now(), 0, Vec::new());
    // Their turns are spread over the pause, so that they don't wait for each other.
    let mut due: Vec<Duration> = (0..QUIET)
        .map(|i| PAUSE.mul_f64(i as f64 / QUIET as f64))
        .collect();
    while started.elapsed() < DURATION {
        let passed = started.elapsed();
        for (i, due) in due.iter_mut().enumerate().filter(|(_, due)| **due <= passed) {
            *due += PAUSE;
            let name = format!("quiet-{}", written.len());
            written.push((i + 1, name.clone(), Instant::now()));
            write(&clusters[i + 1], &name, 0);
        }
        let wanted = BURST + usize::try_from(passed.as_micros() / NOISE.as_micros()).or_fail();
        // A few at a time, so that the quiet ones have their turn in time even where this machine can't keep up.
        for _ in 0..20 {
            if noisy && events < wanted {
                write(&clusters[0], &format!("noise-{events}"), 0);
                events += 1;
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let mut latencies = Vec::new();
    for (i, name, at) in &written {
        let when = running.reconciled(clusters[*i].name(), name, 0, PATIENCE).await;
        latencies.push(when.saturating_duration_since(*at));
    }
    latencies.sort();
    running.stop().await;
    let each = written.len() / QUIET;
    println!(
        "noisy: {events} events, the others {each} each; p50 {:?}, p99 {:?}",
        latencies[latencies.len() / 2],
        p99(&latencies)
    );
    assert!(!noisy || events >= 100 * each, "{events} events are no noise");
    p99(&latencies)
}

#[tokio::test(start_paused = true)]
async fn promise_10_fair_share_a_noisy_cluster_does_not_double_the_latency_of_nine_others() {
    let (without, with) = (others(false, 1).await, others(true, 1).await);
    let ratio = with.as_secs_f64() / without.as_secs_f64();
    println!("p99 {without:?} without noise, {with:?} with it, ratio {ratio:.2}");
    assert!(ratio <= 2.0, "{without:?} became {with:?}");
    // What this measures is the fairness: without it, as the noisy cluster has all the weight, the others wait.
    let unfair = others(true, 10_000).await;
    let ratio = unfair.as_secs_f64() / without.as_secs_f64();
    println!("p99 {unfair:?} without fairness, ratio {ratio:.2}");
    assert!(ratio > 2.0, "{unfair:?}: the queue was no bottleneck");
}
