//! A cluster that joins an endpoint in the very moment in which the last one leaves it.

use std::{
    fmt,
    sync::{Mutex, Once, mpsc},
    time::Duration,
};

use mcr_core::ClusterState;
use tokio::sync::oneshot;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use mcr_doubles::shard::shard;

use crate::{harness::*, witness::Witness, workspaces::scope};

const SOON: Duration = Duration::from_secs(60);

/// Where a thread waits: it says that it is there, and goes on when it is told to.
struct Stop {
    there: oneshot::Sender<()>,
    go_on: mpsc::Receiver<()>,
}

/// The thread that logs this of this cluster stops there.
static STOP: Mutex<Option<Stop>> = Mutex::new(None);
const TEXT: &str = "cluster joins the fleet";
const CLUSTER: &str = "joins-late";

/// Looks at everything that is logged, since what is logged is where a thread can be stopped without a hook in the code.
struct Stops;

impl Stops {
    fn install() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| tracing::subscriber::set_global_default(Self).or_fail());
    }
}

#[derive(Default)]
struct Said {
    text: bool,
    cluster: bool,
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.text = format!("{value:?}") == TEXT,
            "cluster" => self.cluster = format!("{value:?}") == CLUSTER,
            _ => {}
        }
    }
}

impl Subscriber for Stops {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::DEBUG && metadata.target().starts_with("mcr_core")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut said = Said::default();
        event.record(&mut said);
        if said.text && said.cluster {
            let stop = STOP.lock().unwrap().take();
            if let Some(Stop { there, go_on }) = stop {
                let _ = there.send(());
                let _ = go_on.recv_timeout(SOON);
            }
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_joins_an_endpoint_while_its_last_one_leaves_is_connected() {
    Stops::install();
    let shard = shard("a", 100, &["leaves", CLUSTER]);
    let running = Running::start();
    let scope = scope(&[("a", &shard)]);

    // The last one of the endpoint leaves, and is gone when its work ends.
    let last = running.join(&scope, "a", "leaves").await;
    ready(&last).await;
    let (end, ended) = oneshot::channel::<()>();
    last.spawn(ended);
    running.clusters.remove(&name("leaves"));
    eventually(SOON, "it leaves", || last.state() == ClusterState::Draining).await;

    // That is when the next one has found its endpoint and is about to join.
    let (there, is_there) = oneshot::channel();
    let (go_on, may_go_on) = mpsc::channel();
    *STOP.lock().unwrap() = Some(Stop {
        there,
        go_on: may_go_on,
    });
    running.clusters.add(spec(&scope, "a", CLUSTER));
    tokio::time::timeout(SOON, is_there).await.or_fail().or_fail();
    end.send(()).unwrap();
    gone(&last).await;
    go_on.send(()).or_fail();

    let next = running.engaged(CLUSTER).await;
    ready(&next).await;
    assert_eq!(running.fleet.scopes().len(), 1);
    Witness::of(&next).equals(&shard).await;
    running.clusters.remove(next.name());
    eventually(SOON, "the endpoint is let go of", || {
        running.fleet.scopes().is_empty()
    })
    .await;
    running.stop().await;
}
