use serde_json::json;

use super::*;

/// As a controller reports it: the cluster `za` has failing objects, `us` a blocked kind, and `eu` waits.
fn recorded() -> Report {
    let forbidden =
        "forbidden: configmaps is forbidden. Grant list and watch on it to the credentials in use";
    let configmaps = |synced: bool| {
        json!([{"watch": "configmaps with labels greet=yes", "kind": "configmaps", "synced": synced, "blocked": !synced,
                "problem": (!synced).then_some(forbidden)}])
    };
    let open = |failing: Value, count: u64| json!({"gate": "open", "parked": false, "ready": 1, "delayed": 2, "running": 1, "failing": failing, "failingCount": count});
    let failing = json!([
        {"object": "red/lab", "attempt": 4, "error": "403 Forbidden: no", "since": "2026-01-01T09:50:00Z",
         "retryAt": "2026-01-01T10:00:30Z"},
        {"object": "red/zoo", "attempt": 1, "error": "late", "since": "2026-01-01T09:59:00Z", "retryAt": null},
    ]);
    let since = "2026-01-01T09:00:00.000Z";
    Report::of(json!({
        "clusters": [
            {"name": "za", "state": "Ready", "since": since, "kinds": configmaps(true), "controllers": {
                "animals": open(failing, 2), "many": open(json!([{"object": "x", "error": "y"}]), 340)}},
            {"name": "us", "state": "Ready", "since": since, "kinds": configmaps(false), "controllers": {
                "animals": {"gate": "blocked", "kinds": [{"watch": "configmaps", "reason": forbidden, "blocked": true}],
                            "failing": [], "failingCount": 0}}},
            {"name": "eu", "state": "Unreachable", "since": since, "reason": "connection refused", "kinds": configmaps(true),
             "controllers": {"animals": {"gate": "open", "parked": true, "ready": 1, "failing": [], "failingCount": 0}}},
            {"name": "well", "state": "Ready", "since": since, "kinds": configmaps(true),
             "controllers": {"animals": open(json!([]), 0)}},
            {"name": "old", "state": "Ready", "controllers": {"animals": {"gate": "open"}}},
            {"name": "alone", "state": "Ready", "controllers": {}},
        ],
        "providers": [{"name": "file", "synced": true}],
        "controllers": [{"name": "animals", "queue": {"longestRunning":
            {"cluster": "well", "object": "red/lab", "seconds": 125.4}}}],
    }))
    .unwrap()
}

fn why(asked: &str) -> Explanation {
    let report = recorded();
    let target = Target::find(asked, &report).unwrap();
    explain(&report, &target, "2026-01-01T10:00:00Z".parse().unwrap())
}

/// For each line `controller | level | part`: there is such a finding. Without a controller it is about the cluster.
#[track_caller]
fn reports(explanation: &Explanation, lines: &str) {
    for line in lines.trim().lines() {
        let (controller, rest) = line.split_once('|').unwrap();
        let (level, part) = rest.split_once('|').unwrap();
        let controller = Some(controller.trim()).filter(|name| !name.is_empty());
        let found = explanation.findings.iter().any(|finding| {
            let result = format!("{:?}", finding.result);
            let is_there = result == level.trim() && finding.message.contains(part.trim());
            finding.controller.as_deref() == controller && is_there
        });
        assert!(found, "no {line:?} in {explanation:#?}");
    }
}

#[test]
fn a_failing_object_is_explained_with_its_error_and_its_next_try() {
    let red_lab = why("za/red/lab");
    assert_eq!(
        red_lab.text(Colours::Off),
        "object red/lab in cluster za\n\
         \x20 ok       cluster      Ready for 60 minutes\n\
         \x20 ok       kinds        1 of 1 kinds are listed\n\
         controller animals\n\
         \x20 ok       kinds        kinds of this cluster: listed\n\
         \x20 ok       queue        1 ready, 2 delayed, 1 running in this cluster\n\
         \x20 PROBLEM  failing      attempt 4 failed: 403 Forbidden: no; failing for 10 minutes; next try in 30 seconds\n\
         controller many\n\
         \x20 ok       kinds        kinds of this cluster: listed\n\
         \x20 ok       queue        1 ready, 2 delayed, 1 running in this cluster\n\
         \x20 warning  failing      the report has only 1 of 340 failing objects, and red/lab is not among them\n\
         1 problem\n"
    );
    assert!(
        red_lab
            .text(Colours::On)
            .contains("\u{1b}[1m\u{1b}[31mPROBLEM\u{1b}[0m")
    );
    let json = serde_json::to_value(&red_lab).unwrap();
    assert_eq!(
        (&json["problems"], &json["object"]),
        (&json!(1), &json!("red/lab"))
    );
    reports(
        &why("za/red/zoo"),
        "animals | Problem | no further try is planned",
    );
    // Without the namespace, it may be the one in any.
    reports(
        &why("za/zoo"),
        "animals | Problem | red/zoo: attempt 1 failed: late",
    );
}

#[test]
fn a_closed_gate_and_a_cluster_that_does_not_answer_are_why_an_object_waits() {
    let blocked = why("us/red/lab");
    reports(
        &blocked,
        "| Problem | configmaps: forbidden
         animals | Problem | kinds of this cluster: no object of the cluster is reconciled before these are listed: configmaps: forbidden",
    );
    let parked = why("eu/red/lab");
    reports(
        &parked,
        "| Problem | Unreachable for 60 minutes: connection refused
        animals | Warning | parked: ",
    );
    assert_eq!(parked.problems, 1);
}

#[test]
fn it_reports_if_nothing_is_known() {
    let well = why("well/red/blue");
    assert_eq!((well.problems, well.warnings), (0, 0));
    reports(&well, "animals | Ok | red/blue is not among the failing objects");
    assert!(well.text(Colours::Off).ends_with(
        "nothing is known of this object that keeps it waiting: it was reconciled, or is in the queue, or does not \
         exist, or no controller watches it\n"
    ));
    let watched =
        "the controllers watch configmaps with labels greet=yes; kubectl get shows whether red/blue is there";
    reports(&well, &format!("| Ok | {watched}"));
    for named in ["za/red/lab", "well/red/lab"] {
        let findings = why(named).findings;
        assert!(findings.iter().all(|found| found.check != "watched"), "{named}");
    }
    reports(&why("well/red/lab"), "animals | Ok | running for 2 minutes");
    // The report of an older version.
    let old = why("old/red/lab");
    reports(&old, "animals | Warning | does not report failing objects");
    assert_eq!(old.problems, 0);
    reports(
        &why("alone/red/lab"),
        "| Problem | no controller works on this cluster",
    );
    reports(
        &why("asia/red/lab"),
        "| Problem | (it has za, us, eu, well, old and 1 more)",
    );
}

/// The cluster `well` while the controller waits for a watch in the hub.
fn gated(blocked: bool, leader_election: Value) -> Explanation {
    let mut report = recorded();
    report.rest["controllers"][0]["gatedBy"] =
        json!([{"cluster": "hub", "watch": "secrets", "reason": "forbidden", "blocked": blocked}]);
    report.rest.insert("leaderElection".into(), leader_election);
    let target = Target::find("well/red/blue", &report).unwrap();
    explain(&report, &target, Timestamp::UNIX_EPOCH)
}

const GATE_OF_HUB: &str =
    "gate of cluster hub: closed: all requests of the controller wait for a watch there: secrets: forbidden";

#[test]
fn a_watch_of_the_hub_that_all_requests_wait_for_is_a_problem() {
    for blocked in [true, false] {
        let explanation = gated(blocked, json!(null));
        reports(&explanation, &format!("animals | Problem | {GATE_OF_HUB}"));
        reports(&explanation, "animals | Ok | kinds of this cluster: listed");
        assert_eq!(explanation.problems, 1);
        let text = explanation.text(Colours::Off);
        assert!(
            text.ends_with("\n1 problem\n") && !text.contains(": open"),
            "{text}"
        );
    }
}

#[test]
fn a_standby_reports_last_whom_to_ask() {
    let standby = |blocked: bool, holder: Value| gated(blocked, json!({"role": "standby", "holder": holder}));
    for (blocked, level) in [(true, "Problem"), (false, "Warning")] {
        let explanation = standby(blocked, json!(null));
        reports(&explanation, &format!("animals | {level} | {GATE_OF_HUB}"));
        reports(
            &explanation,
            "| Warning | is a standby and reconciles nothing; there is no leader now",
        );
        assert_eq!(explanation.problems, usize::from(blocked));
    }
    let last = |explanation: &Explanation| explanation.text(Colours::Off).lines().last().map(str::to_owned);
    for blocked in [true, false] {
        let led = standby(blocked, json!("pod-1"));
        assert_eq!(
            last(&led).unwrap(),
            "this process is a standby: ask the leader pod-1, with --server at its address"
        );
        assert!(!led.text(Colours::Off).contains("no problems"));
    }
    let none = last(&standby(false, json!(null))).unwrap();
    assert!(none.contains("there is no leader now: repeat"), "{none}");
}
