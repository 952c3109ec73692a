//! The three perturbations of Sieve (OSDI '22) on `sync-local-to-remote`: a stale view, a missed event, and a crash
//! between two writes. Each ends in the same state as the same story without it.
//!
//! The program runs as a user would run it, on simulated API servers behind proxies that do the harm.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use mcr_testkit::{
    faults::{Fault, FaultProxy, Match},
    sim::{SimCluster, SimServer},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::program::Program;

const PATIENCE: Duration = Duration::from_secs(90);

struct Place {
    cluster: SimCluster,
    _server: SimServer,
    proxy: FaultProxy,
    kubeconfig: PathBuf,
}

impl Place {
    async fn new(name: &str, folder: &TempDir) -> Self {
        let cluster = SimCluster::builder().name(name).build();
        let server = cluster.serve().await.unwrap();
        let proxy = FaultProxy::builder(&server).name(name).start().await.unwrap();
        let kubeconfig = folder.path().join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, proxy.kubeconfig_with_token(&cluster.admin_token())).unwrap();
        Self {
            cluster,
            _server: server,
            proxy,
            kubeconfig,
        }
    }

    fn namespace(&self) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sync"}});
        self.cluster.create(namespace).unwrap();
    }

    /// Creates a ConfigMap.
    fn create(&self, metadata: Value, name: &str, data: Value, immutable: bool) {
        let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        map["metadata"]["name"] = name.into();
        map["metadata"]["namespace"] = "sync".into();
        if immutable {
            map["immutable"] = true.into();
        }
        self.cluster.create(map).unwrap();
    }

    /// Creates an original, or gives one other data.
    fn put(&self, name: &str, data: Value) {
        match self.get(name) {
            Some(_) => self.edit(name, |map| map["data"] = data.clone()),
            None => self.create(original(), name, data, false),
        }
    }

    /// Changes an object, whatever the program writes to it meanwhile.
    fn edit(&self, name: &str, change: impl Fn(&mut Value)) {
        while let Some(mut map) = self.get(name) {
            change(&mut map);
            match self.cluster.update(map) {
                Err(error) if error.code() == 409 => {}
                done => return drop(done.unwrap()),
            }
        }
    }

    /// Changes a copy, as somebody else does. It must be there: the program does not touch what others have made under its name.
    fn drift(&self, name: &str) {
        assert!(self.get(name).is_some(), "there is no copy of {name} yet");
        self.edit(name, |map| map["data"]["key"] = "drifted".into());
    }

    /// Deletes an original without its finalizer, as people do who are in a hurry, and makes another one.
    fn replace(&self, name: &str, data: Value, immutable: bool) {
        while self.get(name).is_some() {
            self.edit(name, |map| map["metadata"]["finalizers"] = json!([]));
            if self.get(name).is_some() {
                self.delete(name);
            }
        }
        self.create(original(), name, data, immutable);
    }

    fn get(&self, name: &str) -> Option<Value> {
        self.cluster.get("configmaps", &format!("sync/{name}"))
    }

    fn delete(&self, name: &str) {
        self.cluster
            .delete("configmaps", &format!("sync/{name}"))
            .unwrap();
    }
}

const ORIGINAL: &str = "example.io/propagate";
const SYNC: &str = "sync.mcr.dev/sync";
const SOURCE_NAME: &str = "sync.mcr.dev/source-name";
const FINALIZER: &str = "sync.mcr.dev/sync-local-to-remote";
const RECORD: &str = "sync.mcr.dev/placed.sync-local-to-remote";

/// The metadata of an original.
fn original() -> Value {
    json!({"labels": {ORIGINAL: "true"}})
}

/// The metadata of a copy that an earlier run made, and somebody took a label from.
fn copy(name: &str) -> Value {
    json!({
        "labels": {SYNC: "sync-local-to-remote"},
        "annotations": {
            "sync.mcr.dev/source-cluster": "hub", "sync.mcr.dev/source-namespace": "sync", SOURCE_NAME: name,
        },
    })
}

/// What matters of the ConfigMaps in both members, by cluster and name.
type State = BTreeMap<String, Value>;

struct World {
    hub: Place,
    berlin: Place,
    lyon: Place,
    _folder: TempDir,
}

impl World {
    /// Copies are missing, changed, without a part of their links, and left over; one name is taken. One member does not even have
    /// the namespace.
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (hub, berlin, lyon) = (
            Place::new("hub", &folder).await,
            Place::new("berlin", &folder).await,
            Place::new("lyon", &folder).await,
        );
        hub.namespace();
        hub.create(original(), "settings", json!({"key": "value"}), false);
        hub.create(original(), "fixed", json!({"key": "new"}), true);
        hub.create(original(), "fresh", json!({"key": "value"}), false);
        hub.create(original(), "theirs", json!({"key": "ours"}), false);
        hub.create(json!({}), "private", json!({"key": "value"}), false);
        // Its original was deleted while the program did not run.
        let mut deleted = original();
        deleted["finalizers"] = json!([FINALIZER]);
        deleted["annotations"] = json!({RECORD: json!([["berlin", "sync", "orphan"]]).to_string()});
        hub.create(deleted, "orphan", json!({"key": "value"}), false);
        hub.delete("orphan");
        berlin.namespace();
        berlin.create(
            copy("settings"),
            "settings",
            json!({"key": "old", "added": "1"}),
            false,
        );
        berlin.create(copy("fixed"), "fixed", json!({"key": "old"}), false);
        berlin.create(copy("orphan"), "orphan", json!({"key": "value"}), false);
        let theirs = json!({"labels": {"somebody": "true"}});
        berlin.create(theirs, "theirs", json!({"key": "theirs"}), false);
        Self {
            hub,
            berlin,
            lyon,
            _folder: folder,
        }
    }

    fn start(&self) -> Program {
        let members = [&self.berlin, &self.lyon].map(|place| place.kubeconfig.to_str().unwrap());
        Program::start(
            "sync-local-to-remote",
            [
                "--hub-kubeconfig",
                self.hub.kubeconfig.to_str().unwrap(),
                "--kubeconfigs",
                &members.join(","),
            ],
        )
    }

    fn members(&self) -> [(&str, &Place); 2] {
        [("berlin", &self.berlin), ("lyon", &self.lyon)]
    }

    fn state(&self) -> State {
        let mut state = State::new();
        for (member, place) in self.members() {
            for map in place.cluster.list("configmaps", "sync") {
                let name = map["metadata"]["name"].as_str().unwrap();
                let mut labels = map["metadata"]["labels"].clone();
                let is_linked = labels
                    .as_object_mut()
                    .unwrap()
                    .remove("sync.mcr.dev/source")
                    .is_some();
                let is_linked = is_linked && map["metadata"]["annotations"][SOURCE_NAME] == name;
                state.insert(format!("{member}/{name}"), shown(&map, labels, is_linked));
            }
        }
        state
    }

    /// What the state should become, as the documentation has it.
    fn wanted(&self) -> State {
        let mut state = State::new();
        for (member, _) in self.members() {
            for mut map in self.hub.cluster.list("configmaps", "sync") {
                let mut labels = map["metadata"]["labels"].clone();
                let is_original = labels
                    .as_object_mut()
                    .is_some_and(|labels| labels.remove(ORIGINAL).is_some());
                if is_original && map["metadata"]["deletionTimestamp"].is_null() {
                    let name = map["metadata"]["name"].as_str().unwrap().to_owned();
                    labels[SYNC] = "sync-local-to-remote".into();
                    if (member, &*name) == ("berlin", "settings") {
                        // An entry of somebody else.
                        map["data"]["added"] = "1".into();
                    }
                    state.insert(format!("{member}/{name}"), shown(&map, labels, true));
                }
            }
        }
        let theirs = json!({"data": {"key": "theirs"}});
        state.insert(
            "berlin/theirs".to_owned(),
            shown(&theirs, json!({"somebody": "true"}), false),
        );
        state
    }

    fn is_as_wanted(&self) -> bool {
        let originals = self.hub.cluster.list("configmaps", "sync");
        let mut originals = originals.iter();
        originals.all(|map| map["metadata"]["deletionTimestamp"].is_null()) && self.state() == self.wanted()
    }

    /// Waits until all is as it should be, and is so when one object more has come and gone, after what was to be done before.
    async fn converged(&self, what: &str, program: &Program) -> State {
        self.until(what, program, Self::is_as_wanted).await;
        let copies = |world: &Self| {
            let members = world.members();
            members
                .iter()
                .filter(|(_, place)| place.get("marker").is_some())
                .count()
        };
        self.hub.put("marker", json!({"key": "value"}));
        self.until(what, program, |world| copies(world) == 2 && world.is_as_wanted())
            .await;
        self.hub.delete("marker");
        self.until(what, program, |world| copies(world) == 0 && world.is_as_wanted())
            .await;
        self.state()
    }

    async fn until(&self, what: &str, program: &Program, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(
                Instant::now() < deadline,
                "{what}: {:#?} and not {:#?}\n{}",
                self.state(),
                self.wanted(),
                program.log()
            );
            sleep(Duration::from_millis(10)).await;
        }
    }
}

fn shown(map: &Value, labels: Value, is_linked: bool) -> Value {
    let binary = map["binaryData"].as_object().filter(|data| !data.is_empty());
    json!({
        "labels": labels, "data": map["data"], "binaryData": binary,
        "immutable": map["immutable"] == true, "linked": is_linked,
    })
}

/// What happens to a world that was killed in, or before, a write.
enum Killed {
    /// Before that write; with something left to do, or with nothing, if the write changes nothing.
    Before { unfinished: bool },
    /// There was no such write any more.
    Never,
}

/// Kills the program when it wants to make its `n`-th write of a verb in a cluster, so after all before it and without
/// it, and starts another one.
async fn killed(cluster: &str, verb: &str, n: u64, undisturbed: &State) -> Killed {
    let world = World::new().await;
    let place = match cluster {
        "hub" => &world.hub,
        "berlin" => &world.berlin,
        _ => &world.lyon,
    };
    // It gets as far as the proxy, and stays there.
    let held = Fault::Slow {
        first_byte: Duration::from_secs(3600),
        bytes_per_second: None,
    };
    place
        .proxy
        .set(held.on(Match::any().verb(verb).skip(n - 1).times(1)))
        .await;
    let program = world.start();
    let deadline = Instant::now() + PATIENCE;
    while place.proxy.stats().hits == 0 {
        if world.is_as_wanted() {
            // It may be a write that changes nothing.
            sleep(Duration::from_millis(300)).await;
            if place.proxy.stats().hits == 0 {
                return Killed::Never;
            }
        }
        assert!(
            Instant::now() < deadline,
            "{:#?}\n{}",
            world.state(),
            program.log()
        );
        sleep(Duration::from_millis(1)).await;
    }
    // SIGKILL.
    drop(program);
    let unfinished = !world.is_as_wanted();
    place.proxy.clear().await;
    let program = world.start();
    let what = format!("killed before {verb} {n} in {cluster}");
    assert_eq!(world.converged(&what, &program).await, *undisturbed, "{what}");
    Killed::Before { unfinished }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sieve_a_crash_between_any_two_writes_ends_in_the_same_state() {
    let world = World::new().await;
    let program = world.start();
    let undisturbed = world.converged("undisturbed", &program).await;
    program.interrupt();
    // The finalizers and records of four originals, and the release of a fifth one; an original without a copy in berlin, two copies
    // that differ, and one that is left over; four copies and a namespace in lyon. With the least number of each.
    let places = [
        ("hub", "patch", 5),
        ("berlin", "create", 1),
        ("berlin", "patch", 2),
        ("berlin", "delete", 1),
        ("lyon", "create", 5),
    ];
    let crashes = futures::future::join_all(places.map(async |(cluster, verb, _)| {
        let (mut crashes, mut midway) = (0, 0);
        while let Killed::Before { unfinished } = killed(cluster, verb, crashes + 1, &undisturbed).await {
            crashes += 1;
            midway += u64::from(unfinished);
            assert!(crashes < 50, "it writes without end");
        }
        (crashes, midway)
    }))
    .await;
    println!("killed at each write, and of that with work left: {places:?} {crashes:?}");
    for ((_, _, least), (crashes, midway)) in places.into_iter().zip(&crashes) {
        assert!(*crashes >= least, "{crashes:?}");
        // A namespace may be made twice.
        assert!(*midway + 2 >= *crashes, "{crashes:?}");
    }
}

/// The program starts again with a view of the hub, then of a member, that is older than what the one before it saw.
async fn stale_view(perturbed: bool) -> State {
    let world = World::new().await;
    let program = world.start();
    world.converged("at first", &program).await;
    world.hub.delete("fresh");
    world.hub.put("settings", json!({"key": "newer"}));
    world.converged("up to date", &program).await;
    program.interrupt();

    let mark = world.hub.cluster.audit().mark();
    if perturbed {
        world.hub.proxy.set(Fault::StaleReads).await;
    }
    let program = world.start();
    if perturbed {
        // It sees an original that is gone. Before it makes a copy it writes the record, and that names what it has read: the hub refuses.
        let is_refused = |world: &World| {
            let audit = world.hub.cluster.audit().since(mark);
            audit.count(|event| event.verb == "patch" && event.name == "fresh" && event.code >= 400) > 0
        };
        world.until("a write that is refused", &program, is_refused).await;
        for (_, place) in world.members() {
            assert!(place.get("fresh").is_none(), "the past comes back");
        }
    }
    world.hub.put("extra", json!({"key": "value"}));
    world.hub.proxy.clear().await;
    world.converged("after a stale view of the hub", &program).await;
    program.interrupt();

    if perturbed {
        world.berlin.proxy.set(Fault::StaleReads).await;
    }
    world.berlin.delete("extra");
    world.berlin.drift("settings");
    let program = world.start();
    world.hub.put("fresh", json!({"key": "again"}));
    world
        .until("it runs", &program, |world| world.lyon.get("fresh").is_some())
        .await;
    world.berlin.proxy.clear().await;
    let state = world.converged("after a stale view of a member", &program).await;
    program.interrupt();
    state
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sieve_a_stale_view_ends_in_the_same_state() {
    let (with, without) = tokio::join!(stale_view(true), stale_view(false));
    assert_eq!(with, without);
}

/// Events are missing: of objects that change again later, of objects that never change again until the connection
/// breaks, and until the program is started again.
async fn missed_events(perturbed: bool) -> State {
    let world = World::new().await;
    let program = world.start();
    world.converged("at first", &program).await;
    let places = [&world.hub, &world.berlin];
    let hits = || places.map(|place| place.proxy.stats().hits);
    let skip = async || {
        for place in places.into_iter().filter(|_| perturbed) {
            place.proxy.set(Fault::SkipEvents).await;
        }
        hits()
    };
    let skipped = async |before: [u64; 2], events: [u64; 2]| {
        let deadline = Instant::now() + PATIENCE;
        while perturbed && (0..2).any(|i| hits()[i] < before[i] + events[i]) {
            assert!(Instant::now() < deadline, "events are left out");
            sleep(Duration::from_millis(10)).await;
        }
        for place in places {
            place.proxy.clear().await;
        }
    };

    // Deleted and made again, and changed twice, of which only the last is seen.
    let before = skip().await;
    world.hub.put("settings", json!({"key": "one", "more": "1"}));
    world.hub.replace("fixed", json!({"key": "another"}), true);
    world.berlin.drift("settings");
    if !perturbed {
        world.converged("in between", &program).await;
    }
    skipped(before, [3, 1]).await;
    world.hub.put("settings", json!({"key": "two"}));
    world.hub.put("extra", json!({"key": "value"}));
    world
        .until("later events are seen", &program, |world| {
            // In both: no place waits for the other, so either may have its copies first.
            world.members().iter().all(|(_, place)| {
                place.get("extra").is_some() && place.get("settings").unwrap()["data"]["key"] == "two"
            })
        })
        .await;

    // Never seen again until the program starts again: what was deleted, and drift.
    let before = skip().await;
    world.hub.delete("fresh");
    world.berlin.drift("extra");
    if !perturbed {
        world.converged("in between", &program).await;
    }
    skipped(before, [1, 1]).await;
    world.hub.put("settings", json!({"key": "three"}));
    world
        .until("later events are seen", &program, |world| {
            world.lyon.get("settings").unwrap()["data"]["key"] == "three"
        })
        .await;
    program.interrupt();
    let program = world.start();
    let state = world.converged("after missed events", &program).await;
    program.interrupt();
    state
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sieve_missed_events_end_in_the_same_state() {
    let (with, without) = tokio::join!(missed_events(true), missed_events(false));
    assert_eq!(with, without);
}
