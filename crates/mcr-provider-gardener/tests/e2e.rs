//! A real kind cluster as a Shoot, beside a stand-in for its garden. `cargo xtask e2e` runs it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, Controller, Manager, Request};
use mcr_core::ClusterState;
use mcr_garden_double::{Garden, Issued};
use mcr_testkit::{
    e2e::{self, DEADLINE, E2e, E2eCluster},
    waiting::{Background, OrFail, eventually},
};
use serde_json::json;
use support::{World, locally};

/// How long a kubeconfig lives, as the garden says.
const LIFE: Duration = Duration::from_secs(6);

async fn answer(request: Request<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
    if let Some(namespace) = request.namespace().filter(|_| request.live().is_some()) {
        let maps = request.cluster.namespaced(namespace);
        e2e::answer(&maps, request.name(), request.cluster.name().as_str()).await?;
    }
    Ok(Action::await_change())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shoot_works_through_renewals_hibernation_migration_and_a_new_life() {
    let Some(e2e) = E2e::from_env() else { return };
    let alpha = Arc::new(e2e.namespace(E2eCluster::Alpha, "gardener").await);
    alpha.account("member", "edit").await;
    let issued = Arc::new(AtomicUsize::new(0));
    let garden = Garden::new({
        let (issued, alpha) = (issued.clone(), Arc::downgrade(&alpha));
        move |_| {
            issued.fetch_add(1, SeqCst);
            let alpha = alpha.upgrade();
            async move {
                match alpha {
                    // A token of its own each time.
                    Some(alpha) => Issued::kubeconfig(alpha.kubeconfig("member").await, LIFE),
                    None => Issued::refused(500, "the test has ended"),
                }
            }
        }
    });
    let world = World::of(garden);
    world.server.create(Garden::shoot("garden-dev", "alpha")).unwrap();

    let controller = Controller::<ConfigMap>::new("answer")
        .watch_request(|watch| watch.labels(alpha.selector()))
        .build(answer, Arc::new(()));
    let manager = Manager::builder()
        .provider(world.builder().build().unwrap())
        .settings(|settings| settings.access_policy = locally())
        .controller(controller)
        .build()
        .or_fail();
    let fleet = manager.fleet().clone();
    let running = Background::start(|stop| manager.run_until(stop));
    let state = |what: &'static str, is: fn(&ClusterState) -> bool| {
        let fleet = fleet.clone();
        eventually(DEADLINE, what, move || {
            let state = fleet.get("dev/alpha").ok()?.state();
            is(&state).then_some(())
        })
    };

    alpha.ask("first").await;
    alpha.answered("first", "dev/alpha").await;
    let before = issued.load(SeqCst);
    eventually(DEADLINE, "it is renewed three times", || {
        issued.load(SeqCst) >= before + 3
    })
    .await;
    alpha.ask("renewed").await;
    alpha.answered("renewed", "dev/alpha").await;

    let hibernate = |wanted: bool| {
        world.change("alpha", |shoot| {
            shoot["spec"]["hibernation"] = json!({"enabled": wanted});
            shoot["status"]["hibernated"] = wanted.into();
        });
    };
    hibernate(true);
    state("it is suspended", |state| {
        matches!(state, ClusterState::Suspended { .. })
    })
    .await;
    alpha.ask("asleep").await;
    hibernate(false);
    alpha.answered("asleep", "dev/alpha").await;

    // The API server does not move here. The Shoot says that it did.
    world.change("alpha", |shoot| {
        shoot["status"]["lastOperation"]["type"] = "Restore".into();
        shoot["status"]["seedName"] = "seed-b".into();
    });
    eventually(DEADLINE, "its seed is told", || {
        let seed = fleet.get("dev/alpha").ok()?.property("seed");
        (seed.as_deref() == Some("seed-b")).then_some(())
    })
    .await;
    alpha.ask("moved").await;
    alpha.answered("moved", "dev/alpha").await;

    let old = fleet.get("dev/alpha").unwrap();
    world.delete("alpha");
    eventually(DEADLINE, "it is gone", || old.state() == ClusterState::Gone).await;
    world.server.create(Garden::shoot("garden-dev", "alpha")).unwrap();
    alpha.ask("again").await;
    alpha.answered("again", "dev/alpha").await;
    running.stop().await.or_fail();
    Arc::into_inner(alpha)
        .map(|alpha| alpha.remove())
        .expect("the last user")
        .await;
}
