//! What leads to another reconcile of a source, what does not, and paused sources.

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Manager, ObjectKey, Provider, Watched, core::Discovery};
use mcr_provider_clusters::ClustersProvider;
use mcr_sync::{PAUSED, Related};
use mcr_testkit::waiting::Background;
use tokio_util::sync::CancellationToken;

use crate::world::widgets::*;

/// Removes a label or an annotation.
fn remove(cluster: &SimCluster, name: &str, of: &str, key: &str) {
    let mut object = get(cluster, name).unwrap();
    object["metadata"][of]
        .as_object_mut()
        .unwrap()
        .remove(key)
        .unwrap();
    cluster.update(object).unwrap();
}

fn has_finalizer(world: &World, name: &str) -> bool {
    let source = get(&world.team_a, name).unwrap();
    let finalizers = source["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|it| it == "sync.mcr.dev/widgets"))
}

#[tokio::test(start_paused = true)]
async fn sync_paused_source_is_left_alone_until_it_goes_on_or_is_deleted() {
    let mut world = World::of(&["w", "ends"], sync()).await;
    for name in ["w", "ends"] {
        annotate(&world.team_a, name, PAUSED, "true");
        world.condition_is(name, "Paused", PAUSED).await;
    }
    size(&world.berlin, "w", 7);
    world.size("w", 3);
    sleep(secs(300)).await;
    is_there(&world.berlin, "w", 7).await;
    // Also by a program that has just started.
    world.stop().await;
    world.begin(sync());
    sleep(secs(300)).await;
    is_there(&world.berlin, "w", 7).await;
    world.ends("ends").await;
    assert!(get(&world.berlin, "ends").is_none());
    remove(&world.team_a, "w", "annotations", PAUSED);
    is_there(&world.berlin, "w", 3).await;
    world.synced("w").await;
}

/// `build_with` is there for other watches, and what they bring may change what the projection makes.
#[tokio::test(start_paused = true)]
async fn sync_request_of_another_watch_of_build_with_leads_to_a_look() {
    let factor = Arc::new(Mutex::new(1));
    let (seen, reported) = (factor.clone(), factor);
    let sync = sync().project(move |_, _| {
        let mut target = DynamicObject::new("", &crate::world::widgets());
        target.data = json!({"spec": {"size": *seen.lock().unwrap()}});
        target
    });
    let settings = move |settings: Watched<ConfigMap>| {
        let size = settings.object.data.as_ref()?.get("size")?.parse().ok()?;
        *reported.lock().unwrap() = size;
        Some(ObjectKey::namespaced("default", "w"))
    };
    let mut world = World::with(&["w"]);
    world
        .team_a
        .create(map("settings", json!({"size": "1"})))
        .unwrap();
    world.begin_with(sync.build_with(|it| it.watches(settings)).unwrap());
    world.synced("w").await;
    sleep(secs(60)).await;
    crate::world::set(&world.team_a, "settings", json!({"size": "2"}));
    is_there(&world.berlin, "w", 2).await;
}

/// The labels of a target cluster change after the desired state was made of them, and before it is written.
#[tokio::test(start_paused = true)]
async fn sync_labels_of_a_cluster_that_change_during_a_reconcile_lead_to_another_one() {
    let sync = sync().mutate(|target, _, _, to| {
        let zone = to.label("zone").unwrap_or_else(|| "none".to_owned());
        target.data["spec"]["zone"] = zone.into();
    });
    let mut world = World::with(&["w"]);
    world.begin(sync);
    let berlin = spec(&world.berlin, "target");
    world.clusters.add(berlin.clone());
    world.synced("w").await;
    sleep(secs(60)).await;
    let clusters = world.clusters.clone();
    let change = move || assert!(clusters.add(berlin.label("zone", "b")));
    world.team_gate.meanwhile("widgets/w", change);
    size(&world.berlin, "w", 7);
    world.team_gate.has_happened().await;
    let zone = || get(&world.berlin, "w").unwrap()["spec"]["zone"] == "b";
    until("the zone", zone).await;
}

/// A provider that can't be reached: it never announces which clusters it has.
struct Never;

impl Provider for Never {
    fn name(&self) -> &'static str {
        "never"
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        stream::pending().take_until(stop.cancelled_owned()).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn sync_problems_and_status_are_reported_although_a_provider_never_announces_its_clusters() {
    let with_size = || {
        to_each().status(
            |_, targets| json!({"size": targets.first().map(|(_, it)| it.data["spec"]["size"].clone())}),
        )
    };
    let mut world = World::of(&["w"], with_size()).await;
    world.stop().await;
    // The cluster lyon was announced by a provider that can't be reached now.
    let provider = ClustersProvider::new();
    world.clusters = provider.handle();
    for (cluster, role) in [(&world.team_a, "source"), (&world.berlin, "target")] {
        world.clusters.add(spec(cluster, role));
    }
    let built = with_size().build().unwrap();
    world.handles = vec![built.handle()];
    let manager = Manager::builder()
        .controller(built)
        .provider(provider)
        .provider(Never)
        .build()
        .unwrap();
    world.running = Some(Background::start(|stop| manager.run_until(stop)));
    world.size("w", 3);
    is_there(&world.berlin, "w", 3).await;
    sleep(secs(3600)).await;
    let status = get(&world.team_a, "w").unwrap()["status"].clone();
    assert_eq!(status["size"], 3, "{status}");
    world.condition_is("w", "ClusterAway", "lyon").await;
}

/// `metav1.Condition` allows 32768 characters, and a server refuses the whole status with more.
#[tokio::test(start_paused = true)]
async fn sync_condition_of_many_places_has_a_bounded_message() {
    let world = World::of(&["w"], to_each()).await;
    let mut places: Vec<_> = ["berlin", "lyon"].map(|at| json!([at, "default", "w"])).into();
    places.extend((0..600).map(|at| json!([format!("ghost-{at}"), "default", "w"])));
    annotate(&world.team_a, "w", RECORD, &Value::from(places).to_string());
    let message = world.condition_is("w", "ClusterAway", "ghost-1").await;
    assert!(message.len() <= 32768, "{} characters", message.len());
}

/// All places of a copy that goes down have the same origin.
#[tokio::test(start_paused = true)]
async fn sync_origin_of_a_copy_is_asked_for_once_and_not_for_each_place() {
    let settings = mcr_sync::Related::<_, _, ConfigMap>::down("settings").named(|_, _| ["settings"]);
    let mut world = World::with(&["w"]);
    world.team_a.create(map("settings", json!({"a": "1"}))).unwrap();
    world.begin(to_each().related(settings.name_by(|_, _| "w-settings".to_owned())));
    world.synced("w").await;
    sleep(secs(60)).await;
    let asked = || {
        world
            .team_a
            .audit()
            .count(|it| it.verb == "get" && it.name == "settings")
    };
    let before = asked();
    crate::world::set(&world.team_a, "settings", json!({"a": "2"}));
    sleep(secs(60)).await;
    assert_eq!(asked() - before, 1);
}

/// The synced source is observed again: a cluster of its target is another one under the same name, and after a second claim.
#[tokio::test(start_paused = true)]
async fn sync_source_without_a_change_is_reconciled_again_for_a_replaced_cluster_and_a_second_claim() {
    let mut world = World::of(&["w"], sync()).await;
    sleep(secs(60)).await;
    let mut copy = anew(&get(&world.berlin, "w").unwrap());
    copy["metadata"]["name"] = "copy".into();
    world.berlin.create(copy).unwrap();
    world.reported("w", "ClaimedTwice", "default/copy").await;
    delete(&world.berlin, "copy");
    world.synced("w").await;
    sleep(secs(60)).await;
    world.berlin = cluster("berlin");
    world.clusters.add(spec(&world.berlin, "target"));
    is_there(&world.berlin, "w", 1).await;
    // A condition that somebody removes comes back.
    sleep(secs(60)).await;
    let mut source = get(&world.team_a, "w").unwrap();
    source["status"]["conditions"] = json!([]);
    let request = http::Request::put("/apis/example.com/v1/namespaces/default/widgets/w/status");
    let request = request
        .header("content-type", "application/json")
        .body(source.to_string().into_bytes())
        .unwrap();
    world.team_a.client().request::<Value>(request).await.unwrap();
    world.synced("w").await;
}

/// A source that waits while it is paused is none that is not as it should be, and nothing is written again and again.
#[tokio::test(start_paused = true)]
async fn sync_paused_source_is_quiet_and_a_source_that_is_paused_at_first_is_not_claimed() {
    let mut world = World::with(&["w"]);
    annotate(&world.team_a, "w", PAUSED, "true");
    world.begin(sync());
    world.condition_is("w", "Paused", PAUSED).await;
    let before = count(&world.team_a, "patch");
    for at in 0..20 {
        world
            .clusters
            .add(spec(&world.berlin, "target").label("at", at.to_string()));
        sleep(secs(60)).await;
    }
    assert_eq!(count(&world.team_a, "patch"), before);
    assert!(!has_finalizer(&world, "w") && get(&world.berlin, "w").is_none());
    remove(&world.team_a, "w", "annotations", PAUSED);
    is_there(&world.berlin, "w", 1).await;
    world.synced("w").await;
}

/// The filter no longer selects a source whose finalizer somebody removes in the same write: the record leads to the target.
#[tokio::test(start_paused = true)]
async fn sync_target_of_a_source_that_the_filter_and_the_finalizer_leave_at_once_goes() {
    let world = World::of(
        &["w"],
        sync().filter(|it| {
            it.metadata
                .labels
                .as_ref()
                .is_some_and(|all| all["copy"] == "yes")
        }),
    )
    .await;
    let mut source = get(&world.team_a, "w").unwrap();
    source["metadata"]["labels"] = json!({"copy": "no"});
    source["metadata"]["finalizers"] = json!([]);
    world.team_a.update(source).unwrap();
    is_gone(&world.berlin, "w").await;
}

#[tokio::test(start_paused = true)]
async fn sync_restart_writes_nothing_while_origins_of_copies_are_listed() {
    let related = || Related::<_, _, ConfigMap>::down("settings").named(|_, _| Some("s"));
    let sync = || sync().related(related());
    let mut world = World::with(&["w"]);
    world.team_a.create(map("s", json!({}))).unwrap();
    world.begin(sync());
    world.synced("w").await;
    world.stop().await;
    let version = get(&world.team_a, "w").unwrap()["metadata"]["resourceVersion"].clone();
    world.team_gate.now().slow_maps = secs(10);
    world.begin(sync());
    sleep(secs(300)).await;
    assert_eq!(
        get(&world.team_a, "w").unwrap()["metadata"]["resourceVersion"],
        version
    );
    // A kind that can't be listed is a problem.
    world.stop().await;
    allow_each(&world.team_a, &[("widgets", &["*"]), ("widgets/status", &["*"])]);
    world.begin(sync());
    world
        .condition_is(
            "w",
            "RelatedUnknown",
            "each ConfigMap in cluster team-a, related by \"settings\", is not known: ",
        )
        .await;
}
