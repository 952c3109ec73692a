use serde_json::json;

use super::*;

fn report() -> Report {
    Report::of(json!({
        "clusters": [
            {"name": "eu", "state": "Ready", "since": "2026-01-01T00:00:00.000Z", "provider": "file", "objects": 3,
             "reason": null, "warnings": [], "version": "v1.36.1"},
            {"name": "us\u{1b}[2J", "state": "Unreachable", "since": "2026-01-01T00:09:00.000Z", "provider": "file",
             "reason": "connection refused", "warnings": ["old\ntoken"], "address": "https://us:6443"},
        ],
        "providers": [{"name": "file", "synced": false, "restarts": 1, "lastError": "gone"}],
        "controllers": [],
    }))
    .unwrap()
}

#[test]
fn a_table_for_people() {
    let now = "2026-01-01T00:10:00Z".parse().unwrap();
    assert_eq!(
        report().table(false, now, Colours::Off),
        "NAME           STATE        AGE  PROVIDER  VERSION  KINDS  QUEUE  FAILING  REASON\n\
         eu             Ready        10m  file      v1.36.1  -      -      -        -\n\
         \"us\\u{1b}[2J\"  Unreachable  60s  file      -        -      -      -        connection refused; old token\n"
    );
    assert!(
        report()
            .table(true, now, Colours::Off)
            .contains("https://us:6443")
    );
    // The clusters of a fleet in this process are as old as the process, so their age means nothing.
    let mut local = report();
    local.is_local = true;
    assert!(!local.table(false, now, Colours::Off).contains("10m"));
}

/// As a controller reports it, with one cluster in order, one with a blocked kind, and one with failing objects.
fn recorded() -> Report {
    let kind = |name: &str, problem: Option<&str>| json!({"watch": name, "kind": name, "synced": problem.is_none(), "problem": problem, "blocked": problem.is_some()});
    let forbidden = "403 forbidden: configmaps is forbidden";
    let animals = |failing: Value| {
        let count = failing.as_array().unwrap().len();
        json!({"gate": "open", "parked": false, "ready": 1, "delayed": 2, "running": 0, "failing": failing, "failingCount": count + 1})
    };
    let failing = json!([
        {"object": "red/lab", "attempt": 4, "error": "403 Forbidden: no", "since": "2026-01-01T00:00:00Z", "retryAt": null},
        {"object": "red/zoo", "attempt": 1, "error": "late"},
    ]);
    Report::of(json!({
        "clusters": [
            {"name": "eu", "state": "Ready", "provider": "file", "kinds": [kind("configmaps", None), kind("secrets", None)],
             "queueDepth": 0, "controllers": {"animals": animals(json!([])), "old": {"gate": "open"}}},
            {"name": "us", "state": "Ready", "provider": "file", "kindsBlocked": 1,
             "kinds": [kind("secrets", None), kind("configmaps", Some(forbidden))], "queueDepth": 7,
             "controllers": {"old": {"gate": "blocked", "kinds": [{"watch": "configmaps", "reason": forbidden, "blocked": true}]}}},
            {"name": "za", "state": "Ready", "provider": "file", "kinds": [kind("secrets", None)], "queueDepth": 3,
             "controllers": {"animals": animals(failing), "old": {"gate": "open", "failing": "a text?"}}},
        ],
        "providers": [{"name": "file", "synced": true}],
    }))
    .unwrap()
}

#[test]
fn a_display_name_is_shown_beside_the_name_and_means_its_cluster() {
    let named = || {
        Report::of(json!({
            "clusters": [
                {"name": "id1", "displayName": "root:a", "state": "Ready"},
                // The snapshot of a fleet has only the property.
                {"name": "id2", "state": "Ready", "properties": {"mcr.dev/display-name": "root:b"}},
                {"name": "hub", "state": "Ready"},
            ],
        }))
        .unwrap()
    };
    let table = named().table(false, Timestamp::UNIX_EPOCH, Colours::Off);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(
        lines[0],
        "NAME  DISPLAY NAME  STATE  AGE  PROVIDER  VERSION  KINDS  QUEUE  FAILING  REASON"
    );
    assert!(lines[2].starts_with("id2   root:b        Ready"), "{table}");
    assert!(lines[3].starts_with("hub   -             Ready"), "{table}");
    let json = serde_json::to_value(named()).unwrap();
    assert_eq!(json["clusters"][1]["displayName"], "root:b");
    assert_eq!(json["clusters"][2].get("displayName"), None);

    let mut wanted = Wanted::new(&["root:b".into()]);
    let found = named().only(&mut wanted).unwrap();
    assert_eq!((found.clusters.len(), &*found.clusters[0].name), (1, "id2"));
}

#[test]
fn what_fails_in_a_controller_is_shown() {
    let table = recorded().table(false, Timestamp::UNIX_EPOCH, Colours::Off);
    assert_eq!(
        table,
        "NAME  STATE  AGE  PROVIDER  VERSION  KINDS  QUEUE  FAILING  REASON\n\
         eu    Ready  -    file      -        2/2    0      1        -\n\
         us    Ready  -    file      -        1/2    7      -        configmaps: 403 forbidden: configmaps is forbidden\n\
         za    Ready  -    file      -        1/1    3      3        red/lab: 403 Forbidden: no\n"
    );
    let coloured = recorded().table(false, Timestamp::UNIX_EPOCH, Colours::On);
    for painted in [
        "\u{1b}[32mReady\u{1b}[0m",
        "\u{1b}[33m1/2\u{1b}[0m",
        "\u{1b}[1m\u{1b}[31m3\u{1b}[0m",
    ] {
        assert!(coloured.contains(painted), "{coloured:?}");
    }
    let kept = serde_json::to_value(recorded()).unwrap();
    assert_eq!(
        kept["clusters"][2]["controllers"]["animals"]["failing"][0]["attempt"],
        4
    );
    assert_eq!(kept["clusters"][2]["controllers"]["animals"]["failingCount"], 3);
}

#[test]
fn blocked_kinds_and_failing_objects_are_not_ready() {
    let only = |cluster: &str| {
        let mut report = recorded();
        report.clusters.retain(|row| row.name == cluster);
        report
    };
    let mut well = only("eu");
    // A cluster without failing objects, in a controller that reports them, and in one that does not.
    well.clusters[0].rest["controllers"]["animals"]["failingCount"] = 0.into();
    assert!(well.is_ready());
    assert!(!only("us").is_ready(), "a kind is blocked");
    assert!(!only("za").is_ready(), "objects are failing");
    // A watch of another cluster may be the one that is blocked.
    let mut by_hub = only("us");
    by_hub.clusters[0].rest["kinds"] = json!([]);
    assert!(!by_hub.is_ready());
    assert!(by_hub.clusters[0].why().starts_with("configmaps: 403"));
}

#[test]
fn a_blocked_kind_that_no_controller_waits_for_is_ready() {
    let us = |controllers: Value, synced: bool| {
        let mut report = recorded();
        report.clusters.retain(|row| row.name == "us");
        let row = &mut report.clusters[0].rest;
        row["controllers"] = controllers;
        row["kinds"][1]["synced"] = synced.into();
        report
    };
    let blocked = json!({"watch": "configmaps", "blocked": true});
    let waiting = json!({"old": {"gate": "open"}, "new": {"gate": "blocked", "kinds": [blocked]}});
    let open = || json!({"old": {"gate": "open"}});
    assert!(us(open(), false).is_ready(), "the kind is optional");
    let why = us(open(), false).clusters[0].why();
    assert!(why.starts_with("configmaps: 403"), "it is still shown: {why}");
    assert!(!us(waiting, false).is_ready(), "a controller waits for it");
    assert!(!us(open(), true).is_ready(), "the right to list it was withdrawn");
    assert!(
        !us(json!({}), false).is_ready(),
        "no controller shows that it is optional"
    );
}

#[test]
fn what_is_not_known_is_passed_on_as_it_is() {
    let value = serde_json::to_value(report()).unwrap();
    assert_eq!(value["clusters"][0]["objects"], 3);
    assert_eq!(value["controllers"], json!([]));
    assert_eq!(value["providers"][0]["restarts"], 1);
}

#[test]
fn ready_means_all_of_it() {
    assert!(!report().is_ready());
    assert_eq!(report().troubles(), ["provider file: gone"]);
    let mut wanted = Wanted::new(&["eu".into(), "us".into()]);
    let mut well = report().only(&mut wanted).unwrap();
    assert_eq!((well.clusters.len(), wanted.missing()), (1, vec!["us"]));
    assert!(!well.is_ready());
    well.providers[0] = ProviderRow {
        synced: true,
        ..ProviderRow::default()
    };
    assert!(well.is_ready() && well.troubles().is_empty());
}

#[test]
fn all_is_known_once_each_provider_has_reported() {
    let known = |providers: Value| {
        let document = json!({"clusters": [{"name": "a/eu", "state": "Ready"}], "providers": providers});
        let report = Report::of(document).unwrap();
        report
            .only(&mut Wanted::new(&["eu".into()]))
            .unwrap()
            .clusters
            .len()
    };
    let (synced, failed) = (
        json!({"name": "a", "synced": true}),
        json!({"name": "b", "lastError": "gone"}),
    );
    assert_eq!(known(json!([synced, failed])), 1);
    assert_eq!(known(json!([synced, {"name": "b"}])), 0);
    assert!(Report::of(json!("<html>")).is_none());
}

#[test]
fn a_watch_of_the_hub_that_keeps_all_requests_waiting_and_a_standby_are_reported() {
    let report = |blocked: bool, role: &str| {
        let watch = json!({"cluster": "hub", "watch": "secrets", "reason": "forbidden", "blocked": blocked});
        Report::of(json!({
            "clusters": [{"name": "eu", "state": "Ready"}],
            "controllers": [{"name": "old"}, {"name": "animals", "gatedBy": [watch]}],
            "leaderElection": {"role": role, "holder": "pod-1", "identity": "pod-2"},
        }))
        .unwrap()
    };
    let gated = "controller animals: all requests of the controller wait for a watch in cluster hub: secrets: forbidden";
    assert_eq!(report(true, "leader").troubles(), [gated]);
    assert!(!report(true, "leader").is_ready(), "the watch is blocked");
    assert!(report(false, "leader").is_ready(), "the watch will list");
    assert_eq!(
        report(false, "standby").troubles(),
        [
            gated,
            "this controller is a standby and reconciles nothing; the leader is pod-1"
        ]
    );
}

#[test]
fn a_process_that_waits_for_its_own_new_lease_is_not_sent_to_itself() {
    let election = json!({"role": "standby", "holder": "pod-1", "identity": "pod-1"});
    let report = Report::of(json!({"clusters": [], "leaderElection": election})).unwrap();
    assert!(report.troubles()[0].contains("leads when no earlier holder can be working"));
    assert_eq!(report.leader(), report.standby());
}
