//! Promise 6 in a fleet: rotation under live watches costs no LIST, and no delete is missed or doubled.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, Controller, Request, core::WatchSettings};
use mcr_testkit::{
    sim::{SimCluster, SimUser},
    waiting::eventually,
};
use tokio::time::Instant;

use crate::fleet::{OrFail, PATIENCE, Running, Seen, alone, spec, write};

const CLUSTERS: usize = 5;
const ROTATIONS: usize = 50;
/// So often objects come and go between two of them, at least.
const WRITES: usize = 5;
/// All that is written while a watch pauses: a server that had forgotten some of it would be listed for that.
const HISTORY: usize = 1_000_000;

/// How often each object was said to be deleted.
type Deleted = Mutex<HashMap<String, usize>>;

struct Ctx {
    seen: Arc<Seen>,
    deleted: Arc<Deleted>,
}

async fn note(request: Request<ConfigMap>, ctx: Arc<Ctx>) -> Result<Action, Infallible> {
    ctx.seen.note(&request);
    if request.object.is_deleted() {
        let key = format!("{} {}", request.cluster.name(), request.name());
        *ctx.deleted.lock().unwrap().entry(key).or_default() += 1;
    }
    Ok(Action::await_change())
}

fn user(number: usize) -> String {
    format!("robot-{number}")
}

/// Allows a new token. The one before stays valid for now, as tokens do when they are rotated.
fn rotate(cluster: &SimCluster, number: usize) -> String {
    let token = format!("token-{number}-of-{}", cluster.name());
    cluster.set_user(&token, SimUser::new(user(number)).group("system:masters"));
    if let Some(old) = number.checked_sub(2) {
        cluster.remove_user(&format!("token-{old}-of-{}", cluster.name()));
    }
    token
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promise_6_fifty_rotations_under_live_watches_cost_no_list_and_no_delete() {
    let _alone = alone().await;
    let (mut clusters, mut servers, mut specs) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..CLUSTERS {
        let cluster = SimCluster::builder()
            .name(format!("c{i}"))
            .audit_limit(1_000_000)
            .history(HISTORY)
            .build();
        let server = cluster.serve().await.or_fail();
        specs.push(spec(
            cluster.name(),
            &server.kubeconfig_with_token(&rotate(&cluster, 0)),
        ));
        write(&cluster, "hello", 0);
        servers.push(server);
        clusters.push(cluster);
    }
    let deleted = Arc::new(Deleted::default());
    let running = Running::start(
        specs,
        |seen| {
            let deleted = deleted.clone();
            Controller::<ConfigMap>::new("noting")
                .watch_request(|watch| watch.namespace("default"))
                .build(note, Arc::new(Ctx { seen, deleted }))
        },
        |settings| {
            // Watches are ended after every fifth rotation, and one that lived for less than a second comes back after a pause that
            // would grow.
            let mut watch = WatchSettings::default();
            watch.retry_cap = Duration::from_millis(100);
            settings.watch = watch.into();
        },
    );
    for cluster in &clusters {
        running.reconciled(cluster.name(), "hello", 0, PATIENCE).await;
    }
    let epochs: Vec<_> = running
        .fleet
        .clusters()
        .iter()
        .map(|cluster| cluster.epoch())
        .collect();
    let marks: Vec<_> = clusters.iter().map(|cluster| cluster.audit().mark()).collect();
    let since = |i: usize| {
        let log = clusters[i].audit();
        assert_eq!(log.forgotten(), 0);
        log.since(marks[i])
    };

    let (mut made, mut expected) = (0, Vec::new());
    for number in 1..=ROTATIONS {
        for (cluster, server) in clusters.iter().zip(&servers) {
            running.clusters.add(spec(
                cluster.name(),
                &server.kubeconfig_with_token(&rotate(cluster, number)),
            ));
        }
        // Objects come and go, until the new credentials are used everywhere.
        let (begun, first) = (Instant::now(), made);
        loop {
            made += 1;
            for cluster in &clusters {
                write(cluster, &format!("object-{made}"), made);
                if let Some(old) = made.checked_sub(5).filter(|old| *old > 0) {
                    cluster
                        .delete("configmaps", &format!("default/object-{old}"))
                        .or_fail();
                }
            }
            expected.extend(made.checked_sub(5).filter(|old| *old > 0));
            tokio::time::sleep(Duration::from_millis(5)).await;
            let used = |i| since(i).count(|event| event.user == user(number)) > 0;
            if made >= first + WRITES && (0..CLUSTERS).all(used) {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "rotation {number} is not taken");
        }
        // A watch goes on for up to 30 s with what it began with. Ended by the server it goes on with the new ones.
        if number % 5 == 0 {
            clusters.iter().for_each(SimCluster::end_watches);
        }
    }
    let starts = |i: usize| since(i).count(|event| event.is_watch_start("configmaps"));
    let last = |i: usize| {
        since(i).count(|event| event.is_watch_start("configmaps") && event.user == user(ROTATIONS)) > 0
    };
    eventually(PATIENCE, "the watches go on with the last credentials", || {
        (0..CLUSTERS).all(last)
    })
    .await;
    for cluster in &clusters {
        write(cluster, "end", 0);
        running.reconciled(cluster.name(), "end", 0, PATIENCE).await;
    }
    // The deletes were before that, but another key may be worked on later.
    let all = || deleted.lock().unwrap().len() == expected.len() * CLUSTERS;
    let begun = Instant::now();
    while !all() && begun.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let watches: Vec<_> = (0..CLUSTERS).map(starts).collect();
    println!("{made} objects came in each cluster, watches began {watches:?} times");
    for i in 0..CLUSTERS {
        let lists: Vec<_> = since(i)
            .events()
            .filter(|event| event.is_list("configmaps"))
            .map(|event| event.uri.clone())
            .collect();
        assert_eq!(lists, [] as [String; 0], "rotation costs no list");
        assert!(starts(i) >= 4, "the watches began again and again");
        for object in &expected {
            let key = format!("c{i} object-{object}");
            let reported = deleted.lock().unwrap().get(&key).copied();
            assert_eq!(reported, Some(1), "{key} was deleted once");
        }
    }
    assert_eq!(
        deleted.lock().unwrap().len(),
        expected.len() * CLUSTERS,
        "nothing else was deleted"
    );
    let now: Vec<_> = running
        .fleet
        .clusters()
        .iter()
        .map(|cluster| cluster.epoch())
        .collect();
    assert_eq!(now, epochs, "the same engagements");
    running.stop().await;
}
