//! A fleet without clusters, and a controller that selects none of them, are explained in the log.

use std::{sync::Arc, time::Duration};

use crate::support::{World, maps::keys, sleep, until_true};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mcr::{
    ClusterSelector, Controller, Fleet, ObjectKey, Provider, WatchOptions, Watched,
    core::{Change, Discovery},
    layer,
};
use mcr_provider_file::FileProvider;
use mcr_testkit::log::Log;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Level;

#[tokio::test(start_paused = true)]
async fn a_controller_that_selects_no_cluster_reports_so_once() {
    let log = Log::of_this_thread(Level::WARN);
    let announced = || log.lines_with("the controller selects 0 of");
    let mut world = World::new();
    let production = Controller::<ConfigMap>::new("hello").clusters(ClusterSelector::label("env", "prod"));
    world.run(production.build(keys, Arc::default()).unwrap());
    // Without clusters only the fleet warns.
    until_true(|| log.lines_with("the fleet has no clusters").len() == 1).await;
    assert_eq!(announced(), Vec::<String>::new());
    let (a, b) = (world.join("a"), world.join("b"));
    world.add("b", &b, &[("env", "dev")]);
    let began = Instant::now();
    until_true(|| announced().len() == 1).await;
    assert!(began.elapsed() >= Duration::from_secs(10));
    let line = &announced()[0];
    let expected = "the controller selects 0 of 2 clusters after 10 s, so it does nothing in them: compare its selector with the \
                    names, providers and labels of the clusters controller=hello selector=env=prod example=cluster a of provider \
                    told with labels {}";
    assert!(line.ends_with(expected), "{line}");
    // Once, whatever happens to clusters that are not selected.
    world.add("b", &b, &[("env", "test")]);
    world.join("c");
    sleep(60_000).await;
    assert_eq!(announced().len(), 1);
    // Silent while a cluster is selected.
    world.add("a", &a, &[("env", "prod")]);
    until_true(|| a.watches() == 1).await;
    world.add("b", &b, &[]);
    sleep(60_000).await;
    assert_eq!(announced().len(), 1);
    // That cluster leaves the controller: none is selected again.
    world.add("a", &a, &[]);
    until_true(|| announced().len() == 2).await;
    assert!(announced()[1].contains("selects 0 of 3 clusters"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_gets_its_cluster_in_time_or_wants_only_the_hub_reports_nothing() {
    let log = Log::of_this_thread(Level::WARN);
    let mut world = World::new();
    let late = Controller::<ConfigMap>::new("late").clusters(ClusterSelector::label("env", "prod"));
    world.run(late.build(keys, Arc::default()).unwrap());
    let hub = Controller::named("hub").watches_with(
        &(),
        |secret: Watched<Secret>| ObjectKey::of(&*secret.object),
        WatchOptions::new().clusters(ClusterSelector::hub()),
    );
    world.run(hub.build(keys, Arc::default()).unwrap());
    let hub = world.join("hub");
    until_true(|| hub.watches() == 1).await;
    sleep(9_000).await;
    world.add("hub", &hub, &[("env", "prod")]);
    until_true(|| hub.watches() == 2).await;
    sleep(60_000).await;
    assert_eq!(log.lines_with("selects 0 of"), Vec::<String>::new());
    world.end().await;
}

/// Finds no cluster, and describes where it has searched.
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
    sleep(9_000).await;
    assert_eq!(announced(), Vec::<String>::new());
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
    let world = World::new();
    world.join("a");
    sleep(11_000).await;
    assert_eq!(announced().len(), 3, "not where there are clusters");
    world.end().await;
}
