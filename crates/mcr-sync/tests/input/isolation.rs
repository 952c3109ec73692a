//! A target cluster that is silent, away or refuses holds neither other places of a source nor other sources.

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::ClusterName;
use mcr_sync::{NameTemplate, Related};
use tokio::sync::Semaphore;

use crate::world::{
    gate::{Gate, Silence},
    widgets::*,
};

/// A sync to the clusters in the spec of each source.
fn placed() -> Widgets {
    sync().place(targets(), |source, _, _| {
        let at = source.data["spec"]["at"].as_array().into_iter().flatten();
        at.filter_map(|at| ClusterName::new(at.as_str()?).ok()).collect()
    })
}

/// How many Widgets of this size there are.
fn how_many(cluster: &SimCluster, size: u64) -> usize {
    let all = cluster.list(WIDGETS, "default");
    all.iter().filter(|widget| widget["spec"]["size"] == size).count()
}

/// Waits until there are so many of this size. Returns how long it took.
async fn are_there(cluster: &SimCluster, wanted: usize, size: u64) -> Duration {
    let began = Instant::now();
    while how_many(cluster, size) < wanted {
        sleep(Duration::from_millis(500)).await;
        let now = how_many(cluster, size);
        assert!(began.elapsed() < secs(600), "{now} of {wanted}");
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn sync_target_cluster_that_is_silent_holds_no_other_place_and_no_other_source() {
    for (silence, both) in [(Silence::Writes, 100), (Silence::All, 40)] {
        let mut world = World::with(&[]);
        // 20 sources have a target in berlin alone, and the last one to change in lyon alone.
        let last = 20 + both;
        for source in 0..=last {
            let at = match source {
                0..20 => json!(["berlin"]),
                _ if source < last => json!(["berlin", "lyon"]),
                _ => json!(["lyon"]),
            };
            make(&world.team_a, &source.to_string(), json!({"size": 1, "at": at}));
        }
        world.begin(placed());
        are_there(&world.berlin, last, 1).await;
        are_there(&world.lyon, both + 1, 1).await;
        sleep(secs(60)).await;

        world.berlin_gate.now().silence = silence;
        for source in 0..=last {
            world.size(&source.to_string(), 2);
        }
        let took = are_there(&world.lyon, both + 1, 2).await;
        let unanswered = world.berlin_gate.now().unanswered;
        assert!(
            took < secs(3) && unanswered <= 10,
            "{silence:?}: {took:?}, {unanswered} unanswered"
        );
        assert_eq!(how_many(&world.berlin, 2), 0);
        sleep(secs(30)).await;
        let (reason, message) = world.condition("0").unwrap();
        has("NoAnswer ClusterAway", &[&reason]);
        has(&message, &["berlin"]);

        world.berlin_gate.now().silence = Silence::None;
        are_there(&world.berlin, last, 2).await;
        world.synced("0").await;
    }
}

#[tokio::test(start_paused = true)]
async fn sync_target_that_must_go_goes_while_another_cluster_is_away_unless_it_is_replaced_there() {
    for refuses in [false, true] {
        let mut world = World::with(&[]);
        world.begin(placed());
        for (source, at) in [("stays", vec!["berlin", "lyon"]), ("moves", vec!["lyon"])] {
            make(&world.team_a, source, json!({"size": 1, "at": at}));
            world.synced(source).await;
        }
        if refuses {
            allow(&world.berlin, &["get", "list", "watch"])
        } else {
            world.berlin_gate.now().silence = Silence::All
        }
        for source in ["stays", "moves"] {
            set(&world.team_a, source, &["spec", "at"], json!(["berlin"]));
        }
        is_gone(&world.lyon, "stays").await;
        sleep(secs(300)).await;
        assert!(get(&world.lyon, "moves").is_some());
        for (source, is_recorded) in [("stays", false), ("moves", true)] {
            let record = &get(&world.team_a, source).unwrap()["metadata"]["annotations"][RECORD];
            assert_eq!(record.to_string().contains("lyon"), is_recorded, "{source}");
        }
        world.berlin_gate.now().silence = Silence::None;
        allow(&world.berlin, &["*"]);
        is_gone(&world.lyon, "moves").await;
        is_there(&world.berlin, "moves", 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn sync_cluster_that_joins_does_not_wait_for_the_back_off_of_another() {
    for slow in [5, 20] {
        let mut world = World::with(&["w"]);
        allow(&world.berlin, &["get", "list", "watch"]);
        world.begin(to_each());
        is_there(&world.lyon, "w", 1).await;
        sleep(secs(7200)).await;
        let (paris, gate) = (cluster("paris"), Gate::default());
        gate.now().slowness = secs(slow);
        let began = Instant::now();
        world.clusters.add(gate.before(&paris, "target"));
        is_there(&paris, "w", 1).await;
        assert!(began.elapsed() < secs(slow + 5), "{:?}", began.elapsed());
    }
}

/// The time in which 100 source clusters with 10 sources each get their targets, while another one has so many sources.
async fn small_clusters_take(beside: usize) -> Duration {
    let mut world = World::with(&[]);
    for source in 0..beside {
        make(&world.team_a, &source.to_string(), json!({"size": 2}));
    }
    world.berlin_gate.now().workers = Some(Arc::new(Semaphore::new(4)));
    world.begin(sync().name_by(NameTemplate::parse("{cluster}-{name}").unwrap()));
    is_there(&world.berlin, "team-a-100", 2).await;
    let small: Vec<_> = (0..100).map(|at| cluster(&format!("small-{at}"))).collect();
    let began = Instant::now();
    for one in &small {
        for source in 0..10 {
            make(one, &source.to_string(), json!({"size": 1}));
        }
        world.clusters.add(spec(one, "source"));
    }
    for (at, source) in (0..100).flat_map(|at| (0..10).map(move |source| (at, source))) {
        is_there(&world.berlin, &format!("small-{at}-{source}"), 1).await;
    }
    // The large one is still at work.
    assert!(beside < 500 || how_many(&world.berlin, 2) < beside);
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn sync_source_cluster_with_many_sources_does_not_hold_those_of_small_clusters() {
    let (alone, beside) = (small_clusters_take(101).await, small_clusters_take(500).await);
    assert!(beside < 2 * alone, "{alone:?} alone, {beside:?} beside it");
}

/// The reconciles at one source until it has a target, and a copy of a related object, in each of so many clusters.
async fn reconciles_of(clusters: usize) -> usize {
    let mut world = World::with(&[]);
    world.team_a.create(map("s", json!({}))).unwrap();
    let related = Related::<_, _, ConfigMap>::down("settings").named(|_, _| Some("s"));
    let (sync, reconciles) = counted(to_each().related(related));
    world.begin(sync);
    let all: Vec<_> = (0..clusters).map(|at| cluster(&format!("c{at:03}"))).collect();
    for one in &all {
        world.clusters.add(spec(one, "target"));
    }
    sleep(secs(60)).await;
    make(&world.team_a, "w", json!({"size": 1}));
    for one in &all {
        is_there(one, "w", 1).await;
        assert_eq!(one.list("configmaps", "default").len(), 1, "{}", one.name());
    }
    world.synced("w").await;
    sleep(secs(60)).await;
    world.stop().await;
    reconciles.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn sync_source_in_many_clusters_is_reconciled_no_more_often_than_one_in_few() {
    let (few, many) = (reconciles_of(25).await, reconciles_of(100).await);
    assert!(10 * many <= 13 * few, "{few} reconciles, and {many}");
}
