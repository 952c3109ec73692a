//! One workspace, two exports: a provider for each of them.

use mcr_core::{Access, ClusterState, Trust};
use mcr_core::{Fleet, WatchRequest};
use mcr_kcp_double::KcpUser;
use mcr_provider_kcp::KcpProvider;
use mcr_provider_multi::MultiProvider;
use mcr_testkit::{log::Log, waiting::Background};
use serde_json::json;
use tracing::Level;

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

#[tokio::test]
async fn kcp_two_exports_without_name_prefixes_clash_and_the_clash_is_reported() {
    let log = Log::of_this_thread(Level::INFO);
    let world = World::with_shards(1).await;
    export_gadgets(&world);
    let a = world.consumer("a", "root");
    bind_as(&a, "gadgets", "gadgets");
    gadget(&a, "blue");
    let b = world.consumer("b", "root");
    let providers = ["widgets", "gadgets"].map(|export| of_export(&world, export).build().or_fail());
    let (fleet, running) = fleet_of(providers);
    let line = eventually(PATIENCE, "the clash is logged", || {
        log.lines_with("two providers announce a cluster of the same name")
            .pop()
    })
    .await;
    for word in [a.id(), "widgets", "gadgets", "prefix"] {
        assert!(line.contains(word), "{word}: {line}");
    }
    eventually(PATIENCE, "the other workspace is ready", || {
        fleet.get(b.id()).is_ok_and(|b| b.state().is_ready())
    })
    .await;
    let holder = fleet.get(a.id()).or_fail().provider().to_string();
    let (held, waiting) = if holder == "widgets" {
        ("widgets", "gadgets")
    } else {
        ("gadgets", "widgets")
    };
    // The one that waits gets the name when the first one lets it go.
    a.delete(BINDINGS, held).or_fail();
    eventually(PATIENCE, format!("{waiting} gets the name"), || {
        fleet.get(a.id()).is_ok_and(|a| a.provider() == waiting)
    })
    .await;
    running.stop().await;
}

/// The slice is chosen when all of them are known, and a change of another one is no news.
#[tokio::test]
async fn kcp_the_slice_of_an_export_is_found_among_those_of_others() {
    let log = Log::of_this_thread(Level::INFO);
    let world = World::with_shards(1).await;
    export_gadgets(&world);
    let provider = world.builder().export("widgets").build().or_fail();
    let running = Running::start(provider);
    running.discovered().await;
    let a = world.server.kcp().create_workspace_on("root:a", "root").or_fail();
    // The slice of gadgets changes first.
    bind_as(&a, "gadgets", "gadgets");
    bind(&a);
    running.ready(a.id()).await;
    let unused = log.lines_with("because no workspace binds the API");
    assert_eq!(unused.len(), 1, "{unused:?}");
    let status = &running.fleet.providers()[0];
    assert_eq!((status.restarts, &status.last_error), (0, &None));
    running.stop().await;
}

/// A provider that fails for each kind of bad input does not hold up the others, and takes nothing from them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_provider_with_bad_input_leaves_the_others_alone() {
    let world = World::with_shards(1).await;
    export_gadgets(&world);
    let a = world.consumer("a", "root");
    widget(&a, "w", "red");
    world.server.kcp().set_user("nobody", KcpUser::new("nobody"));
    let access = |kubeconfig: String| Access::kubeconfig(kubeconfig, Trust::Trusted);
    let nobody = access(world.server.kubeconfig_with_token("root:provider", "nobody"));
    let expired = access(world.server.kubeconfig_with_token("root:provider", "expired"));
    let nowhere = access(world.server.kubeconfig("root:nowhere"));
    let bad = [
        ("slice", of_export(&world, "wrong")),
        ("rights", of_export(&world, "gadgets").access(nobody)),
        ("token", of_export(&world, "gadgets").access(expired)),
        ("workspace", of_export(&world, "gadgets").access(nowhere)),
    ];
    let mut children = MultiProvider::builder().child_as("good", world.builder().build().or_fail());
    for (name, builder) in bad {
        children = children.child_as(name, builder.build().or_fail());
    }
    let provider = children.build().or_fail();
    let handle = provider.handle();
    let running = Running::start(provider);
    let in_a = running.ready(&format!("good#{}", a.id())).await;
    let seen = Witness::of_widgets(&in_a);
    seen.holds(&["default/w red"]).await;
    for name in ["slice", "rights", "token", "workspace"] {
        let error = eventually(PATIENCE, format!("child {name} fails"), || {
            let status = handle.statuses().into_iter().find(|child| &*child.name == name)?;
            status.last_error.map(|error| error.to_string())
        })
        .await;
        assert!(
            error.contains("/clusters/root:"),
            "{name} names its workspace: {error}"
        );
        let reached = !error.contains("the workspace of the endpoint slice can't be reached");
        assert_eq!(reached, !["token", "workspace"].contains(&name), "{error}");
    }
    widget(&a, "w", "green");
    seen.holds(&["default/w green"]).await;
    running.stop().await;
}
