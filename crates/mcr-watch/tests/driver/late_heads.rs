//! Aggregated API servers and proxies that send the head of a watch only with its first event.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_watch::{HubEvent, HubWatch, WatchRequest};
use tokio::{sync::Semaphore, time::Instant};

use mcr_doubles::scripted::{Answer, Asked, Server};

use crate::harness::*;

#[tokio::test(start_paused = true)]
async fn a_watch_whose_head_comes_with_its_first_event_is_no_failure() {
    let event_comes = Arc::new(Semaphore::new(0));
    let gate = event_comes.clone();
    let server = Server::in_memory(move |asked| match (asked.is_watch(), asked.nth) {
        (false, _) => list(10, [map("a", 1)]),
        (true, 0) => Answer::watch([&event("ADDED", map("b", 11))]).after_gate(&gate),
        (true, _) => quiet(),
    });
    let one = One::by_default(&server);
    one.log.becomes(&["+a"]).await;
    for_millis(240_000).await;
    assert_eq!(one.log.problems(), [""; 0]);
    assert_eq!((server.lists(MAPS).len(), server.watches(MAPS).len()), (1, 1));
    let sent = Instant::now();
    event_comes.add_permits(1);
    one.log.becomes(&["+a", "+b"]).await;
    assert!(one.log.time_of("+b") - sent < Duration::from_millis(100));
    assert_eq!(server.lists(MAPS).len(), 1);
}

/// The limit of a head follows the timeout of a watch. Such a watch was open all the time, and was not ended at once.
#[tokio::test(start_paused = true)]
async fn a_head_may_come_as_late_as_the_end_of_a_long_watch() {
    const LONG: Duration = Duration::from_secs(3_600);
    let server = Server::in_memory(|asked| {
        if !asked.is_watch() {
            list(10, [map("a", 1)])
        } else {
            let lasts = asked.get("timeoutSeconds").unwrap().parse().unwrap();
            Answer::short_watch([&bookmark(11)]).after(Duration::from_secs(lasts))
        }
    });
    let one = One::in_cluster(Cluster::by_default(&server, |settings| {
        settings.watch_timeout = LONG
    }));
    within(6 * LONG, "the fifth watch", || server.watches(MAPS).len() == 5).await;
    assert_eq!(one.log.problems(), [""; 0]);
    let watches = server.watches(MAPS);
    assert_eq!(watches[1].get("resourceVersion"), Some("11"));
    assert!(watches[1].at - watches[0].at >= LONG.mul_f64(0.9));
    assert_eq!(server.lists(MAPS).len(), 1);
}

/// Whatever time it took, it has not proven that watches work: after three of them in a row everything is listed.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_comes_late_is_no_watch_that_lasted() {
    let server = Server::in_memory(|asked| {
        if !asked.is_watch() {
            list(10, [map("a", 1)])
        } else {
            Answer::status(500, "InternalError", "no").after(Duration::from_secs(11))
        }
    });
    let _one = One::by_default(&server);
    eventually("listed again", || server.lists(MAPS).len() == 2).await;
    let listed = server.lists(MAPS)[1].at;
    let before = server
        .watches(MAPS)
        .iter()
        .filter(|watch| watch.at < listed)
        .count();
    assert_eq!(before, 3);
}

#[tokio::test(start_paused = true)]
async fn a_problem_is_not_over_before_the_watch_has_answered() {
    let answer_comes = Arc::new(Semaphore::new(0));
    let gate = answer_comes.clone();
    let server = Server::in_memory(move |asked| match (asked.is_watch(), asked.nth) {
        (false, _) => list(10, [map("a", 1)]),
        (true, 0) => Answer::status(500, "InternalError", "no"),
        (true, _) => quiet().after_gate(&gate),
    });
    let one = One::by_default(&server);
    eventually("the second watch", || server.watches(MAPS).len() == 2).await;
    for_millis(200_000).await;
    let problem = one.watch.status().problem.unwrap().error.to_string();
    assert!(problem.contains("500"), "{problem}");
    answer_comes.add_permits(1);
    eventually("the problem is over", || one.watch.status().problem.is_none()).await;
    assert_eq!((one.log.problems().len(), server.watches(MAPS).len()), (1, 2));
}

/// Servers that convert each object, and proxies that wait for the whole response.
#[tokio::test(start_paused = true)]
async fn a_list_waits_for_its_head_for_five_minutes_and_then_comes_in_pages() {
    let late = |seconds| list(10, [map("a", 1)]).after(Duration::from_secs(seconds));
    let gateway =
        Answer::status(504, "Timeout", "the request did not complete").after(Duration::from_secs(60));
    for (whole, lists) in [(late(295), 1), (late(100_000), 2), (gateway, 2)] {
        let server = Server::in_memory(move |asked| match (asked.is_watch(), asked.get("limit")) {
            (false, None) => whole.clone(),
            (false, Some(_)) => list(10, [map("a", 1)]),
            (true, _) => quiet(),
        });
        let one = One::by_default(&server);
        let mut hub = HubWatch::new(server.client(), WatchRequest::of::<ConfigMap>());
        let began = Instant::now();
        let listed = || one.watch.status().synced;
        let first = within(Duration::from_secs(400), "it is listed", listed);
        let hub_listed = async { while !matches!(hub.next().await, HubEvent::Synced) {} };
        tokio::join!(first, hub_listed);
        let took = began.elapsed();
        assert!(took < Duration::from_secs(310), "{took:?}");
        assert_eq!(one.log.problems().len(), lists - 1);
        // With those of the hub, which probes with the smallest page.
        let is_probe = |list: &&Asked| list.get("limit") == Some("1");
        assert_eq!(
            server.lists(MAPS).iter().filter(|list| !is_probe(list)).count(),
            2 * lists
        );
    }
}
