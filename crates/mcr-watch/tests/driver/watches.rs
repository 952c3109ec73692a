//! Watches: how they go on, and what ends them.

use std::time::Duration;

use serde_json::json;

use mcr_doubles::{
    scripted::{Answer, Server},
    status_object,
};

use crate::harness::*;

/// Events on every short watch are no reason to ask without a pause either.
#[tokio::test(start_paused = true)]
async fn a_server_that_ends_every_watch_at_once_is_not_asked_in_a_loop() {
    for watch in [Answer::short_watch([]), Answer::short_watch([&bookmark(11)])] {
        let server = Server::in_memory(move |asked| {
            if !asked.is_watch() {
                list(10, [map("a", 1)])
            } else {
                watch.clone()
            }
        });
        let one = One::by_default(&server);
        synced(&one.watch).await;
        for_millis(4000).await;
        let watches = server.watches(MAPS).len();
        assert!((3..=5).contains(&watches), "{watches} watches in 4 s");
        let lists = server.lists(MAPS).len();
        assert_eq!(lists, 1, "the end of a watch is no reason to list");
        let reported = "the server ends every watch at once, so changes arrive late";
        assert!(problem(&one.log).await.starts_with(reported));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_from_its_last_bookmark_without_a_list() {
    let (server, one) = One::on(|asked| match (asked.is_watch(), asked.nth) {
        (false, _) => list(10, [map("a", 1)]),
        // A bookmark without a version does not lose the place: what was deleted in between would be missed for ever.
        (true, 0) => Answer::short_watch([
            &event("ADDED", map("b", 15)),
            &bookmark(77),
            &event(
                "BOOKMARK",
                json!({"kind": "x", "metadata": {"resourceVersion": ""}}),
            ),
        ]),
        (true, 1) => Answer::short_watch([&event("MODIFIED", map("b", 80))]),
        (true, _) => quiet(),
    });
    one.log.becomes(&["+a", "+b", "~b"]).await;
    eventually("the third watch", || server.watches(MAPS).len() == 3).await;
    let watches = server.watches(MAPS);
    let from: Vec<_> = watches
        .iter()
        .map(|asked| asked.get("resourceVersion").unwrap())
        .collect();
    assert_eq!(from, ["10", "77", "80"]);
    assert_eq!(server.lists(MAPS).len(), 1);
    for asked in &watches {
        assert_eq!(asked.get("allowWatchBookmarks"), Some("true"));
        let seconds: u64 = asked.get("timeoutSeconds").unwrap().parse().unwrap();
        assert!((261..=290).contains(&seconds), "{seconds}");
    }
}

/// A connection that breaks is no reason to list, nor to report anything twice.
#[tokio::test(start_paused = true)]
async fn an_event_cut_off_in_the_middle_is_asked_for_again_from_where_it_was() {
    let server = Server::in_memory(|asked| match (asked.is_watch(), asked.nth) {
        (false, _) => list(10, [map("a", 1)]),
        (true, 0) => {
            let line = event("ADDED", map("cut", 12)).to_string();
            Answer::begin()
                .line(&event("ADDED", map("whole", 11)))
                .chunk(&line[..line.len() / 2])
        }
        (true, 1) => {
            let line = event("ADDED", map("cut", 12)).to_string();
            Answer::begin().chunk(&line[..line.len() - 1]).end()
        }
        (true, _) => Answer::watch([&event("ADDED", map("cut", 12))]),
    });
    // Nothing was restored.
    server.set_newest_version(11);
    let one = One::of(&server);
    one.log.becomes(&["+a", "+whole", "+cut"]).await;
    let from: Vec<_> = server
        .watches(MAPS)
        .iter()
        .map(|asked| asked.get("resourceVersion").unwrap().to_owned())
        .collect();
    assert_eq!(from, ["10", "11", "11"]);
    assert_eq!(server.lists(MAPS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_what_can_not_be_understood_or_is_too_old_everything_is_listed_again() {
    let long = (0..17).fold(Answer::begin(), |answer, _| answer.chunk(vec![b'x'; 1 << 20]));
    let gone = event("ERROR", status_object(410, "Gone", "too old"));
    for (watch, problem) in [
        (
            Answer::begin().chunk("{\"type\":\"ADDED\",\"obj\n").live(),
            "can't be read",
        ),
        (
            Answer::new(200, "text/html", "<html>\nlog in\n</html>\n"),
            "an HTML page answered (200 OK)",
        ),
        (Answer::watch([&event("REPLACED", map("c", 12))]), "unknown type"),
        (long.live(), "longer than 16 MiB"),
        // Which object it was shows in a list only.
        (
            Answer::watch([&event("DELETED", json!({"metadata": {"name": 7}}))]),
            "deleted object can't be read",
        ),
        // kube's watcher asks again and again from the version that is too old by the answer.
        (too_old(), "too old (410)"),
        (Answer::watch([&gone]), "too old (410)"),
        // The last event of a body need not end with a line feed: a 410 on one line often does not.
        (Answer::begin().chunk(gone.to_string()).end(), "too old (410)"),
    ] {
        let (server, one) = One::on(move |asked| match (asked.is_watch(), asked.nth) {
            (false, 0) => list(10, [map("a", 1), map("goes", 1)]),
            (false, _) => list(20, [map("a", 1), map("b", 2)]),
            (true, 0) => watch.clone(),
            (true, _) => quiet(),
        });
        one.log.becomes(&["+a", "+goes", "-goes", "+b"]).await;
        eventually("watched", || server.watches(MAPS).len() == 2).await;
        assert_eq!(server.watches(MAPS)[1].get("resourceVersion"), Some("20"));
        let problems = one.log.problems();
        let reported = problems.iter().any(|text| text.contains(problem));
        assert!(reported, "{problem}: {problems:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_event_is_survived_without_a_list() {
    let (server, one) = One::on(|asked| match (asked.is_watch(), asked.nth) {
        (false, _) => list(10, [map("a", 1)]),
        (true, 0) => Answer::watch([&event(
            "ERROR",
            status_object(500, "InternalError", "etcd is sad"),
        )]),
        (true, _) => Answer::watch([&event("ADDED", map("b", 11))]),
    });
    one.log.becomes(&["+a", "+b"]).await;
    assert_eq!(server.watches(MAPS)[1].get("resourceVersion"), Some("10"));
    assert_eq!(server.lists(MAPS).len(), 1);
    assert_eq!(one.log.problems()[0], "the API server answered 500: etcd is sad");
    assert!(one.watch.status().problem.is_none());
}

/// Half open: the other side is gone, what stands between still reports that all is well, and new connections work.
#[tokio::test(start_paused = true)]
async fn a_watch_that_falls_silent_after_a_bookmark_goes_on_over_another_connection() {
    let server = Server::in_memory(|asked| match (asked.is_watch(), asked.nth) {
        (false, _) => list(10, [map("a", 1)]),
        (true, 0) => Answer::watch([&bookmark(15)]),
        (true, _) => Answer::watch([&event("ADDED", map("b", 16)), &bookmark(16)]),
    });
    let one = One::with(&server, |settings| {
        settings.silence_timeout = Duration::from_millis(300)
    });
    one.log.becomes(&["+a", "+b"]).await;
    assert_eq!(server.watches(MAPS)[1].get("resourceVersion"), Some("15"));
    assert_eq!(server.lists(MAPS).len(), 1);
}

/// kcp's watches of what no workspace has yet deliver nothing for ever, whatever comes later.
#[tokio::test(start_paused = true)]
async fn a_watch_that_sent_nothing_is_followed_by_a_list() {
    let server = Server::in_memory(|asked| match (asked.is_watch(), asked.nth) {
        (false, 0) => list(10, []),
        (false, _) => list(20, [map("a", 11)]),
        (true, _) => Answer::begin().wait(Duration::from_millis(1100)).end(),
    });
    let one = One::with(&server, |settings| {
        settings.watch_timeout = Duration::from_secs(1)
    });
    one.log.becomes(&["+a"]).await;
    // A timeout of less than a second does not become none at all.
    assert_eq!(server.watches(MAPS)[0].get("timeoutSeconds"), Some("1"));
}

/// A watch that is refused at once although it may be listed must not look like a healthy one.
#[tokio::test(start_paused = true)]
async fn a_kind_that_may_be_listed_but_not_watched_is_listed_once_and_reports_so() {
    let (server, one) = One::on(|asked| {
        if !asked.is_watch() {
            list(10, [map("a", 1)])
        } else {
            Answer::status(403, "Forbidden", "cannot watch")
        }
    });
    synced(&one.watch).await;
    assert!(problem(&one.log).await.starts_with("forbidden: cannot watch"));
    eventually("asked again and again", || server.watches(MAPS).len() > 6).await;
    assert!(one.watch.status().problem.is_some() && one.watch.status().synced);
    assert_eq!(server.lists(MAPS).len(), 1, "a list can't cure it");
}

/// A problem that comes back on every try is one problem, and has lasted since it began.
#[tokio::test(start_paused = true)]
async fn a_watch_that_opens_and_fails_each_time_is_not_reported_as_recovered_in_between() {
    let (server, one) = One::on(|asked| {
        if !asked.is_watch() {
            list(10, [map("a", 1)])
        } else {
            Answer::watch([&event(
                "ERROR",
                status_object(500, "InternalError", "again-and-again"),
            )])
        }
    });
    eventually("asked again and again", || server.watches(MAPS).len() > 8).await;
    let statuses = one.log.statuses().into_iter();
    let problems: Vec<_> = statuses
        .map(|status| status.problem.map(|problem| problem.since))
        .collect();
    let began = problems.iter().position(Option::is_some).unwrap();
    // A list after three failures at one version ends it.
    let listed = problems[began..].split(Option::is_none);
    assert!(
        listed
            .into_iter()
            .all(|one| one.windows(2).all(|pair| pair[0] == pair[1])),
        "{problems:?}"
    );
}
