//! The life of clusters: any schedule of what providers say and what places do ends with the fleet as the model.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;

use mcr_doubles::place::{Fault, MAPS, WIDGETS};

use crate::{
    announced::{Description, Facts},
    config,
    paused::paused,
    world::{ADDRESSES, World},
};

/// Most schedules are about the first four.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const PLACES: usize = 3;

#[derive(Debug, Clone)]
enum Step {
    Upsert(usize, usize, Facts),
    Broken(usize, usize),
    Remove(usize, usize),
    /// The provider's discovery ends, with an error or without.
    Interrupt(usize, bool),
    ReleaseHeld,
    Fail(usize, Option<Fault>),
    Put(usize, bool, u8, u8),
    Delete(usize, bool, u8),
    Compact(usize),
    EndWatches(usize),
    Wait(u64),
}

fn facts() -> impl Strategy<Value = Facts> {
    let suspended = prop::bool::weighted(0.2);
    (0..PLACES, 0..ADDRESSES, any::<bool>(), suspended, 0..3u8).prop_map(
        |(place, address, declared, suspended, label)| Facts {
            place,
            address,
            declared,
            suspended,
            label,
        },
    )
}

/// The second provider mostly stays out of the way.
fn provider() -> impl Strategy<Value = usize> {
    prop::bool::weighted(0.2).prop_map(usize::from)
}

fn fault() -> impl Strategy<Value = Option<Fault>> {
    prop::option::weighted(0.7, prop::sample::select(Fault::ALL.as_slice()))
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..4usize;
    let place = 0..PLACES;
    prop_oneof![
        8 => (provider(), name.clone(), facts()).prop_map(|(p, n, l)| Step::Upsert(p, n, l)),
        1 => (provider(), name.clone()).prop_map(|(p, n)| Step::Broken(p, n)),
        3 => (provider(), name).prop_map(|(p, n)| Step::Remove(p, n)),
        1 => (provider(), any::<bool>()).prop_map(|(p, e)| Step::Interrupt(p, e)),
        1 => Just(Step::ReleaseHeld),
        5 => (place.clone(), fault()).prop_map(|(p, f)| Step::Fail(p, f)),
        5 => (place.clone(), any::<bool>(), 0..5u8, any::<u8>()).prop_map(|(p, k, n, v)| Step::Put(p, k, n, v)),
        3 => (place.clone(), any::<bool>(), 0..5u8).prop_map(|(p, k, n)| Step::Delete(p, k, n)),
        1 => place.clone().prop_map(Step::Compact),
        1 => place.prop_map(Step::EndWatches),
        // Many things happen at once, some within a second, and some after all pauses.
        6 => prop_oneof![0..30u64, 0..2_000u64, 0..60_000u64].prop_map(Step::Wait),
    ]
}

/// Of providers that have some clusters each and start again and again, with more of them or fewer.
fn step_of_discovery() -> impl Strategy<Value = Step> {
    let (provider, name) = (0..2usize, 0..NAMES.len());
    let facts = |name: usize| Facts {
        declared: true,
        ..Facts::at(name % PLACES)
    };
    prop_oneof![
        6 => (provider.clone(), name.clone()).prop_map(move |(p, n)| Step::Upsert(p, n, facts(n))),
        3 => (provider.clone(), name).prop_map(|(p, n)| Step::Remove(p, n)),
        4 => (provider, any::<bool>()).prop_map(|(p, e)| Step::Interrupt(p, e)),
        1 => Just(Step::ReleaseHeld),
        2 => prop_oneof![0..2_000u64, 0..60_000u64].prop_map(Step::Wait),
    ]
}

impl Step {
    fn provider(&self) -> Option<usize> {
        match self {
            Self::Upsert(provider, ..) | Self::Broken(provider, _) | Self::Remove(provider, _) => {
                Some(*provider)
            }
            _ => None,
        }
    }
}

async fn run(world: &World, steps: &[Step]) {
    // What two providers say in the same moment comes in any order, which the model can't know.
    let mut speaker = 0;
    for step in steps {
        if step.provider().is_some_and(|provider| provider != speaker) || matches!(step, Step::ReleaseHeld) {
            world.converge().await;
        }
        speaker = step.provider().unwrap_or(speaker);
        let kind = |widget: bool| if widget { WIDGETS } else { MAPS };
        match step {
            Step::Upsert(provider, name, facts) => world.set(*provider, NAMES[*name], facts),
            Step::Broken(provider, name) => world.providers[*provider].set(NAMES[*name], Description::Broken),
            Step::Remove(provider, name) => world.providers[*provider].remove(NAMES[*name]),
            Step::Interrupt(provider, error) => world.providers[*provider].interrupt(*error),
            Step::ReleaseHeld => {
                world.fleet.release_held();
                world.model.lock().unwrap().release_held();
            }
            Step::Fail(place, fault) => world.places[*place].fail(*fault),
            Step::Put(place, widget, key, value) => {
                world.places[*place].put(kind(*widget), &format!("n/k{key}"), &value.to_string());
            }
            Step::Delete(place, widget, key) => {
                world.places[*place].delete(kind(*widget), &format!("n/k{key}"))
            }
            Step::Compact(place) => world.places[*place].compact(),
            Step::EndWatches(place) => world.places[*place].end_watches(),
            Step::Wait(millis) => tokio::time::sleep(Duration::from_millis(*millis)).await,
        }
    }
}

fn ends_as_the_model(steps: &[Step]) {
    paused(|| async {
        let world = World::new(PLACES);
        run(&world, steps).await;
        world.converges().await;
        world.ends_with_nothing().await;
    });
}

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn any_schedule_ends_with_the_fleet_as_the_model_and_nothing_left_over(
        steps in prop::collection::vec(step(), 0..60),
    ) {
        ends_as_the_model(&steps);
    }

    #[test]
    fn any_schedule_of_discoveries_ends_with_the_clusters_of_the_model(
        steps in prop::collection::vec(step_of_discovery(), 0..60),
    ) {
        ends_as_the_model(&steps);
    }

    #[test]
    fn a_fleet_can_be_stopped_at_any_moment(steps in prop::collection::vec(step(), 0..30)) {
        paused(|| async move {
            let world = World::new(PLACES);
            run(&world, &steps).await;
            world.end().await;
        });
    }
}

#[test]
fn a_suspended_cluster_is_not_spoken_to_and_goes_on_where_it_was() {
    paused(|| async {
        let (world, mut facts) = (World::new(1), Facts::at(0));
        let place = &world.places[0];
        place.put(MAPS, "n/k0", "kept");
        world.set(0, "a", &facts);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let cluster = world.fleet.get("a").unwrap();
        facts.suspended = true;
        world.set(0, "a", &facts);
        world.converge().await;
        let asked = place.requests();
        place.put(MAPS, "n/k1", "put while it slept");
        tokio::time::sleep(Duration::from_secs(600)).await;
        let maps = kube::Api::<ConfigMap>::all(cluster.client());
        let error = maps.list(&Default::default()).await.unwrap_err();
        assert!(mcr_core::explain_error(&error).contains("asleep"), "{error}");
        assert_eq!(place.requests(), asked);
        assert_eq!(cluster.store::<ConfigMap>().unwrap().len().unwrap(), 1);
        facts.suspended = false;
        world.set(0, "a", &facts);
        let lists = place.lists();
        world.converges().await;
        assert_eq!(place.lists(), lists, "it is the same cluster at the same place");
        world.end().await;
    });
}

#[test]
fn labels_change_without_a_request() {
    paused(|| async {
        let (world, mut facts) = (World::new(1), Facts::at(0));
        world.set(0, "a", &facts);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let (cluster, asked) = (world.fleet.get("a").unwrap(), world.places[0].requests());
        facts.label = 1;
        world.set(0, "a", &facts);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(cluster.label("label").as_deref(), Some("1"));
        assert_eq!(world.places[0].requests(), asked);
        world.end().await;
    });
}

/// Schedules that once went wrong, in the words of the model: a seed is worth nothing once the steps change.
#[test]
fn what_went_wrong_before_goes_well() {
    let at = |place, address, declared| Facts {
        address,
        declared,
        ..Facts::at(place)
    };
    let schedules = [
        // Known only by what was declared, and now by nothing but another client: the old store went on.
        vec![
            Step::Upsert(0, 0, at(2, 0, true)),
            Step::Wait(1),
            Step::Upsert(0, 0, at(0, 0, false)),
        ],
        // An object that could not be read when it was listed never came.
        vec![
            Step::Put(0, false, 1, 0),
            Step::Fail(0, Some(Fault::Unreadable)),
            Step::Upsert(0, 0, at(0, 0, false)),
            Step::Wait(1),
        ],
        // A declaration that is withdrawn was shown on, and stood for who the cluster is.
        vec![
            Step::Upsert(0, 0, at(0, 0, true)),
            Step::Wait(5_000),
            Step::Upsert(0, 0, at(0, 0, false)),
            Step::Wait(5_000),
            Step::Upsert(0, 0, at(0, 1, false)),
        ],
        // A provider that started again into an empty world lost all of its clusters, as the other one had as many.
        vec![
            Step::Upsert(0, 0, at(0, 0, true)),
            Step::Upsert(0, 1, at(1, 0, true)),
            Step::Upsert(1, 2, at(2, 0, true)),
            Step::Upsert(1, 3, at(0, 1, true)),
            Step::Wait(1_000),
            Step::Interrupt(1, true),
            Step::Remove(1, 2),
            Step::Remove(1, 3),
            Step::Wait(100_000),
        ],
        // Of three clusters that were held two came back, and the third was held for ever.
        vec![
            Step::Upsert(0, 0, at(0, 0, true)),
            Step::Upsert(0, 1, at(1, 0, true)),
            Step::Upsert(0, 2, at(2, 0, true)),
            Step::Wait(1_000),
            Step::Interrupt(0, true),
            Step::Remove(0, 0),
            Step::Remove(0, 1),
            Step::Remove(0, 2),
            Step::Wait(5_000),
            Step::Interrupt(0, true),
            Step::Upsert(0, 0, at(0, 0, true)),
            Step::Upsert(0, 1, at(1, 0, true)),
            Step::Wait(100_000),
        ],
    ];
    for steps in schedules {
        ends_as_the_model(&steps);
    }
}
