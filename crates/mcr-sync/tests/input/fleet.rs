//! Which events of the fleet lead to a reconcile of the sources.

use crate::world::{gate::Silence, widgets::*};

/// The reconciles at sources since the last call. Time goes on only when every task waits, so all that is ready has run.
async fn now(reconciles: &AtomicUsize) -> usize {
    sleep(secs(300)).await;
    reconciles.swap(0, Ordering::Relaxed)
}

/// A sync to these clusters, and the number of its reconciles.
fn placed(at: &'static [&str]) -> (Widgets, Arc<AtomicUsize>) {
    let place = move |_: &DynamicObject, _: &_, _: &_| at.iter().map(|at| name(at)).collect();
    counted(sync().place(targets(), place))
}

#[tokio::test(start_paused = true)]
async fn sync_event_of_the_fleet_leads_to_a_look_at_the_sources_that_it_may_move_and_at_no_others() {
    let (sync, reconciles) = placed(&["berlin"]);
    let world = World::of(&["a"], sync).await;
    make(&world.team_b, "b", json!({"size": 1}));
    is_there(&world.berlin, "b", 1).await;
    let [berlin, team] = [spec(&world.berlin, "target"), spec(&world.team_a, "source")];
    world.clusters.add(berlin.clone());
    world.clusters.add(team.clone());
    now(&reconciles).await;
    let large = |spec: &ClusterSpec| spec.clone().label("size", "large");
    // A cluster that is no target, and has no sources.
    let paris = spec(&cluster("paris"), "bystander");
    for (what, wanted, spec) in [
        ("it joins", 0, paris.clone()),
        ("its labels", 0, large(&paris)),
        // The placement may read labels and properties.
        ("the labels of a target cluster", 2, large(&berlin)),
        ("its properties", 2, large(&berlin).property("size", "large")),
        ("the source of a cluster with other labels", 1, large(&team)),
    ] {
        world.clusters.add(spec);
        assert_eq!(now(&reconciles).await, wanted, "{what}");
    }
    for (cluster, wanted) in [("paris", 0), ("lyon", 2)] {
        world.clusters.remove(cluster);
        assert_eq!(now(&reconciles).await, wanted, "{cluster} leaves");
    }
}

#[tokio::test(start_paused = true)]
async fn sync_to_each_does_not_look_at_the_sources_for_labels_that_select_the_same_clusters() {
    let (sync, reconciles) = counted(to_each());
    let world = World::of(&["w"], sync).await;
    let lyon = spec(&world.lyon, "target");
    world.clusters.add(lyon.clone());
    now(&reconciles).await;
    let large = lyon.label("size", "large").property("nodes", "7");
    world.clusters.add(large);
    assert_eq!(now(&reconciles).await, 0);
}

#[tokio::test(start_paused = true)]
async fn sync_target_that_was_given_up_stays_if_its_cluster_is_back_before_the_deletion_is_seen() {
    let world = World::of(&["w"], sync()).await;
    world.clusters.remove("berlin");
    world.reported("w", "ClusterAway", "").await;
    world.team_gate.now().lag = secs(60);
    give_up(&world.team_a, "w");
    world.ends("w").await;
    world.clusters.add(spec(&world.berlin, "target"));
    sleep(secs(300)).await;
    assert!(get(&world.berlin, "w").is_some());
}

#[tokio::test(start_paused = true)]
async fn sync_source_of_a_watch_with_a_selector_is_reported_when_its_target_cluster_or_it_has_left() {
    let mut world = World::with(&["w"]);
    world.begin_with(limited(sync()));
    world.synced("w").await;
    world.clusters.remove("berlin");
    world.reported("w", "ClusterAway", "berlin").await;
    world.clusters.add(spec(&world.berlin, "target"));
    world.synced("w").await;
    let label = ["metadata", "labels", "copy"];
    set(&world.team_a, "w", &label, "no");
    let words = "cluster://team-a/default/w is no longer in the watch of the sync, \
        and still has the finalizer sync.mcr.dev/widgets";
    world.waits(words).await;
    assert!(get(&world.berlin, "w").is_some());
    set(&world.team_a, "w", &label, "yes");
    world.ends("w").await;
    is_gone(&world.berlin, "w").await;
}

#[tokio::test(start_paused = true)]
async fn sync_cluster_that_is_away_costs_no_look_until_it_is_back() {
    let mut world = World::with(&[]);
    let sources: Vec<String> = (0..20).map(|at| format!("w{at}")).collect();
    let (sync, reconciles) = placed(&["berlin", "lyon", "paris"]);
    world.begin(sync);
    for source in &sources {
        make(&world.team_a, source, json!({"size": 1}));
        is_there(&world.berlin, source, 1).await;
        is_there(&world.lyon, source, 1).await;
    }
    // Paris is not in the fleet, lyon leaves it, and berlin is unreachable.
    world.clusters.remove("lyon");
    world.berlin_gate.now().silence = Silence::All;
    world.size("w0", 2);
    sleep(secs(600)).await;
    now(&reconciles).await;
    sleep(secs(3600)).await;
    assert_eq!(now(&reconciles).await, 0, "in an hour of rest");
    world.berlin_gate.now().silence = Silence::None;
    is_there(&world.berlin, "w0", 2).await;
    let paris = cluster("paris");
    for back in [&world.lyon, &paris] {
        world.clusters.add(spec(back, "target"));
        is_there(back, "w0", 2).await;
    }
    world.synced("w19").await;
}

/// Adds `berlin` under another name, which waits beside it.
async fn add_again(world: &World) {
    let mut again = spec(&world.berlin, "target");
    again.name = name("berlin-again");
    world.clusters.add(again);
    sleep(secs(60)).await;
}

/// Writes these clusters into the record of the source `w`.
fn record(world: &World, clusters: &[&str]) {
    let places = clusters.iter().map(|at| json!([at, "default", "w"]));
    annotate(&world.team_a, "w", RECORD, &places.collect::<Value>().to_string());
}

#[tokio::test(start_paused = true)]
async fn sync_another_name_of_a_cluster_is_no_place() {
    let world = World::of(&["v"], to_each()).await;
    add_again(&world).await;
    make(&world.team_a, "w", json!({"size": 1}));
    world.synced("w").await;
    // It had targets before it was known to be another name.
    record(&world, &["berlin", "berlin-again", "lyon"]);
    let record = || get(&world.team_a, "w").unwrap()["metadata"]["annotations"][RECORD].to_string();
    until("a record without the other name", || !record().contains("again")).await;
    world.synced("w").await;
    assert_eq!(count(&world.berlin, "delete"), 0);
    for source in ["v", "w"] {
        world.ends(source).await;
        assert!(get(&world.berlin, source).is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn sync_former_place_under_another_name_of_a_cluster_is_cleaned_up_in_the_cluster() {
    let world = World::of(&["w"], sync().to(name("lyon"))).await;
    add_again(&world).await;
    let target = anew(&get(&world.lyon, "w").unwrap());
    world.berlin.create(target).unwrap();
    record(&world, &["berlin-again", "lyon"]);
    is_gone(&world.berlin, "w").await;
    world.synced("w").await;
    assert!(get(&world.lyon, "w").is_some());
}

#[tokio::test(start_paused = true)]
async fn sync_target_goes_when_its_cluster_comes_back_and_is_no_longer_selected() {
    let goes_at_once = async |cluster: &SimCluster| {
        let began = Instant::now();
        is_gone(cluster, "w").await;
        assert!(began.elapsed() < secs(5), "{:?}", began.elapsed());
    };
    let mut world = World::of(&["w"], to_each()).await;
    // Another address is another connection, so the cluster is away for a moment.
    let retired = world.berlin_gate.before(&world.berlin, "retired");
    world.clusters.add(retired);
    goes_at_once(&world.berlin).await;
    world.synced("w").await;
    // It is away for long, and has left the fleet.
    world.clusters.remove("lyon");
    world.reported("w", "ClusterAway", "").await;
    sleep(secs(3600)).await;
    world.clusters.add(spec(&world.lyon, "retired"));
    goes_at_once(&world.lyon).await;
    world.synced("w").await;
    // It loses its label while the program is stopped.
    world.clusters.add(spec(&world.lyon, "target"));
    is_there(&world.lyon, "w", 1).await;
    world.stop().await;
    world.begin(to_each());
    world.clusters.add(spec(&world.lyon, "retired"));
    goes_at_once(&world.lyon).await;
}
