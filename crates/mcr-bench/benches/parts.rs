//! Parts of mcr by themselves: `cargo bench -p mcr-bench`.

use clap::ValueEnum;
use divan::{Bencher, counter::ItemsCount};
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::WatchRequest;
use mcr_bench::alone::{
    queue,
    steps::{self, Step, StepArgs},
    store,
};
use tokio::{runtime::Runtime, time::Instant};

fn main() {
    divan::main();
}

/// Pushed, popped and done: as many keys, in more and more clusters.
#[divan::bench(args = [10, 100, 1_000, 10_000])]
fn queue_push_pop(bencher: Bencher<'_, '_>, clusters: usize) {
    let now = Instant::now();
    let (names, keys) = queue::names(clusters, 100_000 / clusters);
    let mut queue = queue::engaged(&names, now);
    bencher
        .counter(ItemsCount::new(100_000_usize))
        .bench_local(|| queue::push_and_pop(&mut queue, &names, &keys, now));
}

/// An object of a store decoded.
#[divan::bench]
fn store_read(bencher: Bencher<'_, '_>) {
    let runtime = Runtime::new().unwrap_or_else(|error| panic!("{error}"));
    let full = runtime.block_on(store::fill::<ConfigMap>(
        &WatchRequest::of::<ConfigMap>(),
        mcr_bench::objects::config_map,
        100,
    ));
    let full = full.unwrap_or_else(|error| panic!("{error}"));
    let keys = full.store.keys().unwrap_or_default();
    bencher
        .counter(ItemsCount::new(keys.len()))
        .bench_local(|| keys.iter().filter_map(|key| full.store.get(key).ok()).count());
}

/// A thousand objects or events, from their bytes; the start of a fleet is in it.
#[divan::bench(args = ["list", "watch", "demux"], sample_count = 20)]
fn thousand(bencher: Bencher<'_, '_>, step: &str) {
    let step = Step::from_str(step, false).unwrap_or(Step::List);
    bencher.counter(ItemsCount::new(1_000_usize)).bench_local(|| {
        steps::perform(&StepArgs { step, size: 1_000 }).unwrap_or_else(|error| panic!("{error}"));
    });
}
