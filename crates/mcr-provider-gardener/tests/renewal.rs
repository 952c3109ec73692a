//! Kubeconfigs that live for an hour, over days, and a thousand of them at once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use mcr_core::{Change, ClusterState, WatchRequest, WatchSettings};
use mcr_garden_double::{Garden, Issued};
use mcr_provider_gardener::GardenerProvider;
use mcr_testkit::{
    sim::{SimAuditEvent, SimCluster, SimFleet, SimRule, SimUser},
    waiting,
};
use serde_json::json;
use support::{PATIENCE, Received, World, fleet_of, hour, kubeconfig, line, locally};
use tokio::{
    task::yield_now,
    time::{Instant, advance, pause, resume, timeout},
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

async fn eventually(what: &str, so: impl FnMut() -> bool) {
    waiting::eventually(PATIENCE, what, so).await;
}

/// A garden that issues another kubeconfig each time.
fn fresh() -> Garden {
    let issued = AtomicUsize::new(0);
    Garden::new(move |_| {
        let n = issued.fetch_add(1, SeqCst);
        async move { hour(&kubeconfig(&format!("token-{n}"))) }
    })
}

#[tokio::test]
async fn two_days_of_credentials_for_an_hour_list_nothing_and_fail_nothing() {
    let member = SimCluster::builder().name("a").build();
    let members = SimFleet::serve([member.clone()]).await.unwrap();
    let template = members
        .kubeconfig("a")
        .unwrap()
        .replace(&member.admin_token(), "TOKEN");
    let issued = Arc::new(AtomicUsize::new(0));
    let garden = Garden::new({
        let (issued, member) = (issued.clone(), member.clone());
        move |_| {
            let n = issued.fetch_add(1, SeqCst) + 1;
            // Only the last two work: a renewal that the fleet does not follow is noticed.
            member.set_user(
                format!("token-{n}"),
                SimUser::new(format!("user-{n}")).rule(SimRule::all()),
            );
            member.remove_user(&format!("token-{}", n.saturating_sub(2)));
            let kubeconfig = template.replace("TOKEN", &format!("token-{n}"));
            async move { hour(&kubeconfig) }
        }
    });
    let world = World::of(garden);
    world.server.create(Garden::shoot("garden-dev", "a")).unwrap();
    let (fleet, running) = fleet_of(world.builder().build().unwrap(), |settings| {
        // A jump of the clock must not look like a cluster that does not answer.
        settings.probe_after = 100 * HOUR;
        settings.probe_timeout = 100 * HOUR;
        settings.credential_timeout = 100 * HOUR;
    });
    let ready = || matches!(fleet.get("dev/a").map(|a| a.state()), Ok(ClusterState::Ready));
    eventually("it is ready", ready).await;
    let cluster = fleet.get("dev/a").unwrap();
    let maps = cluster.watch(WatchRequest::of::<ConfigMap>(), None).unwrap();
    eventually("its objects are listed", || maps.status().synced).await;
    let read = kube::Api::<Namespace>::all(cluster.client());
    // Each renewal is due after 54 minutes at the latest, and none twice in 55.
    for hours in 1..=53 {
        // A watch that has received nothing when the clock jumps would be listed again.
        let name = format!("hour-{hours}");
        member
            .create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}))
            .unwrap();
        eventually("it is seen", || cluster.kinds()[0].objects == hours).await;
        pause();
        advance(55 * MINUTE).await;
        resume();
        eventually("it is renewed", || issued.load(SeqCst) == hours + 1).await;
        let user = format!("user-{}", hours + 1);
        let uses = |event: &SimAuditEvent| event.user == user && event.resource == "namespaces";
        while member.audit().count(uses) == 0 {
            read.get("default").await.unwrap();
            yield_now().await;
        }
        assert!(ready());
    }
    let lists = member.audit().count(|event| event.is_list("configmaps"));
    assert_eq!(lists, 1, "no LIST but the first");
    assert_eq!(world.server.audit().count(|event| event.is_list("shoots")), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_garden_that_is_away_is_noticed_only_once_a_kubeconfig_has_expired() {
    let world = World::of(fresh());
    world.server.create(Garden::shoot("garden-dev", "a")).unwrap();
    // Hours with the short pauses of the other tests would be a hundred thousand requests.
    let pause = Duration::from_secs(2);
    let builder = world
        .builder()
        .times(WatchSettings::default(), PATIENCE, (PATIENCE, PATIENCE), pause);
    let mut received = Received::of(&builder.build().unwrap());
    assert_eq!(received.until("synced").await, ["+dev/a", "synced"]);
    world.garden.set_away(true);
    let silence = timeout(59 * MINUTE, received.0.next()).await;
    assert!(silence.is_err(), "{silence:?}");
    world.garden.set_away(false);
    assert_eq!(received.line().await, "+dev/a", "renewed at once");

    world.garden.set_away(true);
    let before = Instant::now();
    let change = timeout(3 * HOUR, received.0.next())
        .await
        .expect("the reason")
        .unwrap()
        .unwrap();
    let why = line(&change);
    assert!(
        why.starts_with("!dev/a: Shoot garden-dev/a: its kubeconfig has expired, and there is no new one: "),
        "{why}"
    );
    assert!(why.contains("the garden is away"), "{why}");
    let lived = before.elapsed();
    assert!((59 * MINUTE..=61 * MINUTE).contains(&lived), "{lived:?}");
    world.garden.set_away(false);
    assert_eq!(received.line().await, "+dev/a");
}

#[tokio::test(start_paused = true)]
async fn another_discovery_asks_for_nothing_that_is_still_valid() {
    let world = World::of(fresh());
    world.server.create(Garden::shoot("garden-dev", "a")).unwrap();
    let provider = world.builder().build().unwrap();
    for _ in 0..3 {
        assert_eq!(
            Received::of(&provider).until("synced").await,
            ["+dev/a", "synced"]
        );
    }
    assert_eq!(world.garden.asked("garden-dev/a"), 1);
}

/// A fleet keeps the last good description of a Shoot that can't be decoded, so it has to get each new kubeconfig.
#[tokio::test(start_paused = true)]
async fn a_shoot_that_cannot_be_decoded_has_its_kubeconfig_renewed() {
    let world = World::of(fresh());
    world.server.create(Garden::shoot("garden-dev", "a")).unwrap();
    let provider = world.builder().build().unwrap();
    let mut received = Received::of(&provider);
    assert_eq!(received.until("synced").await, ["+dev/a", "synced"]);
    world.change("a", |shoot| shoot["spec"] = 7.into());
    let why = received.line().await;
    assert!(why.starts_with("!dev/a: Shoot garden-dev/a: "), "{why}");
    for renewals in 1..=3 {
        let next = timeout(55 * MINUTE, received.0.next()).await;
        let Change::Upsert(spec) = next.expect("it is renewed").unwrap().unwrap() else {
            panic!("it is not renewed");
        };
        assert_eq!(spec.properties["region"], "local", "with what was known last");
        assert_eq!(world.garden.asked("garden-dev/a"), renewals + 1);
        assert_eq!(received.line().await, why);
    }
    // The next discovery knows the kubeconfig, but nothing of the Shoot: it leaves the cluster as it is.
    drop(received);
    let mut received = Received::of(&provider);
    assert_eq!(received.until("synced").await, [&why, "synced"]);
    let silence = timeout(55 * MINUTE, received.0.next()).await;
    assert!(silence.is_err(), "{silence:?}");
}

/// A fleet keeps the access that it has while the credentials are the same, so a refusal may come from what the first discovery has
/// announced.
#[tokio::test(start_paused = true)]
async fn another_discovery_replaces_a_kubeconfig_that_is_refused() {
    let engaged = async |received: &mut Received| {
        let Change::Upsert(spec) = received.next().await else {
            panic!("not engaged");
        };
        assert_eq!(received.line().await, "synced");
        spec
    };
    for of_first in [true, false] {
        let world = World::of(fresh());
        world.server.create(Garden::shoot("garden-dev", "a")).unwrap();
        let provider = world.builder().build().unwrap();
        let mut first = Received::of(&provider);
        let from_first = engaged(&mut first).await;
        drop(first);
        let mut second = Received::of(&provider);
        let from_second = engaged(&mut second).await;
        assert_eq!(world.garden.asked("garden-dev/a"), 1);
        let refused = if of_first { from_first } else { from_second };
        support::refuse(&refused).await;
        let renewed = timeout(MINUTE, second.line()).await;
        assert_eq!(renewed.expect("it is renewed"), "+dev/a");
        assert_eq!(world.garden.asked("garden-dev/a"), 2);
    }
}

/// Nobody needs the credentials of a Shoot that is gone.
#[tokio::test(start_paused = true)]
async fn what_has_vanished_between_two_discoveries_is_forgotten() {
    let world = World::of(fresh());
    for name in ["a", "b"] {
        world.server.create(Garden::shoot("garden-dev", name)).unwrap();
    }
    let provider = world.builder().build().unwrap();
    let discover = async || {
        let mut reported = Received::of(&provider).until("synced").await;
        reported.sort();
        reported
    };
    assert_eq!(discover().await, ["+dev/a", "+dev/b", "synced"]);
    let shoot = world.server.get(support::SHOOTS, "garden-dev/a").unwrap();
    world.delete("a");
    assert_eq!(discover().await, ["+dev/b", "synced"]);
    // With the same UID, a kubeconfig that was remembered would be used.
    world.server.restore(shoot).unwrap();
    assert_eq!(discover().await, ["+dev/a", "+dev/b", "synced"]);
    assert_eq!(world.garden.asked("garden-dev/a"), 2);
    assert_eq!(world.garden.asked("garden-dev/b"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_short_life_is_renewed_in_its_middle() {
    let issued = AtomicUsize::new(0);
    let world = World::of(Garden::new(move |_| {
        let yaml = kubeconfig(&format!("token-{}", issued.fetch_add(1, SeqCst)));
        async move { Issued::kubeconfig(yaml, 4 * MINUTE) }
    }));
    world.server.create(Garden::shoot("garden-dev", "a")).unwrap();
    let mut received = world.received();
    received.until("synced").await;
    for _ in 0..5 {
        let before = Instant::now();
        let change = timeout(10 * MINUTE, received.0.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(line(&change), "+dev/a");
        let used = before.elapsed();
        assert!((MINUTE..=2 * MINUTE).contains(&used), "{used:?}");
    }
}

/// The garden answers ten requests at once, and takes 50 ms for each.
#[tokio::test(start_paused = true)]
async fn a_thousand_are_engaged_in_hardly_more_time_than_the_garden_takes_to_issue() {
    const MANY: usize = 1000;
    const EACH: Duration = Duration::from_millis(50);
    let places = Arc::new(tokio::sync::Semaphore::new(10));
    let world = World::of(Garden::new(move |ask| {
        let places = places.clone();
        async move {
            let _place = places.acquire().await.unwrap();
            tokio::time::sleep(EACH).await;
            hour(&kubeconfig(&ask.name))
        }
    }));
    for n in 0..MANY {
        let shoot = Garden::shoot("garden-dev", &format!("shoot-{n:03}"));
        world.server.create(shoot).unwrap();
    }
    let mut received = world.received();
    let before = Instant::now();
    let reported = received.until("synced").await;
    assert_eq!(reported.iter().filter(|line| line.starts_with('+')).count(), MANY);
    let issuing = EACH * (MANY / 10) as u32;
    let ratio = before.elapsed().as_secs_f64() / issuing.as_secs_f64();
    println!("{ratio:.2} of the time that the garden takes");
    assert!(ratio <= 1.3, "{ratio:.2}");
}

#[tokio::test(start_paused = true)]
async fn of_a_thousand_only_those_wait_that_the_garden_does_not_answer_for() {
    const MANY: usize = 1000;
    let garden = Garden::new(|ask| async move {
        let n: usize = ask.name.trim_start_matches("shoot-").parse().unwrap();
        match n % 10 {
            3 => pending().await,
            7 => Issued::refused(429, "later"),
            _ => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                hour(&kubeconfig(&ask.name))
            }
        }
    });
    let world = World::of(garden);
    for n in 0..MANY {
        let mut shoot = Garden::shoot("garden-dev", &format!("shoot-{n:03}"));
        if n % 10 == 5 {
            shoot["spec"]["hibernation"] = json!({"enabled": true});
        }
        world.server.create(shoot).unwrap();
    }
    let provider = GardenerProvider::builder()
        .client(world.garden.client(world.server.client()))
        .namespace("garden-dev")
        .access_policy(locally())
        .build()
        .unwrap();
    let mut received = Received::of(&provider);
    let before = Instant::now();
    let mut engaged = 0;
    while engaged < MANY / 10 * 7 {
        if received.line().await.starts_with('+') {
            engaged += 1;
        }
    }
    // A hundred that hang for 3 s each, ten at once, and 700 that take 50 ms.
    let took = before.elapsed();
    assert!(took < Duration::from_secs(40), "{took:?}");
    assert_eq!(world.garden.most_at_once(), 10);
    received.until("synced").await;
    for n in 0..MANY / 10 {
        assert_eq!(
            world.garden.asked(&format!("garden-dev/shoot-{n:02}5")),
            0,
            "{n}5 is hibernated"
        );
        assert_eq!(world.garden.asked(&format!("garden-dev/shoot-{n:02}1")), 1);
    }
}
