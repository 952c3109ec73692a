//! A fleet of many simulated clusters, used by many tasks at once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_core::{ClusterState, Fleet};
use mcr_provider_kubeconfig::KubeconfigProvider;
use mcr_testkit::{
    sim::{SimCluster, SimFleet},
    waiting::{self, Background},
};
use support::{loopback_policy, secret};
use tokio::time::{sleep, timeout};

/// What never comes is given up after this.
const PATIENCE: Duration = Duration::from_secs(120);
const MANY: usize = 20;

fn name(number: usize) -> String {
    format!("member-{number:04}")
}

async fn eventually(what: &str, so: impl FnMut() -> bool) {
    waiting::eventually(PATIENCE, what, so).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_26_forty_tasks_index_get_list_and_remove_twenty_clusters_at_once() {
    let members = SimFleet::serve((0..MANY).map(|n| SimCluster::builder().name(name(n)).build()));
    let members = members.await.unwrap();
    let hub = SimCluster::new();
    let put = {
        let hub = hub.clone();
        let secret = |n| secret("default", &name(n), &members.kubeconfig(&name(n)).unwrap());
        let secrets: Vec<_> = (0..MANY).map(secret).collect();
        Arc::new(move |n: usize| drop(hub.create(secrets[n].clone())))
    };
    (0..MANY).for_each(|n| put(n));
    let provider = KubeconfigProvider::builder()
        .client(hub.client())
        .access_policy(loopback_policy());
    let fleet = Fleet::builder()
        .provider(provider.build().unwrap())
        .settings(|settings| settings.access_policy = loopback_policy())
        .build();
    let running = Background::start({
        let fleet = fleet.clone();
        |stop| async move { fleet.run(stop).await }
    });
    eventually("all are there", || fleet.clusters().len() == MANY).await;
    let over = Arc::new(AtomicBool::new(false));
    let rounds: Arc<Vec<AtomicUsize>> = Arc::new((0..40).map(|_| AtomicUsize::new(0)).collect());
    let work = |task: usize| {
        let (fleet, hub, put) = (fleet.clone(), hub.clone(), put.clone());
        let (over, rounds) = (over.clone(), rounds.clone());
        tokio::spawn(async move {
            let number = task % MANY;
            while !over.load(SeqCst) {
                rounds[task].fetch_add(1, SeqCst);
                match task % 4 {
                    0 => fleet.index::<ConfigMap>(format!("index-{task}"), |map| {
                        map.metadata.name.clone().into_iter().collect()
                    }),
                    1 => {
                        if let Ok(cluster) = fleet.get(&name(number)) {
                            assert_eq!(cluster.name(), &*name(number));
                        }
                    }
                    2 => assert!(fleet.clusters().is_sorted_by(|a, b| a.name() < b.name())),
                    _ => {
                        // Removed and added again, while others ask for it; and another task does the same.
                        drop(hub.delete("secrets", &format!("default/{}", name(number))));
                        tokio::task::yield_now().await;
                        put(number);
                    }
                }
                sleep(Duration::from_millis(1)).await;
            }
        })
    };
    let tasks: Vec<_> = (0..40).map(work).collect();
    eventually("each has had its turn many times", || {
        rounds.iter().all(|rounds| rounds.load(SeqCst) >= 300)
    })
    .await;
    over.store(true, SeqCst);
    for task in tasks {
        timeout(PATIENCE, task).await.expect("nothing locks up").unwrap();
    }
    eventually("all are there again, and answer", || {
        let clusters = fleet.clusters();
        clusters.len() == MANY
            && clusters
                .iter()
                .all(|cluster| cluster.state() == ClusterState::Ready)
    })
    .await;
    for number in 0..MANY {
        hub.delete("secrets", &format!("default/{}", name(number)))
            .unwrap();
    }
    eventually("none is left", || fleet.clusters().is_empty()).await;
    running.stop().await;
}
