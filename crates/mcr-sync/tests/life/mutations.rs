//! Mutations: targets that differ between clusters.

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{BoxError, Cluster, ClusterSelector};
use mcr_testkit::waiting::eventually;
use serde_json::json;

use crate::world::*;

/// Writes the region of the target cluster, and the names of both clusters, into each target.
fn regional() -> Maps {
    let region = |target: &mut ConfigMap, _: &ConfigMap, from: &Cluster, to: &Cluster| {
        let region = to.label("region").ok_or("the cluster has no label region")?;
        let data = target.data.get_or_insert_default();
        data.insert("region".to_owned(), region);
        data.insert("way".to_owned(), format!("{}-{}", from.name(), to.name()));
        Ok::<_, BoxError>(())
    };
    let shout = |target: &mut ConfigMap, source: &ConfigMap, _: &Cluster, _: &Cluster| {
        let data = target.data.get_or_insert_default();
        let region = data["region"].to_uppercase();
        data.insert("region".to_owned(), region);
        data.insert("of".to_owned(), source.metadata.name.clone().unwrap());
    };
    maps()
        .to_each(ClusterSelector::label("role", "target"))
        .try_mutate(region)
        .mutate(shout)
}

#[tokio::test]
async fn sync_mutations_change_each_target_for_its_cluster_and_an_error_holds_only_that_one() {
    let mut world = World::new();
    world.team_a.create(map("db", json!({"size": "1"}))).unwrap();
    let controller = regional()
        .from(ClusterSelector::label("role", "source"))
        .build()
        .unwrap();
    let handle = controller.handle();
    world.run([controller], "");
    world
        .clusters
        .add(spec(&world.berlin, "target").label("region", "eu"));
    let expected = |region: &str, cluster: &str| json!({"size": "1", "region": region, "way": format!("team-a-{cluster}"), "of": "db"});
    data(&world.berlin, &world.team_a, "db", expected("EU", "berlin")).await;
    let told = || {
        let clusters = handle.status().clusters.into_iter();
        let mut failing = clusters.flat_map(|(_, status)| status.failing);
        failing.find(|request| {
            request
                .error
                .contains("the mutation of the source failed; it is tried again when the source changes: the cluster has no label region")
        })
    };
    eventually(LIMIT, "the error of lyon", told).await;
    assert_eq!(target(&world.lyon, &world.team_a, "db"), None);
    // Labels of clusters lead to new targets.
    world
        .clusters
        .add(spec(&world.lyon, "target").label("region", "fr"));
    world
        .clusters
        .add(spec(&world.berlin, "target").label("region", "de"));
    data(&world.lyon, &world.team_a, "db", expected("FR", "lyon")).await;
    data(&world.berlin, &world.team_a, "db", expected("DE", "berlin")).await;
    world.stop().await;
    // A restart writes nothing.
    let before = writes(&world.berlin) + writes(&world.lyon) + writes(&world.team_a);
    world.run(
        [regional()
            .from(ClusterSelector::label("role", "source"))
            .build()
            .unwrap()],
        "berlin",
    );
    world
        .clusters
        .add(spec(&world.lyon, "target").label("region", "fr"));
    world
        .clusters
        .add(spec(&world.berlin, "target").label("region", "de"));
    world.team_b.create(map("last", json!({"size": "1"}))).unwrap();
    for cluster in [&world.berlin, &world.lyon] {
        let made = || target(cluster, &world.team_b, "last");
        eventually(LIMIT, "the target of another source", made).await;
    }
    world.stop().await;
    let after = writes(&world.berlin) + writes(&world.lyon) + writes(&world.team_a);
    assert_eq!(after - before, 2, "the two targets of the other source");
}
