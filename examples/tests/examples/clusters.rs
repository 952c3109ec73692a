//! Three API servers that all tests share, each working in namespaces of its own.

use std::{future::Future, sync::OnceLock};

use mcr_testkit::control_plane::{ControlPlane, Etcd};
use tokio::{runtime::Runtime, sync::OnceCell};

use crate::common::member::Member;

/// `berlin`, `lyon` and `hub`.
pub(crate) struct Clusters {
    pub(crate) berlin: ControlPlane,
    pub(crate) lyon: ControlPlane,
    pub(crate) hub: ControlPlane,
}

/// Runs a test on the clusters. They live as long as this process: their watchdogs end them with it.
pub(crate) fn on_clusters<F: Future>(test: impl FnOnce(&'static Clusters) -> F) -> F::Output {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    static CLUSTERS: OnceCell<Clusters> = OnceCell::const_new();
    RUNTIME
        .get_or_init(|| Runtime::new().unwrap())
        .block_on(async { test(CLUSTERS.get_or_init(start).await).await })
}

async fn start() -> Clusters {
    let etcd = Etcd::start().await.unwrap();
    let plane = |name: &'static str| ControlPlane::builder().name(name).etcd(&etcd).audit(true).start();
    let (berlin, lyon, hub) = tokio::try_join!(plane("berlin"), plane("lyon"), plane("hub")).unwrap();
    Clusters { berlin, lyon, hub }
}

/// A cluster, for a story.
pub(crate) fn member(plane: &ControlPlane) -> Member {
    Member {
        name: plane.name().to_owned(),
        client: plane.client(),
        kubeconfig: plane.kubeconfig(),
    }
}
