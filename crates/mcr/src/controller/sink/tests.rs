//! Floods of changes where nothing is dispatched.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mcr_core::{Fleet, Object, Store, WatchRequest};
use mcr_testkit::{sim::SimCluster, waiting::eventually};
use serde::de::IgnoredAny;
use serde_json::json;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    super::{
        Controller,
        engine::MOST_WAITING,
        member::MOST_UNSEEN,
        outcome::{self, Panic},
    },
    *,
};
use crate::{
    Request, TerminalError,
    failure::Failure,
    reconciler::{Completion, ObjectState},
};

const OBJECTS: usize = 5_000;

struct Bench {
    sink: WatchSink,
    objects: Vec<Arc<Object>>,
    change: ObjectChange,
    _running: AbortOnDropHandle<()>,
}

/// Keeps a change, because only a watch can make one.
#[derive(Default)]
struct First(std::sync::Mutex<Option<ObjectChange>>);

impl ChangeSink for First {
    fn changed(&self, change: &ObjectChange) {
        lock(&self.0).get_or_insert_with(|| change.clone());
    }
}

impl Bench {
    /// A member whose gate waits for Secrets, and objects that do not exist any more.
    async fn new() -> Self {
        let server = SimCluster::new();
        let create = |name: usize| {
            let metadata = json!({"name": format!("m{name}"), "namespace": "default"});
            server.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
        };
        (0..OBJECTS).for_each(|name| drop(create(name).unwrap()));
        let fleet = Fleet::single(server.client());
        let running = tokio::spawn({
            let fleet = fleet.clone();
            async move { fleet.run(CancellationToken::new()).await }
        });
        let patience = Duration::from_secs(60);
        let cluster = eventually(patience, "the cluster", || fleet.get("local").ok()).await;
        let request = WatchRequest::of::<ConfigMap>();
        let first = Arc::new(First::default());
        let _watch = cluster.watch(request.clone(), Some(first.clone())).unwrap();
        let store: Store<IgnoredAny> = cluster.store_of(&request).unwrap();
        eventually(patience, "the objects", || {
            (store.len().ok()? >= OBJECTS).then_some(())
        })
        .await;
        let keys = (0..OBJECTS).map(|name| ObjectKey::namespaced("default", format!("m{name}")));
        let objects = keys
            .map(|key| store.raw_unsynced(&key).unwrap().unwrap())
            .collect();
        let reconcile = async |_: Request<ConfigMap>, _: Arc<()>| Ok::<_, mcr_core::BoxError>(());
        let controller = Controller::<ConfigMap>::new("maps").owns::<Secret>();
        let core = controller.build(reconcile, Arc::new(())).unwrap().handle().0;
        let member = Arc::new(Member::new(cluster.clone(), 1));
        lock(&member.gate).add_watch(1, "secrets".into());
        core.queue.engage(cluster.name().clone(), 1);
        core.members_mut().insert(cluster.name().clone(), member.clone());
        let engine = Arc::new(Engine { core, fleet });
        let sink = WatchSink {
            engine,
            member,
            at: 0,
        };
        sink.status_changed(&WatchStatus::default());
        Self {
            sink,
            objects,
            change: lock(&first.0).clone().unwrap(),
            _running: AbortOnDropHandle::new(running),
        }
    }

    fn change(&self, comes: bool, object: &Arc<Object>) {
        let (mut change, object) = (self.change.clone(), Some(object.clone()));
        (change.old, change.new) = if comes { (None, object) } else { (object, None) };
        self.sink.changed(&change);
    }

    /// Creates and deletes each object so many times, and adds a new key for each change.
    fn flood(&self, rounds: usize) {
        let (engine, member) = (&self.sink.engine, &self.sink.member);
        for round in 0..rounds {
            for (at, object) in self.objects.iter().enumerate() {
                for comes in [true, false] {
                    self.change(comes, object);
                    let key = ObjectKey::namespaced("pods", format!("{round}-{at}"));
                    engine.enqueue_from(member, key.into(), Priority::Live, Duration::ZERO);
                }
            }
            let (waiting, kept) = (engine.core.queue.len(), member.kept());
            assert!(
                waiting <= MOST_WAITING + MOST_UNSEEN && kept <= MOST_UNSEEN,
                "{waiting} {kept}"
            );
        }
    }

    fn overflowed(&self) -> usize {
        usize::try_from(
            self.sink
                .engine
                .core
                .counters
                .overflowed
                .load(std::sync::atomic::Ordering::Relaxed),
        )
        .unwrap()
    }
}

#[tokio::test]
async fn what_a_closed_gate_and_a_standby_keep_is_flat_over_a_million_events() {
    let closed = Bench::new().await;
    closed.flood(50);
    assert_eq!(closed.sink.member.kept(), MOST_UNSEEN);
    assert!(
        closed.overflowed() > 400_000,
        "{} are counted",
        closed.overflowed()
    );
    // Reconciles may have seen what exists when the gate has been open, so none of these deletions is forgotten.
    let put = |comes, at: usize| closed.change(comes, &closed.objects[at]);
    (0..OBJECTS).for_each(|at| put(true, at));
    lock(&closed.sink.member.gate).remove_watch(1);
    closed.sink.status_changed(&WatchStatus::default());
    lock(&closed.sink.member.gate).add_watch(1, "secrets".into());
    closed.sink.status_changed(&WatchStatus::default());
    (0..OBJECTS - 1).for_each(|at| put(false, at));
    assert_eq!(closed.sink.member.kept(), OBJECTS - 1);
    // One of a name that was seen is kept, one that has come since is not.
    put(true, 0);
    put(false, 0);
    assert_eq!(closed.sink.member.kept(), OBJECTS - 1);

    let standby = Bench::new().await;
    let leadership = mcr_lease::Candidate::new("lock").build().unwrap().leadership();
    assert!(standby.sink.engine.core.leadership.set(leadership).is_ok());
    standby.flood(10);
    assert_eq!(standby.sink.member.kept(), 0);
    assert_eq!(standby.sink.engine.core.queue.len(), MOST_WAITING);
}

/// A request that is dropped has no object left: neither a terminal error nor an error policy ends the retries and keeps it.
#[tokio::test]
async fn a_dropped_request_for_a_deleted_object_keeps_nothing() {
    let bench = Bench::new().await;
    let (engine, member) = (&bench.sink.engine, &bench.sink.member);
    lock(&member.gate).remove_watch(1);
    bench.sink.status_changed(&WatchStatus::default());
    let terminal = || Failure::of(&TerminalError::new("never"));
    let decode = || bench.objects[0].decode::<Vec<u8>>().unwrap_err();
    let ends: [(Completion, usize); 5] = [
        (Completion::Failed(Failure::new("later")), 1),
        (Completion::Failed(terminal()), 0),
        (
            Completion::FailedWithAction(Failure::new("no"), crate::Action::done()),
            0,
        ),
        (Completion::Undecodable(bench.objects[0].clone(), decode()), 0),
        (Completion::Succeeded(crate::Action::done()), 0),
    ];
    for (end, kept) in ends {
        bench.change(false, &bench.objects[0]);
        let job = engine.core.queue.next().await.unwrap();
        let state = ObjectState::Left(bench.objects[0].clone());
        let ended: Result<_, Panic> = Ok(Ok(end));
        outcome::outcome(engine, member, &job, state, ended).settle(engine, member, &job);
        assert_eq!(member.kept(), kept);
    }
}
