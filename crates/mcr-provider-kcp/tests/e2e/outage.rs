//! A service cluster that is stopped and started again.

use std::{path::PathBuf, process::Output};

use kube::{Client, Config, config::Kubeconfig};
use mcr::ClusterState;
use mcr_provider_kind::KindProvider;
use mcr_testkit::{
    e2e::{E2e, E2eKind},
    waiting::{OrFail, eventually},
};
use tokio::process::Command;

use crate::{DEADLINE, kcp::Kcp, operator::Operator, service::Service};

/// A kind cluster of this test alone.
struct OwnCluster {
    with: E2eKind,
    name: String,
    folder: tempfile::TempDir,
}

impl OwnCluster {
    fn new(e2e: &E2e) -> Self {
        let with = e2e.kind();
        Self {
            name: format!("{}kcp", with.prefix),
            with,
            folder: tempfile::tempdir().or_fail(),
        }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    async fn create(&self) -> Client {
        let mut create = Command::new(&self.with.program);
        create
            .args(["create", "cluster", "--quiet", "--name", &self.name])
            .env("KUBECONFIG", self.kubeconfig());
        if let Some(image) = &self.with.node_image {
            create.args(["--image", image]);
        }
        run(create).await;
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).or_fail();
        let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await;
        Client::try_from(config.or_fail()).or_fail()
    }

    /// Stops or starts its node.
    async fn node(&self, what: &str) {
        let mut command = Command::new(&self.with.engine);
        command.args([what, &self.node_name()]);
        run(command).await;
    }

    fn node_name(&self) -> String {
        format!("{}-control-plane", self.name)
    }
}

impl Drop for OwnCluster {
    fn drop(&mut self) {
        // Also after a failure: nothing of a test stays in the engine.
        let _ = std::process::Command::new(&self.with.engine)
            .args(["rm", "-f", "-v", &self.node_name()])
            .output();
    }
}

async fn run(mut command: Command) -> Output {
    let shown = format!("{command:?}");
    let output = tokio::time::timeout(DEADLINE, command.kill_on_drop(true).output());
    let output = output.await.unwrap_or_else(|_| panic!("{shown} hangs")).or_fail();
    assert!(
        output.status.success(),
        "{shown}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_stay_while_the_service_cluster_is_away() {
    let Some(e2e) = E2e::from_env() else { return };
    let own = OwnCluster::new(&e2e);
    let kcp = Kcp::start("outage").await;
    let (a, b) = tokio::join!(kcp.consumer("a", "root"), kcp.consumer("b", "shard-1"));
    let client = own.create().await;
    let service = Service::new(&own.name, "default", client);
    let kind = KindProvider::builder().prefix(&own.name).build().or_fail();
    let operator = Operator::start(&kcp, &service, kind);
    for consumer in [&a, &b] {
        consumer.create("db", 1).await;
        consumer.reports("db", 1).await;
    }
    let (in_a, in_b) = (
        operator.ready(&a.cluster()).await,
        operator.ready(&b.cluster()).await,
    );
    let in_service = operator.ready(&service.cluster).await;

    own.node("stop").await;
    eventually(DEADLINE, "the service cluster is suspended", || {
        matches!(in_service.state(), ClusterState::Suspended { .. })
    })
    .await;
    // Each consumer goes on in its workspace. What is asked for there waits, and no finalizer is released.
    a.create("second", 2).await;
    b.unbind().await;
    a.scale("db", 3).await;
    for consumer in [&in_a, &in_b] {
        assert!(consumer.state().is_ready(), "{:?}", consumer.state());
    }
    assert!(b.binding().await.is_some(), "its database has a finalizer");

    own.node("start").await;
    a.reports("second", 2).await;
    a.reports("db", 3).await;
    b.is_unbound().await;
    service.has(&[(&a, "db"), (&a, "second")]).await;
    operator.has(&[&a]).await;
    assert!(operator.ready(&a.cluster()).await.is_same(&in_a));
    assert!(operator.ready(&service.cluster).await.is_same(&in_service));

    a.unbind().await;
    a.is_unbound().await;
    operator.stop().await;
    kcp.remove([a, b]).await;
}
