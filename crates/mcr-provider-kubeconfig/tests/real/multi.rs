//! As a child of `mcr-provider-multi`.

use mcr_provider_multi::MultiProvider;
use mcr_testkit::{control_plane::Etcd, waiting::OrFail};

use crate::harness::{Hub, Running, create, is_fed, planes};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_32_and_33_as_a_child_of_multi_with_an_index_that_was_there_before() {
    let etcd = Etcd::start().await.or_fail();
    let [hub, remote] = planes(&etcd).await;
    let hub = Hub::new(hub, "multi").await;
    create(&remote, "robinson", "human").await;
    create(&remote, "parrot", "animal").await;
    let multi = MultiProvider::builder().build().or_fail();
    let children = multi.handle();
    let running = Running::start(multi);

    // P-32: added while all runs, and its Secret after it.
    children
        .add_as("kc", hub.provider().await.build().or_fail())
        .or_fail();
    hub.put("remote", remote.kubeconfig()).await;
    let cluster = running.ready("kc#remote").await;
    assert_eq!(cluster.provider(), "kc");
    is_fed(&remote, "parrot").await;
    // P-33: an index registered before either.
    assert_eq!(running.humans("kc#remote").await, ["robinson"]);
    assert!(children.remove("kc"));
    running.names_are(&[]).await;
    running.stop().await;
}
