//! The kind clusters, as the stories want them.

use std::future::Future;

use mcr_testkit::e2e::{E2e, E2eCluster};

use crate::common::member::Member;

/// Runs a test where there are clusters; elsewhere it is skipped, which is logged.
#[track_caller]
pub(crate) fn on_kind<F: Future<Output = ()>>(test: impl FnOnce(E2e) -> F) {
    let Some(e2e) = E2e::from_env() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(test(e2e));
}

/// A cluster as its administrator sees it.
pub(crate) async fn member(e2e: &E2e, cluster: E2eCluster) -> Member {
    Member {
        name: cluster.context().to_owned(),
        client: e2e.client(cluster).await,
        kubeconfig: std::fs::read_to_string(e2e.kubeconfig(cluster)).unwrap(),
    }
}
