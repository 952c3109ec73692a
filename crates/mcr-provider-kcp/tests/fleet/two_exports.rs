//! One workspace, two exports: a provider for each of them.

use mcr_core::ClusterState;
use mcr_core::{Fleet, WatchRequest};
use mcr_provider_kcp::KcpProvider;
use mcr_testkit::waiting::Background;
use serde_json::json;

use crate::world::*;

/// Adds the export `gadgets` to `root:provider`.
fn export_gadgets(world: &World) {
    let schema = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": {"name": "v1.gadgets.example.io"},
        "spec": {
            "group": "example.io", "scope": "Namespaced",
            "names": {"kind": "Gadget", "listKind": "GadgetList", "plural": "gadgets", "singular": "gadget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }],
        },
    });
    let export = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "gadgets"},
        "spec": {"resources": [{"name": "gadgets", "group": "example.io", "schema": "v1.gadgets.example.io"}]},
    });
    for object in [schema, export] {
        world.provider.create(object).or_fail();
    }
}

fn gadgets() -> kube::core::ApiResource {
    let kind = kube::core::GroupVersionKind::gvk("example.io", "v1", "Gadget");
    kube::core::ApiResource::from_gvk_with_plural(&kind, "gadgets")
}

fn gadget(workspace: &mcr_kcp_double::KcpWorkspace, color: &str) {
    workspace
        .apply(json!({
            "apiVersion": "example.io/v1", "kind": "Gadget", "metadata": {"name": "w", "namespace": "default"},
            "spec": {"color": color},
        }))
        .or_fail();
}

fn of_export(world: &World, export: &str) -> mcr_provider_kcp::KcpProviderBuilder {
    world.builder().slice(export).provider_name(export)
}

fn fleet_of(providers: [KcpProvider; 2]) -> (Fleet, Background<()>) {
    let [first, second] = providers;
    let fleet = Fleet::builder().provider(first).provider(second).build();
    let runs = fleet.clone();
    let running = Background::start(|stop| async move { runs.run(stop).await });
    (fleet, running)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_two_exports_with_name_prefixes_are_two_clusters_of_a_workspace() {
    let world = World::with_shards(1).await;
    export_gadgets(&world);
    let a = world.consumer("a", "root");
    bind_as(&a, "gadgets", "gadgets");
    widget(&a, "w", "red");
    gadget(&a, "blue");
    let providers = ["widgets", "gadgets"].map(|export| {
        of_export(&world, export)
            .name_prefix(format!("{export}#"))
            .build()
            .or_fail()
    });
    let (fleet, running) = fleet_of(providers);
    let engaged = async |name: String| {
        let cluster = eventually(PATIENCE, format!("{name} joins"), || fleet.get(&name).ok()).await;
        reaches(&cluster, ClusterState::is_ready).await;
        cluster
    };
    let with_widgets = engaged(format!("widgets#{}", a.id())).await;
    let with_gadgets = engaged(format!("gadgets#{}", a.id())).await;
    assert_eq!(with_widgets.identity(), with_gadgets.identity());
    let seen = (
        Witness::of_widgets(&with_widgets),
        Witness::of(&with_gadgets, WatchRequest::resource(&gadgets())),
    );
    seen.0.holds(&["default/w red"]).await;
    seen.1.holds(&["default/w blue"]).await;
    unbind(&a);
    eventually(PATIENCE, "the consumer of widgets leaves", || {
        fleet.get(with_widgets.name().as_str()).is_err()
    })
    .await;
    gadget(&a, "green");
    seen.1.holds(&["default/w green"]).await;
    assert!(
        fleet
            .get(with_gadgets.name().as_str())
            .is_ok_and(|now| now.is_same(&with_gadgets))
    );
    running.stop().await;
}
