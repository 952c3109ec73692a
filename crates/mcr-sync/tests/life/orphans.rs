//! Source clusters that leave the fleet for good.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, GroupVersionKind};
use mcr_sync::Related;

use crate::world::widgets::*;

const GRACE: Duration = secs(600);

/// The test looks each 5 ms, so it sleeps for most of the grace.
const LAST: Duration = secs(2);

/// A sync with a related object.
fn owned(owner: &str) -> Widgets {
    let settings = Related::<_, _, ConfigMap>::down("settings").named(|_, _| ["settings"]);
    sync().owner(owner).related(settings)
}

/// The sync, and the controller that deletes orphans.
fn controllers(sync: Widgets) -> [BuiltController; 2] {
    let orphans = sync.delete_orphans_after(GRACE).unwrap();
    [sync.build().unwrap(), orphans]
}

/// A source in each team. One has settings.
fn new_world() -> World {
    let world = World::with(&["a"]);
    make(&world.team_b, "b", json!({"size": 1}));
    world.team_a.create(map("settings", json!({}))).unwrap();
    world
}

fn copies(world: &World) -> usize {
    world.berlin.list("configmaps", "default").len()
}

async fn are_made(world: &World) {
    is_there(&world.berlin, "a", 1).await;
    is_there(&world.berlin, "b", 1).await;
    until("the copy", || copies(world) == 1).await;
}

/// The target of `team-a` goes after the grace from now, and not before.
async fn goes_after_the_grace(world: &World) {
    let left = Instant::now();
    sleep(GRACE - LAST).await;
    assert!(get(&world.berlin, "a").is_some());
    is_gone(&world.berlin, "a").await;
    assert!(left.elapsed() >= GRACE, "{:?}", left.elapsed());
    assert!(get(&world.berlin, "b").is_some());
}

#[tokio::test(start_paused = true)]
async fn sync_targets_of_a_cluster_that_left_are_deleted_after_the_grace_on_request_and_only_then() {
    let mut world = new_world();
    world.run(controllers(owned("eu")), "");
    are_made(&world).await;
    // It comes back within the grace.
    world.clusters.remove("team-a");
    sleep(GRACE - LAST).await;
    world.clusters.add(spec(&world.team_a, "source"));
    sleep(GRACE).await;
    are_made(&world).await;
    // A cluster that is down is in the fleet.
    world.team_b.end_watches();
    world.clusters.remove("team-a");
    goes_after_the_grace(&world).await;
    assert_eq!(copies(&world), 0);
    let audit = world.berlin.audit();
    let deletes = audit.events().filter(|event| event.verb == "delete");
    let deleted: Vec<&str> = deletes.map(|event| &*event.resource).collect();
    assert_eq!(deleted, ["configmaps", "widgets"], "the copies go first");
    // The source is not touched, and gets a new target when its cluster is back.
    assert!(get(&world.team_a, "a").is_some());
    world.clusters.add(spec(&world.team_a, "source"));
    are_made(&world).await;
}

#[tokio::test(start_paused = true)]
async fn sync_the_grace_of_orphans_begins_anew_when_the_program_starts() {
    // No cluster serves one of the related kinds.
    let gadgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Gadget"));
    let gadgets = || Related::<_, _, DynamicObject>::down_with("gadgets", &gadgets);
    let sync = || owned("eu").related(gadgets().named(|_, _| None::<String>));
    let mut world = new_world();
    world.run(controllers(sync()), "");
    are_made(&world).await;
    world.clusters.remove("team-a");
    sleep(GRACE - LAST).await;
    world.stop().await;
    world.run(controllers(sync()), "team-a");
    goes_after_the_grace(&world).await;
}

#[tokio::test(start_paused = true)]
async fn sync_targets_of_another_owner_are_no_orphans_and_belong_to_somebody_else() {
    // Another program has a fleet of its own, which has the targets' cluster too, and deletes orphans.
    let program = |berlin: &SimCluster, owner: &str| {
        let mut world = World::with(&[]);
        world.berlin = berlin.clone();
        world.run(controllers(owned(owner)), "");
        world
    };
    let berlin = cluster("berlin");
    let [eu, us] = ["eu", "us"].map(|owner| program(&berlin, owner));
    make(&eu.team_a, "a", json!({"size": 1}));
    make(&us.team_b, "b", json!({"size": 1}));
    is_there(&berlin, "a", 1).await;
    is_there(&berlin, "b", 1).await;
    sleep(2 * GRACE).await;
    assert_eq!(count(&berlin, "delete"), 0);
    // Another cluster of the same name, in the fleet of another owner: its sources have the same names.
    let asia = program(&berlin, "asia");
    make(&asia.team_a, "a", json!({"size": 2}));
    asia.reported("a", "NameTaken", "").await;
    delete(&asia.team_a, "a");
    is_gone(&asia.team_a, "a").await;
    assert_eq!(get(&berlin, "a").unwrap()["spec"]["size"], 1);
    // The owner still deletes its own.
    eu.clusters.remove("team-a");
    sleep(GRACE).await;
    is_gone(&berlin, "a").await;
    assert!(get(&berlin, "b").is_some());
}
