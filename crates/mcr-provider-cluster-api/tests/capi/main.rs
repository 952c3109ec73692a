//! The provider on the real controllers of Cluster API. `cargo xtask e2e --provider cluster-api` builds them and runs these tests.
//!
//! All tests share one management cluster in one process; each has a namespace there. Without the variable `MCR_CAPI`, which names
//! the folder of `cargo xtask assets --capi`, they say that they are skipped.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod byo;
mod kubeadm;
mod management;
mod manifests;
mod objects;
mod running;
mod workload;

mod life;
mod schema;

use std::sync::LazyLock;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::OnceCell;

use management::Management;

/// The longest wait for anything. Other programs may keep the machine busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// One for all tests, because their clients have tasks in it.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let built = Builder::new_multi_thread().worker_threads(4).enable_all().build();
    built.expect("threads can be started")
});

static MANAGEMENT: OnceCell<Result<Management, String>> = OnceCell::const_new();

/// Prints the logs of Cluster API's managers if the test fails.
struct LogsOnFailure(&'static Management);

impl Drop for LogsOnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0.logs());
        }
    }
}

/// Runs a test on the shared management cluster.
pub(crate) fn on_capi<F: Future<Output = ()>>(test: impl FnOnce(&'static Management) -> F) {
    let Some(folder) = management::folder() else {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("capi");
        return mcr_testkit::e2e::skipped(name, "run it with cargo xtask e2e --provider cluster-api");
    };
    RUNTIME.block_on(async {
        let start = async || Management::start(&folder).await.map_err(|why| why.to_string());
        let management = match MANAGEMENT.get_or_init(start).await {
            Ok(management) => management,
            Err(why) => panic!("the management cluster did not start: {why}"),
        };
        let _logs = LogsOnFailure(management);
        test(management).await;
    });
}
