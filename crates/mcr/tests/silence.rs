//! A controller that selects none of the clusters says so.
#![allow(clippy::unwrap_used)]

mod support;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mcr::{BoxError, ClusterSelector, Controller, ObjectKey, Request, WatchOptions, Watched};
use mcr_testkit::log::Log;
use support::{World, sleep, until_true};
use tokio::time::Instant;
use tracing::Level;

async fn nothing<K>(_: Request<K>, _: Arc<()>) -> Result<(), BoxError> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_selects_no_cluster_reports_so_once() {
    let log = Log::of_this_thread(Level::WARN);
    let announced = || log.lines_with("the controller selects 0 of");
    let mut world = World::new();
    let production = Controller::<ConfigMap>::new("hello").clusters(ClusterSelector::label("env", "prod"));
    world.run(production.build(nothing, Arc::new(())).unwrap());
    // Without clusters only the fleet warns.
    until_true(|| log.lines_with("the fleet has no clusters").len() == 1).await;
    assert_eq!(announced(), Vec::<String>::new());
    let (a, b) = (world.join("a"), world.join("b"));
    world.add("b", &b, &[("env", "dev")]);
    let began = Instant::now();
    until_true(|| announced().len() == 1).await;
    assert!(
        began.elapsed() >= Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    assert!(
        announced()[0].ends_with(
            "the controller selects 0 of 2 clusters after 10 s, so it does nothing in them: compare its selector with the \
             names, providers and labels of the clusters controller=hello selector=env=prod example=cluster a of provider \
             told with labels {}"
        ),
        "{}",
        announced()[0]
    );
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
    assert!(
        announced()[1].contains("selects 0 of 3 clusters"),
        "{}",
        announced()[1]
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_gets_its_cluster_in_time_or_wants_only_the_hub_reports_nothing() {
    let log = Log::of_this_thread(Level::WARN);
    let mut world = World::new();
    let late = Controller::<ConfigMap>::new("late").clusters(ClusterSelector::label("env", "prod"));
    world.run(late.build(nothing, Arc::new(())).unwrap());
    let hub = Controller::named("hub").watches_with(
        &(),
        |secret: Watched<Secret>| ObjectKey::of(&*secret.object),
        WatchOptions::new().clusters(ClusterSelector::hub()),
    );
    world.run(hub.build(nothing::<()>, Arc::new(())).unwrap());
    let hub = world.join("hub");
    until_true(|| hub.watches() == 1).await;
    sleep(9_000).await;
    world.add("hub", &hub, &[("env", "prod")]);
    until_true(|| hub.watches() == 2).await;
    sleep(60_000).await;
    assert_eq!(log.lines_with("selects 0 of"), Vec::<String>::new());
    world.end().await;
}
