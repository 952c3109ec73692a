//! A garden and Shoots that refuse, are slow, or give less than asked.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use mcr_core::{ClusterState, WatchSettings};
use mcr_garden_double::{Garden, Issued};
use mcr_testkit::{
    sim::{SimCluster, SimFleet, SimRule, SimUser},
    waiting,
};
use support::{PATIENCE, Received, World, fleet_of, hour, kubeconfig, line};
use tokio::time::{Instant, sleep, timeout, timeout_at};

const MINUTE: Duration = Duration::from_secs(60);

async fn eventually(what: &str, so: impl FnMut() -> bool) {
    waiting::eventually(PATIENCE, what, so).await;
}

/// A kubeconfig that was revoked, or whose authority has gone, is refused long before it expires.
#[tokio::test]
async fn a_kubeconfig_that_the_shoot_refuses_is_renewed_before_its_time() {
    let member = SimCluster::builder().name("a").build();
    let members = SimFleet::serve([member.clone()]).await.unwrap();
    let template = members.kubeconfig("a").unwrap();
    let issued = Arc::new(AtomicUsize::new(0));
    let garden = Garden::new({
        let (issued, member) = (issued.clone(), member.clone());
        move |_| {
            let token = format!("token-{}", issued.fetch_add(1, SeqCst) + 1);
            member.set_user(&token, SimUser::new(&token).rule(SimRule::all()));
            let kubeconfig = template.replace(&member.admin_token(), &token);
            async move { hour(&kubeconfig) }
        }
    });
    let world = World::of(garden);
    world.server.create(Garden::shoot("garden-dev", "a")).unwrap();
    let (fleet, running) = fleet_of(world.builder().build().unwrap(), |_| {});
    let ready = || matches!(fleet.get("dev/a").map(|a| a.state()), Ok(ClusterState::Ready));
    eventually("it is ready", ready).await;
    let read = kube::Api::<Namespace>::all(fleet.get("dev/a").unwrap().client());
    for number in 1..=3 {
        assert_eq!(
            issued.load(SeqCst),
            number,
            "a kubeconfig that works is not renewed"
        );
        member.remove_user(&format!("token-{number}"));
        let begun = Instant::now();
        while read.get("default").await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "it has no new kubeconfig");
        }
        eventually("it is ready again", ready).await;
    }
    assert_eq!(issued.load(SeqCst), 4);
    running.stop().await;
}

/// Else each answer of a Shoot that refuses everything would be another request to the garden.
#[tokio::test(start_paused = true)]
async fn a_shoot_that_refuses_each_kubeconfig_does_not_keep_the_garden_busy() {
    let issued = Arc::new(AtomicUsize::new(0));
    let world = World::of(Garden::new({
        let issued = issued.clone();
        move |_| {
            let token = format!("token-{}", issued.fetch_add(1, SeqCst));
            async move { hour(&kubeconfig(&token)) }
        }
    }));
    world.server.create(Garden::shoot("garden-dev", "a")).unwrap();
    // The default pauses, of up to a minute.
    let builder = mcr_provider_gardener::GardenerProvider::builder()
        .client(world.garden.client(world.server.client()))
        .namespace("garden-dev")
        .access_policy(support::locally());
    let mut received = Received::of(&builder.build().unwrap());
    let began = Instant::now();
    while began.elapsed() < 30 * MINUTE && issued.load(SeqCst) < 100 {
        if let Ok(Some(Ok(mcr_core::Change::Upsert(spec)))) = timeout(2 * MINUTE, received.0.next()).await {
            support::refuse(&spec).await;
        }
    }
    let issued = issued.load(SeqCst);
    assert!((20..=31).contains(&issued), "{issued} in half an hour");
}

#[tokio::test]
async fn a_viewer_asks_for_less() {
    let asked = Arc::<Mutex<Vec<(bool, u64)>>>::default();
    let world = World::of(Garden::new({
        let asked = asked.clone();
        move |ask| {
            asked.lock().unwrap().push((ask.viewer, ask.seconds));
            async move { hour(&kubeconfig("viewer")) }
        }
    }));
    world.server.create(Garden::shoot("garden-dev", "a")).unwrap();
    let rules = [
        SimRule::new(["core.gardener.cloud"], ["shoots"], ["list", "watch"]),
        SimRule::new(["core.gardener.cloud"], ["shoots/viewerkubeconfig"], ["create"]),
    ];
    let user = rules.into_iter().fold(SimUser::new("viewer"), SimUser::rule);
    world.server.set_user("viewer", user);
    let client = || world.garden.client(world.server.client_with_token("viewer"));
    let viewer = world.builder().client(client()).viewer().valid_for(20 * MINUTE);
    let reported = Received::of(&viewer.build().unwrap()).until("synced").await;
    assert_eq!(reported, ["+garden-dev/a", "synced"]);
    assert_eq!(*asked.lock().unwrap(), [(true, 1200)]);
    // It has no other right.
    let admin = world.builder().client(client()).build().unwrap();
    let reported = Received::of(&admin).line().await;
    assert!(
        reported.contains("refused adminkubeconfig with 403"),
        "{reported}"
    );
}

/// The garden decides how long a kubeconfig is valid.
#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_lives_shorter_than_asked_is_renewed_in_its_time() {
    let issued = AtomicUsize::new(0);
    let world = World::of(Garden::new(move |ask| {
        assert_eq!(ask.seconds, 8 * 3600);
        let yaml = kubeconfig(&format!("token-{}", issued.fetch_add(1, SeqCst)));
        async move { Issued::kubeconfig(yaml, 20 * MINUTE) }
    }));
    world.server.create(Garden::shoot("garden-dev", "a")).unwrap();
    let provider = world.builder().valid_for(8 * 60 * MINUTE).build().unwrap();
    let mut received = Received::of(&provider);
    received.until("synced").await;
    for _ in 0..3 {
        let before = Instant::now();
        let change = timeout(30 * MINUTE, received.0.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(line(&change), "+dev/a");
        let used = before.elapsed();
        assert!((12 * MINUTE..=15 * MINUTE).contains(&used), "{used:?}");
    }
}

/// A garden that is slow, and one that fails, are told. A first request may take 3 s, the next ones 30.
#[tokio::test(start_paused = true)]
async fn a_slow_garden_is_given_more_time_and_a_failing_one_is_asked_again() {
    let asked = AtomicUsize::new(0);
    let world = World::of(Garden::new(move |_| {
        let number = asked.fetch_add(1, SeqCst);
        async move {
            match number {
                0 => Issued::refused(500, "secret-canary"),
                _ => {
                    sleep(Duration::from_secs(10)).await;
                    hour(&kubeconfig("a"))
                }
            }
        }
    }));
    world.server.create(Garden::shoot("garden-dev", "a")).unwrap();
    world.server.create(Garden::shoot("garden-dev", "b")).unwrap();
    let provider = mcr_provider_gardener::GardenerProvider::builder()
        .client(world.garden.client(world.server.client()))
        .namespace("garden-dev")
        .requests_at_once(1)
        .access_policy(support::locally());
    let mut received = Received::of(&provider.build().unwrap());
    let reported = received.until("synced").await;
    assert_eq!(
        reported,
        [
            "!dev/a: Shoot garden-dev/a: the garden refused adminkubeconfig with 500",
            "!dev/b: Shoot garden-dev/b: the garden did not answer within 3 s",
            "synced",
        ]
    );
    let mut later = [received.line().await, received.line().await];
    later.sort();
    assert_eq!(later, ["+dev/a", "+dev/b"]);
}

/// Those for which the garden hangs wait in their own line, also after an outage and after a change of place.
#[tokio::test(start_paused = true)]
async fn shoots_that_hang_leave_places_to_others_after_an_outage() {
    const HANGING: usize = 20;
    let world = World::of(Garden::new(|ask| async move {
        match &*ask.name {
            "healthy" | "another" => hour(&kubeconfig(&ask.name)),
            _ => pending().await,
        }
    }));
    let hangs = |n: usize| format!("hangs-{n:02}");
    for n in 0..HANGING {
        let shoot = Garden::shoot("garden-dev", &hangs(n));
        world.server.create(shoot).unwrap();
    }
    // The limits of requests are the default ones.
    let mut watch = WatchSettings::default();
    watch.retry_cap = Duration::from_millis(200);
    let limits = (Duration::from_secs(3), Duration::from_secs(30));
    let provider = world
        .builder()
        .times(watch, PATIENCE, limits, Duration::from_secs(1));
    let mut received = Received::of(&provider.build().unwrap());
    let reported = received.until("synced").await;
    assert_eq!(reported.len(), HANGING + 1, "each has failed once: {reported:?}");

    let joins = async |received: &mut Received, name: &str| {
        world.server.create(Garden::shoot("garden-dev", name)).unwrap();
        let joined = format!("+dev/{name}");
        let reported = timeout(Duration::from_secs(5), received.until(&joined)).await;
        reported.expect("it does not wait for those that hang");
    };
    // Why they have failed last is told meanwhile.
    let passes = async |received: &mut Received| {
        let end = Instant::now() + Duration::from_secs(3);
        while timeout_at(end, received.0.next()).await.is_ok() {}
    };
    // A short break of the watch.
    world.garden.set_away(true);
    world.server.end_watches();
    passes(&mut received).await;
    world.garden.set_away(false);
    passes(&mut received).await;
    joins(&mut received, "healthy").await;
    // At another place, they are asked for at once.
    for n in 0..HANGING {
        world.change(&hangs(n), |shoot| {
            shoot["status"]["advertisedAddresses"][0]["url"] = "https://another.example.com".into();
        });
    }
    passes(&mut received).await;
    joins(&mut received, "another").await;
}
