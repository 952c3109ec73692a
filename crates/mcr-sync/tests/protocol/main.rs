//! Random histories on simulated API servers: users edit, delete and place sources, somebody changes, blocks and takes
//! targets, clusters leave, fail and lag, and the program stops between any two writes.
//!
//! The manager and the sync are the real ones. Time is paused: a pause costs nothing, and between two of them all tasks
//! run until they wait.
#![allow(clippy::unwrap_used)]

mod gate;
mod history;
mod users;
mod world;

/// The steps of one run. A step is an action of a history, or a write of the sync.
const STEPS: u64 = 50_000;

#[test]
fn sync_protocol_ends_in_agreement_and_never_leaves_an_orphan_or_touches_the_objects_of_others() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let template = world::template();
    let only: Option<u64> = std::env::var("MCR_SYNC_SEED")
        .ok()
        .map(|seed| seed.parse().unwrap());
    let (mut steps, mut writes) = (0, 0);
    for seed in only.map_or(0..u64::MAX, |seed| seed..seed + 1) {
        let played = runtime.block_on(history::play(seed, &template));
        steps += played.steps;
        writes += played.writes;
        if let Some(fault) = played.fault {
            panic!("MCR_SYNC_SEED={seed}, after {steps} steps: {fault}");
        }
        if steps >= STEPS {
            println!(
                "{} histories, {steps} steps, {writes} of them writes of the sync",
                seed + 1
            );
            break;
        }
    }
}
