//! Reconcilers for the `Controller` of kube.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::support::{Seen, World, maps::Fallible, sleep, until_true};
use futures::FutureExt;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Client,
    runtime::{
        controller::Action,
        finalizer::{self, Event, finalizer},
    },
};
use mcr::{Controller, Manager, ObjectKey, Predicate, Request};
use mcr_testkit::{sim::SimCluster, waiting::Background};
use serde_json::json;
use tokio_util::sync::CancellationToken;

struct Ctx {
    cluster: String,
    seen: Seen<String>,
}

#[derive(Debug, thiserror::Error)]
#[error("as it happens")]
struct Failed(std::cell::Cell<u8>); // Not Sync, because kube does not require it either.

async fn reconcile(map: Arc<ConfigMap>, ctx: Arc<Ctx>) -> Result<Action, Failed> {
    let name = map.metadata.name.clone().unwrap_or_default();
    ctx.seen.push(format!("{} {name}", ctx.cluster));
    match name.as_str() {
        "again" => Ok(Action::requeue(Duration::from_secs(10))),
        "fails" | "given-up" => Err(Failed(std::cell::Cell::new(0))),
        _ => Ok(Action::await_change()),
    }
}

fn error_policy(map: Arc<ConfigMap>, error: &Failed, _: Arc<Ctx>) -> Action {
    assert_eq!(error.0.get(), 0);
    if map.metadata.name.as_deref() == Some("fails") {
        Action::requeue(Duration::from_secs(20))
    } else {
        Action::await_change()
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_written_for_kube_runs_in_every_cluster() {
    let mut world = World::new();
    let (a, b) = (world.join("a"), world.join("b"));
    for object in ["ns/plain", "ns/again", "ns/fails", "ns/given-up"] {
        a.put_map(object, "1");
    }
    b.put_map("ns/plain", "1");
    let seen: Seen<String> = Seen::default();
    let made: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let context_of = {
        let (seen, made) = (seen.clone(), made.clone());
        move |cluster: &mcr::Cluster| {
            let name = cluster.name().to_string();
            *made.lock().unwrap().entry(name.clone()).or_default() += 1;
            Ctx {
                cluster: name,
                seen: seen.clone(),
            }
        }
    };
    let controller =
        Controller::<ConfigMap>::new("uniform").build_uniform(reconcile, error_policy, context_of);
    let handle = world.run(controller.unwrap());
    seen.wait_for(5).await;
    sleep(25_000).await;
    let count = |what: &str| seen.all().iter().filter(|line| *line == what).count();
    assert_eq!((count("a plain"), count("b plain")), (1, 1));
    let counts = ["a again", "a fails", "a given-up"].map(count);
    assert_eq!(counts, [3, 2, 1]);
    assert_eq!(handle.status().counts.errors, 3);
    // Deleted objects are not reconciled. A context is made once for each joining.
    a.delete("configmaps", "ns/plain");
    sleep(1_000).await;
    assert_eq!(count("a plain"), 1);
    let once = BTreeMap::from([("a".into(), 1), ("b".into(), 1)]);
    assert_eq!(*made.lock().unwrap(), once);
    world.remove("a");
    until_true(|| !handle.status().clusters.contains_key("a")).await;
    world.add("a", &a, &[]);
    until_true(|| made.lock().unwrap()["a"] == 2).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_waits_holds_its_own_copy_of_the_object_only() {
    let (mut world, a) = World::with_map();
    let begun: Seen<String> = Seen::default();
    let end = CancellationToken::new();
    let waiting = |who: &'static str| {
        let (begun, end) = (begun.clone(), end.clone());
        move || {
            let (begun, end) = (begun.clone(), end.clone());
            async move {
                begun.push(who.to_owned());
                end.cancelled().await;
            }
        }
    };
    let (kube, own) = (waiting("kube"), waiting("aware"));
    let of_kube =
        move |_: Arc<ConfigMap>, _: Arc<()>| kube().map(|()| Ok::<_, Failed>(Action::await_change()));
    let aware = move |_: Request<ConfigMap>, _: Arc<()>| own().map(Fallible::Ok);
    let policy = |_: Arc<ConfigMap>, _: &Failed, _: Arc<()>| Action::await_change();
    let of_kube = Controller::<ConfigMap>::new("kube").build_uniform(of_kube, policy, |_| ());
    let aware = Controller::<ConfigMap>::new("aware").build(aware, Arc::new(()));
    world.run(of_kube.unwrap());
    world.run(aware.unwrap());
    begun.wait_for(2).await;
    let key = ObjectKey::namespaced("ns", "x");
    let store = world.cluster("a").await.store::<ConfigMap>().unwrap();
    let held = Arc::downgrade(&store.raw(&key).unwrap().unwrap());
    assert!(held.upgrade().is_some());
    a.put_map("ns/x", "2");
    until_true(|| held.upgrade().is_none()).await;
    assert_eq!(begun.all().len(), 2, "both still wait");
    end.cancel();
    begun.wait_for(4).await;
    world.end().await;
}

/// Deployments with kube's finalizer. Notes each event and the generation of its object.
async fn with_finalizer(
    object: Arc<Deployment>,
    ctx: Arc<(Client, Seen<String>)>,
) -> Result<Action, finalizer::Error<Infallible>> {
    let (client, seen) = &*ctx;
    let api = kube::Api::<Deployment>::namespaced(client.clone(), "ns");
    let note = |event: Event<Deployment>| async move {
        let (what, object) = match event {
            Event::Apply(object) => ("apply", object),
            Event::Cleanup(object) => ("cleanup", object),
        };
        let generation = object.metadata.generation.unwrap_or_default();
        seen.push(format!("{what} {generation}"));
        Ok(Action::await_change())
    };
    finalizer(&api, "example.io/about", object, note).await
}

#[tokio::test(start_paused = true)]
async fn an_object_with_kubes_finalizer_goes_through_apply_and_cleanup_with_spec_changed() {
    let server = SimCluster::new();
    let about = |replicas: u8| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "ns"}, "spec": {"replicas": replicas}});
    let key = "ns/web";
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}),
        about(1),
    ] {
        server.create(object).unwrap();
    }
    let seen: Seen<String> = Seen::default();
    let context_of = {
        let seen = seen.clone();
        move |cluster: &mcr::Cluster| (cluster.client(), seen.clone())
    };
    // With `generation_changed` no `apply` would come: the finalizer does not change the generation.
    let controller = Controller::<Deployment>::new("web")
        .predicate(Predicate::spec_changed())
        .build_uniform(
            with_finalizer,
            |_, error, ctx| {
                ctx.1.push(error.to_string());
                Action::await_change()
            },
            context_of,
        );
    let manager = Manager::single(server.client())
        .controller(controller)
        .build()
        .unwrap();
    let running = Background::start(|stop| async move { manager.run_until(stop).await });
    assert_eq!(seen.wait_for(1).await, ["apply 1"]);
    server.apply(about(2)).unwrap();
    assert_eq!(seen.wait_for(2).await[1], "apply 2");
    server.delete("deployments.apps", key).unwrap();
    assert_eq!(seen.wait_for(3).await[2], "cleanup 3");
    until_true(|| server.get("deployments.apps", key).is_none()).await;
    running.stop().await.unwrap();
    assert_eq!(seen.len(), 3);
}
