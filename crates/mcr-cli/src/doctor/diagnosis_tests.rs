use super::{
    super::{
        facts::{Answer, ClusterApiFacts, FailureKind, ManagedCluster, Origin, Reach},
        only_finding::{fine, only},
        sample_cluster::{DAY, at, failure, unreached, well},
    },
    *,
};

#[test]
fn nothing_is_wrong_with_what_is_in_order() {
    let found = diagnose(&well());
    assert!(
        found
            .iter()
            .all(|finding| finding.result == Level::Ok && finding.fix.is_none()),
        "{found:#?}"
    );
    let checks: Vec<Check> = found.iter().map(|finding| finding.check).collect();
    use Check::{Clock, Connection, Credentials, Dns, Rights, Tls, Version};
    assert_eq!(
        checks,
        [Dns, Connection, Tls, Clock, Credentials, Version, Rights]
    );
}

#[test]
fn a_description_that_can_not_be_used_is_the_only_thing_to_report() {
    let mut facts = well();
    facts.state = "Broken".into();
    facts.reason = Some("users[name=\"x\"].user.exec: names a program".into());
    (facts.connection, facts.api) = (None, None);
    let found = only(&diagnose(&facts), Level::Problem);
    assert_eq!(
        (found.check, found.saw.contains("names a program")),
        (Check::Description, true)
    );
    assert_eq!(
        found.fix_text().unwrap(),
        "repeat this with the flags it was made with: mcr kubeconfig-secret create --context CONTEXT --name eu-1 -n fleet"
    );

    // The same command would write the same address again.
    for (address, allow) in [("127.0.0.1", true), ("169.254.169.254", false)] {
        let policy = mcr_core::AddressPolicy::default();
        let error = policy.check(address.parse().unwrap()).unwrap_err();
        facts.reason = Some(format!("server: {error}"));
        let fix = only(&diagnose(&facts), Level::Problem).fix_text().unwrap();
        assert!(
            fix.contains("--name eu-1 -n fleet --server https://")
                && fix.contains("--allow-loopback") == allow,
            "{address}: {fix}"
        );
    }

    // The cluster goes on with its last good description.
    let mut facts = well();
    facts.warnings.push("the new one is half".into());
    assert_eq!(only(&diagnose(&facts), Level::Warning).check, Check::Description);
}

#[test]
fn a_cluster_of_cluster_api_that_waits_has_the_fix_of_its_obstacle() {
    let mut facts = well();
    facts.origin = Origin::ClusterApi {
        namespace: "fleet".into(),
        name: "eu-1".into(),
    };
    facts.state = "Suspended".into();
    facts.reason = Some("waits for its Secret".into());
    (facts.connection, facts.api) = (None, None);
    let fix = |facts: &ClusterFacts, level| only(&diagnose(facts), level).fix_text().unwrap();
    assert!(fix(&facts, Level::Warning).ends_with("describe clusters.cluster.x-k8s.io eu-1"));
    facts.cluster_api = Some(ClusterApiFacts {
        provider: "cluster-api".into(),
        namespace: "fleet".into(),
        name: "eu-1".into(),
        looks_in: None,
        cluster: Some(ManagedCluster {
            selected: true,
            initialized: true,
            ..ManagedCluster::default()
        }),
        secret: Ok(None),
    });
    let saw = only(&diagnose(&facts), Level::Problem).saw;
    assert!(saw.contains("there is no Secret eu-1-kubeconfig"), "{saw}");
    assert!(fix(&facts, Level::Problem).contains("control plane provider"));

    facts.cluster_api = None;
    facts.state = "Broken".into();
    for (reason, words) in [
        ("key x", ["fleet/eu-1-kubeconfig", "delete it"]),
        ("the Cluster: not one", ["correct the Cluster", "describe"]),
        ("it can't be read in the hub", ["grant", "provider"]),
        (
            "untrusted access may not use loopback addresses",
            ["--allow-loopback", "controlPlaneEndpoint"],
        ),
    ] {
        facts.reason = Some(reason.into());
        let fix = fix(&facts, Level::Problem);
        assert!(words.iter().all(|word| fix.contains(word)), "{fix}");
    }
}

#[test]
fn the_step_that_fails_is_the_one_that_is_reported() {
    let dns = unreached(|reach| {
        *reach = Reach {
            resolved: failure(FailureKind::UnknownHost),
            ..Reach::default()
        };
    });
    let found = only(&diagnose(&dns), Level::Problem);
    assert_eq!(
        (found.check, found.fix_text().as_deref()),
        (Check::Dns, Some("getent hosts eu-1"))
    );

    let forbidden = unreached(|reach| {
        reach.forbidden = Some("the server is at 127.0.0.1".into());
    });
    let found = only(&diagnose(&forbidden), Level::Problem);
    assert_eq!(found.check, Check::Address);
    found.advises("--server");

    for kind in [
        FailureKind::Refused,
        FailureKind::TimedOut,
        FailureKind::Unroutable,
        FailureKind::Other,
    ] {
        let mut facts = unreached(|reach| {
            (reach.connected, reach.greeted, reach.answered) = (failure(kind), None, None);
        });
        let found = only(&diagnose(&facts), Level::Problem);
        assert_eq!(
            (found.check, found.fix.is_some()),
            (Check::Connection, true),
            "{kind:?}"
        );
        facts.origin = Origin::KindCluster {
            name: "dev".into(),
            engine: "podman".into(),
        };
        assert_eq!(
            only(&diagnose(&facts), Level::Problem).fix_text().unwrap(),
            "podman start dev-control-plane"
        );
    }

    let hangs = unreached(|reach| {
        (reach.greeted, reach.answered) = (failure(FailureKind::TimedOut), None);
    });
    let found = only(&diagnose(&hangs), Level::Problem);
    assert_eq!(found.check, Check::Tls);
    let fix = found.fix_text().unwrap();
    assert!(
        fix.contains("restart the API server") && !fix.contains("firewall"),
        "{fix}"
    );
    let silent = unreached(|reach| reach.answered = failure(FailureKind::TimedOut));
    let found = only(&diagnose(&silent), Level::Problem);
    assert_eq!(found.check, Check::Answer);
    found.advises("restart the API server");
}

#[test]
fn each_way_that_a_certificate_is_bad_has_its_own_fix() {
    let fix = |why| {
        let facts = unreached(|reach| {
            let Some(Ok(tls)) = &mut reach.greeted else {
                panic!("it was greeted")
            };
            tls.verdict = Some(Verdict::Bad {
                why,
                text: "it is bad".into(),
            });
        });
        let found = only(&diagnose(&facts), Level::Problem);
        assert_eq!((found.check, found.saw.as_str()), (Check::Tls, "it is bad"));
        found.fix_text().unwrap()
    };
    assert!(fix(Bad::UnknownIssuer).contains("with: mcr kubeconfig-secret create"));
    assert!(fix(Bad::Other).starts_with("give the server another certificate"));
    assert!(fix(Bad::Expired).contains("kubeadm certs renew"));
    assert!(fix(Bad::NotYetValid).contains("timedatectl"));
    assert!(fix(Bad::OtherName).contains("--server"));
}

#[test]
fn curl_verifies_a_certificate_that_nobody_has_verified() {
    let fix = |verdict| {
        let facts = unreached(|reach| {
            let Some(Ok(tls)) = &mut reach.greeted else {
                panic!("it was greeted")
            };
            tls.verdict = verdict;
        });
        only(&diagnose(&facts), Level::Problem).fix_text().unwrap()
    };
    assert_eq!(fix(None), "curl -v 'https://eu-1:6443/livez?verbose'");
    assert_eq!(
        fix(Some(Verdict::Good)),
        "curl -vk 'https://eu-1:6443/livez?verbose'"
    );
}

/// curl does not know a private certificate authority, and the kubeconfig has it.
#[test]
fn a_known_context_is_asked_with_its_kubeconfig() {
    let fix = |context: &str, change: fn(&mut Reach)| {
        let mut facts = unreached(change);
        facts.origin = Origin::File {
            path: "/kc/all configs".into(),
            context: context.into(),
        };
        only(&diagnose(&facts), Level::Problem).fix_text().unwrap()
    };
    let kubectl = "kubectl --kubeconfig '/kc/all configs' --context eu get --raw";
    assert_eq!(fix("eu", |_| {}), format!("{kubectl} '/livez?verbose'"));
    let refused = fix("eu", |reach| reach.connected = failure(FailureKind::Refused));
    assert!(refused.ends_with(&format!("{kubectl} /livez")), "{refused}");
    let broken = fix("eu", |reach| reach.answered = failure(FailureKind::Other));
    assert_eq!(broken, format!("{kubectl} /version"));
    assert!(fix("", |_| {}).starts_with("curl "));
}

#[test]
fn what_is_not_verified_is_reported_and_its_certificate_is_not_held_against_it() {
    let mut facts = well();
    let connection = facts.connection.as_mut().unwrap();
    connection.insecure = true;
    let Some(Ok(tls)) = &mut connection.reach.as_mut().unwrap().greeted else {
        panic!("it was greeted")
    };
    tls.verdict = Some(Verdict::Bad {
        why: Bad::UnknownIssuer,
        text: String::new(),
    });
    only(&diagnose(&facts), Level::Warning).shows("insecure-skip-tls-verify");
}

#[test]
fn certificates_and_tokens_are_reported_in_time() {
    let server = |seconds: u64| {
        let mut facts = well();
        let reach = facts.connection.as_mut().unwrap().reach.as_mut().unwrap();
        let Some(Ok(tls)) = &mut reach.greeted else {
            panic!("it was greeted")
        };
        tls.expires = Some(at(seconds));
        facts
    };
    assert_eq!(
        only(&diagnose(&server(1_013 * DAY)), Level::Warning).saw,
        "the server's certificate expires in 13 days"
    );
    assert_eq!(
        only(&diagnose(&server(999 * DAY)), Level::Problem).check,
        Check::Tls
    );

    let credential = |token: Option<u64>, certificate: Option<u64>| {
        let mut facts = well();
        let credential = &mut facts.connection.as_mut().unwrap().credential;
        credential.token_expires = token.map(at);
        credential.certificate_expires = certificate.map(at);
        facts
    };
    let found = only(&diagnose(&credential(Some(1_002 * DAY), None)), Level::Warning);
    assert_eq!(found.saw, "the token expires in 2 days");
    assert!(found.fix_text().unwrap().ends_with("--rotate"));
    let found = only(&diagnose(&credential(None, Some(998 * DAY))), Level::Problem);
    assert_eq!(
        (found.check, found.saw.as_str()),
        (
            Check::Credentials,
            "the client certificate has expired 2 days ago"
        )
    );
    // A plugin that returns tokens with a short life will return another one.
    let mut short = credential(Some(1_000 * DAY + 600), None);
    short.connection.as_mut().unwrap().credential.plugin = Some("aws".into());
    fine(&diagnose(&short));
    let mut none = credential(None, None);
    none.connection.as_mut().unwrap().credential.none = true;
    only(&diagnose(&none), Level::Warning).shows("no credentials");
}

#[test]
fn clocks_are_reported_from_five_seconds_and_break_things_at_a_minute() {
    let skewed = |ahead| {
        let mut facts = well();
        let reach = facts.connection.as_mut().unwrap().reach.as_mut().unwrap();
        reach.answered = Some(Ok(Answer {
            took: Duration::ZERO,
            ahead: Some(ahead),
        }));
        facts
    };
    for ahead in [-5, 0, 5] {
        fine(&diagnose(&skewed(ahead)));
    }
    assert_eq!(
        only(&diagnose(&skewed(6)), Level::Warning).saw,
        "its clock is 6 seconds ahead of this machine's"
    );
    assert_eq!(
        only(&diagnose(&skewed(-59)), Level::Warning).saw,
        "its clock is 59 seconds behind this machine's"
    );
    assert_eq!(only(&diagnose(&skewed(-60)), Level::Problem).check, Check::Clock);
    let found = only(&diagnose(&skewed(3600)), Level::Problem);
    assert!(
        found.saw.starts_with("its clock is 60 minutes ahead"),
        "{}",
        found.saw
    );
}

#[test]
fn refused_credentials_are_reported_as_such_however_they_are_refused() {
    let mut facts = unreached(|_| {});
    facts.reason = Some("the API server refuses the credentials (401 Unauthorized)".into());
    let found = only(&diagnose(&facts), Level::Problem);
    assert_eq!(found.check, Check::Credentials);
    assert!(found.fix_text().unwrap().ends_with("--rotate"));
    facts.origin = Origin::File {
        path: "/home/it's mine".into(),
        context: "a b".into(),
    };
    let fix = only(&diagnose(&facts), Level::Problem).fix_text().unwrap();
    assert!(fix.contains(r"'/home/it'\''s mine' --context 'a b'"), "{fix}");
    // The token has expired, which explains the refusal.
    facts.connection.as_mut().unwrap().credential.token_expires = Some(at(999 * DAY));
    only(&diagnose(&facts), Level::Problem).shows("the token has expired");
}

#[test]
fn a_cluster_that_answers_and_is_not_ready_is_reported_with_the_fleets_words() {
    let mut facts = unreached(|_| {});
    let found = only(&diagnose(&facts), Level::Problem);
    assert_eq!(
        (found.check, found.saw.as_str()),
        (Check::State, "Unreachable: whatever the fleet says")
    );
    assert_eq!(
        found.fix_text().unwrap(),
        "curl -vk 'https://eu-1:6443/livez?verbose'"
    );
    facts.state = "Connecting".into();
    facts.connection.as_mut().unwrap().credential.plugin = Some("/bin/aws iam".into());
    let found = only(&diagnose(&facts), Level::Problem);
    assert_eq!(
        found.fix_text().unwrap(),
        "run the program /bin/aws iam by hand: the credentials come from it"
    );

    facts.state = "Suspended".into();
    facts.origin = Origin::KindCluster {
        name: "dev".into(),
        engine: "podman".into(),
    };
    facts.reason = Some("its node is stopped".into());
    let found = only(&diagnose(&facts), Level::Warning);
    assert_eq!(found.fix_text().unwrap(), "podman start dev-control-plane");

    // The access is a ready client, so there is no connection to probe.
    let mut facts = unreached(|_| {});
    (facts.connection, facts.origin) = (None, Origin::Other);
    assert_eq!(only(&diagnose(&facts), Level::Problem).check, Check::State);
}

#[test]
fn what_is_forbidden_is_reported_with_the_rule_to_add() {
    let mut facts = well();
    let right = &mut facts.api.as_mut().unwrap().rights[0];
    right.denied = Ok(vec!["list".into()]);
    let found = only(&diagnose(&facts), Level::Problem);
    assert_eq!(
        (found.check, found.saw.as_str()),
        (Check::Rights, "may not list configmaps in all namespaces (403)")
    );
    found.advises("--rules-file");
    facts.origin = Origin::Other;
    facts.api.as_mut().unwrap().namespace = Some("a".into());
    let found = only(&diagnose(&facts), Level::Problem);
    found
        .shows("in namespace a")
        .advises("--verb=get,list --resource=configmaps");
    facts.api.as_mut().unwrap().rights[0].denied = Err("no answer".into());
    only(&diagnose(&facts), Level::Warning).shows("it is unknown");
}

#[test]
fn versions_beyond_those_that_are_tested_are_reported() {
    let version = |minor| {
        let mut facts = well();
        let api = facts.api.as_mut().unwrap();
        api.version = Ok(Version {
            shown: "v1.x".into(),
            minor,
            took: Duration::ZERO,
        });
        facts
    };
    for minor in [Some(33), Some(37), None] {
        fine(&diagnose(&version(minor)));
    }
    for minor in [Some(32), Some(38)] {
        only(&diagnose(&version(minor)), Level::Warning).shows("1.33 to 1.37");
    }
    let mut facts = well();
    facts.api.as_mut().unwrap().version = Err("forbidden".into());
    assert_eq!(only(&diagnose(&facts), Level::Warning).check, Check::Version);
}

#[test]
fn a_slow_answer_and_a_proxy_are_reported() {
    let mut facts = well();
    let connection = facts.connection.as_mut().unwrap();
    connection.reach.as_mut().unwrap().answered = Some(Ok(Answer {
        took: Duration::from_secs(3),
        ahead: None,
    }));
    assert_eq!(only(&diagnose(&facts), Level::Warning).check, Check::Answer);
    let connection = facts.connection.as_mut().unwrap();
    (connection.reach, connection.proxied) = (None, true);
    let found = diagnose(&facts);
    fine(&found);
    assert!(found[0].saw.contains("by a proxy"));
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

#[test]
fn a_server_that_wants_a_certificate_of_everybody_is_no_problem_if_it_is_ready() {
    let mut facts = well();
    let reach = facts.connection.as_mut().unwrap().reach.as_mut().unwrap();
    reach.answered = failure(FailureKind::Other);
    assert_eq!(only(&diagnose(&facts), Level::Warning).check, Check::Answer);
    let reach = facts.connection.as_mut().unwrap().reach.as_mut().unwrap();
    (reach.greeted, reach.answered) = (failure(FailureKind::Other), None);
    assert_eq!(only(&diagnose(&facts), Level::Warning).check, Check::Tls);
}
