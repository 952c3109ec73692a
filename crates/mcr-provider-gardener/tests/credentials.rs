//! Kubeconfigs that are refused, renewed and tried in a fleet, and a thousand of them at once.

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
use k8s_openapi::api::core::v1::Namespace;
use mcr_core::{Access, Change, ClusterState, Refresh};
use mcr_garden_double::{Garden, Issued};
use mcr_testkit::{
    discovery::Followed,
    sim::{SimCluster, SimFleet, SimRule, SimUser},
    waiting,
};
use serde_json::json;
use support::{World, fleet_of, hour, kubeconfig};
use tokio::time::{Instant, sleep, timeout};

const MINUTE: Duration = Duration::from_secs(60);

async fn eventually(what: &str, so: impl FnMut() -> bool) {
    waiting::eventually(MINUTE, what, so).await;
}

/// A member, the number of kubeconfigs that were issued for it, and a garden that issues one with another token each time. Only
/// the last ones work.
async fn member(last: usize) -> (SimCluster, SimFleet, Arc<AtomicUsize>, Garden) {
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
            let user = SimUser::new(format!("user-{n}")).rule(SimRule::all());
            member.set_user(format!("token-{n}"), user);
            member.remove_user(&format!("token-{}", n.saturating_sub(last)));
            let kubeconfig = template.replace("TOKEN", &format!("token-{n}"));
            async move { hour(kubeconfig) }
        }
    });
    (member, members, issued, garden)
}

/// A kubeconfig that was revoked, or whose authority has gone, is refused long before it expires.
#[tokio::test]
async fn a_kubeconfig_that_the_shoot_refuses_is_renewed_before_its_time() {
    let (member, _members, issued, garden) = member(2).await;
    let world = World::of(garden);
    let (fleet, running) = fleet_of(world.builder().build().unwrap(), |_| {});
    let ready = || matches!(fleet.get("dev/a").map(|a| a.state()), Ok(ClusterState::Ready));
    eventually("it is ready", ready).await;
    let read = kube::Api::<Namespace>::all(fleet.get("dev/a").unwrap().client());
    assert_eq!(issued.load(SeqCst), 1, "a kubeconfig that works is not renewed");
    member.remove_user("token-1");
    let begun = Instant::now();
    while read.get("default").await.is_err() {
        // The garden is asked once a minute at most.
        assert!(begun.elapsed() < 3 * MINUTE, "it has no new kubeconfig");
    }
    eventually("it is ready again", ready).await;
    assert_eq!(issued.load(SeqCst), 2);
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
            async move { hour(kubeconfig(&token)) }
        }
    }));
    let mut followed = Followed::of(&world.builder().build().unwrap());
    let began = Instant::now();
    while began.elapsed() < 30 * MINUTE && issued.load(SeqCst) < 100 {
        if let Ok(Some(Ok(Change::Upsert(spec)))) = timeout(2 * MINUTE, followed.0.next()).await {
            let Access::Endpoint(access) = &spec.access else {
                panic!("{:?}", spec.access);
            };
            access
                .credentials
                .credential(Refresh::Unauthorized)
                .await
                .unwrap();
        }
    }
    let issued = issued.load(SeqCst);
    assert!((20..=31).contains(&issued), "{issued} in half an hour");
}

#[tokio::test]
async fn a_kubeconfig_for_another_address_is_tried_before_it_replaces_one_that_works() {
    let member = SimCluster::builder().name("a").build();
    let members = SimFleet::serve([member.clone()]).await.unwrap();
    let good = members.kubeconfig("a").unwrap();
    let nowhere = kubeconfig("nowhere").replace("192.0.2.1:6443", "127.0.0.1:1");
    let (asked, answer) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(std::sync::Mutex::new(good.clone())),
    );
    let world = World::of(Garden::new({
        let (asked, answer) = (asked.clone(), answer.clone());
        move |_| {
            asked.fetch_add(1, SeqCst);
            let answer = hour(answer.lock().unwrap().clone());
            async move { answer }
        }
    }));
    let mut followed = Followed::of(&world.builder().build().unwrap());
    followed.until("synced").await;
    let rotate = |kubeconfig: String, phase: &str| {
        *answer.lock().unwrap() = kubeconfig;
        let phase = json!({"rotation": {"certificateAuthorities": {"phase": phase}}});
        world.merge("a", &json!({"status": {"credentials": phase}}));
    };
    rotate(nowhere.clone(), "Prepared");
    let again = || asked.load(SeqCst) >= 3;
    tokio::select! {
        announced = followed.next() => panic!("{announced:?}"),
        () = eventually("it is asked again", again) => {}
    }
    *answer.lock().unwrap() = format!("{good}\n# newer");
    assert_eq!(followed.line().await, "+dev/a");
    // If the one in use does not work either, the new one replaces it.
    members.remove("a");
    rotate(nowhere, "Completed");
    assert_eq!(followed.line().await, "+dev/a");
}

#[tokio::test(start_paused = true)]
async fn of_a_thousand_only_those_wait_that_the_garden_does_not_answer_for() {
    const MANY: usize = 1000;
    let world = World::of(Garden::new(|ask| async move {
        match ask.name.chars().last() {
            Some('3') => pending().await,
            Some('7') => Issued::refused(429, "later"),
            _ => {
                sleep(Duration::from_millis(50)).await;
                hour(kubeconfig(&ask.name))
            }
        }
    }));
    for n in 0..MANY {
        let asleep = json!({"spec": {"hibernation": {"enabled": n % 10 == 5}}});
        world.add(&format!("shoot-{n:03}"), asleep);
    }
    let mut followed = Followed::of(&world.builder().build().unwrap());
    let before = Instant::now();
    let mut engaged = 0;
    // Seven of ten, and `a`.
    while engaged < MANY / 10 * 7 + 1 {
        engaged += usize::from(followed.line().await.starts_with('+'));
    }
    // A hundred that hang for 3 s each, ten at once, and 700 that take 50 ms.
    let took = before.elapsed();
    assert!(took < Duration::from_secs(40), "{took:?}");
    assert_eq!(world.garden.most_at_once(), 10);
    followed.until("synced").await;
    for n in 0..MANY / 10 {
        assert_eq!(
            world.garden.asked(&format!("garden-dev/shoot-{n:02}5")),
            0,
            "{n}5 is hibernated"
        );
        assert_eq!(world.garden.asked(&format!("garden-dev/shoot-{n:02}1")), 1);
    }
    // Those that hang wait in their own line, also after an outage.
    world.garden.set_away(true);
    world.server.end_watches();
    sleep(Duration::from_secs(3)).await;
    world.garden.set_away(false);
    world.add("another", json!({}));
    let joined = timeout(Duration::from_secs(40), followed.until("+dev/another")).await;
    joined.expect("it does not wait for those that hang");
}
