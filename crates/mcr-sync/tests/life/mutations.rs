//! Mutations: targets that differ between clusters.

use mcr::Cluster;

use crate::world::widgets::*;

/// Writes the region of the target cluster, and the names of both clusters and of the source, into each target.
fn regional() -> Widgets {
    let region = |target: &mut DynamicObject, _: &DynamicObject, from: &Cluster, to: &Cluster| {
        let region = to.label("region").ok_or("the cluster has no label region")?;
        target.data["spec"]["way"] = format!("{region}-{}-{}", from.name(), to.name()).into();
        Ok::<_, BoxError>(())
    };
    to_each().try_mutate(region).mutate(|target, source, _, _| {
        let way = target.data["spec"]["way"].as_str().unwrap();
        target.data["spec"]["way"] = format!("{way}-{}", source.metadata.name.as_deref().unwrap()).into();
    })
}

#[tokio::test(start_paused = true)]
async fn sync_mutations_change_each_target_for_its_cluster_and_an_error_holds_only_that_one() {
    let mut world = World::with(&["db"]);
    let has = async |cluster: &SimCluster, way: &str| {
        let way = format!("{way}-team-a-{}-db", cluster.name());
        let target = || get(cluster, "db").map(|target| target["spec"]["way"] == way);
        until(&way, || target() == Some(true)).await;
    };
    let label = |world: &World, cluster: &SimCluster, region: &str| {
        let spec = spec(cluster, "target").label("region", region);
        world.clusters.add(spec);
    };
    world.begin(regional());
    // The error waits for the source, and does not end the wait for the other cluster.
    world.berlin_gate.now().slowness = secs(20);
    let berlin = world.berlin_gate.before(&world.berlin, "target");
    world.clusters.add(berlin.label("region", "eu"));
    let words = "the mutation of the source failed; it is tried again when the source changes: \
        the cluster has no label region";
    world.reported("db", "FunctionFailed", words).await;
    assert_eq!(get(&world.berlin, "db"), None, "it lists");
    has(&world.berlin, "eu").await;
    world.waits(words).await;
    assert_eq!(get(&world.lyon, "db"), None);
    // Labels of clusters lead to new targets.
    for (cluster, region) in [(&world.lyon, "fr"), (&world.berlin, "de")] {
        label(&world, cluster, region);
        has(cluster, region).await;
    }
    world.stop().await;
    // A restart writes nothing.
    let patches = |world: &World| count(&world.berlin, "patch") + count(&world.lyon, "patch");
    let before = patches(&world);
    world.begin(regional());
    label(&world, &world.lyon, "fr");
    label(&world, &world.berlin, "de");
    make(&world.team_a, "last", json!({"size": 1}));
    world.synced("last").await;
    assert_eq!(patches(&world), before);
}
