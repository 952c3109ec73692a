//! The facts of a cluster for tests of the diagnosis.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, SystemTime},
};

use super::{
    facts::{
        Answer, Api, ClusterFacts, Connection, Failure, FailureKind, Origin, Reach, Right, Tls, Verdict,
        Version,
    },
    target::Credential,
};

pub(super) const DAY: u64 = 86_400;

pub(super) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A fixed time, long after 1970.
pub(super) fn now() -> SystemTime {
    at(1_000 * DAY)
}

/// A cluster without problems.
pub(super) fn well() -> ClusterFacts {
    ClusterFacts {
        name: "eu-1".into(),
        provider: "kubeconfig".into(),
        origin: Origin::Secret {
            namespace: "fleet".into(),
            name: "eu-1".into(),
        },
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
                greeted: Some(Ok(Tls {
                    verdict: Some(Verdict::Good),
                    expires: Some(at(1_200 * DAY)),
                    valid_from: Some(at(900 * DAY)),
                })),
                answered: Some(Ok(Answer {
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
            rights: vec![Right {
                resource: "configmaps".into(),
                name: None,
                verbs: vec!["get".into(), "list".into()],
                denied: Ok(Vec::new()),
            }],
            namespace: None,
        }),
        cluster_api: None,
        profile: None,
        now: now(),
    }
}

/// A cluster that the probe reaches up to a step.
pub(super) fn unreached(change: impl FnOnce(&mut Reach)) -> ClusterFacts {
    let mut facts = well();
    facts.state = "Unreachable".into();
    facts.reason = Some("whatever the fleet says".into());
    facts.api = None;
    change(facts.connection.as_mut().unwrap().reach.as_mut().unwrap());
    facts
}

pub(super) fn failure<T>(kind: FailureKind) -> Option<Result<T, Failure>> {
    Some(Err(Failure {
        kind,
        text: "it failed".into(),
    }))
}
