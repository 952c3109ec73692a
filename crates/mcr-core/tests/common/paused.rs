//! Paused time, in which minutes cost nothing.

use std::{sync::Once, time::Duration};

use mcr_core::Fleet;
use mcr_doubles::place::Place;
use tokio_util::sync::CancellationToken;

/// Runs a test on paused time and looks whether any task is left over.
pub(crate) fn paused<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    measure_from_here();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let before = alive();
        test().await;
        // What waits for the end of a pause that nobody needs any more.
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(alive(), before, "tasks are left over");
    });
}

pub(crate) fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// The core measures from when it first connected; that must not be in the future of another test's clock.
fn measure_from_here() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let fleet = Fleet::single(Place::new(0).client());
                let running = fleet.run(CancellationToken::new());
                let engaged = async {
                    while fleet.get("local").is_err() {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                };
                tokio::select! {
                    () = running => {}
                    () = engaged => {}
                }
            });
        })
        .join()
        .unwrap();
    });
}
