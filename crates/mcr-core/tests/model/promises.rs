//! The promises of docs/design/promises.md that are about many clusters or many rounds, without sockets.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_core::{ChangeSink, Cluster, ClusterState, Fleet, FleetSettings, Object, ObjectChange, StoreError};
use mcr_testkit::waiting::Background;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use mcr_doubles::place::{Fault, Gauge, MAPS, Place, WIDGETS};

use crate::{
    announced::{Description, Facts, Model, Scripted},
    paused::{alive, paused},
    world::{World, maps, widgets},
};

/// A fleet of which only names and clients matter, without the follower and the model's eye of a [`World`].
pub(crate) struct Plain {
    pub(crate) fleet: Fleet,
    pub(crate) provider: Scripted,
    running: Background<()>,
}

impl Plain {
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    pub(crate) fn start_with(settings: impl FnOnce(&mut FleetSettings)) -> Self {
        let model: Arc<Mutex<Model>> = Arc::default();
        let provider = Scripted::new(0, &model);
        let fleet = Fleet::builder()
            .provider(provider.clone())
            .settings(settings)
            .build();
        let runs = fleet.clone();
        Self {
            fleet,
            provider,
            running: Background::start(|stop| async move { runs.run(stop).await }),
        }
    }

    fn add(&self, name: &str, place: &Place) {
        let spec = Facts::at(0).spec(name, &place.client().into());
        self.provider
            .set(name, Description::Good(spec.into(), Facts::at(0)));
    }

    pub(crate) async fn until(&self, what: &str, mut true_now: impl FnMut(&Fleet) -> bool) {
        for _ in 0..60_000 {
            if true_now(&self.fleet) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {what}");
    }

    pub(crate) async fn end(self) {
        self.running.stop().await;
    }
}

/// How long lookups took, what was done beside them, and a picture of the whole fleet.
struct Lookups {
    /// Sorted, as the next.
    took: Vec<Duration>,
    /// The same in a map that nobody else has.
    beside: Vec<Duration>,
    /// In the middle.
    picture: Duration,
}

impl Lookups {
    fn measured(fleet: &Fleet, names: &[String], over: &AtomicBool) -> Self {
        fn time<T>(what: impl FnOnce() -> T) -> Duration {
            let asked = Instant::now();
            let _ = what();
            asked.elapsed()
        }
        let own: HashMap<String, Cluster> = names
            .iter()
            .filter_map(|name| Some((name.clone(), fleet.get(name).ok()?)))
            .collect();
        let (mut took, mut beside, mut pictures) = (Vec::new(), Vec::new(), Vec::new());
        for (number, name) in names.iter().cycle().enumerate() {
            took.push(time(|| fleet.get(name).map(|cluster| cluster.state())));
            beside.push(time(|| own.get(name).cloned().map(|cluster| cluster.state())));
            if number % 1000 == 0 {
                pictures.push(time(|| fleet.snapshot()));
                // Leaves the processor to those who make the fleet change.
                std::thread::sleep(Duration::from_millis(5));
            }
            // Lookups that wait for nothing are many more by then. Those that don't fail soon enough with these.
            if over.load(Ordering::Relaxed) && number > 5_000 {
                break;
            }
        }
        for times in [&mut took, &mut beside, &mut pictures] {
            times.sort();
        }
        Self {
            picture: pictures[pictures.len() / 2],
            took,
            beside,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promise_2_nothing_waits_inside_a_lookup() {
    const CLUSTERS: usize = 1_000;
    let plain = Plain::start();
    let place = Place::new(1);
    let names: Vec<String> = (0..CLUSTERS).map(|i| format!("c{i}")).collect();
    for name in &names {
        plain.add(name, &place);
    }
    plain
        .until("all are engaged", |fleet| fleet.clusters().len() == CLUSTERS)
        .await;
    let over = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let (fleet, over) = (plain.fleet.clone(), over.clone());
        move || Lookups::measured(&fleet, &names, &over)
    });
    // A fifth of the fleet leaves, comes back and falls silent, again and again.
    for round in 0..20 {
        place.fail((round % 2 == 1).then_some(Fault::Hang));
        for name in (0..CLUSTERS).skip(round % 5).step_by(5).map(|i| format!("c{i}")) {
            plain.provider.remove(&name);
            if round % 3 > 0 {
                plain.add(&name, &place);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    over.store(true, Ordering::Relaxed);
    let Lookups {
        took,
        beside,
        picture,
    } = reader.join().unwrap();
    // What waits for nothing is far from taking as long as the picture of the whole fleet, which is made meanwhile.
    let most = took[took.len() * 99 / 100];
    assert!(
        most * 10 <= picture,
        "99 % within {most:?}, a picture takes {picture:?}"
    );
    // As many take longer as the scheduler of a loaded machine holds up of something that surely waits for nothing.
    let held_up = |times: &[Duration]| times.len() - times.partition_point(|took| *took < picture);
    let (lookups, others) = (held_up(&took), held_up(&beside));
    println!(
        "of {} lookups 99 % within {most:?}, {lookups} not within {picture:?}; {others} of what is beside them",
        took.len()
    );
    assert!(
        lookups <= 3 * others + took.len() / 1000,
        "{lookups} of {} lookups are held up, and {others} of what is beside them",
        took.len()
    );
    plain.end().await;
}

/// Notes the objects without keeping them.
#[derive(Default)]
struct Weakly(Mutex<Vec<Weak<Object>>>);

impl ChangeSink for Weakly {
    fn changed(&self, change: &ObjectChange) {
        self.0
            .lock()
            .unwrap()
            .extend(change.new.iter().map(Arc::downgrade));
    }
}

/// Engages and disengages, and looks what of it is left.
async fn rounds(rounds: usize, measured: bool) {
    let plain = Plain::start();
    let place = Place::new(1);
    for key in 0..10 {
        place.put(MAPS, &format!("n/k{key}"), "value");
    }
    let mut left = None;
    let mut memory = None;
    for round in 0..rounds {
        let sink = Arc::new(Weakly::default());
        plain.add("a", &place);
        plain.until("it is engaged", |fleet| fleet.get("a").is_ok()).await;
        let cluster = plain.fleet.get("a").unwrap();
        let handle = cluster.watch(maps(), Some(sink.clone())).unwrap();
        // Some leave before they have connected, some in the middle, and most well settled.
        match round % 8 {
            0 => {}
            1 => tokio::time::sleep(Duration::from_millis(round as u64 % 7)).await,
            2 => {
                place.fail(Some(Fault::ALL[round / 8 % Fault::ALL.len()]));
                tokio::time::sleep(Duration::from_millis(700)).await;
            }
            _ => {
                let _ = cluster.client();
                plain.until("it is synced", |_| handle.status().synced).await;
                assert_eq!(sink.0.lock().unwrap().len(), 10);
            }
        }
        plain.provider.remove("a");
        cluster.wait_for(|state| *state == ClusterState::Gone).await;
        place.fail(None);
        // A handle that someone forgot keeps nothing but itself.
        let _forgotten = (round % 8 == 3).then(|| cluster.clone());
        drop((handle, cluster));
        drop(_forgotten);
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert!(plain.fleet.snapshot().clusters.is_empty());
        assert_eq!(Arc::strong_count(&sink), 1, "round {round}: the watch is left");
        let objects = std::mem::take(&mut *sink.0.lock().unwrap());
        assert!(
            objects.iter().all(|object| object.upgrade().is_none()),
            "round {round}: objects are left"
        );
        // Tasks, and whatever could still send to the server.
        let now = (alive(), place.holders());
        assert_eq!(
            *left.get_or_insert(now),
            now,
            "round {round}: (tasks, holders of the server)"
        );
        if measured && round == rounds / 4 {
            memory = resident();
        }
    }
    if let Some(before) = memory {
        has_not_grown(before, 4 << 20);
    }
    plain.end().await;
}

/// How much memory the process has, where the system says so.
fn resident() -> Option<usize> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(pages.split(' ').nth(1)?.parse::<usize>().ok()? * 4096)
}

/// Looks at the memory after a quarter of the rounds and now.
fn has_not_grown(before: usize, most: usize) {
    let after = resident().unwrap();
    let (before_kib, after_kib) = (before >> 10, after >> 10);
    println!("resident after a quarter {before_kib} KiB, at the end {after_kib} KiB");
    assert!(after < before + most, "{before} bytes were resident, now {after}");
}

#[test]
fn promise_3_removal_is_total() {
    paused(|| rounds(200, false));
}

#[test]
#[ignore = "the full form, a minute or more: cargo test -p mcr-core --test model -- --ignored --test-threads 1"]
fn promise_3_removal_is_total_in_10_000_rounds() {
    paused(|| rounds(10_000, true));
}

#[test]
fn promise_4_same_name_other_identity_and_the_old_cache_is_never_readable_again() {
    for declared in [true, false] {
        paused(|| async move {
            let world = World::new(2);
            world.places[0].put(MAPS, "n/same-name", "old");
            world.places[1].put(MAPS, "n/same-name", "new");
            let facts = |place| Facts {
                declared,
                ..Facts::at(place)
            };
            world.set(0, "a", &facts(0));
            tokio::time::sleep(Duration::from_secs(5)).await;
            let old = world.fleet.get("a").unwrap();
            let (store, client) = (old.store::<ConfigMap>().unwrap(), old.client());
            let values = |world: &World| -> BTreeSet<String> {
                let store = world
                    .fleet
                    .get("a")
                    .ok()
                    .and_then(|now| now.store::<ConfigMap>().ok());
                let list = store.and_then(|store| store.list().ok()).unwrap_or_default();
                list.iter()
                    .filter_map(|map| map.data.clone()?.remove("value"))
                    .collect()
            };
            assert_eq!(values(&world), BTreeSet::from(["old".into()]));
            world.set(0, "a", &facts(1));
            let mut replaced = false;
            for _ in 0..20_000 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let now = values(&world);
                assert!(now.len() < 2, "both in one store");
                if old.token().is_cancelled() {
                    assert!(matches!(store.list(), Err(StoreError::Gone { .. })));
                    assert!(!now.contains("old"));
                }
                replaced |= now.contains("new");
            }
            assert!(replaced);
            let answer = kube::Api::<ConfigMap>::all(client)
                .list(&Default::default())
                .await;
            assert!(answer.unwrap_err().to_string().contains("gone"));
            world.converges().await;
            world.end().await;
        });
    }
}

#[test]
fn promise_4_a_cluster_that_never_proved_who_it_was_leaves_nothing_to_the_next() {
    paused(|| async {
        let world = World::new(2);
        world.places[0].put(MAPS, "n/k1", "old");
        world.places[1].put(MAPS, "n/k2", "new");
        // Its lists come, but late, and the question who it is gets no answer.
        world.places[0].slow(Duration::from_millis(600));
        world.set(0, "a", &Facts::at(0));
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.places[0].fail(Some(Fault::Hang));
        tokio::time::sleep(Duration::from_millis(700)).await;
        let held = world.witness("a", &maps()).held();
        assert_eq!(held.len(), 1, "the list has come: {held:?}");
        world.set(0, "a", &Facts::at(1));
        world.converges().await;
        world.end().await;
    });
}

#[test]
fn promise_5_one_kind_failing_leaves_the_clusters_other_kinds_running() {
    paused(|| async {
        let world = World::new(1);
        world.places[0].forbid(Some(WIDGETS));
        world.set(0, "a", &Facts::at(0));
        tokio::time::sleep(Duration::from_secs(60)).await;
        let cluster = world.fleet.get("a").unwrap();
        // At any moment: also just after a refusal of the other kind.
        for second in 1..=120 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            world.places[0].put(MAPS, &format!("n/k{second}"), "value");
            world.converge().await;
            assert!(cluster.state().is_ready());
            assert_eq!(
                cluster.store_of::<ConfigMap>(&maps()).unwrap().len().unwrap(),
                second
            );
        }
        let blocked: BTreeSet<String> = cluster
            .kinds()
            .into_iter()
            .filter(|k| k.blocked)
            .map(|k| k.kind)
            .collect();
        assert_eq!(blocked, BTreeSet::from(["widgets.example.com".into()]));
        world.places[0].forbid(None);
        world.converges().await;
        world.end().await;
    });
}

#[test]
fn promise_11_no_herd_of_lists_when_a_thousand_clusters_join() {
    const CLUSTERS: usize = 1_000;
    paused(|| async {
        let plain = Plain::start();
        let gauge = Arc::new(Gauge::default());
        let places: Vec<Place> = (0..CLUSTERS as u64)
            .map(|id| Place::with_gauge(id, gauge.clone()))
            .collect();
        for (i, place) in places.iter().enumerate() {
            place.put(MAPS, "n/k1", "value");
            place.slow(Duration::from_millis(100));
            plain.add(&format!("c{i}"), place);
        }
        plain
            .until("all are engaged", |fleet| fleet.clusters().len() == CLUSTERS)
            .await;
        let handles: Vec<_> = plain
            .fleet
            .clusters()
            .iter()
            .flat_map(|cluster| [maps(), widgets()].map(|request| cluster.watch(request, None).unwrap()))
            .collect();
        plain
            .until("all are listed", |_| {
                handles.iter().all(|handle| handle.status().synced)
            })
            .await;
        // 32 at once; that many are made use of, too.
        assert!((24..=32).contains(&gauge.peak()), "{}", gauge.peak());
        assert!(places.iter().all(|place| place.lists() == 2));
        drop(handles);
        plain.end().await;
    });
}

#[test]
fn promise_13_no_event_reaches_another_cluster() {
    paused(|| async {
        // Every object has the same name everywhere, and names change places all the time; the witnesses of the
        // world see to it that no engagement is ever told of two places.
        let world = World::new(3);
        for round in 0..60 {
            for (i, place) in world.places.iter().enumerate() {
                place.put(MAPS, "n/k1", &format!("{i} {round}"));
                if round % 4 == i {
                    place.delete(MAPS, "n/k1");
                }
            }
            for (i, name) in ["a", "b", "c"].iter().enumerate() {
                let place = (i + round / 2) % 3;
                world.set(
                    0,
                    name,
                    &Facts {
                        declared: round % 3 == 0,
                        address: round % 2,
                        ..Facts::at(place)
                    },
                );
            }
            let pause = [0, 1, 3, 10, 60, 700, 3_000][round % 7];
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        world.converges().await;
        world.end().await;
    });
}

#[test]
fn promise_14_silence_is_impossible() {
    for fault in Fault::ALL {
        paused(|| async move {
            let world = World::new(1);
            for key in 0..4 {
                world.places[0].put(MAPS, &format!("n/k{key}"), "value");
            }
            world.set(0, "a", &Facts::at(0));
            tokio::time::sleep(Duration::from_secs(5)).await;
            world.places[0].fail(Some(fault));
            world.places[0].put(MAPS, "n/k1", "changed");
            world.places[0].compact();
            tokio::time::sleep(Duration::from_secs(30)).await;
            let status = world.fleet.snapshot().clusters.remove(0);
            let reported = format!("{fault:?}: {status:#?}");
            assert!(
                status.last_event.is_some() && status.last_received.is_some(),
                "{reported}"
            );
            let silent = matches!(fault, Fault::Refuse | Fault::Hang);
            if silent {
                assert_eq!(status.state, "Unreachable", "{reported}");
                assert!(status.reason.is_some_and(|why| !why.is_empty()), "{reported}");
                assert!(status.last_probe.is_some(), "{reported}");
            }
            // What is open goes on with credentials that are no longer taken, and a stale list is no fault that
            // anyone could see.
            let invisible = silent || matches!(fault, Fault::Unauthorized | Fault::StaleList);
            let shown = status
                .kinds
                .iter()
                .any(|kind| kind.problem.is_some() || kind.skipped > 0);
            assert!(shown || invisible, "{reported}");
            world.converges().await;
            world.end().await;
        });
    }
}

/// Churn of every sort, from a seed; a quarter of the rounds is for warming up.
async fn soak(rounds: u64, seed: u64, measured: bool) {
    let mut random = SmallRng::seed_from_u64(seed);
    let world = World::new(4);
    let names: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let mut figures: Vec<(usize, usize)> = Vec::new();
    let mut memory = None;
    for round in 0..rounds {
        for _ in 0..20 {
            world.churn(&mut random, &names, &Fault::ALL);
            tokio::time::sleep(Duration::from_millis(random.random_range(0..1_500))).await;
        }
        // The same state again and again, so that its figures can be compared.
        for place in &world.places {
            place.compact();
            place.forget();
            for key in 0..8 {
                place.put(MAPS, &format!("n/k{key}"), "value");
            }
        }
        for (i, name) in names.iter().enumerate() {
            world.set(0, name, &Facts::at(i % 4));
        }
        world.converges().await;
        let bytes = world
            .fleet
            .snapshot()
            .clusters
            .iter()
            .map(|cluster| cluster.objects)
            .sum();
        figures.push((alive(), bytes));
        if measured && round == rounds / 4 {
            memory = resident();
        }
    }
    let converged = &figures[figures.len() / 4..];
    assert!(
        converged.iter().all(|figure| figure == &converged[0]),
        "(tasks, objects) by round: {figures:?}"
    );
    if let Some(before) = memory {
        // The witnesses remember what they buried.
        has_not_grown(before, before / 10 + (8 << 20));
    }
    world.ends_with_nothing().await;
}

#[test]
fn promise_16_a_soak_of_churn_leaves_as_much_as_there_was() {
    paused(|| soak(12, 16, false));
}

#[test]
#[ignore = "the full form, some minutes: cargo test -p mcr-core --test model -- --ignored --test-threads 1"]
fn promise_16_a_long_soak_of_churn_leaves_as_much_as_there_was() {
    paused(|| soak(600, 17, true));
}
