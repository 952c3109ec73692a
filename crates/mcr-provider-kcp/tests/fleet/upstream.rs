//! The assertions of the tests of kcp's provider for multicluster-runtime (Go), as `docs/design/kcp.md` lists them.

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mcr_core::{Cluster, FleetObjects, WatchRequest};
use mcr_kcp_double::KcpWorkspace;

use crate::world::*;

/// Two workspaces, `stone` in one and `box` in the other, and a fleet that indexes widgets by their color.
async fn stone_and_box(shards: [&str; 2]) -> (World, Running, [KcpWorkspace; 2], [Cluster; 2], [Witness; 2]) {
    let world = World::with_shards(2).await;
    let consumers = [world.consumer("one", shards[0]), world.consumer("two", shards[1])];
    widget(&consumers[0], "stone", "gray");
    widget(&consumers[1], "box", "white");
    let running = Running::start(world.builder().build().or_fail());
    running
        .fleet
        .index_with::<DynamicObject>(&widgets(), "color", |widget| {
            widget.data["spec"]["color"]
                .as_str()
                .map(str::to_owned)
                .into_iter()
                .collect()
        });
    let clusters = [
        running.ready(consumers[0].id()).await,
        running.ready(consumers[1].id()).await,
    ];
    let seen = clusters.each_ref().map(Witness::of_widgets);
    seen[0].holds(&["default/stone gray"]).await;
    seen[1].holds(&["default/box white"]).await;
    (world, running, consumers, clusters, seen)
}

/// `<cluster> <name>` of each object.
fn names(objects: FleetObjects<DynamicObject>) -> Vec<String> {
    assert!(objects.is_complete());
    let name = |(cluster, object): (Cluster, std::sync::Arc<DynamicObject>)| {
        format!(
            "{} {}",
            cluster.name(),
            object.metadata.name.as_deref().unwrap_or_default()
        )
    };
    let mut names: Vec<String> = objects.objects.into_iter().map(name).collect();
    names.sort();
    names
}

/// APIExport 2, 3, 5 to 7 and WildcardCache 1 to 3 on one shard; AggregateCache 1 to 4 on two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_lists_and_indexes_reach_one_workspace_or_all_of_them() {
    for shards in [["root", "root"], ["root", "shard-1"]] {
        let (_world, running, consumers, clusters, _seen) = stone_and_box(shards).await;
        let stone = format!("{} stone", consumers[0].id());
        let a_box = format!("{} box", consumers[1].id());
        let mut both = vec![stone.clone(), a_box.clone()];
        both.sort();
        assert_eq!(names(running.fleet.list_with(&widgets())), both);
        for (color, expected) in [("gray", vec![stone]), ("white", vec![a_box]), ("red", vec![])] {
            assert_eq!(
                names(running.fleet.by_index_with(&widgets(), "color", color)),
                expected,
                "{color}"
            );
        }
        let of_first = clusters[0].store_with::<DynamicObject>(&widgets()).or_fail();
        assert_eq!(of_first.by_index("color", "gray").or_fail().len(), 1);
        assert_eq!(
            of_first.by_index("color", "white").or_fail().len(),
            0,
            "it is in the other workspace"
        );
        running.stop().await;
    }
}

/// AggregateCache 5, `TestScopedIndexInformerEventHandler`: handlers get what there is and what comes, of their workspace only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_handler_gets_the_objects_of_its_workspace_from_all_shards() {
    let (_world, running, consumers, _, seen) = stone_and_box(["root", "shard-1"]).await;
    widget(&consumers[1], "crate", "brown");
    seen[1].holds(&["default/box white", "default/crate brown"]).await;
    assert_eq!(seen[0].lines(), ["+default/stone"]);
    assert_eq!(seen[1].lines(), ["+default/box", "+default/crate"]);
    running.stop().await;
}

/// APIExport 1: the bindings of a workspace are a kind as any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_the_bindings_of_each_workspace_can_be_watched() {
    let (_world, running, _, clusters, _seen) = stone_and_box(["root", "shard-1"]).await;
    let bindings = GroupVersionKind::gvk("apis.kcp.io", "v1alpha2", "APIBinding");
    let bindings = ApiResource::from_gvk_with_plural(&bindings, "apibindings");
    for cluster in &clusters {
        let seen = Witness::of(cluster, WatchRequest::resource(&bindings));
        seen.holds_named(&["widgets"]).await;
    }
    running.stop().await;
}
