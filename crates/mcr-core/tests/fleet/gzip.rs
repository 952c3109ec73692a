//! Lists that a real API server compresses.

use std::sync::{Arc, Mutex};

use http::{Response, header::CONTENT_ENCODING};
use mcr_client::ResponseBody;
use mcr_core::{Fleet, TransportLayer};
use mcr_testkit::{control_plane::ControlPlane, waiting::Background};
use tower::util::MapResponseLayer;

use crate::{common::provider, harness::*};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_api_server_compresses_a_large_list_and_no_watch() {
    let plane = ControlPlane::start().await.or_fail();
    let name = |number| format!("{number}.{}", "name".repeat(50));
    for number in 0..600 {
        create(&plane, &name(number)).await;
    }
    let compressed = Arc::<Mutex<Vec<bool>>>::default();
    let noted = compressed.clone();
    let (clusters, provider) = provider::announced(true);
    let fleet = Fleet::builder().provider(provider);
    let fleet = fleet.transport(|transport| transport.gzip_lists = true);
    let fleet = fleet.transport_layer(move |_| {
        let noted = noted.clone();
        TransportLayer::new(MapResponseLayer::new(move |response: Response<ResponseBody>| {
            noted
                .lock()
                .or_fail()
                .push(response.headers().contains_key(CONTENT_ENCODING));
            response
        }))
    });
    let fleet = fleet.build();
    let runs = fleet.clone();
    let running = Background::start(|stop| async move { runs.run(stop).await });
    clusters.add(spec("a", &plane.kubeconfig()));
    let cluster = eventually(SOON, "it is engaged", || fleet.get("a").ok()).await;
    let (_watch, log) = watch_config_maps(&cluster);
    let last = format!("+{}", name(599));
    eventually(SOON, "it is listed", || log.has(&last)).await;
    create(&plane, "later").await;
    eventually(SOON, "the watch goes on", || log.has("+later")).await;
    let mut compressed = compressed.lock().or_fail().clone();
    compressed.retain(|compressed| *compressed);
    assert_eq!(compressed.len(), 1);
    running.stop().await;
}
