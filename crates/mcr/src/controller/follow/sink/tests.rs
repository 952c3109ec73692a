//! Floods of changes where nothing is dispatched.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mcr_core::{BoxError, Fleet, WatchRequest};
use mcr_testkit::{sim::SimCluster, waiting::eventually};
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::*;
use crate::{
    action::Action,
    controller::{Controller, engine::MOST_WAITING, member::MOST_UNSEEN, run::outcome},
    failure::Failure,
    reconciler::{Completion, ObjectState},
    request::Request,
    terminal::TerminalError,
};

/// More than are kept.
const OBJECTS: usize = 1_500;
const PATIENCE: Duration = Duration::from_secs(60);

/// Keeps the changes of a watch, because nothing else can make one.
#[derive(Default)]
struct Changes(Mutex<Vec<ObjectChange>>);

impl ChangeSink for Changes {
    fn changed(&self, change: &ObjectChange) {
        self.0.lock().push(change.clone());
    }
}

/// The primary sink of a member whose gate waits for Secrets, and changes to feed it with.
struct Bench {
    sink: WatchSink,
    changes: Vec<ObjectChange>,
    _running: AbortOnDropHandle<()>,
}

impl Bench {
    async fn new() -> Self {
        let server = SimCluster::new();
        for name in 0..OBJECTS {
            let metadata = json!({"name": format!("m{name}"), "namespace": "default"});
            server
                .create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
                .unwrap();
        }
        let fleet = Fleet::single(server.client());
        let run = fleet.clone();
        let running = tokio::spawn(async move { run.run(CancellationToken::new()).await });
        let cluster = eventually(PATIENCE, "the cluster", || fleet.get("local").ok()).await;
        let changes = Arc::new(Changes::default());
        let _watch = cluster
            .watch(WatchRequest::of::<ConfigMap>(), Some(changes.clone()))
            .unwrap();
        let listed = || Some(changes.0.lock().clone()).filter(|changes| changes.len() >= OBJECTS);
        let changes = eventually(PATIENCE, "the objects", listed).await;
        let reconcile = async |_: Request<ConfigMap>, _: Arc<()>| Ok::<_, BoxError>(());
        let controller = Controller::<ConfigMap>::new("maps").owns::<Secret>();
        let core = controller.build(reconcile, Arc::new(())).unwrap().handle().0;
        let (name, member) = (
            cluster.name().clone(),
            Arc::new(Member::new(cluster.clone(), true)),
        );
        core.queue.engage(name, member.clone());
        let engine = Arc::new(Engine { core, fleet });
        let bench = Self {
            sink: WatchSink {
                engine,
                member,
                at: 0,
            },
            changes,
            _running: AbortOnDropHandle::new(running),
        };
        bench.gate(false);
        bench
    }

    fn gate(&self, opens: bool) {
        let mut gate = self.sink.member.gate.lock();
        if opens {
            gate.remove_watch(1)
        } else {
            gate.add_watch(1, "secrets".into())
        }
        drop(gate);
        self.sink.status_changed(&WatchStatus::default());
    }

    /// Creates or deletes an object.
    fn change(&self, comes: bool, at: usize) {
        let mut change = self.changes[at].clone();
        (change.initial, change.old, change.new) = match (comes, change.new) {
            (true, new) => (false, None, new),
            (false, new) => (false, new, None),
        };
        self.sink.changed(&change);
    }

    /// Creates and deletes each object so many times, and adds a new key for each tenth change.
    fn flood(&self, rounds: usize) {
        let (engine, member) = (&self.sink.engine, &self.sink.member);
        for change in 0..rounds * self.changes.len() * 2 {
            self.change(change % 2 == 0, change / 2 % self.changes.len());
            if change % 10 == 0 {
                let key = ObjectKey::namespaced("pods", change.to_string());
                engine.enqueue_from(member, key.into(), Priority::Live, Duration::ZERO);
            }
            if change % 1_000 == 0 {
                let (waiting, kept) = (engine.core.queue.len(), member.kept());
                assert!(
                    waiting <= MOST_WAITING + MOST_UNSEEN && kept <= MOST_UNSEEN,
                    "{waiting} {kept}"
                );
            }
        }
    }
}

#[tokio::test]
async fn what_a_closed_gate_and_a_standby_keep_is_flat_over_a_million_events() {
    let closed = Bench::new().await;
    closed.flood(310);
    let (core, member) = (&closed.sink.engine.core, &closed.sink.member);
    let counted = core.counters.read(&core.queue.counters()).overflowed;
    assert!(counted > 200_000 && member.kept() == MOST_UNSEEN, "{counted}");
    // When the gate has been open, reconciles may have seen what exists: none of these deletions is forgotten.
    let last = closed.changes.len() - 1;
    (0..last).for_each(|at| closed.change(true, at));
    closed.gate(true);
    closed.gate(false);
    (0..last).for_each(|at| closed.change(false, at));
    assert_eq!(member.kept(), last);
    // A new object of a name that was seen counts as seen; one of a name that has come since does not.
    for (comes, at) in [(true, 1), (false, 1), (true, last), (false, last)] {
        closed.change(comes, at);
    }
    assert_eq!(member.kept(), last);

    // A scope feeds it although it is not Ready.
    let parked = Bench::new().await;
    parked.gate(true);
    parked
        .sink
        .engine
        .core
        .queue
        .park(parked.sink.member.cluster.name());
    parked.sink.member.gate.lock().parked = true;
    parked.flood(10);

    let standby = Bench::new().await;
    let leadership = mcr_lease::Candidate::new("lock").build().unwrap().leadership();
    assert!(standby.sink.engine.core.leadership.set(leadership).is_ok());
    standby.flood(40);
    let waiting = standby.sink.engine.core.queue.len();
    assert!(
        standby.sink.member.kept() == 0 && waiting.abs_diff(MOST_WAITING) <= 1,
        "{waiting}"
    );
}

#[tokio::test]
async fn a_request_that_is_not_retried_keeps_no_deleted_object() {
    let bench = Bench::new().await;
    bench.gate(true);
    let (engine, member) = (&bench.sink.engine, &bench.sink.member);
    let object = bench.changes[0].new.clone().unwrap();
    let never = || Failure::of(&TerminalError::new("never"));
    for (end, kept) in [
        (Completion::Failed(Failure::new("later")), 1),
        (Completion::Failed(never()), 0),
        (
            Completion::FailedWithAction(Failure::new("no"), Action::done()),
            0,
        ),
        (
            Completion::Undecodable(object.clone(), object.decode::<Vec<u8>>().unwrap_err()),
            0,
        ),
        (Completion::Succeeded(Action::done()), 0),
    ] {
        bench.change(false, 0);
        let job = engine.core.queue.next().await.unwrap();
        let state = ObjectState::Left(object.clone());
        outcome::outcome(engine, &job, state, Ok(Ok(end))).report(engine, &job);
        assert_eq!(member.kept(), kept);
    }
}
