//! Random histories on simulated API servers: users edit, delete and place sources, somebody changes, blocks and
//! takes targets, clusters leave, fail and lag, and the program stops between any two writes. A standby with stores
//! of its own goes on then, and now and then two programs lead. Half of the histories have related objects, both ways.
//!
//! The managers and the sync are the real ones. Time is paused: a pause costs nothing, and between two of them all
//! tasks run until they wait.
#![allow(clippy::unwrap_used, unreachable_pub)]
// A cluster is its index, in several lists at once.
#![allow(clippy::needless_range_loop)]

mod gate;
mod history;
mod rules;
mod users;
mod world;

/// The steps of one run. A step is an action of a history, or a write of the sync.
const STEPS: u64 = 10_000;

/// The steps within which each planted bug must be found.
const STEPS_WITH_BUG: u64 = 50_000;

/// Plays the histories of seeds until the steps are done. `MCR_SYNC_SEED` plays one, `MCR_SYNC_STEPS` more or fewer.
#[test]
fn sync_protocol_ends_in_agreement_and_never_leaves_an_orphan_or_touches_the_objects_of_others() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    let template = world::template();
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|number| number.parse::<u64>().unwrap())
    };
    let only = number("MCR_SYNC_SEED");
    let has_bug = std::env::var_os("MCR_PLANTED").is_some();
    let usual = if has_bug { STEPS_WITH_BUG } else { STEPS };
    let limit = number("MCR_SYNC_STEPS").unwrap_or(usual);
    let (mut steps, mut writes) = (0, 0);
    for seed in only.map_or(0..u64::MAX, |seed| seed..seed + 1) {
        let (of_one, of_sync, fault) = runtime.block_on(history::play(seed, &template));
        (steps, writes) = (steps + of_one, writes + of_sync);
        if let Some(fault) = fault {
            panic!("MCR_SYNC_SEED={seed}, after {steps} steps: {fault}");
        }
        if steps >= limit {
            println!(
                "{} histories, {steps} steps, of which {writes} are writes of the sync",
                seed + 1
            );
            break;
        }
    }
}
