//! The same as in `life`, on several threads and in real time: what paused time on one thread can't show.

use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::SmallRng};

use mcr_doubles::place::Fault;

use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn churn_on_several_threads_ends_with_the_fleet_as_the_model() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let world = World::on_threads(3);
    for _ in 0..1_500 {
        world.churn(&mut random, &["a", "b", "c", "d", "e"], &[Fault::Refuse]);
        if random.random_ratio(1, 4) {
            tokio::time::sleep(Duration::from_micros(random.random_range(0..20_000))).await;
        }
    }
    world.converges_within(Duration::from_secs(120)).await;
    world.ends_with_nothing().await;
}
