//! Measures the time from the bytes of a watch to the reconciler: mcr's own part of the latency of an event.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{
    Figures,
    canned::{self, Canned},
};
use crate::{objects, stats, subject::message::now};

const CLUSTERS: usize = 100;
const WARMING: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(8);

/// Events of a cluster's ConfigMap. Each is made at the moment at which it is read, and has that time.
fn events(cluster: usize, pause: Duration) -> BoxStream<'static, Bytes> {
    let first = Instant::now() + pause.mul_f64(cluster as f64 / CLUSTERS as f64);
    let mut ticks = interval_at(first, pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    stream::unfold((ticks, 0), move |(mut ticks, number)| async move {
        ticks.tick().await;
        let mut object = canned::stored(objects::config_map(cluster), 2_000_000 + number);
        object["metadata"]["annotations"] = json!({ "sent": now().to_string() });
        let mut line = json!({ "type": "MODIFIED", "object": object }).to_string();
        line.push('\n');
        Some((line.into(), (ticks, number + 1)))
    })
    .boxed()
}

pub(super) async fn measure(rate: usize) -> Result<Figures> {
    let pause = Duration::from_secs_f64(CLUSTERS as f64 / rate.max(1) as f64);
    let servers = (0..CLUSTERS).map(|cluster| {
        Canned::listing(move || {
            canned::list([canned::stored(objects::config_map(cluster), cluster)].into_iter())
        })
        .watching(move || events(cluster, pause))
    });
    let runs = canned::run(servers)?;
    let taken: Arc<Mutex<Vec<f64>>> = Arc::default();
    let measured = taken.clone();
    runs.reconcile(move |request| {
        let at = now();
        let annotations = request
            .live()
            .and_then(|object| object.metadata.annotations.as_ref());
        let sent = annotations.and_then(|annotations| annotations.get("sent")?.parse::<u64>().ok());
        measured
            .lock()
            .extend(sent.map(|sent| at.saturating_sub(sent) as f64 / 1e6));
    })?;
    let take = || std::mem::take(&mut *taken.lock());
    tokio::time::sleep(WARMING).await;
    drop(take());
    tokio::time::sleep(MEASURED).await;
    let taken = take();
    let rate = taken.len() as f64 / MEASURED.as_secs_f64();
    let mut figures = Figures::from([("events_per_s".to_owned(), rate)]);
    for (name, percent) in [("p50_ms", 50.0), ("p99_ms", 99.0)] {
        figures.extend(stats::percentile(&taken, percent).map(|value| (name.to_owned(), value)));
    }
    Ok(figures)
}
