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

    /// Creates a ConfigMap, or replaces one.
    fn put(&self, name: &str, label: &str, data: Value, immutable: bool) {
        let mut map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "sync", "labels": {label: "true"}},
            "data": data,
        });
        if immutable {
            map["immutable"] = true.into();
        }
        if self.get(name).is_some() {
            self.cluster.update(map).unwrap();
        } else {
            self.cluster.create(map).unwrap();
        }
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
const COPY: &str = "example.io/propagated";

/// What matters of the ConfigMaps in both members, by cluster and name.
type State = BTreeMap<String, Value>;

struct World {
    hub: Place,
    berlin: Place,
    lyon: Place,
    _folder: TempDir,
}

impl World {
    /// Copies are missing, changed, of another content though immutable, and left over; one name is taken. One
    /// member does not even have the namespace.
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (hub, berlin, lyon) = (
            Place::new("hub", &folder).await,
            Place::new("berlin", &folder).await,
            Place::new("lyon", &folder).await,
        );
        hub.namespace();
        hub.put("settings", ORIGINAL, json!({"key": "value"}), false);
        hub.put("fixed", ORIGINAL, json!({"key": "new"}), true);
        hub.put("fresh", ORIGINAL, json!({"key": "value"}), false);
        hub.put("theirs", ORIGINAL, json!({"key": "ours"}), false);
        hub.put("private", "nobody", json!({"key": "value"}), false);
        berlin.namespace();
        berlin.put("settings", COPY, json!({"key": "old", "added": "1"}), false);
        berlin.put("fixed", COPY, json!({"key": "old"}), true);
        berlin.put("orphan", COPY, json!({"key": "value"}), false);
        berlin.put("theirs", "somebody", json!({"key": "theirs"}), false);
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
                let version = &map["metadata"]["annotations"]["example.io/original-version"];
                let original = self.hub.get(name);
                let current =
                    original.is_some_and(|original| original["metadata"]["resourceVersion"] == *version);
                let labels = map["metadata"]["labels"].clone();
                state.insert(format!("{member}/{name}"), shown(&map, labels, current));
            }
        }
        state
    }

    /// What the state should become, as the documentation has it.
    fn wanted(&self) -> State {
        let mut state = State::new();
        for (member, _) in self.members() {
            for map in self.hub.cluster.list("configmaps", "sync") {
                let mut labels = map["metadata"]["labels"].clone();
                if labels.as_object_mut().unwrap().remove(ORIGINAL).is_some() {
                    labels[COPY] = "true".into();
                    let name = map["metadata"]["name"].as_str().unwrap();
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

    /// Waits until all is as it should be, and is so when one object more has come and gone, after what was to be done before.
    async fn settled(&self, what: &str, program: &Program) -> State {
        let is_as_wanted = |world: &Self| world.state() == world.wanted();
        self.until(what, program, is_as_wanted).await;
        let copies = |world: &Self| {
            let members = world.members();
            members
                .iter()
                .filter(|(_, place)| place.get("marker").is_some())
                .count()
        };
        self.hub.put("marker", ORIGINAL, json!({"key": "value"}), false);
        self.until(what, program, |world| copies(world) == 2 && is_as_wanted(world))
            .await;
        self.hub.delete("marker");
        self.until(what, program, |world| copies(world) == 0 && is_as_wanted(world))
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

fn shown(map: &Value, labels: Value, current: bool) -> Value {
    let binary = map["binaryData"].as_object().filter(|data| !data.is_empty());
    json!({
        "labels": labels, "data": map["data"], "binaryData": binary,
        "immutable": map["immutable"] == true, "current": current,
    })
}

/// What happens to a world that was killed in, or before, a write.
enum Killed {
    /// Before that write; with something left to do, or with nothing, if the write changes nothing.
    Before { unfinished: bool },
    /// There was no such write any more.
    Never,
}

/// Kills the program when it wants to make its `n`-th write of a verb in a member, so after all before it and without
/// it, and starts another one.
async fn killed(member: &str, verb: &str, n: u64, undisturbed: &State) -> Killed {
    let world = World::new().await;
    let [place] = world
        .members()
        .map(|(name, place)| (name == member).then_some(place))
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()[..]
    else {
        panic!("{member} is no member");
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
        if world.state() == world.wanted() {
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
    let unfinished = world.state() != world.wanted();
    place.proxy.clear().await;
    let program = world.start();
    let what = format!("killed before {verb} {n} in {member}");
    assert_eq!(world.settled(&what, &program).await, *undisturbed, "{what}");
    Killed::Before { unfinished }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sieve_a_crash_between_any_two_writes_ends_in_the_same_state() {
    let world = World::new().await;
    let program = world.start();
    let undisturbed = world.settled("undisturbed", &program).await;
    program.interrupt();
    let places = [("berlin", "patch"), ("berlin", "delete"), ("lyon", "patch")];
    let crashes = futures::future::join_all(places.map(async |(member, verb)| {
        let (mut crashes, mut midway) = (0, 0);
        while let Killed::Before { unfinished } = killed(member, verb, crashes + 1, &undisturbed).await {
            crashes += 1;
            midway += u64::from(unfinished);
            assert!(crashes < 50, "it writes without end");
        }
        (crashes, midway)
    }))
    .await;
    println!("killed at each write, and of that with work left: {places:?} {crashes:?}");
    // Three copies in berlin, one of them in two writes; two deletes; four copies and a namespace in lyon.
    let [patched, deleted, filled] = crashes[..] else {
        panic!("three of them: {crashes:?}");
    };
    assert!(patched.0 >= 4 && deleted.0 >= 2 && filled.0 >= 5, "{crashes:?}");
    assert!(patched.1 >= 4 && deleted.1 >= 2 && filled.1 >= 3, "{crashes:?}");
}

/// The program starts again with a view of the hub, then of a member, that is older than what the one before it saw.
async fn stale_view(perturbed: bool) -> State {
    let world = World::new().await;
    let program = world.start();
    world.settled("at first", &program).await;
    world.hub.delete("fresh");
    world
        .hub
        .put("settings", ORIGINAL, json!({"key": "newer"}), false);
    world.settled("up to date", &program).await;
    program.interrupt();

    if perturbed {
        world.hub.proxy.set(Fault::StaleReads).await;
    }
    let program = world.start();
    if perturbed {
        // It acts on what it sees, as it must: it can't know better.
        world
            .until("the past comes back", &program, |world| {
                world.lyon.get("fresh").is_some()
            })
            .await;
    }
    world.hub.put("extra", ORIGINAL, json!({"key": "value"}), false);
    world.hub.proxy.clear().await;
    world.settled("after a stale view of the hub", &program).await;
    program.interrupt();

    if perturbed {
        world.berlin.proxy.set(Fault::StaleReads).await;
    }
    world.berlin.delete("extra");
    world
        .berlin
        .put("settings", COPY, json!({"key": "drifted", "added": "1"}), false);
    let program = world.start();
    world.hub.put("fresh", ORIGINAL, json!({"key": "again"}), false);
    world
        .until("it runs", &program, |world| world.lyon.get("fresh").is_some())
        .await;
    world.berlin.proxy.clear().await;
    let state = world.settled("after a stale view of a member", &program).await;
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
    world.settled("at first", &program).await;
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
    world
        .hub
        .put("settings", ORIGINAL, json!({"key": "one", "more": "1"}), false);
    world.hub.delete("fixed");
    world.hub.put("fixed", ORIGINAL, json!({"key": "another"}), true);
    world
        .berlin
        .put("settings", COPY, json!({"key": "drifted"}), false);
    if !perturbed {
        world.settled("in between", &program).await;
    }
    skipped(before, [3, 1]).await;
    world.hub.put("settings", ORIGINAL, json!({"key": "two"}), false);
    world.hub.put("extra", ORIGINAL, json!({"key": "value"}), false);
    world
        .until("later events are seen", &program, |world| {
            world.lyon.get("extra").is_some() && world.lyon.get("settings").unwrap()["data"]["key"] == "two"
        })
        .await;

    // Never seen again until the program starts again: what was deleted, and drift.
    let before = skip().await;
    world.hub.delete("fresh");
    world.berlin.put("extra", COPY, json!({"key": "drifted"}), false);
    if !perturbed {
        world.settled("in between", &program).await;
    }
    skipped(before, [1, 1]).await;
    world
        .hub
        .put("settings", ORIGINAL, json!({"key": "three"}), false);
    world
        .until("later events are seen", &program, |world| {
            world.lyon.get("settings").unwrap()["data"]["key"] == "three"
        })
        .await;
    program.interrupt();
    let program = world.start();
    let state = world.settled("after missed events", &program).await;
    program.interrupt();
    state
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sieve_missed_events_end_in_the_same_state() {
    let (with, without) = tokio::join!(missed_events(true), missed_events(false));
    assert_eq!(with, without);
}
