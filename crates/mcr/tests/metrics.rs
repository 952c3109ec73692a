//! Metrics: their values, the lifetime of their series, their cost, and the table of docs/metrics.md.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/series.rs"]
mod series;
mod support;

use std::{
    collections::BTreeSet,
    fmt::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{
    Action, BoxError, BuiltController, Controller, ControllerHandle, Fleet, FleetReport, Request,
    metrics::{METRICS, MetricInfo, Metrics, MetricsOptions, PerCluster},
};
use series::Scrape;
use support::{World, until, until_true};

/// Succeeds, fails, panics or hangs, depending on the name of the object.
async fn by_name(request: Request<ConfigMap>, _: Arc<()>) -> Result<Action, BoxError> {
    match request.name() {
        "fails" => Err("no".into()),
        "panics" => panic!("at the disco"),
        "hangs" => std::future::pending().await,
        _ => Ok(Action::done()),
    }
}

fn maps(name: &str) -> BuiltController {
    Controller::<ConfigMap>::new(name)
        .timeout(Duration::from_secs(3600))
        .shutdown_grace(Duration::from_millis(200))
        .build(by_name, Arc::new(()))
        .unwrap()
}

fn metrics(fleet: &Fleet, controllers: &[ControllerHandle], per_cluster: PerCluster) -> Metrics {
    let options = MetricsOptions::default().per_cluster(per_cluster);
    Metrics::new(fleet, controllers.iter().cloned(), options)
}

fn scrape(metrics: &Metrics) -> Scrape {
    Scrape::parse(&metrics.text())
}

#[tokio::test(start_paused = true)]
async fn what_reconciles_come_to_is_counted() {
    let mut world = World::with_settings(|settings| settings.drain_grace = Duration::from_millis(50));
    let handle = world.run(maps("animals"));
    let berlin = world.join("berlin");
    for name in ["fine", "also-fine", "fails", "panics", "hangs"] {
        berlin.put_map(&format!("default/{name}"), "1");
    }
    let metrics = metrics(&world.fleet, std::slice::from_ref(&handle), PerCluster::default());
    let result = |scrape: &Scrape, result: &str| {
        let labels = [("controller", "animals"), ("result", result)];
        scrape.get("mcr_reconciles_total", &labels).unwrap()
    };
    let of = until(|| {
        let scrape = scrape(&metrics);
        let done = result(&scrape, "success") == 2.0
            && result(&scrape, "error") >= 1.0
            && result(&scrape, "panic") >= 1.0
            && scrape.get("mcr_reconciles_running", &[]) == Some(1.0);
        done.then_some(scrape)
    })
    .await;
    assert!(of.get("mcr_reconcile_retries_total", &[]).unwrap() >= 2.0);
    assert!(of.get("mcr_reconcile_longest_running_seconds", &[]).unwrap() > 0.0);
    assert!(of.get("mcr_store_bytes", &[("kind", "configmaps")]).unwrap() > 100.0);
    assert!(of.get("mcr_list_bytes_total", &[]).unwrap() > 10.0);
    assert!(of.get("mcr_cluster_last_event_age_seconds", &[]).unwrap() < 60.0);
    of.expect(&[
        ("mcr_controller_clusters", &[("gate", "open")], 1.0),
        ("mcr_clusters", &[("state", "Ready")], 1.0),
        ("mcr_store_objects", &[("kind", "configmaps")], 5.0),
        ("mcr_lists_total", &[], 1.0),
        ("mcr_cluster_objects", &[("cluster", "berlin")], 5.0),
        ("mcr_cluster_kinds_listed", &[("cluster", "berlin")], 1.0),
        (
            "mcr_cluster_state",
            &[("state", "Ready"), ("provider", "told")],
            1.0,
        ),
    ]);
    let longest = handle.status().queue.longest_running.unwrap();
    let longest = (longest.cluster.as_str(), longest.object.as_str());
    assert_eq!(longest, ("berlin", "default/hangs"));

    // The buckets add up to the reconciles that ended, and each reconcile that began has a measured wait.
    let count = of.get("mcr_reconcile_duration_seconds_count", &[]).unwrap();
    of.expect(&[("mcr_reconcile_duration_seconds_bucket", &[("le", "+Inf")], count)]);
    assert!(of.get("mcr_queue_wait_seconds_count", &[]).unwrap() >= count);

    // The cluster leaves: its hanging reconcile is aborted, the sums stay, and the series of the cluster end.
    berlin.forbid("configmaps");
    world.remove("berlin");
    let of = until(|| {
        let scrape = scrape(&metrics);
        (scrape.get("mcr_reconciles_running", &[]) == Some(0.0) && scrape.of_clusters().count() == 0)
            .then_some(scrape)
    })
    .await;
    of.expect(&[
        ("mcr_reconciles_total", &[("result", "aborted")], 1.0),
        ("mcr_reconciles_total", &[("result", "success")], 2.0),
        ("mcr_store_objects", &[("kind", "configmaps")], 0.0),
        ("mcr_cluster_state_transitions_total", &[("state", "Gone")], 1.0),
    ]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_cant_be_listed_shows() {
    let mut world = World::new();
    let handle = world.run(maps("animals"));
    world.join("berlin").forbid("configmaps");
    let metrics = metrics(&world.fleet, &[handle], PerCluster::default());
    let of = until(|| {
        let scrape = scrape(&metrics);
        (scrape.get("mcr_controller_clusters", &[("gate", "blocked")]) == Some(1.0)).then_some(scrape)
    })
    .await;
    of.expect(&[
        ("mcr_watches_blocked", &[("kind", "configmaps")], 1.0),
        ("mcr_watches_listed", &[("kind", "configmaps")], 0.0),
        ("mcr_cluster_kinds_blocked", &[("cluster", "berlin")], 1.0),
        ("mcr_watch_failures_total", &[("reason", "timeout")], 0.0),
    ]);
    let forbidden = of.get("mcr_watch_failures_total", &[("reason", "forbidden")]);
    assert!(forbidden.unwrap() >= 1.0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_rounds_of_joining_and_leaving_leave_no_series() {
    let mut world = World::new();
    let handle = world.run(maps("animals"));
    let stays = world.join("stays");
    stays.put_map("default/a", "1");
    until_true(|| handle.status().counts.successes == 1).await;
    let metrics = metrics(&world.fleet, &[handle], PerCluster::default());
    let (before, memory) = (scrape(&metrics), metrics.text().len());
    for round in 0..1000 {
        // Some names come back, others never do.
        let name = if round % 2 == 0 {
            "returns".to_owned()
        } else {
            format!("once-{round}")
        };
        world.join(&name);
        world.cluster(&name).await;
        if round % 50 == 0 {
            assert!(scrape(&metrics).of_cluster(&name).count() >= 7);
        }
        world.remove(&name);
        until_true(|| world.fleet.get(&name).is_err()).await;
    }
    until_true(|| world.fleet.snapshot().clusters.len() == 1).await;
    let after = scrape(&metrics);
    assert_eq!(after.series.len(), before.series.len());
    let of_one = |scrape: &Scrape| scrape.of_cluster("stays").count();
    assert_eq!(of_one(&after), of_one(&before));
    after.expect(&[(
        "mcr_cluster_state_transitions_total",
        &[("state", "Gone")],
        1000.0,
    )]);
    // Only the digits of counters may differ.
    assert!(metrics.text().len() < memory + 1000);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn series_of_clusters_are_capped_whole() {
    let world = World::new();
    let limited = metrics(&world.fleet, &[], PerCluster::Limit(2));
    let off = metrics(&world.fleet, &[], PerCluster::Off);
    let without = |metrics: &Metrics| scrape(metrics).get("mcr_clusters_without_series", &[]).unwrap();
    for name in ["a", "b"] {
        world.join(name);
        world.cluster(name).await;
    }
    assert_eq!(without(&limited), 0.0);
    assert!(scrape(&limited).of_cluster("a").count() > 5 && scrape(&limited).of_cluster("b").count() > 5);
    world.join("c");
    world.cluster("c").await;
    assert_eq!((without(&limited), without(&off)), (3.0, 3.0));
    let of_clusters = [&limited, &off].map(|metrics| scrape(metrics).of_clusters().count());
    assert_eq!(of_clusters, [0, 0]);
    // The metrics of the fleet are the same.
    scrape(&off).expect(&[(
        "mcr_cluster_state_transitions_total",
        &[("state", "Discovered")],
        3.0,
    )]);
    world.remove("a");
    until_true(|| world.fleet.snapshot().clusters.len() == 2).await;
    assert_eq!(without(&limited), 0.0);
    assert!(scrape(&limited).of_cluster("c").count() > 5);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn equal_names_never_make_a_series_twice() {
    let mut world = World::with_settings(|settings| settings.drain_grace = Duration::from_millis(200));
    let first = world.run(maps("same"));
    let second = world.run(maps("same"));
    let api = support::ApiAccess::default();
    api.put_map("default/hangs", "1");
    world.identify("berlin", &api, "one");
    let handles = [first.clone(), second];
    until_true(|| handles.iter().all(|handle| handle.status().queue.running == 1)).await;
    let metrics = metrics(&world.fleet, &handles, PerCluster::default());
    scrape(&metrics).expect(&[("mcr_reconciles_running", &[("controller", "same#2")], 1.0)]);
    // Another cluster takes the name while a reconcile of the first one does not end.
    world.identify("berlin", &api, "two");
    until_true(|| {
        let of = scrape(&metrics);
        let states = of
            .of_cluster("berlin")
            .filter(|series| series.name == "mcr_cluster_state");
        assert_eq!(states.count(), 1);
        let mut clusters = world.fleet.snapshot().clusters.into_iter();
        clusters.any(|cluster| cluster.identity.as_deref() == Some("two") && cluster.state == "Ready")
    })
    .await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scrapes_at_once_while_clusters_churn() {
    let mut world = World::new();
    let handle = world.run(maps("animals"));
    let of_one = std::slice::from_ref(&handle);
    let metrics = Arc::new(metrics(&world.fleet, of_one, PerCluster::default()));
    let done = Arc::new(AtomicBool::new(false));
    let scrapers: Vec<_> = (0..3)
        .map(|_| {
            let (metrics, done) = (metrics.clone(), done.clone());
            let (fleet, handle) = (world.fleet.clone(), handle.clone());
            std::thread::spawn(move || {
                let mut times = 0;
                while !done.load(Ordering::Relaxed) {
                    scrape(&metrics);
                    FleetReport::of(&fleet, std::slice::from_ref(&handle));
                    times += 1;
                }
                times
            })
        })
        .collect();
    for round in 0..60 {
        for name in ["a", "b", "c", "d"] {
            world.join(name).put_map("default/x", "1");
        }
        for name in ["a", "b", "c", "d"] {
            world.cluster(name).await;
            if round % 2 == 0 {
                world.remove(name);
            }
        }
        if round % 2 == 0 {
            until_true(|| world.fleet.clusters().is_empty()).await;
        }
    }
    done.store(true, Ordering::Relaxed);
    for scraper in scrapers {
        assert!(scraper.join().unwrap() > 0);
    }
    world.end().await;
}

/// A fleet of this many clusters, which it never dials.
async fn many(clusters: usize) -> (World, [ControllerHandle; 1]) {
    let mut world = World::new();
    let handle = world.run(maps("animals"));
    let api = support::ApiAccess::default();
    for i in 0..clusters {
        world.suspend(&format!("cluster-{i:04}"), &api);
    }
    until_true(|| handle.status().clusters.len() == clusters).await;
    (world, [handle])
}

/// A scrape of the clusters takes about as long as ten scrapes of five hundred clusters.
#[tokio::test(start_paused = true)]
async fn five_thousand_clusters_are_scraped_in_bounded_time() {
    const FEW: usize = 500;
    const MANY: usize = 5000;
    let ((few, handles_of_few), (many, handles_of_many)) = (many(FEW).await, many(MANY).await);
    let all_of_few = metrics(&few.fleet, &handles_of_few, PerCluster::Limit(MANY));
    let all_of_many = metrics(&many.fleet, &handles_of_many, PerCluster::Limit(MANY));
    type Work<'a> = &'a dyn Fn() -> usize;
    let text = |world: &World, handles: &[ControllerHandle]| {
        metrics(&world.fleet, handles, PerCluster::default()).text().len()
    };
    let report = |world: &World, handles: &[ControllerHandle]| {
        let report = FleetReport::of(&world.fleet, handles);
        serde_json::to_vec(&report).unwrap().len()
    };
    let texts: [Work<'_>; 2] = [&|| all_of_few.text().len(), &|| all_of_many.text().len()];
    let limited: [Work<'_>; 2] = [&|| text(&few, &handles_of_few), &|| text(&many, &handles_of_many)];
    let reports: [Work<'_>; 2] = [&|| report(&few, &handles_of_few), &|| {
        report(&many, &handles_of_many)
    }];
    let scrapes = [
        ("metrics with series for each", texts),
        ("metrics above the limit", limited),
        ("report as JSON", reports),
    ];
    let timed = |times: usize, work: Work<'_>| {
        let started = Instant::now();
        (0..times).for_each(|_| assert!(work() > 0));
        started.elapsed()
    };
    for (what, [of_few, of_many]) in scrapes {
        // The same work in both, in turns. The minimum of each counts, because other load only adds time.
        let (mut ten, mut one) = (Duration::MAX, Duration::MAX);
        for turn in 0..20 {
            ten = ten.min(timed(MANY / FEW, of_few));
            one = one.min(timed(1, of_many));
            if turn >= 2 && one < ten * 3 {
                break;
            }
        }
        let took = format!("{what}: {one:?} for {MANY} clusters, {ten:?} for {FEW} ten times");
        println!("{took}");
        assert!(one < ten * 3, "{took}");
    }
    let series = scrape(&all_of_many).of_clusters().count();
    assert!((MANY * 6..=MANY * 9).contains(&series), "{series}");
    few.end().await;
    many.end().await;
}

/// A fleet that never runs has metrics too, and needs no tokio runtime for them.
#[test]
fn a_fleet_that_does_not_run_has_metrics_of_its_own_and_of_the_program() {
    let fleet = Fleet::builder().build();
    let mut metrics = metrics(&fleet, &[], PerCluster::default());
    let mine = mcr::metrics::prometheus_client::metrics::counter::Counter::<u64>::default();
    metrics.registry_mut().register("mine", "Mine", mine.clone());
    mine.inc();
    assert_eq!(scrape(&metrics).get("mine_total", &[]), Some(1.0));
}

/// Prints the table if it differs. `MCR_BLESS=1` writes it to the documentation.
#[tokio::test(start_paused = true)]
async fn the_table_in_the_documentation_is_what_is_exposed() {
    let mut world = World::new();
    let handle = world.run(maps("animals"));
    let berlin = world.join("berlin");
    berlin.put_map("default/a", "1");
    until_true(|| handle.status().counts.successes == 1).await;
    let metrics = Metrics::new(&world.fleet, [handle], MetricsOptions::default());
    let scrape = Scrape::parse(&metrics.text());

    let described = METRICS.iter().map(|metric| {
        let name = metric.name.strip_suffix("_total").unwrap_or(metric.name);
        (name.to_owned(), metric.kind.as_str().to_owned())
    });
    assert_eq!(scrape.families, described.collect::<Vec<_>>());
    let mut seen = BTreeSet::new();
    for series in &scrape.series {
        let describes = |metric: &&MetricInfo| {
            let suffix = series.name.strip_prefix(metric.name);
            suffix.is_some_and(|suffix| ["", "_sum", "_count", "_bucket"].contains(&suffix))
        };
        let metric = METRICS.iter().find(describes).expect(&series.name);
        let labels = series.labels.keys().map(|key| &**key).filter(|key| *key != "le");
        let described: BTreeSet<&str> = metric.labels.iter().copied().collect();
        assert_eq!(labels.collect::<BTreeSet<_>>(), described, "{}", series.name);
        seen.insert(metric.name);
    }
    // There is no leader election. The cluster has a ready client, so the expiry of its credentials is unknown.
    let names = METRICS.iter().map(|metric| metric.name);
    let without: Vec<_> = names.filter(|name| !seen.contains(name)).collect();
    let expected = ["mcr_leader", "mcr_cluster_credential_expiry_timestamp_seconds"];
    assert_eq!(without, expected);
    // The names follow the rules of Prometheus, and each metric has a help text.
    for metric in METRICS {
        assert!(metric.name.starts_with("mcr_") && !metric.help.is_empty() && !metric.help.ends_with('.'));
        let is_counter = metric.kind.as_str() == "counter";
        assert_eq!(metric.name.ends_with("_total"), is_counter, "{}", metric.name);
    }

    let mut table = "| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for metric in METRICS {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, labels, help) = (metric.name, metric.kind.as_str(), labels.join(", "), metric.help);
        writeln!(table, "| `{name}` | {kind} | {labels} | {help} |").unwrap();
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (begin, end) = ("<!-- table -->\n\n", "\n<!-- end -->");
    let (before, rest) = text.split_once(begin).expect("the place of the table");
    let (is, after) = rest.split_once(end).expect("the end of the table");
    if std::env::var_os("MCR_BLESS").is_some() {
        std::fs::write(page, format!("{before}{begin}{table}{end}{after}")).unwrap();
    } else {
        assert_eq!(is, table, "MCR_BLESS=1 writes what is exposed to docs/metrics.md");
    }
    world.end().await;
}
