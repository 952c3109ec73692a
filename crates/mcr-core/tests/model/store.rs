//! Watch truth: whatever happens to lists, watches and the data of the server, the store ends equal to the server, and every
//! change is told once, whichever way the kind is watched: typed, dynamic, or by its metadata only.

use std::time::Duration;

use proptest::prelude::*;

use crate::{
    config,
    place::{Fault, MAPS, WIDGETS},
    said::Looks,
    world::{World, maps, metadata, paused, widget_metadata, widgets},
};

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
    /// The provider names another address of the same place.
    Move(usize),
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
        1 => (0..2usize).prop_map(Step::Move),
        1 => any::<bool>().prop_map(Step::Suspend),
        8 => prop_oneof![0..30u64, 0..2_000u64, 0..90_000u64].prop_map(Step::Wait),
    ]
}

fn looks() -> Looks {
    Looks {
        place: 0,
        address: 0,
        declared: true,
        suspended: false,
        label: 0,
    }
}

async fn run(world: &World, steps: &[Step]) {
    let place = &world.places[0];
    let mut looks = looks();
    for step in steps {
        let kind = |widget: bool| if widget { WIDGETS } else { MAPS };
        match step {
            Step::Put(widget, key, value) => {
                place.put(kind(*widget), &format!("n/k{key}"), &value.to_string())
            }
            Step::Delete(widget, key) => place.delete(kind(*widget), &format!("n/k{key}")),
            Step::Fail(fault) => place.fail(*fault),
            Step::Compact => place.compact(),
            Step::Upgrade => place.upgrade(),
            Step::Restore(ago) => {
                place.fail(None);
                looks.suspended = false;
                world.set(0, "a", &looks);
                place.restore(*ago);
                // Nobody can notice it after the versions have passed the old ones.
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
            Step::EndWatches => place.end_watches(),
            Step::Bookmark => place.bookmark(),
            Step::Move(address) => {
                looks.address = *address;
                world.set(0, "a", &looks);
            }
            Step::Suspend(suspended) => {
                looks.suspended = *suspended;
                world.set(0, "a", &looks);
            }
            Step::Wait(millis) => tokio::time::sleep(Duration::from_millis(*millis)).await,
        }
    }
    looks.suspended = false;
    world.set(0, "a", &looks);
}

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn promise_12_the_store_equals_the_server_after_any_schedule_of_faults(
        there in 0..8u8,
        steps in prop::collection::vec(step(), 0..80),
    ) {
        paused(|| async move {
            let world = World::new(1);
            for key in 0..there {
                world.places[0].put(MAPS, &format!("n/k{key}"), "there");
                world.places[0].put(WIDGETS, &format!("n/k{key}"), "there");
            }
            world.set(0, "a", &looks());
            world.settle().await;
            run(&world, &steps).await;
            world.converges().await;
            world.end().await;
        });
    }
}

/// What is there when a schedule begins.
async fn world_of_one(objects: u8) -> World {
    let world = World::new(1);
    for key in 0..objects {
        world.places[0].put(MAPS, &format!("n/k{key}"), "there");
        world.places[0].put(WIDGETS, &format!("n/k{key}"), "there");
    }
    world.set(0, "a", &looks());
    tokio::time::sleep(Duration::from_secs(5)).await;
    world
}

#[test]
fn what_was_deleted_during_each_fault_is_told_as_deleted_once() {
    for fault in Fault::ALL {
        paused(|| async move {
            let world = world_of_one(5).await;
            let place = &world.places[0];
            let requests = [maps(), metadata(), widgets(), widget_metadata()];
            let witnesses = requests.map(|request| world.witness("a", &request));
            place.fail(Some(fault));
            for plural in [MAPS, WIDGETS] {
                for key in ["n/k1", "n/k2"] {
                    place.delete(plural, key);
                }
            }
            tokio::time::sleep(Duration::from_secs(120)).await;
            place.compact();
            tokio::time::sleep(Duration::from_secs(120)).await;
            world.converges().await;
            for witness in witnesses {
                assert_eq!(witness.deletes(), 2, "{fault:?}");
            }
            world.end().await;
        });
    }
}

#[test]
fn what_was_never_held_is_not_told_as_deleted() {
    paused(|| async {
        let world = World::new(1);
        let place = &world.places[0];
        place.fail(Some(Fault::Unreadable));
        place.put(MAPS, "n/k1", "can't be read");
        place.put(MAPS, "n/k2", "there");
        world.set(0, "a", &looks());
        tokio::time::sleep(Duration::from_secs(5)).await;
        let witnesses = [maps(), metadata()].map(|request| world.witness("a", &request));
        // The delete of what can't be read can be read, since what is wrong with it has been mended.
        place.fail(None);
        place.delete(MAPS, "n/k1");
        place.delete(MAPS, "n/k2");
        tokio::time::sleep(Duration::from_secs(5)).await;
        for witness in witnesses {
            assert_eq!((witness.deletes(), witness.held().len()), (1, 0));
        }
        world.converges().await;
        world.end().await;
    });
}

#[test]
fn an_object_that_can_be_read_again_is_there_again() {
    for fault in [Fault::Unreadable, Fault::Nameless] {
        paused(|| async move {
            let world = world_of_one(3).await;
            world.places[0].fail(Some(fault));
            world.places[0].put(MAPS, "n/k1", "changed while it could not be read");
            tokio::time::sleep(Duration::from_secs(10)).await;
            world.converges().await;
            world.end().await;
        });
    }
}
