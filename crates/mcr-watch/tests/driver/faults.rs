//! Watch truth: whatever happens to lists, watches and the data of the server, the store ends equal to the server, and every
//! change is reported once, whether whole objects are watched or their metadata only, of a kind that is built in or of one that is
//! not.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ApiResource;
use mcr_doubles::place::{Fault, MAPS, Place, Stored, WIDGETS};
use mcr_watch::{WatchHandle, WatchRequest};
use proptest::prelude::*;
use tokio::time::{Instant, sleep};

use crate::{
    harness::Cluster,
    witness::{Problems, Witness, stored},
};

/// How long it may take until all is well after the last fault: a list and a watch that hang, and the longest pauses. No supervisor
/// ends them here.
const PATIENCE: Duration = Duration::from_secs(1_000);

#[derive(Debug, Clone)]
enum Step {
    Put(bool, u8, u8),
    Delete(bool, u8),
    Fail(Option<Fault>),
    Compact,
    /// Objects look different at the versions that they have.
    Upgrade,
    /// The data is that of so many versions ago.
    Restore(u64),
    EndWatches,
    Bookmark,
    /// The cluster has another address.
    Move,
    Suspend(bool),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let fault = prop::option::weighted(0.75, prop::sample::select(Fault::ALL.as_slice()));
    prop_oneof![
        10 => (any::<bool>(), 0..8u8, any::<u8>()).prop_map(|(k, n, v)| Step::Put(k, n, v)),
        7 => (any::<bool>(), 0..8u8).prop_map(|(k, n)| Step::Delete(k, n)),
        5 => fault.prop_map(Step::Fail),
        2 => Just(Step::Compact),
        1 => Just(Step::Upgrade),
        1 => (0..40u64).prop_map(Step::Restore),
        2 => Just(Step::EndWatches),
        1 => Just(Step::Bookmark),
        1 => Just(Step::Move),
        1 => any::<bool>().prop_map(Step::Suspend),
        8 => prop_oneof![0..30u64, 0..2_000u64, 0..90_000u64].prop_map(Step::Wait),
    ]
}

/// One place, and all that can be watched there.
struct World {
    place: Place,
    cluster: Cluster,
    endpoint: u64,
    problems: Problems,
    watched: Vec<(&'static str, WatchRequest, Arc<Witness>, WatchHandle)>,
}

impl World {
    /// With so many objects of each kind, listed unless a fault is in the way.
    async fn new(objects: u8, fault: Option<Fault>) -> Self {
        let place = Place::new(0);
        for plural in [MAPS, WIDGETS] {
            (0..objects).for_each(|key| place.put(plural, &format!("n/k{key}"), "there"));
        }
        place.fail(fault);
        let (cluster, problems) = (Cluster::behind(place.client(), |_| {}), Problems::default());
        let maps = WatchRequest::of::<ConfigMap>();
        let widgets = WatchRequest::resource(&ApiResource {
            group: "example.com".into(),
            version: "v1".into(),
            api_version: "example.com/v1".into(),
            kind: "Widget".into(),
            plural: "widgets".into(),
        });
        let requests = [(MAPS, maps), (WIDGETS, widgets)].into_iter();
        let requests = requests.flat_map(|(plural, of)| [(plural, of.clone()), (plural, of.metadata_only())]);
        let watch = |(plural, request): (_, WatchRequest)| {
            let witness = Witness::new(request.to_string(), std::slice::from_ref(&place), &problems);
            let handle = cluster.watch(request.clone(), witness.clone());
            (plural, request, witness, handle)
        };
        let watched = requests.map(watch).collect();
        sleep(Duration::from_secs(5)).await;
        Self {
            place,
            cluster,
            endpoint: 1,
            problems,
            watched,
        }
    }

    fn connect(&self) {
        self.cluster.connect(self.place.client(), self.endpoint);
    }

    async fn take(&mut self, step: &Step) {
        let kind = |widget: bool| if widget { WIDGETS } else { MAPS };
        match step {
            Step::Put(widget, key, value) => {
                self.place
                    .put(kind(*widget), &format!("n/k{key}"), &value.to_string());
            }
            Step::Delete(widget, key) => self.place.delete(kind(*widget), &format!("n/k{key}")),
            Step::Fail(fault) => self.place.fail(*fault),
            Step::Compact => self.place.compact(),
            Step::Upgrade => self.place.upgrade(),
            Step::Restore(ago) => {
                // For longer than any pause: a restore that nothing fails for goes unnoticed.
                self.place.fail(Some(Fault::Refuse));
                self.connect();
                self.place.restore(*ago);
                sleep(Duration::from_secs(60)).await;
                self.place.fail(None);
                // Nobody can notice it after the versions have passed the old ones.
                sleep(Duration::from_secs(60)).await;
            }
            Step::EndWatches => self.place.end_watches(),
            Step::Bookmark => self.place.bookmark(),
            Step::Move => {
                self.endpoint += 1;
                self.connect();
            }
            Step::Suspend(true) => self.cluster.disconnect(),
            Step::Suspend(false) => self.connect(),
            Step::Wait(millis) => sleep(Duration::from_millis(*millis)).await,
        }
    }

    fn check(&self) -> Result<(), String> {
        for (plural, request, witness, handle) in &self.watched {
            let watches = self.cluster.watches.all();
            let watch = watches.iter().find(|watch| watch.request() == request).unwrap();
            let held = watch.cache().store().all().into_iter();
            let held: BTreeMap<String, Stored> = held
                .map(|object| (object.key().to_string(), stored(&object)))
                .collect();
            let mut there = self.place.objects(plural);
            if request.to_string().contains("metadata") {
                there.values_mut().for_each(|stored| stored.value.clear());
            }
            same(
                &format!("what was reported of {request}, and what is held"),
                &witness.held(),
                &held,
            )?;
            same(&format!("{request} here and at the server"), &held, &there)?;
            let status = handle.status();
            same(
                "listed, without a problem",
                &(status.synced, status.problem.is_some()),
                &(true, false),
            )?;
        }
        Ok(())
    }

    /// Ends all faults, and waits until each store equals the server and stays so.
    async fn converges(&self) {
        self.place.fail(None);
        self.connect();
        let started = Instant::now();
        while let Err(why) = self.check() {
            assert!(started.elapsed() < PATIENCE, "{why}");
            self.problems.assert_none();
            sleep(Duration::from_millis(200)).await;
        }
        sleep(Duration::from_secs(100)).await;
        self.problems.assert_none();
        if let Err(why) = self.check() {
            panic!("all was well, and then: {why}");
        }
    }
}

fn same<T: PartialEq + Debug>(what: &str, is: &T, should: &T) -> Result<(), String> {
    if is == should {
        return Ok(());
    }
    Err(format!("{what}: is {is:?}, should be {should:?}"))
}

/// Runs a test on paused time. No task is left over.
fn paused<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        test().await;
        sleep(Duration::from_secs(120)).await;
        assert_eq!(runtime.metrics().num_alive_tasks(), 0, "tasks are left over");
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn promise_12_the_store_equals_the_server_after_any_schedule_of_faults(
        there in 0..8u8,
        steps in prop::collection::vec(step(), 0..80),
    ) {
        paused(|| async move {
            let mut world = World::new(there, None).await;
            for step in &steps {
                world.take(step).await;
            }
            world.converges().await;
        });
    }
}

#[test]
fn what_was_deleted_during_each_fault_is_reported_as_deleted_once() {
    for fault in Fault::ALL {
        paused(|| async move {
            let world = World::new(5, None).await;
            world.place.fail(Some(fault));
            for plural in [MAPS, WIDGETS] {
                for key in ["n/k1", "n/k2"] {
                    world.place.delete(plural, key);
                }
            }
            sleep(Duration::from_secs(120)).await;
            world.place.compact();
            sleep(Duration::from_secs(120)).await;
            world.converges().await;
            for (.., witness, _) in &world.watched {
                assert_eq!(witness.deletes(), 2, "{fault:?}");
            }
        });
    }
}

#[test]
fn what_was_never_held_is_not_reported_as_deleted() {
    paused(|| async {
        // `n/k1` can't be read.
        let world = World::new(3, Some(Fault::Unreadable)).await;
        // The delete of what can't be read can be read, since what is wrong with it has been mended.
        world.place.fail(None);
        for key in ["n/k1", "n/k2"] {
            world.place.delete(MAPS, key);
        }
        sleep(Duration::from_secs(5)).await;
        for (.., witness, _) in &world.watched[..2] {
            assert_eq!((witness.deletes(), witness.held().len()), (1, 1));
        }
        world.converges().await;
    });
}
