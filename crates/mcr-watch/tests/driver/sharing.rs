//! Several who want the same.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_store::{Indexer, ObjectChange};
use mcr_watch::{ChangeSink, WatchRequest, WatchStatus};

use mcr_doubles::{
    scripted::{Answer, Server},
    status_object,
};

use crate::harness::*;

#[tokio::test(start_paused = true)]
async fn two_who_watch_the_same_cost_one_list_and_one_watch() {
    let server = Server::in_memory(serves_one_map);
    let one = One::of(&server);
    let (_also, at_once) = one.cluster.follow(WatchRequest::of::<ConfigMap>());
    eventually("watched", || server.live() == 1).await;
    let (_later, late) = one.cluster.follow(WatchRequest::of::<ConfigMap>());
    // Who comes late receives what is there.
    late.is(&["+a"]);
    server.send(MAPS, &event("ADDED", map("b", 11))).await;
    for log in [&one.log, &at_once, &late] {
        log.becomes(&["+a", "+b"]).await;
    }
    // What one of them would have asked for itself was asked before it received anything.
    server.send(MAPS, &event("ADDED", map("c", 12))).await;
    for log in [&one.log, &at_once, &late] {
        log.becomes(&["+a", "+b", "+c"]).await;
    }
    assert_eq!((server.lists(MAPS).len(), server.watches(MAPS).len()), (1, 1));
    // Another selector is another watch.
    let (_other, _) = one.cluster.follow(WatchRequest::of::<ConfigMap>().labels("a=b"));
    eventually("watched, too", || server.live() == 2).await;
    assert_eq!((server.lists(MAPS).len(), server.watches(MAPS).len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn the_connection_of_a_watch_closes_with_its_last_handle() {
    let server = Server::in_memory(serves_one_map);
    let one = One::of(&server);
    let (second, log) = one.cluster.follow(WatchRequest::of::<ConfigMap>());
    eventually("watched", || server.live() == 1).await;
    let store = one.cluster.store::<ConfigMap>().unwrap();
    drop(one.watch);
    // The second still holds it: a watch that is to end would receive one more event at most.
    server.send(MAPS, &event("ADDED", map("b", 11))).await;
    log.becomes(&["+a", "+b"]).await;
    server.send(MAPS, &event("ADDED", map("c", 12))).await;
    log.becomes(&["+a", "+b", "+c"]).await;
    assert_eq!((server.live(), server.watches(MAPS).len()), (1, 1));
    drop(second);
    eventually("closed", || server.live() == 0).await;
    assert!(one.cluster.store::<ConfigMap>().is_err());
    assert!(one.cluster.watches.kinds().is_empty());
    drop(store);
    // It begins anew for who comes next.
    let (_third, log) = one.cluster.follow(WatchRequest::of::<ConfigMap>());
    log.becomes(&["+a"]).await;
    assert_eq!(server.lists(MAPS).len(), 2);
}

#[derive(Default)]
struct Panics {
    changes: AtomicUsize,
    statuses: AtomicUsize,
}

impl ChangeSink for Panics {
    fn changed(&self, change: &ObjectChange) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        panic!("of {}", change.key().unwrap());
    }
    fn status_changed(&self, _: &WatchStatus) {
        self.statuses.fetch_add(1, Ordering::SeqCst);
        panic!("of a status");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_panics_ends_the_watch_for_nobody() {
    let server = Server::in_memory(lists(|asked| match asked.nth {
        0 => list(10, [map("a", 1), map("b", 2)]),
        _ => list(20, [map("a", 1)]),
    }));
    let cluster = Cluster::with(&server, |_| {});
    let early = Arc::new(Panics::default());
    let _early = cluster.watch(WatchRequest::of::<ConfigMap>(), early.clone());
    let (_good, log) = cluster.follow(WatchRequest::of::<ConfigMap>());
    log.becomes(&["+a", "+b"]).await;
    // Receiving what is there panics, too; the handle must be had all the same, and be given back.
    let late = Arc::new(Panics::default());
    let late_handle = cluster.watch(WatchRequest::of::<ConfigMap>(), late.clone());
    assert_eq!(late.changes.load(Ordering::SeqCst), 2, "it received both");
    eventually("watched", || server.live() == 1).await;
    server.send(MAPS, &event("ADDED", map("c", 11))).await;
    log.becomes(&["+a", "+b", "+c"]).await;
    server
        .send(MAPS, &event("ERROR", status_object(410, "Expired", "too old")))
        .await;
    eventually("listed again", || log.lines().len() == 5).await;
    eventually("watched again", || server.watches(MAPS).len() == 2).await;
    assert!(early.changes.load(Ordering::SeqCst) == 5 && early.statuses.load(Ordering::SeqCst) > 2);
    assert_eq!(cluster.watches.kinds()[0].objects, 1);
    drop((late_handle, _early, _good));
    eventually("closed", || server.live() == 0).await;
}

/// An index is user code too, and runs where the store is changed.
#[tokio::test(start_paused = true)]
async fn an_index_that_panics_leaves_the_object_out_of_itself_only() {
    let server = Server::in_memory(lists(|_| list(10, [map("bad", 1), map("b", 2)])));
    let cluster = Cluster::with(&server, |_| {});
    let by_name: Indexer = Arc::new(|object| {
        assert_ne!(&*object.key().name, "bad");
        Some(vec![object.key().name.to_string()])
    });
    let request = WatchRequest::of::<ConfigMap>();
    cluster.kinds.register_index(&request, &"name".into(), &by_name);
    let (_watch, log) = cluster.follow(WatchRequest::of::<ConfigMap>());
    log.becomes(&["+bad", "+b"]).await;
    eventually("watched", || server.live() == 1).await;
    server.send(MAPS, &event("DELETED", map("bad", 11))).await;
    log.becomes(&["+bad", "+b", "-bad"]).await;
    let store = cluster.store::<ConfigMap>().unwrap();
    assert_eq!(store.by_index("name", "b").unwrap().len(), 1);
    assert_eq!(store.len().unwrap(), 1);
}

/// The statuses end with what is: whoever follows them must not be left with a problem that is over.
#[tokio::test(start_paused = true)]
async fn the_last_status_reported_is_the_one_that_is() {
    let (server, one) = One::on(lists(|asked| match asked.nth {
        0..4 => Answer::status(500, "InternalError", "no"),
        _ => list(10, [map("a", 1)]),
    }));
    synced(&one.watch).await;
    eventually("watched", || server.live() == 1).await;
    let last = one.log.statuses().pop().unwrap();
    assert!(last.synced && last.problem.is_none());
    let failing = one
        .log
        .statuses()
        .into_iter()
        .filter_map(|status| status.problem)
        .collect::<Vec<_>>();
    assert!(
        failing.windows(2).all(|pair| pair[0].since == pair[1].since),
        "one problem has one beginning"
    );
}
