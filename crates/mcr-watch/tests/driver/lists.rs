//! Lists: how they are asked for, and what a bad one does.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mcr_watch::{WatchRequest, WatchSettings};
use serde_json::json;
use tokio::time::Instant;

use mcr_doubles::{
    scripted::{Answer, Asked, Server},
    status_object,
};

use crate::harness::*;

/// kube's `any_semantic` never reaches the wire, because a page size makes it drop the resource version.
#[tokio::test(start_paused = true)]
async fn the_first_list_may_come_from_the_cache_and_later_ones_are_paged_and_newest() {
    let (server, one) = One::on(|asked| match (asked.is_watch(), asked.nth) {
        (false, 0) => list(10, [map("a", 1)]),
        (false, 1) => page(20, "t/1=", [map("a", 1)]),
        (false, _) => list(20, [map("b", 2)]),
        (true, 0) => Answer::short_watch([&event("ERROR", status_object(410, "Expired", "too old"))]),
        (true, _) => quiet(),
    });
    one.log.becomes(&["+a", "+b"]).await;
    eventually("the second watch", || server.watches(MAPS).len() == 2).await;
    let lists = server.lists(MAPS);
    assert_eq!(lists.len(), 3, "{lists:?}");
    assert_eq!(
        (lists[0].get("resourceVersion"), lists[0].get("limit")),
        (Some("0"), None)
    );
    assert_eq!(
        (lists[1].get("resourceVersion"), lists[1].get("limit")),
        (None, Some("500"))
    );
    assert_eq!(
        (lists[2].get("continue"), lists[2].get("limit")),
        (Some("t/1="), Some("500"))
    );
    assert_eq!(lists[2].get("resourceVersion"), None);
    let watches: Vec<_> = server
        .watches(MAPS)
        .iter()
        .map(|w| w.get("resourceVersion").map(str::to_owned))
        .collect();
    assert_eq!(watches, [Some("10".to_owned()), Some("20".to_owned())]);
    // Streaming lists end in an endless loop on servers that answer 422 to `sendInitialEvents`.
    let streams = |asked: &Asked| {
        asked
            .get("sendInitialEvents")
            .or(asked.get("resourceVersionMatch"))
            .is_some()
    };
    assert!(!server.asked().iter().any(streams));
}

/// The pages of a list that fails for ever: what was not in them must never be taken for deleted.
#[tokio::test(start_paused = true)]
async fn a_list_that_never_completes_never_deletes() {
    let (server, one) = One::on(
        |asked| match (asked.is_watch(), asked.nth, asked.get("continue")) {
            (false, 0, _) => list(10, [map("a", 1), map("b", 2)]),
            (false, _, None) => page(20, "t", [map("new", 9)]),
            (false, _, Some(_)) => Answer::status(400, "BadRequest", "no"),
            (true, ..) => too_old(),
        },
    );
    eventually("tried thrice", || server.lists(MAPS).len() > 6).await;
    one.log.is(&["+a", "+b"]);
    assert_eq!(one.cluster.store::<ConfigMap>().unwrap().len().unwrap(), 2);
}

async fn nothing_is_deleted_by(bad: Answer, problem: &str) {
    let (server, one) = One::on(move |asked| match (asked.is_watch(), asked.nth) {
        (false, 0) => list(10, [map("a", 1)]),
        (false, 1..4) => bad.clone(),
        (false, _) => list(20, []),
        (true, 0) => too_old(),
        (true, _) => quiet(),
    });
    // What is no list deletes nothing; the good one that comes in the end is believed.
    one.log.becomes(&["+a", "-a"]).await;
    assert!(
        one.log.time_of("-a") >= server.lists(MAPS)[4].at,
        "deleted by a list that is none"
    );
    let problems = one.log.problems();
    assert!(
        problems.iter().any(|text| text.contains(problem)),
        "{problem}: {problems:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_no_whole_list_is_a_failed_list() {
    let json = |value| Answer::json(&value);
    let nested =
        json!({"kind": "ConfigMap", "metadata": {"resourceVersion": "7"}, "spec": {"volume": {"items": []}}});
    let gzip = [("content-type", "application/json"), ("content-encoding", "gzip")];
    let whole = list_object(20, [map("b", 2)]).to_string();
    for (bad, problem) in [
        (
            json(json!({"metadata": {}, "items": []})),
            "no metadata.resourceVersion",
        ),
        (json(nested), "has no items"),
        (
            Answer::new(200, "text/html", "<html>log in</html>"),
            "an HTML page answered (200 OK)",
        ),
        (Answer::new(200, "application/json", ""), "ends in the middle"),
        (
            Answer::with_headers(200, &gzip, [0x1f, 0x8b, 8, 0, 0xff]),
            "not UTF-8",
        ),
        (Answer::promise(whole.len() + 10, &whole), "closed"),
    ] {
        nothing_is_deleted_by(bad, problem).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_fails_leaves_the_others_running() {
    for (answer, words) in [
        (
            Answer::status(403, "Forbidden", "secrets is forbidden"),
            "forbidden: secrets is forbidden",
        ),
        (
            Answer::new(404, "text/plain", "404 page not found"),
            "does not serve this kind (404)",
        ),
        (
            Answer::status(500, "InternalError", "etcd is sad"),
            "answered 500: etcd is sad",
        ),
        (
            Answer::new(503, "text/html", "<html>"),
            "answered 503: no further words",
        ),
    ] {
        let (server, one) = One::on(
            move |asked| match (asked.path.as_str(), asked.is_watch(), asked.nth) {
                (SECRETS, false, 0..3) => answer.clone(),
                (_, false, _) => list(10, [map("a", 1)]),
                (_, true, _) => quiet(),
            },
        );
        let (secrets, log) = one.cluster.follow(WatchRequest::of::<Secret>());
        let text = problem(&log).await;
        assert!(text.contains(words), "{text}");
        synced(&one.watch).await;
        server.send(MAPS, &event("ADDED", map("live", 11))).await;
        one.log.becomes(&["+a", "+live"]).await;
        // Its recovery is noticed, too.
        log.becomes(&["+a"]).await;
        eventually("the problem is gone", || secrets.status().problem.is_none()).await;
        assert_eq!((secrets.status().lists, server.lists(SECRETS).len()), (1, 4));
        assert_eq!(server.lists(MAPS).len(), 1, "the other kind was left alone");
    }
}

/// kube retries 15 times, for minutes, inside of one call; whoever is asked to wait must wait, and no longer.
#[tokio::test(start_paused = true)]
async fn too_many_requests_are_answered_by_waiting_as_long_as_asked() {
    let (server, one) = One::on(|asked| match (asked.path.as_str(), asked.is_watch(), asked.nth) {
        (SECRETS, false, 0) => Answer::with_headers(429, &[("retry-after", "2")], "slow down"),
        (_, false, _) => list(10, [map("a", 1)]),
        (_, true, _) => quiet(),
    });
    let (_secrets, log) = one.cluster.follow(WatchRequest::of::<Secret>());
    let text = problem(&log).await;
    assert!(text.contains("too many requests (429)"), "{text}");
    synced(&one.watch).await;
    log.becomes(&["+a"]).await;
    let lists = server.lists(SECRETS);
    let waited = lists[1].at - lists[0].at;
    assert!(
        waited >= Duration::from_secs(2) && waited < Duration::from_millis(2100),
        "{waited:?}"
    );
}

/// A list begins with a 32nd of the budget, and at least with 1 MiB.
fn one_list_at_a_time(settings: &mut WatchSettings) {
    settings.fleet_list_bytes = 1 << 20;
}

/// The bound on lists is for work; a few silent clusters must not keep all others from being listed.
#[tokio::test(start_paused = true)]
async fn a_place_among_the_lists_is_not_kept_by_a_server_that_is_silent() {
    let silent = Server::in_memory(lists(|_| Answer::silence()));
    let good = Server::in_memory(serves_one_map);
    let silent_one = One::with(&silent, one_list_at_a_time);
    eventually("the silent one is being listed", || silent.live() == 1).await;
    let cluster = silent_one.cluster.beside("good", &good);
    let (watch, _log) = cluster.follow(WatchRequest::of::<ConfigMap>());
    let started = Instant::now();
    synced(&watch).await;
    let took = started.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(
        silent.live(),
        1,
        "the silent one is still waited for, without a place"
    );
}

/// kube has no read timeout: a list that is never answered is waited for, for ever.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_never_answered_is_given_up_and_asked_again() {
    let server = Server::in_memory(lists(|asked| match asked.nth {
        0 => Answer::silence(),
        _ => list(10, [map("a", 1)]),
    }));
    let one = One::with(&server, |settings| settings.list_timeout = Duration::from_secs(1));
    let text = problem(&one.log).await;
    assert_eq!(text, "no answer within 1 s");
    one.log.becomes(&["+a"]).await;
    eventually("the first connection is closed, the watch is open", || {
        server.live() == 1 && server.watches(MAPS).len() == 1
    })
    .await;
}

/// Waiting for a place is not the fault of the cluster that waits.
#[tokio::test(start_paused = true)]
async fn the_time_spent_waiting_for_a_place_does_not_count_as_the_lists_own() {
    let server = Server::in_memory(|asked| {
        if !asked.is_watch() {
            let body = list_object(10, [map("a", 1)]).to_string();
            Answer::begin().wait(Duration::from_millis(500)).chunk(body).end()
        } else {
            quiet()
        }
    });
    let cluster = Cluster::with(&server, |settings| {
        one_list_at_a_time(settings);
        settings.list_timeout = Duration::from_millis(1200);
    });
    let watches =
        ["a", "b", "c", "d"].map(|label| cluster.follow(WatchRequest::of::<ConfigMap>().labels(label)));
    for (watch, log) in &watches {
        synced(watch).await;
        assert!(
            log.statuses().iter().all(|status| status.problem.is_none()),
            "{:?}",
            log.statuses()
        );
    }
    let lists = server.lists(MAPS);
    assert_eq!(lists.len(), 4);
    assert!(
        lists[3].at - lists[0].at >= Duration::from_millis(1500),
        "one after the other"
    );
}

/// Selectors hold characters that mean something in a URL.
#[tokio::test(start_paused = true)]
async fn selectors_and_namespaces_arrive_as_they_were_written() {
    let server = Server::in_memory(lists(|_| list(10, [])));
    let cluster = Cluster::with(&server, |_| {});
    let labels = "tier in (web,db),a!=b c&d=ü+1";
    let fields = "metadata.name!=x,spec.nodeName=n/1";
    let request = WatchRequest::of::<ConfigMap>()
        .namespace("team-a")
        .labels(labels)
        .fields(fields);
    let (watch, _log) = cluster.follow(request);
    synced(&watch).await;
    let path = "/api/v1/namespaces/team-a/configmaps";
    eventually("it is watched", || server.watches(path).len() == 1).await;
    for asked in server.asked() {
        assert_eq!(asked.path, path);
        assert_eq!(
            (asked.get("labelSelector"), asked.get("fieldSelector")),
            (Some(labels), Some(fields))
        );
        assert!(asked.raw_query.is_ascii() && !asked.raw_query.contains(' '));
    }
}
