//! A fleet without clusters says where its providers looked.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use futures::{StreamExt, stream};
use mcr::{
    Fleet, Provider,
    core::{Change, Discovery},
    layer,
};
use mcr_provider_file::FileProvider;
use mcr_testkit::log::Log;
use support::until_true;
use tokio_util::sync::CancellationToken;
use tracing::Level;

/// Finds no cluster, and says where it looked.
struct Nowhere;

impl Provider for Nowhere {
    fn name(&self) -> &str {
        "nowhere"
    }
    fn discover(&self, stop: CancellationToken) -> Discovery {
        let idle = stream::pending().take_until(stop.cancelled_owned());
        stream::iter([Ok(Change::Synced)]).chain(idle).boxed()
    }
    fn searched(&self) -> String {
        "under the carpet".to_owned()
    }
}

/// A provider whose text is a bug.
struct Sick;

impl Provider for Sick {
    fn name(&self) -> &str {
        "sick"
    }
    fn discover(&self, stop: CancellationToken) -> Discovery {
        Nowhere.discover(stop)
    }
    fn searched(&self) -> String {
        panic!("no text")
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_without_clusters_reports_which_sources_its_providers_read() {
    let log = Log::of_this_thread(Level::WARN);
    let folder = tempfile::tempdir().unwrap();
    let kept = layer::filter(layer::prefix("p#", Arc::new(Nowhere)), |_| true);
    let children = [Box::new(Nowhere) as Box<dyn Provider>, Box::new(kept)];
    let fleet = Fleet::builder()
        .provider(Sick)
        .provider(Box::new(layer::merge("all", children)))
        .provider(FileProvider::builder().dir(folder.path()).build().unwrap())
        .build();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (fleet, stop) = (fleet.clone(), stop.clone());
        async move { fleet.run(stop).await }
    });
    let announced = || log.lines_with("the fleet has no clusters after 10 s");
    until_true(|| announced().len() == 3).await;
    for (line, expected) in announced().iter().zip([
        "provider=sick state=it has found none broken=0".to_owned(),
        "provider=all state=it has found none searched=nowhere: under the carpet; nowhere: what layer::filter keeps of: \
         under the carpet broken=0"
            .to_owned(),
        format!(
            "provider=file state=it has found none searched=folder {:?} for files named kubeconfig.yaml, kubeconfig.yml, \
             *.kubeconfig, *.kubeconfig.yaml, *.kubeconfig.yml (from: options). To add clusters, put kubeconfigs with \
             contexts there, or give other files or folders to the provider broken=0",
            folder.path()
        ),
    ]) {
        assert!(line.ends_with(&expected), "{line}\nis not\n{expected}");
    }
    stop.cancel();
    running.await.unwrap();
}
