//! A hundred clusters.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use mcr_testkit::control_plane::AuditEvent;
use mcr_testkit::waiting::{OrFail, eventually};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::time::Instant;

use crate::byo;
use crate::management::{Hub, Management, granted};
use crate::objects::CLUSTER;
use crate::running::{Running, brisk};
use crate::workload::{self, ask};
use crate::{PATIENCE, on_capi};

/// The first of them is dead.
const COUNT: usize = 100;

struct Hundred {
    hub: Hub,
    /// Takes connections and never says a word.
    _silence: TcpListener,
}

fn name(number: usize) -> String {
    format!("cluster-{number:03}")
}

static HUNDRED: RwLock<Option<Hundred>> = RwLock::const_new(None);

/// The tests share them until one takes them to delete them.
async fn hundred(management: &Management) -> RwLockReadGuard<'static, Option<Hundred>> {
    let mut there = HUNDRED.write().await;
    if there.is_none() {
        *there = Some(make(management).await);
    }
    RwLockWriteGuard::downgrade(there)
}

async fn make(management: &Management) -> Hundred {
    static NUMBER: AtomicUsize = AtomicUsize::new(1);
    let hub = management
        .hub(&format!("hundred-{}", NUMBER.fetch_add(1, Ordering::Relaxed)))
        .await;
    let workload = workload::shared().await;
    let silence = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).or_fail();
    let alive = byo::kubeconfig(workload, hub.namespace()).await;
    let dead = alive.replace(
        &workload.url(),
        &format!("https://{}", silence.local_addr().or_fail()),
    );
    assert_ne!(alive, dead);
    stream::iter(0..COUNT)
        .for_each_concurrent(8, async |number| {
            let kubeconfig = if number == 0 { &dead } else { &alive };
            byo::ready(&hub.objects, &name(number), kubeconfig).await;
        })
        .await;
    Hundred {
        hub,
        _silence: silence,
    }
}

/// Waits until all but the dead one have reconciled a ConfigMap.
async fn all_work(running: &Running, tag: &str) {
    let workload = workload::shared().await;
    ask(workload, tag, "first").await;
    let map = format!("{tag}-first");
    for number in 1..COUNT {
        let what = format!("{} has reconciled", name(number));
        eventually(PATIENCE, what, || running.seen.has(&name(number), &map)).await;
    }
}

#[test]
fn capi_11_one_dead_cluster_of_a_hundred_delays_nobody() {
    on_capi(async |management| {
        let hundred = hundred(management).await;
        let hub = &hundred.as_ref().unwrap().hub;
        // One cluster connects at a time, the dead one is the first, and its attempt does not end in this test.
        let patient = |settings: &mut mcr_core::FleetSettings| {
            settings.connects = 1;
            let mut transport = mcr_core::TransportSettings::default();
            transport.connect_timeout = Duration::from_secs(3600);
            settings.transport = transport.into();
            settings.probe_timeout = Duration::from_secs(3600);
        };
        let running = Running::with("capi-11-hundred", hub.provider().await, patient, false);
        all_work(&running, "capi-11-hundred").await;
        let (state, _) = running.shown(&name(0)).unwrap();
        assert_ne!(state, "Ready");
        running.stop().await;
    });
}

#[test]
fn capi_15_a_hundred_clusters_join_for_one_list_of_each_kind_and_leave() {
    on_capi(async |management| {
        let there = hundred(management).await;
        let hub = &there.as_ref().unwrap().hub;
        let robot = hub
            .plane
            .user("robot-capi-15")
            .rules_in(hub.namespace(), granted())
            .create()
            .await
            .or_fail();
        let provider = hub.provider().await.client(robot.client().await.or_fail());
        let (mark, started) = (hub.mark().await, Instant::now());
        let running = Running::with("capi-15", provider, brisk, false);
        all_work(&running, "capi-15").await;
        eprintln!(
            "{COUNT} clusters are engaged after {:.1} s",
            started.elapsed().as_secs_f64()
        );
        let asked = hub.audit_since(mark).await;
        for resource in ["clusters", "secrets"] {
            let of_robot = |wanted: fn(&AuditEvent, &str) -> bool| {
                asked.count(|event| event.user == robot.name() && wanted(event, resource))
            };
            assert_eq!(of_robot(AuditEvent::is_list), 1, "{resource} are listed once");
            assert_eq!(
                of_robot(AuditEvent::is_watch_start),
                1,
                "{resource} are watched once"
            );
        }
        drop(there);

        // Waits until the other tests do not need them any more.
        let Hundred { hub, .. } = HUNDRED.write().await.take().unwrap();
        let started = Instant::now();
        stream::iter(0..COUNT)
            .for_each_concurrent(8, async |number| hub.objects.delete(CLUSTER, &name(number)).await)
            .await;
        running.names_are(&[]).await;
        eprintln!(
            "{COUNT} clusters have left after {:.1} s",
            started.elapsed().as_secs_f64()
        );
        running.stop().await;
    });
}
