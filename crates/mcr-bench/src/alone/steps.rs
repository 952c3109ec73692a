//! Small programs whose instructions are counted. One thread, no sockets and no random numbers that matter, so that counts
//! repeat from run to run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{ObjectChange, WatchRequest, core::ChangeSink};
use tokio::sync::Notify;

use super::{
    canned::{self, Alike, Canned},
    queue, scope, store,
};

/// What is counted.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A key pushed to the queue, popped and done
    Queue,
    /// An object of a list put into a store
    List,
    /// An event of a watch put into a store
    Watch,
    /// An object read from a store and decoded
    Read,
    /// An object behind a shared endpoint found its cluster, and was reconciled
    Demux,
}

/// What a step is started with.
#[derive(clap::Args, Clone, Debug)]
pub struct StepArgs {
    /// Which one
    #[arg(value_enum)]
    pub step: Step,
    /// How often
    #[arg(long)]
    pub size: usize,
}

/// Does it.
///
/// # Errors
///
/// When it does not come to its end within five minutes.
pub fn perform(args: &StepArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let size = args.size;
    runtime.block_on(async {
        let done = async {
            match args.step {
                Step::Queue => {
                    let now = tokio::time::Instant::now();
                    let (clusters, keys) = queue::names(100, size / 100);
                    let mut queue = queue::engaged(&clusters, now);
                    queue::push_and_pop(&mut queue, &clusters, &keys, now);
                    Ok(())
                }
                Step::List => list(size).await,
                Step::Watch => watch(size).await,
                Step::Read => read(size).await,
                Step::Demux => demux(size).await,
            }
        };
        tokio::time::timeout(Duration::from_secs(300), done)
            .await
            .context("not done after five minutes")?
    })
}

fn maps() -> WatchRequest {
    WatchRequest::of::<ConfigMap>()
}

/// How many changes are still to come.
struct Countdown {
    left: AtomicUsize,
    none: Notify,
}

impl ChangeSink for Countdown {
    fn changed(&self, _: &ObjectChange) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.none.notify_one();
        }
    }
}

fn listing(count: usize, namespace: impl Fn(usize) -> String + Send + Sync + 'static) -> Canned {
    let bytes = Alike::default().list(count, namespace);
    Canned::listing(move || bytes.clone())
}

fn here(_: usize) -> String {
    "default".to_owned()
}

async fn list(objects: usize) -> Result<()> {
    store::fill_from::<ConfigMap>(listing(objects, here), &maps())
        .await
        .map(drop)
}

async fn watch(events: usize) -> Result<()> {
    let alike = Alike::default();
    let line = |number: usize| {
        let mut line = br#"{"type":"MODIFIED","object":"#.to_vec();
        alike.write(
            &mut line,
            &format!("map-{}", number % 10),
            "default",
            &(2_000_001 + number).to_string(),
        );
        line.extend(b"}\n");
        Bytes::from(line)
    };
    let lines: Vec<Bytes> = (0..events).map(line).collect();
    let server =
        listing(10, here).watching(move || stream::iter(lines.clone()).chain(stream::pending()).boxed());
    let runs = canned::run([server])?;
    let cluster = runs.engaged("0").await;
    let countdown = Arc::new(Countdown {
        left: AtomicUsize::new(10 + events),
        none: Notify::new(),
    });
    let _handle = cluster.watch(maps(), Some(countdown.clone()))?;
    countdown.none.notified().await;
    Ok(())
}

async fn read(reads: usize) -> Result<()> {
    let full = store::fill_from::<ConfigMap>(listing(100, here), &maps()).await?;
    let keys = full.store.keys()?;
    for key in keys.iter().cycle().take(reads) {
        full.store
            .get(key)?
            .context("an object that is listed is not there")?;
    }
    Ok(())
}

async fn demux(places: usize) -> Result<()> {
    scope::join(listing(places, scope::place).client().into(), places).await
}
