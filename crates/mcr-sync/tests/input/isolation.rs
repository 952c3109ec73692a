//! A target cluster that is silent, away or refuses holds neither other places of a source nor other sources.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
use mcr::{Cluster, ClusterName, ClusterSelector, Fleet};
use mcr_sync::Related;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    gate::{Gate, Silence},
    world::{LIMIT, WIDGETS, Widgets, World, allow, cluster, crd, is_gone, is_there, spec, sync, widget},
};

/// A sync to the clusters in the spec of each source.
fn placed() -> Widgets {
    let targets = ClusterSelector::label("role", "target");
    sync().place(targets, |source: &DynamicObject, _: &Cluster, _: &Fleet| {
        let at = source.data["spec"]["at"].as_array().into_iter().flatten();
        at.filter_map(|at| ClusterName::new(at.as_str()?).ok()).collect()
    })
}

/// So many sources with a target in both clusters, so many with one in berlin, and one with one in lyon. Then berlin is silent, and all of
/// them change.
async fn lyon_is_served_while_berlin_is_silent(silence: Silence, both: usize, berlin: usize) {
    let mut world = World::new();
    let at = |name: &str| match name.strip_prefix("both") {
        Some(_) => json!(["berlin", "lyon"]),
        None if name == "lyon" => json!(["lyon"]),
        None => json!(["berlin"]),
    };
    // The source of lyon alone is the last one to change.
    let names: Vec<String> = (0..berlin).map(|i| format!("berlin-{i}")).collect();
    let names = names.into_iter().chain((0..both).map(|i| format!("both-{i}")));
    let names: Vec<String> = names.chain(["lyon".to_owned()]).collect();
    for name in &names {
        let spec = json!({"size": 1, "at": at(name)});
        world.team.create(widget("default", name, spec)).unwrap();
    }
    let gate = Gate::default();
    world.start_with(placed().build().unwrap(), [gate.before(&world.berlin, "target")]);
    let has = |cluster: &mcr_testkit::sim::SimCluster, size: u64| {
        let all = cluster.list(WIDGETS, "default");
        all.iter().filter(|widget| widget["spec"]["size"] == size).count()
    };
    while has(&world.berlin, 1) + has(&world.lyon, 1) < 2 * both + berlin + 1 {
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(60)).await;

    gate.silence(silence);
    for name in &names {
        world.edit(name, json!({"size": 2, "at": at(name)}));
    }
    let began = Instant::now();
    while has(&world.lyon, 2) < both + 1 {
        sleep(Duration::from_millis(100)).await;
        assert!(began.elapsed() < LIMIT, "{} of {both}", has(&world.lyon, 2));
    }
    let (took, unanswered) = (began.elapsed(), gate.unanswered());
    assert!(
        took < Duration::from_secs(3),
        "{silence:?}: {took:?}, {unanswered} requests without an answer"
    );
    assert!(
        unanswered <= 10,
        "{silence:?}: {unanswered} requests without an answer"
    );
    assert_eq!(has(&world.berlin, 2), 0);
    sleep(Duration::from_secs(30)).await;
    let (reason, message) = world.condition(&names[0]).unwrap();
    assert!(
        ["NoAnswer", "ClusterAway"].contains(&&*reason) && message.contains("berlin"),
        "{reason}: {message}"
    );

    gate.silence(Silence::None);
    let began = Instant::now();
    while has(&world.berlin, 2) < both + berlin {
        sleep(Duration::from_secs(1)).await;
        assert!(
            began.elapsed() < LIMIT,
            "{} of {}",
            has(&world.berlin, 2),
            both + berlin
        );
    }
    world.told(&names[0], "Synced").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_target_cluster_that_is_silent_holds_no_other_place_and_no_other_source() {
    lyon_is_served_while_berlin_is_silent(Silence::Writes, 200, 0).await;
    lyon_is_served_while_berlin_is_silent(Silence::All, 40, 0).await;
    for silence in [Silence::Writes, Silence::All] {
        lyon_is_served_while_berlin_is_silent(silence, 0, 20).await;
    }
}

#[tokio::test(start_paused = true)]
async fn sync_target_that_must_go_goes_while_another_cluster_is_away_unless_it_is_replaced_there() {
    let away: [fn(&World, &Gate); 2] = [
        |_, gate| gate.silence(Silence::All),
        |world, _| allow(&world.berlin, &["get", "list", "watch"]),
    ];
    for (begin, refuses) in away.into_iter().zip([false, true]) {
        let mut world = World::new();
        for (name, at) in [("stays", json!(["berlin", "lyon"])), ("moves", json!(["lyon"]))] {
            world
                .team
                .create(widget("default", name, json!({"size": 1, "at": at})))
                .unwrap();
        }
        let gate = Gate::default();
        let berlin = if refuses {
            spec(&world.berlin, "target")
        } else {
            gate.before(&world.berlin, "target")
        };
        world.start_with(placed().build().unwrap(), [berlin]);
        for name in ["stays", "moves"] {
            is_there(&world.lyon, &format!("default/{name}"), 1).await;
        }
        is_there(&world.berlin, "default/stays", 1).await;
        begin(&world, &gate);
        for name in ["stays", "moves"] {
            world.edit(name, json!({"size": 1, "at": ["berlin"]}));
        }
        is_gone(&world.lyon, "default/stays").await;
        sleep(Duration::from_secs(300)).await;
        is_there(&world.lyon, "default/moves", 1).await;
        let recorded = |name: &str| {
            let source = world.team.get(WIDGETS, &format!("default/{name}")).unwrap();
            source["metadata"]["annotations"]["sync.mcr.dev/placed.widgets"].clone()
        };
        assert!(!recorded("stays").to_string().contains("lyon"));
        assert!(recorded("moves").to_string().contains("lyon"));
        gate.silence(Silence::None);
        allow(&world.berlin, &["*"]);
        is_gone(&world.lyon, "default/moves").await;
        is_there(&world.berlin, "default/moves", 1).await;
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn sync_cluster_that_joins_does_not_wait_for_the_back_off_of_another() {
    for slow in [5, 20] {
        let mut world = World::new();
        world
            .team
            .create(widget("default", "w", json!({"size": 1})))
            .unwrap();
        allow(&world.berlin, &["get", "list", "watch"]);
        world.start(sync().to_each(ClusterSelector::label("role", "target")));
        is_there(&world.lyon, "default/w", 1).await;
        sleep(Duration::from_secs(7200)).await;
        let paris = cluster("paris");
        paris.create(crd()).unwrap();
        let gate = Gate::default();
        gate.slow_lists(Duration::from_secs(slow));
        let began = Instant::now();
        world.clusters.add(gate.before(&paris, "target"));
        is_there(&paris, "default/w", 1).await;
        assert!(
            began.elapsed() < Duration::from_secs(slow + 5),
            "{:?}",
            began.elapsed()
        );
        world.stop().await;
    }
}

/// The looks at one source until it has a target, and a copy of a related object, in each of so many clusters.
async fn looks_at(clusters: usize) -> usize {
    let mut world = World::new();
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = looks.clone();
    let count = move |_: &DynamicObject| {
        counted.fetch_add(1, Ordering::Relaxed);
        true
    };
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s", "namespace": "default"}});
    world.team.create(map).unwrap();
    let each = sync().to_each(ClusterSelector::label("role", "target"));
    let related = Related::<_, _, ConfigMap>::down("settings").named(|_, _| Some("s"));
    world.start(each.filter(count).related(related));
    let all: Vec<_> = (0..clusters).map(|at| cluster(&format!("c{at:03}"))).collect();
    for one in &all {
        one.create(crd()).unwrap();
        world.clusters.add(spec(one, "target"));
    }
    sleep(Duration::from_secs(60)).await;
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    for one in &all {
        is_there(one, "default/w", 1).await;
        assert_eq!(
            one.list("configmaps", "default").len(),
            1,
            "a copy in {}",
            one.name()
        );
    }
    world.told("w", "Synced").await;
    sleep(Duration::from_secs(60)).await;
    world.stop().await;
    looks.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn sync_source_in_many_clusters_is_looked_at_no_more_often_than_one_in_few() {
    let (few, many) = (looks_at(25).await, looks_at(100).await);
    assert!(
        10 * many <= 13 * few,
        "{few} looks for 25 clusters, {many} for 100"
    );
}
