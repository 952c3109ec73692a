//! Lists in several pages, some of which fail.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mcr_watch::WatchRequest;

use mcr_doubles::scripted::{Answer, Asked, Server};

use crate::harness::*;

/// The continue tokens of the lists, and whether each asked for pages (`limit`), the cache (`0`), or neither.
fn forms(lists: &[Asked]) -> Vec<String> {
    let form = |asked: &Asked| {
        let limit = asked.get("limit").map(|limit| format!("limit {limit}"));
        let version = asked
            .get("resourceVersion")
            .map(|version| format!("version {version}"));
        let token = asked.get("continue").map(|token| format!("token {token}"));
        let parts: Vec<String> = [limit, version, token].into_iter().flatten().collect();
        parts.join(", ")
    };
    lists.iter().map(form).collect()
}

/// A page that breaks off in the middle.
fn broken() -> Answer {
    let whole = list_object(20, [map("broken", 1)]).to_string();
    Answer::promise(whole.len() + 10, &whole)
}

/// The first list has `a`, `b` and `c`, and its watch expires. The second is up to the script, which gets its requests from 0.
fn repeated(script: impl Fn(&Asked, usize) -> Answer + Send + Sync + 'static) -> (Server, One) {
    let (server, one) = One::on(move |asked| match (asked.is_watch(), asked.nth) {
        (false, 0) => list(10, [map("a", 1), map("b", 2), map("c", 3)]),
        (false, nth) => script(asked, nth - 1),
        (true, 0) => too_old(),
        (true, _) => quiet(),
    });
    (server, one)
}

/// The second list: the answers to its requests, what it changes, and how it was asked for.
#[tokio::test(start_paused = true)]
async fn a_page_that_fails_is_asked_for_again_or_its_list_begins_anew() {
    const ALL: &str = "limit 500";
    const NEXT: &str = "limit 500, token t";
    let first = || page(20, "t", [map("a", 1)]);
    let refused = |status| Answer::status(status, "InternalError", "it can't be had now");
    let c = || list(20, [map("c", 3)]);
    let no_list = Answer::new(200, "application/json", "{\"items\":7}");
    let anew = || list(30, [map("a", 1)]);
    let whole = || list(30, [map("a", 1), map("c", 3)]);
    let cases: [(Vec<Answer>, &[&str], &[&str]); 7] = [
        // The pages before one that fails are not asked for again.
        (
            vec![first(), refused(500), refused(429), c()],
            &["-b"],
            &[ALL, NEXT, NEXT, NEXT],
        ),
        // One that breaks off is asked for with half as many objects. What the broken ones had is reported by nobody.
        (
            vec![first(), broken(), broken(), page(20, "u", [map("b", 2)]), c()],
            &[],
            &[
                ALL,
                NEXT,
                "limit 250, token t",
                "limit 125, token t",
                "limit 250, token u",
            ],
        ),
        // One that can't be read shows nothing of its size.
        (vec![first(), no_list, anew()], &["-b", "-c"], &[ALL, NEXT, ALL]),
        // An expired list goes on.
        (
            vec![first(), expired("n"), list(90, [map("c", 3)])],
            &["-b"],
            &[ALL, NEXT, "limit 500, token n"],
        ),
        // A list that has not begun can't expire.
        (vec![too_old(), anew()], &["-b", "-c"], &[ALL, ALL]),
        // Without a newer token, an expired list begins anew in one piece.
        (vec![first(), too_old(), whole()], &["-b"], &[ALL, NEXT, ""]),
        (vec![first(), expired(""), whole()], &["-b"], &[ALL, NEXT, ""]),
    ];
    for (answers, changes, asked) in cases {
        let answer = move |_: &Asked, nth: usize| answers[nth.min(answers.len() - 1)].clone();
        let (server, one) = repeated(answer);
        one.listed(2).await;
        one.log.becomes(&[&["+a", "+b", "+c"], changes].concat()).await;
        assert_eq!(forms(&server.lists(MAPS))[1..], *asked);
    }
}

/// Its pages would take memory from others for as long as it is down.
#[tokio::test(start_paused = true)]
async fn a_list_of_a_cluster_that_goes_down_begins_anew() {
    let server = Server::in_memory(|asked| match (asked.is_watch(), asked.nth) {
        (false, 0) => list(10, [map("a", 1)]),
        (false, 1) => page(20, "t", [map("a", 1)]),
        (false, 2) => busy(),
        (false, _) => list(30, [map("c", 3)]),
        (true, 0) => too_old(),
        (true, _) => quiet(),
    });
    let one = One::with(&server, |settings| settings.retry_cap = Duration::from_secs(600));
    eventually("a page has failed", || {
        one.log.problems().iter().any(|problem| problem.contains("503"))
    })
    .await;
    one.cluster.disconnect();
    for_millis(1000).await;
    one.cluster.connect(server.client(), 1);
    one.listed(2).await;
    assert_eq!(
        forms(&server.lists(MAPS))[1..],
        ["limit 500", "limit 500, token t", "limit 500"]
    );
}

/// The other endpoint may not know the token, and its versions may be others.
#[tokio::test(start_paused = true)]
async fn a_list_begins_anew_at_another_endpoint() {
    let (server, one) = One::on(|asked| match (asked.is_watch(), asked.nth) {
        (false, 0) => list(10, [map("a", 1)]),
        (false, 1) => page(20, "t", [map("a", 1)]),
        (false, _) => busy(),
        (true, 0) => too_old(),
        (true, _) => quiet(),
    });
    eventually("a page has failed", || server.lists(MAPS).len() == 3).await;
    let other = Server::in_memory(lists(|_| list(30, [map("c", 3)])));
    one.cluster.connect(other.client(), 2);
    one.listed(2).await;
    let first = &forms(&other.lists(MAPS))[0];
    assert!(!first.contains("token"), "{first}");
    one.log.becomes(&["+a", "+c", "-a"]).await;
}

/// Each page takes most of the time that one request may take. All of them together take several times as long.
#[tokio::test(start_paused = true)]
async fn a_large_kind_behind_a_slow_link_is_listed_however_long_it_takes() {
    const LIMIT: Duration = Duration::from_secs(3);
    let server = Server::in_memory(lists(|asked| match asked.nth {
        0 => {
            let begin = Answer::begin().chunk(r#"{"metadata":{"resourceVersion":"20"},"items":["#);
            // More than fits into the time of one request.
            (0..12).fold(begin, |answer, _| answer.wait(LIMIT / 10).chunk(" "))
        }
        nth @ 1..20 => page(20, &format!("t{nth}"), [map(&format!("m{nth}"), 1)]).after(LIMIT / 2),
        _ => list(20, [map("last", 1)]).after(LIMIT / 2),
    }));
    let one = One::with(&server, |settings| settings.list_timeout = LIMIT);
    one.listed(1).await;
    assert_eq!(one.cluster.store::<ConfigMap>().unwrap().len().unwrap(), 20);
    assert_eq!(server.lists(MAPS).len(), 21);
}

/// Before the last page has arrived, nobody knows of the first one.
#[tokio::test(start_paused = true)]
async fn nothing_of_a_list_is_reported_or_readable_before_it_is_complete() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let last = gate.clone();
    let (server, one) = One::on(lists(move |asked| match asked.nth {
        0 => page(20, "t", [map("a", 1)]),
        _ => list(20, [map("b", 2)]).after_gate(&last),
    }));
    eventually("the last page is asked for", || server.lists(MAPS).len() == 2).await;
    one.log.is(&[]);
    assert!(
        one.cluster
            .store::<ConfigMap>()
            .unwrap()
            .list_unsynced()
            .unwrap()
            .is_empty()
    );
    gate.add_permits(1);
    one.log.becomes(&["+a", "+b"]).await;
}

/// A server that names ever new pages without an object in them.
#[tokio::test(start_paused = true)]
async fn a_list_without_an_end_fails_and_the_other_kinds_go_on() {
    let (server, one) = One::on(|asked| match (asked.path.as_str(), asked.is_watch(), asked.nth) {
        (MAPS, false, nth @ 0..200) => page(20, &format!("t{nth}"), []),
        (_, false, _) => list(20, [map("a", 1)]),
        (_, true, _) => quiet(),
    });
    let (secrets, _log) = one.cluster.follow(WatchRequest::of::<Secret>());
    let problem = problem(&one.log).await;
    assert!(
        problem.starts_with("the list has no end: after 200 pages with 0 objects"),
        "{problem}"
    );
    assert!(!one.watch.status().synced);
    synced(&secrets).await;
    let listed = || one.watch.status().synced;
    within(Duration::from_secs(600), "it is listed later", listed).await;
    let lists = server.lists(MAPS);
    assert!(lists.len() == 201 && lists[200].at - lists[199].at >= Duration::from_secs(300));
}
