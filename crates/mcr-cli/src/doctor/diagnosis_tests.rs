use std::net::{IpAddr, Ipv4Addr};

use mcr_core::doctor::Advice;

use super::*;
use crate::{
    doctor::{ask::Version, probe::Answer as HttpAnswer, target::Credential},
    providers::NoDoctor,
};

const DAY: u64 = 86_400;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A cluster without problems, long after 1970.
fn well() -> ClusterFacts {
    ClusterFacts {
        doctor: Arc::new(NoDoctor),
        values: Values::new(),
        state: "Ready".into(),
        reason: None,
        warnings: Vec::new(),
        connection: Some(Connection {
            address: "https://eu-1:6443".into(),
            host: "eu-1".into(),
            credential: Credential {
                token_expires: Some(at(1_300 * DAY)),
                ..Credential::default()
            },
            proxied: false,
            insecure: false,
            reach: Some(Reach {
                resolved: Some(Ok(vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))])),
                forbidden: None,
                connected: Some(Ok(Duration::from_millis(3))),
                handshake: Some(Ok(Tls {
                    verdict: Some(Verdict::Good),
                    expires: Some(at(1_200 * DAY)),
                    valid_from: Some(at(900 * DAY)),
                })),
                answered: Some(Ok(HttpAnswer {
                    took: Duration::from_millis(9),
                    ahead: Some(1),
                })),
            }),
        }),
        api: Some(Api {
            version: Ok(Version {
                shown: "v1.36.1".into(),
                minor: Some(36),
                took: Duration::from_millis(7),
            }),
            user: Some("anna".into()),
            rights: vec![Answer {
                resource: "configmaps".into(),
                verbs: vec!["get".into(), "list".into()],
                denied: Ok(Vec::new()),
            }],
            namespace: None,
        }),
        obstacle: None,
        ready: None,
        now: at(1_000 * DAY),
    }
}

/// The reach of its connection.
fn reach(facts: &mut ClusterFacts) -> &mut Reach {
    facts.connection.as_mut().unwrap().reach.as_mut().unwrap()
}

/// A cluster that the fleet does not reach.
fn unreached(change: impl FnOnce(&mut Reach)) -> ClusterFacts {
    let mut facts = well();
    (facts.state, facts.api) = ("Unreachable".into(), None);
    facts.reason = Some("whatever the fleet reports".into());
    change(reach(&mut facts));
    facts
}

fn tls(reach: &mut Reach) -> &mut Tls {
    reach.handshake.as_mut().unwrap().as_mut().unwrap()
}

/// The only finding that is not in order has this check and level, and these parts of the text and the fix.
#[track_caller]
fn finds(facts: &ClusterFacts, check: &str, level: Level, message: &str, fix: &str) {
    let found = diagnose(facts);
    let bad: Vec<&Finding> = found
        .iter()
        .filter(|finding| finding.level != Level::Ok)
        .collect();
    let [bad] = bad.as_slice() else { panic!("{bad:#?}") };
    assert!(
        (bad.check, bad.level) == (check, level) && bad.message.contains(message),
        "{bad:?}"
    );
    let lines = bad
        .fix
        .as_ref()
        .and_then(crate::doctor::fix::filled)
        .unwrap_or_default();
    assert!(lines.join(" ").contains(fix), "no {fix}: {lines:?}");
}

#[track_caller]
fn fine(facts: &ClusterFacts) {
    let found = diagnose(facts);
    assert!(
        found
            .iter()
            .all(|finding| finding.level == Level::Ok && finding.fix.is_none()),
        "{found:#?}"
    );
}

#[test]
fn nothing_is_wrong_with_what_is_in_order() {
    fine(&well());
    let checks: Vec<&str> = diagnose(&well()).iter().map(|finding| finding.check).collect();
    assert_eq!(
        checks,
        [
            "dns",
            "connection",
            "tls",
            "clock",
            "credentials",
            "version",
            "rights"
        ]
    );
}

#[test]
fn a_description_that_can_not_be_used_is_the_only_thing_to_report() {
    let mut facts = well();
    facts.state = "Broken".into();
    for (address, advice) in [
        ("127.0.0.1", "--allow-loopback"),
        ("169.254.169.254", "other machines"),
    ] {
        let refused = mcr_core::AddressPolicy::default().check(address.parse().unwrap());
        facts.reason = Some(format!("server: {}", refused.unwrap_err()));
        finds(&facts, "description", Level::Problem, address, advice);
    }
    // The cluster goes on with its last good description.
    let mut facts = well();
    facts.warnings.push("the new one is half".into());
    finds(
        &facts,
        "description",
        Level::Warning,
        "half",
        "correct the description",
    );
}

#[test]
fn the_step_that_fails_is_the_one_that_is_reported() {
    let problem = Level::Problem;
    let resolved = Some(Err("no such host".into()));
    let dns = unreached(|reach| {
        *reach = Reach {
            resolved,
            ..Reach::default()
        }
    });
    finds(&dns, "dns", problem, "no such host", "getent hosts eu-1");
    let forbidden = unreached(|reach| reach.forbidden = Some("the server is at 127.0.0.1".into()));
    finds(&forbidden, "address", problem, "127.0.0.1", "other machines");
    for (failure, advice) in [
        (
            "connection refused",
            "start the API server, or correct the address, then try: curl -v https://eu-1:6443/livez",
        ),
        (
            "no TCP connection (waited for 2 s)",
            "firewalls and routes between here and https://eu-1:6443",
        ),
        ("no route", "curl -v https://eu-1:6443/livez"),
    ] {
        let facts = unreached(|reach| {
            (reach.connected, reach.handshake, reach.answered) = (Some(Err(failure.into())), None, None);
        });
        finds(&facts, "connection", problem, failure, advice);
    }
    let silent = "no answer (waited for 2 s)";
    let hangs = unreached(|reach| (reach.handshake, reach.answered) = (Some(Err(silent.into())), None));
    finds(&hangs, "tls", problem, silent, "restart the API server");
    let hangs = unreached(|reach| reach.answered = Some(Err(silent.into())));
    finds(&hangs, "answer", problem, silent, "restart the API server");
    // The server wants a certificate of everybody, also of the probe.
    let mut facts = well();
    reach(&mut facts).answered = Some(Err("closed".into()));
    finds(&facts, "answer", Level::Warning, "closed", "/version");
}

#[test]
fn each_way_that_a_certificate_is_bad_has_its_own_fix() {
    for (why, advice) in [
        (Bad::UnknownIssuer, "correct the description"),
        (Bad::Other, "give the server another certificate"),
        (Bad::Expired, "kubeadm certs renew"),
        (Bad::NotYetValid, "timedatectl"),
        (Bad::OtherName, "tls-server-name"),
    ] {
        let text = "it is bad".to_owned();
        let mut facts = unreached(|reach| tls(reach).verdict = Some(Verdict::Bad { why, text }));
        finds(&facts, "tls", Level::Problem, "it is bad", advice);
        // Nothing is verified, so the certificate is not held against it.
        facts.state = "Ready".into();
        facts.connection.as_mut().unwrap().insecure = true;
        finds(&facts, "tls", Level::Warning, "insecure-skip-tls-verify", "");
    }
}

#[test]
fn a_request_is_verified_unless_the_certificate_is_known_to_be_good() {
    for (verdict, command) in [(None, "curl -v "), (Some(Verdict::Good), "curl -vk ")] {
        let facts = unreached(|reach| tls(reach).verdict = verdict);
        let command = format!("{command}'https://eu-1:6443/livez?verbose'");
        finds(
            &facts,
            "state",
            Level::Problem,
            "Unreachable: whatever the fleet reports",
            &command,
        );
    }
}

#[test]
fn certificates_and_tokens_are_reported_in_time() {
    for (day, level, message) in [
        (
            1_013,
            Level::Warning,
            "the server's certificate expires in 13 days",
        ),
        (999, Level::Problem, "the server's certificate has expired"),
    ] {
        let mut facts = well();
        tls(reach(&mut facts)).expires = Some(at(day * DAY));
        finds(&facts, "tls", level, message, "kubeadm certs renew");
    }
    let credential = |change: fn(&mut Credential)| {
        let mut facts = well();
        change(&mut facts.connection.as_mut().unwrap().credential);
        facts
    };
    let soon = credential(|credential| credential.token_expires = Some(at(1_002 * DAY)));
    finds(
        &soon,
        "credentials",
        Level::Warning,
        "the token expires in 2 days",
        "renew the credentials",
    );
    let expired = credential(|credential| credential.certificate_expires = Some(at(998 * DAY)));
    let message = "the client certificate has expired 2 days ago";
    finds(
        &expired,
        "credentials",
        Level::Problem,
        message,
        "renew the credentials",
    );
    let none = credential(|credential| credential.none = true);
    finds(&none, "credentials", Level::Warning, "no credentials", "renew");
    // A plugin that returns tokens with a short life will return another one.
    fine(&credential(|credential| {
        (credential.token_expires, credential.plugin) = (Some(at(1_000 * DAY + 600)), Some("aws".into()));
    }));
}

#[test]
fn clocks_are_reported_from_five_seconds_and_break_things_at_a_minute() {
    let skewed = |ahead| {
        let mut facts = well();
        let took = Duration::ZERO;
        reach(&mut facts).answered = Some(Ok(HttpAnswer {
            took,
            ahead: Some(ahead),
        }));
        facts
    };
    for ahead in [-5, 0, 5] {
        fine(&skewed(ahead));
    }
    for (ahead, level, message) in [
        (
            6,
            Level::Warning,
            "its clock is 6 seconds ahead of this machine's",
        ),
        (
            -59,
            Level::Warning,
            "its clock is 59 seconds behind this machine's",
        ),
        (-60, Level::Problem, "60 seconds behind"),
        (3600, Level::Problem, "60 minutes ahead"),
    ] {
        finds(
            &skewed(ahead),
            "clock",
            level,
            message,
            "timedatectl set-ntp true",
        );
    }
}

#[test]
fn a_cluster_that_answers_and_is_not_ready_is_reported_with_the_words_of_the_fleet() {
    let mut facts = unreached(|_| {});
    facts.reason = Some("the API server refuses the credentials (401 Unauthorized)".into());
    finds(
        &facts,
        "credentials",
        Level::Problem,
        "401",
        "renew the credentials",
    );
    // The token has expired, which explains the refusal.
    facts.connection.as_mut().unwrap().credential.token_expires = Some(at(999 * DAY));
    finds(
        &facts,
        "credentials",
        Level::Problem,
        "the token has expired",
        "renew the credentials",
    );
    let mut facts = unreached(|_| {});
    facts.state = "Connecting".into();
    facts.connection.as_mut().unwrap().credential.plugin = Some("/bin/aws iam".into());
    finds(
        &facts,
        "state",
        Level::Problem,
        "in time",
        "run the program /bin/aws iam by hand",
    );
    // The access is a ready client, so there is no connection to probe.
    facts.connection = None;
    finds(&facts, "state", Level::Problem, "in time", "");
}

#[test]
fn the_table_of_the_provider_goes_first() {
    struct Table;
    impl Doctor for Table {
        fn advice(&self) -> &'static [Advice] {
            const {
                &[
                    Advice::new(Fault::Suspended, "stopped", "", "podman start {node}"),
                    Advice::new(Fault::Expiring, "", "", ""),
                    Advice::new(
                        Fault::Request,
                        "",
                        "",
                        "kubectl --context {node} get --raw {request}",
                    ),
                    Advice::new(Fault::Rights, "", "add {resource} with {verbs} to rules.yaml", ""),
                ]
            }
        }
    }
    let with = |mut facts: ClusterFacts| {
        facts.doctor = Arc::new(Table);
        facts.values.insert("node", "a b".into());
        facts
    };
    let mut suspended = with(unreached(|_| {}));
    (suspended.state, suspended.reason) = ("Suspended".into(), Some("its node is stopped".into()));
    let message = "suspended: its node is stopped";
    finds(&suspended, "state", Level::Warning, message, "podman start 'a b'");
    let (level, cause, message) = (Level::Problem, "x", "no Secret".to_owned());
    suspended.obstacle = Some((
        Obstacle {
            level,
            cause,
            message,
        },
        None,
    ));
    finds(&suspended, "state", Level::Problem, "suspended: no Secret", "");
    let refused = with(unreached(|reach| {
        reach.connected = Some(Err("connection refused".into()))
    }));
    finds(
        &refused,
        "connection",
        Level::Problem,
        "",
        "then try: kubectl --context 'a b' get --raw /livez",
    );
    let mut soon = with(well());
    soon.connection.as_mut().unwrap().credential.token_expires = Some(at(1_002 * DAY));
    fine(&soon);
    let mut weak = with(well());
    weak.api.as_mut().unwrap().rights[0].denied = Ok(vec!["list".into()]);
    let message = "may not list configmaps in all namespaces (403)";
    finds(
        &weak,
        "rights",
        Level::Problem,
        message,
        "add configmaps with get,list to rules.yaml",
    );
    weak.doctor = Arc::new(NoDoctor);
    finds(
        &weak,
        "rights",
        Level::Problem,
        message,
        "or choose one namespace with --in-namespace: kubectl --context CONTEXT create",
    );
    weak.api.as_mut().unwrap().namespace = Some("a".into());
    finds(
        &weak,
        "rights",
        Level::Problem,
        "in namespace a",
        "create role mcr-configmaps -n a --verb=get,list",
    );
    weak.api.as_mut().unwrap().rights[0].denied = Err("no answer".into());
    finds(&weak, "rights", Level::Warning, "it is unknown", "");
}

#[test]
fn versions_beyond_those_that_are_tested_a_slow_answer_and_a_proxy_are_reported() {
    let version = |minor| {
        let mut facts = well();
        facts.api.as_mut().unwrap().version.as_mut().unwrap().minor = minor;
        facts
    };
    for minor in [Some(33), Some(37), None] {
        fine(&version(minor));
    }
    for minor in [Some(32), Some(38)] {
        finds(&version(minor), "version", Level::Warning, "1.33 to 1.37", "");
    }
    let mut facts = well();
    facts.api.as_mut().unwrap().version = Err("forbidden".into());
    finds(&facts, "version", Level::Warning, "forbidden", "");
    let mut facts = well();
    let took = Duration::from_secs(3);
    reach(&mut facts).answered = Some(Ok(HttpAnswer { took, ahead: None }));
    finds(&facts, "answer", Level::Warning, "an answer took 3.0 s", "");
    let connection = facts.connection.as_mut().unwrap();
    (connection.reach, connection.proxied) = (None, true);
    fine(&facts);
    assert!(diagnose(&facts)[0].message.contains("by a proxy"));
}

/// The constant must match the table in STABILITY.md. A published package does not have that file.
#[test]
fn the_supported_versions_are_those_that_are_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../STABILITY.md");
    let Ok(text) = std::fs::read_to_string(path) else {
        return;
    };
    let documented = format!("| 1.{} – 1.{} |", SUPPORTED.start(), SUPPORTED.end());
    assert!(text.contains(&documented), "STABILITY.md has no {documented:?}");
}
