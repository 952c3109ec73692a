//! Clusters in scopes as members of a fleet: how they come, change, leave, and what they share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use mcr_core::{
    Change, ChangeSink, Cluster, ClusterSpec, ClusterState, Discovery, Fleet, ObjectChange, Provider,
    WatchRequest, WatchStatus,
};
use tokio_util::sync::CancellationToken;

use mcr_doubles::shard::shard;

use crate::{
    harness::*,
    witness::Witness,
    workspaces::{WORKSPACES, access, alone, scope, scope_of},
};

/// Work that ends long after any grace.
fn outlasting(cluster: &Cluster) -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    cluster.spawn({
        let ended = ended.clone();
        async move {
            tokio::time::sleep(Duration::from_secs(30)).await;
            ended.store(true, Ordering::SeqCst);
        }
    });
    ended
}

#[test]
fn a_name_can_go_from_an_access_of_its_own_into_a_scope_and_back() {
    paused(|| async {
        let a = shard("a", 100, &["zoo"]);
        let running = Running::start();
        let scope = scope(&[("a", &a)]);
        let alone = ClusterSpec::new(name("zoo"), alone(&a, "zoo")).identity("id of zoo");
        let seated = spec(&scope, "a", "zoo");
        let mut cluster = running.announce(alone.clone()).await;
        for (spec, in_scope) in [(&seated, true), (&alone, false), (&seated, true), (&alone, false)] {
            let seen = Witness::of(&cluster);
            seen.equals(&a).await;
            assert_eq!(cluster.scope().is_some(), !in_scope);
            let ended = outlasting(&cluster);
            running.clusters.add(spec.clone());
            eventually(SOON, "it leaves", || cluster.state() == ClusterState::Draining).await;
            assert!(seen.store().is_none(), "nothing of it is readable");
            assert!(
                running.fleet.get("zoo").is_err(),
                "its name is free only when its work has ended"
            );
            // What is said meanwhile counts when it is over.
            running.clusters.remove(&name("zoo"));
            running.clusters.add(spec.clone());
            let new = next(&running, &cluster).await;
            assert_eq!(cluster.state(), ClusterState::Gone);
            assert!(
                !ended.load(Ordering::SeqCst),
                "nobody waits longer than the grace"
            );
            assert!(new.epoch() > cluster.epoch());
            assert_eq!(new.scope().is_some(), in_scope);
            assert!(!seen.has("-default/of-zoo"), "leaving is not deleting");
            cluster = new;
        }
        // There and back while the first one still ends.
        ready(&cluster).await;
        outlasting(&cluster);
        running.clusters.add(seated);
        tokio::time::sleep(Duration::from_secs(1)).await;
        running.clusters.add(alone);
        let last = next(&running, &cluster).await;
        assert!(last.scope().is_none());
        Witness::of(&last).equals(&a).await;
        assert_eq!(running.fleet.scopes().len(), 0);
        running.clusters.remove(&name("zoo"));
        gone(&last).await;
        running.stop().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
    });
}

#[test]
fn ten_thousand_that_come_and_go_leave_nothing_behind() {
    paused(|| async {
        let names: Vec<String> = (0..50).map(|i| format!("c{i}")).collect();
        let a = shard("a", 100, &names.iter().map(String::as_str).collect::<Vec<_>>());
        let running = Running::start();
        let scope = scope(&[("a", &a)]);
        // One stays, with the endpoint and the watch; half of the others have objects.
        a.bind("stays");
        let stays = Witness::of(&running.join(&scope, "a", "stays").await);
        for name in names.iter().skip(25) {
            a.delete(name, "default", &format!("of-{name}"));
        }
        stays.equals(&a).await;
        let counts = || {
            let scopes = running.fleet.scopes();
            assert_eq!(scopes.len(), 1);
            let watches = &scopes[0].watches;
            assert_eq!(watches.len(), 1);
            (scopes[0].clusters, watches[0].clusters, watches[0].places)
        };
        // A place of one's own even for those without objects, and 25 with.
        eventually(SOON, "deletes arrive", || counts() == (1, 1, 26)).await;
        for _ in 0..200 {
            let mut here = Vec::new();
            for name in &names {
                here.push(Witness::of(&running.join(&scope, "a", name).await));
            }
            assert_eq!(counts(), (51, 51, 51));
            for seen in here {
                running.clusters.remove(seen.cluster.name());
                gone(&seen.cluster).await;
            }
        }
        assert_eq!(counts(), (1, 1, 26));
        assert_eq!(running.fleet.snapshot().clusters.len(), 1);
        assert_eq!(a.lists(), 1);
        running.clusters.remove(&name("stays"));
        gone(&stays.cluster).await;
        assert_eq!(running.fleet.scopes().len(), 0);
        running.stop().await;
    });
}

#[test]
fn what_runs_for_a_cluster_may_speak_to_it_until_its_grace_is_over() {
    paused(|| async {
        let a = shard("a", 100, &["zoo", "jungle"]);
        let running = Running::start();
        let scope = scope(&[("a", &a)]);
        let mut writers = Vec::new();
        let write = |cluster: &Cluster| {
            let (own, leaves) = (cluster.clone(), cluster.token().clone());
            cluster.spawn(async move {
                leaves.cancelled().await;
                tokio::time::sleep(Duration::from_secs(3)).await;
                let api = own.namespaced::<ConfigMap>("default");
                api.get(&format!("of-{}", own.name())).await.map(|_| own)
            })
        };
        // One leaves as the last of its endpoint.
        let zoo = running.join(&scope, "a", "zoo").await;
        ready(&zoo).await;
        writers.push(write(&zoo));
        running.clusters.remove(&name("zoo"));
        gone(&zoo).await;
        assert_eq!(running.fleet.scopes().len(), 0);
        // And one because the fleet stops.
        let jungle = running.join(&scope, "a", "jungle").await;
        ready(&jungle).await;
        writers.push(write(&jungle));
        running.stop().await;
        assert_eq!(jungle.state(), ClusterState::Gone);
        for writer in writers {
            let cluster = writer.await.unwrap().or_fail();
            let api = cluster.namespaced::<ConfigMap>("default");
            assert!(api.get("x").await.is_err(), "and not after that");
        }
    });
}

#[test]
fn another_server_behind_an_endpoint_has_other_clusters() {
    paused(|| async {
        let (a, b) = (
            shard("a", 100, &["zoo", "jungle"]),
            shard("b", 100, &["zoo", "jungle"]),
        );
        let running = Running::start();
        let scope = scope(&[("main", &a)]);
        let zoo = running.join(&scope, "main", "zoo").await;
        let jungle = running.join(&scope, "main", "jungle").await;
        let (seen, other) = (Witness::of(&zoo), Witness::of(&jungle));
        seen.equals(&a).await;
        other.equals(&a).await;
        outlasting(&zoo);
        scope.set_endpoint("main", access(&b));
        let new = next(&running, &jungle).await;
        Witness::of(&new).equals(&b).await;
        assert_eq!(zoo.state(), ClusterState::Draining, "its work still ends");
        let error = get(&zoo, "of-zoo").await.unwrap_err();
        assert!(
            error.to_string().contains("gone"),
            "nothing of it goes to the other server: {error}"
        );
        let new = next(&running, &zoo).await;
        Witness::of(&new).equals(&b).await;
        assert!(!seen.has("-default/of-zoo") && !other.has("-default/of-jungle"));
        let scopes = running.fleet.scopes();
        assert_eq!((scopes.len(), scopes[0].clusters), (1, 2));
        running.stop().await;
    });
}

#[test]
fn two_names_may_stand_for_the_same_place() {
    paused(|| async {
        let a = shard("a", 100, &["zoo"]);
        let running = Running::start();
        let scope = scope(&[("a", &a)]);
        let zoo = running.join(&scope, "a", "zoo").await;
        let alias = ClusterSpec::new(name("alias"), scope.place("a", "zoo")).identity("another");
        let alias_of = running.announce(alias.clone()).await;
        let (seen, same) = (Witness::of(&zoo), Witness::of(&alias_of));
        seen.equals(&a).await;
        eventually(SOON, "both hold it", || same.names() == ["default/of-zoo"]).await;
        running.clusters.remove(&name("zoo"));
        gone(&zoo).await;
        a.put("zoo", "default", "lion", "1");
        eventually(SOON, "the other one goes on", || same.has("+default/lion")).await;
        assert!(!seen.has("+default/lion") && !seen.has("-default/of-zoo"));
        assert_eq!((a.lists(), same.faults()), (1, vec![]));

        // One moves to a place of its own behind the same endpoint.
        let zoo = running.join(&scope, "a", "zoo").await;
        let seen = Witness::of(&zoo);
        seen.equals(&a).await;
        a.bind("elsewhere");
        a.put("elsewhere", "default", "lion", "2");
        running
            .clusters
            .add(ClusterSpec::new(name("alias"), scope.place("a", "elsewhere")).identity("another"));
        eventually(SOON, "it holds what is there", || {
            same.store().unwrap() == a.has("elsewhere")
        })
        .await;
        assert!(running.fleet.get("alias").or_fail().is_same(&alias_of));
        // The object that is called the same is another one, and what only the old place had is gone.
        assert_eq!(
            same.lines(),
            [
                "+default/lion",
                "-default/lion",
                "+default/lion",
                "+default/of-zoo",
                "-default/of-zoo"
            ]
        );
        a.put("elsewhere", "default", "tiger", "1");
        a.put("zoo", "default", "bear", "1");
        seen.equals(&a).await;
        eventually(SOON, "it goes on there", || same.has("+default/tiger")).await;
        assert!(!same.has("+default/bear") && !seen.has("+default/tiger"));
        let scopes = running.fleet.scopes();
        assert_eq!(
            (scopes[0].watches[0].places, scopes[0].watches[0].clusters),
            (2, 2)
        );
        // And back.
        running.clusters.add(alias);
        eventually(SOON, "it is back", || same.store() == seen.store()).await;
        assert_eq!((same.faults(), seen.faults()), (vec![], vec![]));
        running.stop().await;
    });
}

/// Workspaces by someone who did not think of everything.
const CARELESS: Layout = Layout {
    deletions_are_certain: || panic!("told to panic in deletions_are_certain"),
    watch: |wanted| {
        assert_ne!(wanted.plural(), "pods", "told to panic in watch");
        (WORKSPACES.watch)(wanted)
    },
    place: |object| {
        assert_ne!(object.name().as_deref(), Some("evil"), "told to panic in place");
        (WORKSPACES.place)(object)
    },
    localize: Some(|object| assert_ne!(object["metadata"]["name"], "odd", "told to panic in localize")),
    send: |place, request, upstream| {
        assert!(!request.uri().path().ends_with("evil"), "told to panic in send");
        (WORKSPACES.send)(place, request, upstream)
    },
    ..WORKSPACES
};

#[test]
fn a_layout_that_panics_costs_what_it_panicked_on_and_nothing_else() {
    paused(|| async {
        let (a, b) = (shard("a", 100, &["zoo", "jungle"]), shard("b", 100, &["island"]));
        a.put("jungle", "default", "evil", "1");
        a.put("jungle", "default", "odd", "1");
        let running = Running::start();
        let scope = scope_of(CARELESS, &[("a", &a), ("b", &b)]);
        let zoo = running.join(&scope, "a", "zoo").await;
        let jungle = running.join(&scope, "a", "jungle").await;
        let (seen, other) = (Witness::of(&zoo), Witness::of(&jungle));
        seen.equals(&a).await;
        assert_eq!(other.names(), ["default/of-jungle"]);
        // Nothing is taken for deleted by a list in which something could not be told whose it is.
        a.kill_watches();
        a.delete("zoo", "default", "of-zoo");
        a.end_watches();
        a.expire();
        a.put("zoo", "default", "lion", "1");
        a.put("jungle", "default", "evil", "2");
        eventually(SOON, "it goes on", || seen.has("+default/lion")).await;
        assert_eq!(seen.names(), ["default/lion", "default/of-zoo"]);
        // A delete that can't be told whose it is leads to a list, which by then has nothing to panic about.
        a.delete("jungle", "default", "odd");
        a.delete("jungle", "default", "evil");
        seen.equals(&a).await;
        other.equals(&a).await;

        let pods = zoo.watch(WatchRequest::of::<Pod>(), None).or_fail();
        let problem = pods.status().problem.unwrap().error.to_string();
        assert!(problem.contains("panicked"), "{problem}");
        // While a cluster moves, the one who moves it asks.
        running.clusters.add(spec(&scope, "b", "jungle"));
        running.clusters.add(spec(&scope, "b", "zoo"));
        running.join(&scope, "b", "island").await;
        let error = get(&zoo, "evil").await.unwrap_err();
        let text = format!(
            "{error} {:?}",
            std::error::Error::source(&error).map(ToString::to_string)
        );
        assert!(text.contains("panicked"), "{text}");
        drop(pods);
        running.stop().await;
    });
}

/// Looks at the fleet whenever it is told anything, as functions that map objects to clusters do.
struct Curious {
    fleet: Fleet,
    reads: AtomicUsize,
}

impl Curious {
    fn look(&self) {
        assert!(self.fleet.get("nobody").is_err());
        self.fleet.snapshot();
        std::thread::sleep(Duration::from_millis(1));
        self.reads.fetch_add(1, Ordering::SeqCst);
    }
}

impl ChangeSink for Curious {
    fn changed(&self, _: &ObjectChange) {
        self.look();
    }
    fn status_changed(&self, _: &WatchStatus) {
        self.look();
    }
}

/// Whoever begins to watch in the moment of a move reads from where the cluster is, and a state that comes late is
/// not believed. Who is told may look at the fleet.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watches_begin_and_end_and_endpoints_come_and_go_while_a_cluster_moves() {
    let (a, b) = (shard("a", 100, &["anchor"]), shard("b", 100, &["island"]));
    for shard in [&a, &b] {
        shard.bind("zoo");
        shard.put("zoo", "default", "same", "1");
    }
    let running = Running::start();
    let scope = scope(&[("a", &a), ("b", &b)]);
    let access = [access(&a), access(&b)];
    scope.set_endpoint("a", access[0].clone());
    scope.set_endpoint("b", access[1].clone());
    let others = [
        Witness::of(&running.join(&scope, "a", "anchor").await),
        Witness::of(&running.join(&scope, "b", "island").await),
    ];
    let zoo = running.join(&scope, "a", "zoo").await;
    let curious = Arc::new(Curious {
        fleet: running.fleet.clone(),
        reads: AtomicUsize::new(0),
    });
    let watch = |zoo: &Cluster| zoo.watch(WatchRequest::of::<ConfigMap>(), Some(curious.clone()));
    let _watch = watch(&zoo).or_fail();
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for kind in 0..3 {
        let (zoo, stop) = (zoo.clone(), stop.clone());
        let runtime = tokio::runtime::Handle::current();
        threads.push(std::thread::spawn(move || {
            let _entered = runtime.enter();
            while !stop.load(Ordering::SeqCst) {
                match kind {
                    0 => drop(Witness::of(&zoo)),
                    1 => drop(zoo.watch(WatchRequest::of::<Secret>(), None)),
                    _ => drop(zoo.watch(WatchRequest::of::<ConfigMap>().labels("x=y"), None)),
                }
                std::thread::sleep(Duration::from_micros(300));
            }
        }));
    }
    for round in 0..100 {
        running.clusters.add(spec(&scope, ["b", "a"][round % 2], "zoo"));
        for shard in [&a, &b] {
            shard.put("zoo", "default", "other", &round.to_string());
        }
        match round % 10 {
            3 => scope.remove_endpoint("b"),
            5 => scope.set_endpoint("b", access[1].clone()),
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(round as u64 % 5)).await;
    }
    scope.set_endpoint("b", access[1].clone());
    running.clusters.add(spec(&scope, "b", "zoo"));
    stop.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(running.engaged("zoo").await.is_same(&zoo));
    let seen = Witness::of(&zoo);
    b.put("zoo", "default", "last", "1");
    seen.equals(&b).await;
    ready(&zoo).await;
    others[0].equals(&a).await;
    others[1].equals(&b).await;
    eventually(SOON, "nobody is left at the other endpoint", || {
        let scopes = running.fleet.scopes();
        let of = |endpoint: &str| scopes.iter().find(|scope| &*scope.endpoint == endpoint).unwrap();
        let reads = |endpoint: &str| {
            of(endpoint)
                .watches
                .iter()
                .map(|watch| watch.clusters)
                .sum::<usize>()
        };
        of("a").clusters == 1 && of("b").clusters == 2 && reads("a") == 1 && reads("b") == 2
    })
    .await;

    // The end is the end, whatever the endpoint says in that moment.
    for _ in 0..50 {
        let zoo = running.join(&scope, "a", "zoo").await;
        let _watch = watch(&zoo).or_fail();
        let flapping = tokio::spawn({
            let (scope, access) = (scope.clone(), access[0].clone());
            async move {
                scope.remove_endpoint("a");
                tokio::task::yield_now().await;
                scope.set_endpoint("a", access);
            }
        });
        running.clusters.remove(&name("zoo"));
        gone(&zoo).await;
        flapping.await.unwrap();
        tokio::task::yield_now().await;
        assert_eq!(zoo.state(), ClusterState::Gone);
    }
    assert!(curious.reads.load(Ordering::SeqCst) > 100);
    running.stop().await;
}

/// Names clusters the first time it is asked, and none after that.
struct Forgetful(Vec<ClusterSpec>, AtomicBool);

impl Provider for Forgetful {
    fn name(&self) -> &str {
        "forgetful"
    }
    fn discover(&self, stop: CancellationToken) -> Discovery {
        if self.1.swap(true, Ordering::SeqCst) {
            let nothing = stream::iter([Ok(Change::Synced)]).chain(stream::pending());
            return nothing.take_until(stop.cancelled_owned()).boxed();
        }
        let all = self.0.iter().cloned().map(|spec| Ok(Change::Upsert(spec)));
        stream::iter(all.chain([Ok(Change::Synced)]).collect::<Vec<_>>()).boxed()
    }
}

/// Clusters in scopes leave on the thread of whoever lets them go.
#[test]
fn held_clusters_can_be_released_from_outside_of_the_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (fleet, zoo) = runtime.block_on(async {
        let scope = scope(&[("a", &shard("a", 100, &["zoo"]))]);
        let specs = ["zoo", "jungle", "island"].map(|place| spec(&scope, "a", place));
        let fleet = Fleet::builder()
            .provider(Forgetful(specs.to_vec(), AtomicBool::new(false)))
            .settings(|settings| {
                settings.removal_grace = Duration::from_millis(10);
                settings.drain_grace = Duration::ZERO;
            })
            .build();
        tokio::spawn({
            let fleet = fleet.clone();
            async move { fleet.run(CancellationToken::new()).await }
        });
        let zoo = eventually(SOON, "it joins", || fleet.get("zoo").ok()).await;
        zoo.spawn({
            let leaves = zoo.token().clone();
            async move {
                leaves.cancelled().await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        eventually(SOON, "its removal is held back", || {
            let warnings = fleet.snapshot().clusters.pop()?.warnings;
            warnings
                .iter()
                .any(|warning| warning.contains("lost most of its clusters"))
                .then_some(())
        })
        .await;
        (fleet, zoo)
    });
    fleet.release_held();
    runtime.block_on(gone(&zoo));
}
