//! Sources that are made anew under their name while the watch of the sync lags: another replica serves the new ones.

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_sync::Related;

use crate::world::widgets::*;

const LAG: Duration = secs(10);
/// The target and its related copy.
const MADE: [(&str, &str); 2] = [(WIDGETS, "default/w"), ("configmaps", "default/w-settings")];

fn made(berlin: &SimCluster) -> Vec<Value> {
    let get = |(kind, key)| berlin.get(kind, key);
    MADE.into_iter().filter_map(get).collect()
}

fn uids(objects: &[Value]) -> Vec<Value> {
    let uid = |object: &Value| object["metadata"]["uid"].clone();
    objects.iter().map(uid).collect()
}

/// What another replica does: it ends the source, and a new one gets a target and a copy. Returns their UIDs.
fn made_anew(team: &SimCluster, berlin: &SimCluster, source: &Value) -> Vec<Value> {
    let objects = made(berlin);
    for (kind, key) in MADE {
        berlin.delete(kind, key).ok();
    }
    if get(team, "w").is_some() {
        end(team, "w");
    }
    team.create(anew(source)).unwrap();
    let create = |object| berlin.create(anew(object)).unwrap();
    uids(&objects.iter().map(create).collect::<Vec<_>>())
}

/// A program that has synced a source, with a related object that goes along.
async fn synced(is_limited: bool) -> World {
    let mut world = World::with(&["w"]);
    world.team_a.create(map("settings", json!({}))).unwrap();
    let settings = Related::<_, _, ConfigMap>::down("settings").named(|_, _| ["settings"]);
    let sync = sync().related(settings.name_by(|_, _| "w-settings".to_owned()));
    if is_limited {
        world.begin_with(limited(sync))
    } else {
        world.begin(sync)
    }
    world.synced("w").await;
    until("the copy", || made(&world.berlin).len() == 2).await;
    world
}

/// The store has a source that is being deleted, then one that was deleted, and the server has another one meanwhile.
#[tokio::test(start_paused = true)]
async fn sync_source_that_is_made_anew_while_the_watch_lags_keeps_its_target_and_its_copies() {
    for limited in [false, true] {
        let world = synced(limited).await;
        // The deletion is seen, and hangs.
        allow(&world.berlin, &["get", "list", "watch", "create", "patch"]);
        delete(&world.team_a, "w");
        world.reported("w", "RequestFailed", "").await;
        world.team_gate.now().lag = LAG;
        let source = get(&world.team_a, "w").unwrap();
        let kept = made_anew(&world.team_a, &world.berlin, &source);
        allow(&world.berlin, &["*"]);
        world.synced("w").await;
        sleep(LAG).await;
        assert_eq!(uids(&made(&world.berlin)), kept, "limited: {limited}");
        assert_eq!(world.failing(), []);
    }
}

/// The other replica is fast: the source is still the former one, or gone, when its server is asked. The target is new.
#[tokio::test(start_paused = true)]
async fn sync_target_that_is_made_anew_between_two_reads_stays() {
    let reads = ["widgets/w", "w-settings"].into_iter();
    for (read, is_gone) in reads.flat_map(|read| [(read, false), (read, true)]) {
        let world = synced(false).await;
        let (team, berlin) = (world.team_a.clone(), world.berlin.clone());
        let gate = world.team_gate.clone();
        let (source, kept) = (get(&team, "w").unwrap(), Arc::new(Mutex::new(Vec::new())));
        let found = kept.clone();
        world.berlin_gate.meanwhile(read, move || {
            gate.now().lag = LAG;
            *found.lock().unwrap() = made_anew(&team, &berlin, &source);
        });
        delete(&world.team_a, "w");
        if is_gone {
            end(&world.team_a, "w");
        }
        world.berlin_gate.has_happened().await;
        world.synced("w").await;
        let (kept, now) = (kept.lock().unwrap().clone(), uids(&made(&world.berlin)));
        let stays = !kept.is_empty() && kept.iter().all(|uid| now.contains(uid));
        assert!(stays, "{read}, {is_gone}: {now:?} and not {kept:?}");
    }
}

/// The cluster of the source is back after the grace, when its target has just been read to be deleted.
#[tokio::test(start_paused = true)]
async fn sync_target_of_a_cluster_that_is_back_at_the_last_moment_stays() {
    let mut world = World::of(&["w"], sync().owner("eu")).await;
    world.stop().await;
    world.begin_with(sync().owner("eu").delete_orphans_after(LAG).unwrap());
    let (clusters, team) = (world.clusters.clone(), spec(&world.team_a, "source"));
    let back = move || assert!(clusters.add(team));
    world.berlin_gate.meanwhile("widgets/w", back);
    world.clusters.remove("team-a");
    world.berlin_gate.has_happened().await;
    sleep(LAG).await;
    assert_eq!(made(&world.berlin).len(), 1);
}

/// The source loses its finalizer by hand and is deleted. A list shows it. A new one comes before its server is asked.
#[tokio::test(start_paused = true)]
async fn sync_target_of_a_source_that_is_made_anew_is_not_reported_as_an_orphan() {
    for limited in [false, true] {
        let world = synced(limited).await;
        let source = get(&world.team_a, "w").unwrap();
        world.team_gate.now().lag = 10 * LAG;
        end(&world.team_a, "w");
        world.team_a.compact(world.team_a.resource_version());
        let cluster = world.team_a.clone();
        let create = move || drop(cluster.create(anew(&source)).unwrap());
        world.team_gate.meanwhile("widgets/w", create);
        world.team_a.end_watches();
        world.team_gate.has_happened().await;
        sleep(LAG).await;
        assert_eq!(world.failing(), []);
        world.team_gate.now().lag = Duration::ZERO;
        world.team_a.end_watches();
        world.synced("w").await;
    }
}
