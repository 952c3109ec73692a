//! Databases of workspaces in a service cluster that is always there.

use mcr_core::layer;
use mcr_provider_kind::KindProvider;
use mcr_testkit::{
    e2e::{E2e, E2eCluster},
    waiting::OrFail,
};

use crate::{kcp::Kcp, operator::Operator, service::Service};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_of_workspaces_are_kept_in_a_service_cluster() {
    let Some(e2e) = E2e::from_env() else { return };
    let namespace = e2e.namespace(E2eCluster::Hub, "kcp").await;
    let client = e2e.client(E2eCluster::Hub).await;
    let service = Service::new(E2eCluster::Hub.name(), namespace.name(), client);
    // The engine has the other clusters of the suites as well, and perhaps the user's own.
    let clusters = || {
        let kind = KindProvider::builder().build().or_fail();
        layer::filter(kind, |spec| spec.name == E2eCluster::Hub.name())
    };
    let kcp = Kcp::start("sync").await;

    // A consumer that was there before, and one that joins while all runs. Their objects have the same name.
    let a = kcp.consumer("a", "root").await;
    a.create("db", 1).await;
    let operator = Operator::start(&kcp, &service, clusters());
    service.runs(&a, "db", 1).await;
    a.reports("db", 1).await;
    let b = kcp.consumer("b", "shard-1").await;
    b.create("db", 2).await;
    service.runs(&b, "db", 2).await;
    b.reports("db", 2).await;
    a.reports("db", 1).await;
    service.has(&[(&a, "db"), (&b, "db")]).await;
    operator.has(&[&a, &b]).await;

    // A change arrives, and what others change in the service cluster is put right.
    a.scale("db", 3).await;
    service.runs(&a, "db", 3).await;
    a.reports("db", 3).await;
    let changed = service.scale(&b, "db", 0).await.metadata.generation;
    service
        .run_by(&b, "db", 2, |now| now.metadata.generation > changed)
        .await;
    let deleted = service.runs(&b, "db", 2).await.metadata.uid;
    service.delete(&b, "db").await;
    let again = service
        .run_by(&b, "db", 2, |now| now.metadata.uid != deleted)
        .await;
    b.reports("db", 2).await;

    // A consumer that leaves takes its Deployments along, and the other does not notice.
    let in_b = operator.ready(&b.cluster()).await;
    a.unbind().await;
    service.has(&[(&b, "db")]).await;
    a.is_unbound().await;
    operator.has(&[&b]).await;
    assert!(operator.ready(&b.cluster()).await.is_same(&in_b));

    // A deletion that nobody saw.
    operator.stop().await;
    b.delete("db").await;
    b.create("other", 1).await;
    service
        .run_by(&b, "db", 2, |now| now.metadata.uid == again.metadata.uid)
        .await;
    let operator = Operator::start(&kcp, &service, clusters());
    b.has_no("db").await;
    b.reports("other", 1).await;
    service.has(&[(&b, "other")]).await;

    // The last consumer leaves, and the first comes back.
    b.unbind().await;
    b.is_unbound().await;
    operator.has(&[]).await;
    service.has(&[]).await;
    a.bind().await;
    a.create("db", 1).await;
    a.reports("db", 1).await;
    service.has(&[(&a, "db")]).await;
    operator.has(&[&a]).await;

    // Nothing of the workspaces is held any more when the operator has cleaned up.
    a.unbind().await;
    a.is_unbound().await;
    operator.stop().await;
    kcp.remove([a, b]).await;
    namespace.remove().await;
}
