//! The Shoots of a seed, and what is told of them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use mcr_core::{Change, ClusterState, WatchRequest};
use mcr_garden_double::Garden;
use mcr_provider_gardener::{GardenerError, GardenerProvider, Topology};
use mcr_testkit::{
    discovery::address_and_token,
    sim::{SimCluster, SimFleet, SimRule, SimUser},
    waiting::eventually,
};
use serde_json::json;
use support::{
    PATIENCE, Received, fleet_of, kubeconfig,
    seed::{CLUSTERS, SeedWorld},
};
use tokio::time::{Instant, timeout};

const MINUTE: Duration = Duration::from_secs(60);

fn operation(type_: &str, state: &str) -> serde_json::Value {
    json!({"type": type_, "state": state, "progress": 40, "description": "what happened"})
}

#[tokio::test]
async fn a_life_is_reported_step_by_step() {
    let seed = SeedWorld::new();
    seed.shoot("one", |shoot| _ = shoot["status"]["lastOperation"].take());
    let mut received = seed.received();
    assert_eq!(received.line().await, "~dev/one: its creation has not begun");
    assert_eq!(received.line().await, "synced");
    let operation_is = |type_, state| {
        seed.shoot("one", |shoot| {
            shoot["status"]["lastOperation"] = operation(type_, state)
        });
    };
    operation_is("Create", "Processing");
    assert_eq!(received.line().await, "~dev/one: it is being created (40 %)");
    operation_is("Create", "Failed");
    assert_eq!(
        received.line().await,
        "~dev/one: its creation has failed: what happened"
    );
    operation_is("Create", "Succeeded");
    assert_eq!(
        received.line().await,
        "~dev/one: its Secret shoot--dev--one/gardener with the kubeconfig is not there"
    );
    let before = seed.gets();
    seed.kubeconfig("one", &kubeconfig("first"));
    let Change::Upsert(spec) = received.next().await else {
        panic!("not engaged");
    };
    assert_eq!(spec.identity.as_deref(), Some("uid-of-one"));
    for (property, value) in [
        ("project", "dev"),
        ("namespace", "garden-dev"),
        ("shoot", "one"),
        ("seed", "seed-a"),
        ("purpose", "evaluation"),
        ("cloud-profile", "local"),
        ("version", "1.34.1"),
    ] {
        assert_eq!(spec.properties[property], value, "{property}");
    }

    let hibernate = |wanted: bool, is: bool| {
        seed.shoot("one", |shoot| {
            shoot["spec"]["hibernation"] = json!({"enabled": wanted});
            shoot["status"]["hibernated"] = is.into();
        });
    };
    hibernate(true, false);
    assert_eq!(received.line().await, "~dev/one: it is going into hibernation");
    hibernate(true, true);
    assert_eq!(received.line().await, "~dev/one: it is hibernated");
    hibernate(false, true);
    assert_eq!(
        received.line().await,
        "~dev/one: it is waking up from hibernation"
    );
    assert_eq!(seed.gets(), before + 1, "none for a suspended one");
    hibernate(false, false);
    assert_eq!(received.line().await, "+dev/one");

    // What happens to a cluster that runs is no news: its Shoot leaves the seed, fails, or loses its Secret for a moment.
    operation_is("Migrate", "Processing");
    operation_is("Reconcile", "Failed");
    seed.delete_secret("one");
    seed.kubeconfig("one", &kubeconfig("second"));
    let Change::Upsert(spec) = received.next().await else {
        panic!("no new kubeconfig");
    };
    assert!(address_and_token(&spec.access).contains("second"));

    seed.delete("one");
    assert_eq!(received.line().await, "-dev/one");
    seed.shoot("one", |shoot| shoot["metadata"]["uid"] = "another".into());
    let Change::Upsert(spec) = received.next().await else {
        panic!("not engaged again");
    };
    assert_eq!(spec.identity.as_deref(), Some("another"));
    // Replaced in one step, as a watch sees it that was away: the old one leaves first.
    seed.shoot("one", |shoot| shoot["metadata"]["uid"] = "a third".into());
    assert_eq!(received.line().await, "-dev/one");
    assert_eq!(received.line().await, "+dev/one");
    seed.shoot("one", |shoot| {
        shoot["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into()
    });
    assert_eq!(received.line().await, "-dev/one");
}

#[tokio::test]
async fn clusters_without_a_shoot_are_reported_and_names_need_no_project() {
    let seed = SeedWorld::new();
    seed.add("one");
    // As Gardener named control planes long ago.
    let mut shoot = Garden::shoot("garden-old", "two");
    shoot["status"]["technicalID"] = "shoot-old-two".into();
    seed.0.create(Garden::cluster(&shoot)).unwrap();
    // Another one of that namespace, with a name as today.
    let mut newer = Garden::shoot("garden-old", "three");
    newer["status"]["technicalID"] = "shoot--old--three".into();
    seed.0.create(Garden::cluster(&newer)).unwrap();
    for (name, spec) in [("shoot--dev--empty", json!({})), ("other", json!({"shoot": 7}))] {
        let mut cluster = Garden::cluster(&shoot);
        cluster["metadata"]["name"] = name.into();
        cluster["spec"] = spec;
        seed.0.create(cluster).unwrap();
    }
    let mut received = seed.received();
    let mut reported = received.until("synced").await;
    reported.sort();
    let [empty, other, one, synced, two, three] = <[String; 6]>::try_from(reported).unwrap();
    assert_eq!((&*one, &*synced), ("+dev/one", "synced"));
    assert_eq!(
        empty,
        "!dev/empty: Shoot garden-dev/empty: the Cluster shoot--dev--empty of the seed can't be read: it has no Shoot"
    );
    assert!(other.starts_with("!other/other: Shoot other/other: "), "{other}");
    assert_eq!(
        two,
        "~garden-old/two: its Secret shoot-old-two/gardener with the kubeconfig is not there"
    );
    assert!(three.starts_with("~old/three: "), "{three}");
    // One that can't be read any more keeps its kubeconfig and its name, also if the name of its Cluster does not have it.
    let mut cluster = seed.0.get(CLUSTERS, "shoot-old-two").unwrap();
    cluster["spec"] = json!({});
    seed.0.update(cluster).unwrap();
    let why = received.line().await;
    assert!(
        why.starts_with("!garden-old/two: Shoot garden-old/two: "),
        "{why}"
    );
    seed.shoot("one", |shoot| *shoot = json!({"spec": 7}));
    let why = received.line().await;
    assert!(
        why.starts_with("!dev/one: Shoot garden-dev/one: the Cluster shoot--dev--one"),
        "{why}"
    );
    seed.shoot("one", |shoot| {
        *shoot = Garden::shoot("garden-dev", "one");
        shoot["metadata"]["uid"] = "uid-of-one".into();
    });
    assert_eq!(received.line().await, "+dev/one");
}

#[tokio::test]
async fn shoots_are_selected_by_what_they_are() {
    let seed = SeedWorld::new();
    for name in ["a", "b"] {
        seed.add(name);
    }
    seed.shoot("b", |shoot| {
        shoot["metadata"]["namespace"] = "garden-other".into();
        shoot["metadata"]["labels"] = json!({"tier": "gold"});
        shoot["spec"]["purpose"] = "production".into();
        shoot["spec"]["cloudProfile"]["name"] = "aws".into();
        shoot["status"]["seedName"] = "seed-b".into();
    });
    for (builder, reported) in [
        (seed.builder().projects(["dev"]), &["+dev/a", "+dev/b"][..]),
        (seed.builder().projects(["other"]), &[]),
        (seed.builder().namespace("garden-other"), &["+dev/b"]),
        (seed.builder().labels("tier in (gold)"), &["+dev/b"]),
        (seed.builder().labels("!tier"), &["+dev/a"]),
        (seed.builder().purposes(["production"]), &["+dev/b"]),
        (seed.builder().seeds(["seed-b"]), &["+dev/b"]),
        (seed.builder().cloud_profiles(["aws"]), &["+dev/b"]),
        (
            seed.builder()
                .select(|shoot| shoot.spec.purpose.as_deref() == Some("evaluation")),
            &["+dev/a"],
        ),
    ] {
        let provider = builder.build().unwrap();
        let mut received = Received::of(&provider).until("synced").await;
        received.pop();
        received.sort();
        assert_eq!(received, reported, "{provider:?}");
    }
}

#[tokio::test]
async fn options_that_a_seed_does_not_have_are_refused() {
    let client = SimCluster::builder().build().client();
    let builder = || {
        GardenerProvider::builder()
            .client(client.clone())
            .topology(Topology::Seed)
    };
    let error = |built: Result<GardenerProvider, GardenerError>| built.unwrap_err();
    assert_eq!(
        error(builder().viewer().build()),
        GardenerError::NotInSeed("viewer")
    );
    assert_eq!(
        error(builder().valid_for(60 * MINUTE).build()),
        GardenerError::NotInSeed("valid_for")
    );
    assert_eq!(
        error(builder().labels("a of b").build()),
        GardenerError::Labels("a of b".into())
    );
}

#[tokio::test]
async fn an_unusable_kubeconfig_is_reported_and_the_last_one_stays_in_use() {
    let seed = SeedWorld::new();
    seed.add("a");
    let mut received = seed.received();
    assert_eq!(received.until("synced").await, ["+dev/a", "synced"]);
    seed.kubeconfig("a", "secret-canary: [");
    let reported = received.line().await;
    assert!(
        reported.starts_with("!dev/a: Shoot garden-dev/a: the kubeconfig of the Shoot can't be used: "),
        "{reported}"
    );
    assert!(!reported.contains("secret-canary"), "{reported}");
    seed.kubeconfig("a", &kubeconfig("new"));
    assert_eq!(received.line().await, "+dev/a");
}

#[tokio::test]
async fn a_seed_that_refuses_the_secret_is_reported() {
    let seed = SeedWorld::new();
    seed.add("a");
    let user = |rules: &[SimRule]| {
        let user = rules.iter().cloned().fold(SimUser::new("reader"), SimUser::rule);
        seed.0.set_user("reader", user);
    };
    let watches = [
        SimRule::new(["extensions.gardener.cloud"], ["clusters"], ["list", "watch"]),
        SimRule::new([""], ["secrets"], ["list", "watch"]).names(["gardener"]),
    ];
    user(&watches);
    let client = seed.0.client_with_token("reader");
    let provider = seed.builder().client(client).build().unwrap();
    let mut received = Received::of(&provider);
    assert_eq!(
        received.line().await,
        "!dev/a: Shoot garden-dev/a: the seed refused Secret shoot--dev--a/gardener with 403; grant the verb get on the \
         secrets named gardener to the client of the seed"
    );
    let get = SimRule::new([""], ["secrets"], ["get"]).names(["gardener"]);
    user(&[watches.to_vec(), vec![get]].concat());
    assert_eq!(received.until("+dev/a").await.last().unwrap(), "+dev/a");
}

/// Gardener replaces the token also while the Cluster has a Shoot that can't be decoded.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_cannot_be_decoded_follows_its_secret() {
    let seed = SeedWorld::new();
    seed.add("a");
    let mut received = seed.received();
    assert_eq!(received.until("synced").await, ["+dev/a", "synced"]);
    seed.shoot("a", |shoot| shoot["spec"] = 7.into());
    let why = received.line().await;
    assert!(
        why.starts_with("!dev/a: Shoot garden-dev/a: the Cluster "),
        "{why}"
    );
    let silence = timeout(MINUTE, received.0.next()).await;
    assert!(silence.is_err(), "{silence:?}");
    assert_eq!(seed.gets(), 1, "its Secret is the same");
    for token in ["second", "third"] {
        seed.kubeconfig("a", &kubeconfig(token));
        let next = timeout(MINUTE, received.next()).await;
        let Change::Upsert(spec) = next.expect("its new kubeconfig") else {
            panic!("no new kubeconfig");
        };
        assert_eq!(spec.identity.as_deref(), Some("uid-of-a"), "what was known last");
        assert!(address_and_token(&spec.access).contains(token));
        assert_eq!(received.line().await, why);
    }
}

/// A watch can lose an event, and Gardener can be late.
#[tokio::test(start_paused = true)]
async fn a_secret_is_read_again_once_gardener_should_have_renewed_it() {
    let seed = SeedWorld::new();
    seed.kubeconfig_until("a", &kubeconfig("a"), 60 * MINUTE);
    seed.shoot("a", |_| {});
    let mut received = seed.received();
    received.until("synced").await;
    let before = Instant::now();
    while seed.gets() == 1 && before.elapsed() < 120 * MINUTE {
        let change = timeout(MINUTE / 2, received.0.next()).await;
        assert!(change.is_err(), "{change:?}");
    }
    let first = before.elapsed();
    assert!((64 * MINUTE..=66 * MINUTE).contains(&first), "{first:?}");
}

/// Without a LIST and without a failed reconciliation, as with a garden.
#[tokio::test]
async fn renewals_are_swapped_below_the_running_watches() {
    let member = SimCluster::builder().name("a").build();
    let members = SimFleet::serve([member.clone()]).await.unwrap();
    let template = members.kubeconfig("a").unwrap();
    let with_token = |token: &str| template.replace(&member.admin_token(), token);
    let seed = SeedWorld::new();
    let user = |n: usize| {
        member.set_user(
            format!("token-{n}"),
            SimUser::new(format!("user-{n}")).rule(SimRule::all()),
        );
        seed.kubeconfig("a", &with_token(&format!("token-{n}")));
    };
    user(1);
    seed.shoot("a", |_| {});
    let (fleet, running) = fleet_of(seed.builder().build().unwrap(), |_| {});
    let ready = || matches!(fleet.get("dev/a").map(|a| a.state()), Ok(ClusterState::Ready));
    eventually(PATIENCE, "it is ready", &ready).await;
    assert_eq!(
        seed.gets(),
        1,
        "the two watches are joined before anything is read"
    );
    let cluster = fleet.get("dev/a").unwrap();
    let maps = cluster.watch(WatchRequest::of::<ConfigMap>(), None).unwrap();
    eventually(PATIENCE, "its objects are listed", || maps.status().synced).await;
    let read = kube::Api::<Namespace>::all(cluster.client());
    for n in 2..=20 {
        user(n);
        let name = format!("user-{n}");
        while member
            .audit()
            .count(|event| event.user == name && event.resource == "namespaces")
            == 0
        {
            read.get("default").await.unwrap();
            tokio::task::yield_now().await;
        }
        // Gardener lets the last token expire later. A fleet that still used it would notice.
        member.remove_user(&format!("token-{}", n - 1));
        assert!(ready());
    }
    assert_eq!(member.audit().count(|event| event.is_list("configmaps")), 1);
    for resource in ["clusters", "secrets"] {
        assert_eq!(
            seed.0.audit().count(|event| event.is_list(resource)),
            1,
            "{resource}"
        );
    }
    running.stop().await;
}
