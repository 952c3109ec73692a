//! The report of `/clusters`: its fields, its filters, and no secrets.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy takes only functions marked as tests for tests.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{
    Backoff, BoxError, ClusterSpec, Controller, Request, TerminalError,
    core::{
        BrokenCluster, Change, Credential, CredentialError, CredentialSource, Endpoint, EndpointAccess,
        Fingerprint, Refresh,
    },
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Semaphore,
};

use crate::{
    harness::serve,
    series::Scrape,
    support::{Api, ApiAccess, name, until},
};

/// Replaces the values that differ from run to run.
fn steady(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                let changes = [
                    "since",
                    "lastReceived",
                    "lastEvent",
                    "lastProbe",
                    "identity",
                    "bytes",
                    "heldBytes",
                ];
                if changes.contains(&key.as_str()) && !value.is_null() {
                    *value = json!(format!("<{key}>"));
                }
                steady(value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(steady),
        _ => {}
    }
}

#[tokio::test]
async fn clusters_as_json_have_stable_fields() {
    let served = serve(|builder| builder);
    let (berlin, lyon) = (ApiAccess::new(Api::default()), ApiAccess::new(Api::default()));
    berlin.put_map("default/a", "1");
    lyon.forbid("configmaps");
    let spec = |cluster: &str, api: &ApiAccess| ClusterSpec::new(name(cluster), api.access.clone());
    served.announce(Change::Upsert(
        spec("berlin", &berlin)
            .identity("uid-1")
            .label("env", "prod")
            .property("region", "eu"),
    ));
    served.announce(Change::Upsert(spec("lyon", &lyon)));
    served.announce(Change::Upsert(spec("rome", &lyon).suspended("hibernated")));
    served.announce(Change::Broken(BrokenCluster::new(
        name("x"),
        "Secret fleet/x",
        "no kubeconfig in it",
    )));
    served.announce(Change::Synced);
    let report = served
        .clusters(|report| {
            report["clusters"].as_array().unwrap().len() == 4
                && report["clusters"][0]["controllers"]["animals"]["gate"] == "open"
                && report["controllers"][0]["counts"]["successes"] == 1
                && report["controllers"][0]["queue"]["running"] == 0
                && report["clusters"][1]["kindsBlocked"] == 1
                && report["clusters"][1]["state"] == "Ready"
        })
        .await;
    let mut report_steady = report.clone();
    steady(&mut report_steady);
    assert!(report["clusters"][0]["since"].as_str().unwrap().ends_with('Z'));
    let berlin = json!({
        "name": "berlin",
        "provider": "told",
        "identity": "<identity>",
        "sameAs": null,
        "state": "Ready",
        "since": "<since>",
        "reason": null,
        "warnings": [],
        "labels": {"env": "prod"},
        "properties": {"region": "eu"},
        "lastReceived": "<lastReceived>",
        "lastEvent": "<lastEvent>",
        "lastProbe": "<lastProbe>",
        "credentialExpires": null,
        "kindsListed": 1,
        "kindsBlocked": 0,
        "objects": 1,
        "bytes": "<bytes>",
        "kinds": [{
            "watch": "configmaps",
            "kind": "configmaps",
            "synced": true,
            "objects": 1,
            "bytes": "<bytes>",
            "heldBytes": "<heldBytes>",
            "skipped": 0,
            "lists": 1,
            "lastEvent": "<lastEvent>",
            "problem": null,
            "blocked": false,
        }],
        "queueDepth": 0,
        "controllers": {"animals": {"gate": "open", "parked": false, "ready": 0, "delayed": 0, "running": 0, "failing": [], "failingCount": 0}},
    });
    assert_eq!(
        report_steady["clusters"][0], berlin,
        "{:#}",
        report_steady["clusters"][0]
    );
    let problem = "forbidden: configmaps is forbidden. Grant list and watch on it to the credentials in use";
    assert_eq!(report["clusters"][1]["kinds"][0]["problem"], problem);
    let waiting = json!([{"watch": "configmaps", "reason": problem, "blocked": true}]);
    assert_eq!(report["clusters"][1]["controllers"]["animals"]["gate"], "blocked");
    assert_eq!(report["clusters"][1]["controllers"]["animals"]["kinds"], waiting);
    let rome = &report["clusters"][2];
    assert_eq!(
        (&rome["state"], &rome["reason"]),
        (&json!("Suspended"), &json!("hibernated"))
    );
    assert_eq!(rome["controllers"]["animals"]["parked"], true);
    let broken = &report["clusters"][3];
    assert_eq!(
        (&broken["state"], &broken["since"]),
        (&json!("Broken"), &Value::Null)
    );
    assert_eq!(broken["reason"], "Secret fleet/x: no kubeconfig in it");
    assert_eq!(
        report["providers"],
        json!([{"name": "told", "synced": true, "restarts": 0, "lastError": null}])
    );
    let mut controllers = report["controllers"].clone();
    controllers[0]["counts"]["requested"] = json!("<requested>");
    controllers[0]["counts"]["coalesced"] = json!("<coalesced>");
    let expected = json!([{
        "name": "animals",
        "clusters": 3,
        "gatedBy": [],
        "queue": {"ready": 0, "delayed": 0, "running": 0, "oldestWait": null, "longestRunning": null},
        "counts": {
            "reconciles": 1, "successes": 1, "errors": 0, "terminal": 0, "panics": 0, "timeouts": 0, "aborted": 0, "dropped": 0,
            "retries": 0, "requested": "<requested>", "coalesced": "<coalesced>", "undecodable": 0,
            "callbackPanics": 0, "misdirected": 0, "overflowed": 0,
        },
    }]);
    assert_eq!(controllers, expected, "{controllers:#}");

    // Filters.
    let names = async |query: &str| -> Vec<String> {
        let report = served.get(&format!("/clusters?{query}")).await.json();
        let clusters = report["clusters"].as_array().unwrap();
        clusters
            .iter()
            .map(|cluster| cluster["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names("name=lyon").await, ["lyon"]);
    assert_eq!(names("state=ready").await, ["berlin", "lyon"]);
    assert_eq!(names("state=Suspended&state=Broken").await, ["rome", "x"]);
    assert_eq!(names("state=Ready&name=rome").await, Vec::<String>::new());
    served.end().await;
}

#[tokio::test]
async fn failing_requests_are_in_the_report() {
    let reconcile = |request: Request<ConfigMap>, _: Arc<()>| async move {
        if request.name() == "never" {
            return Err::<(), BoxError>(TerminalError::new("line\nbreak").into());
        }
        Err("refused".into())
    };
    let served = serve(|builder| {
        let controller = Controller::<ConfigMap>::new("strict").backoff(Backoff {
            base: Duration::from_secs(3600),
            ..Backoff::default()
        });
        builder.controller(controller.build(reconcile, Arc::new(())))
    });
    let berlin = ApiAccess::new(Api::default());
    ["default/later", "default/never"]
        .iter()
        .for_each(|key| berlin.put_map(key, "1"));
    served.join("berlin", &berlin);
    let mut report = served
        .clusters(|report| report["clusters"][0]["controllers"]["strict"]["failingCount"] == 2)
        .await;
    let strict = &mut report["clusters"][0]["controllers"]["strict"];
    let failing = strict["failing"].as_array_mut().unwrap();
    failing.sort_by_key(|failing| failing["object"].to_string());
    for failing in failing.iter_mut() {
        for time in ["since", "retryAt"] {
            let is_time = failing[time]
                .as_str()
                .is_some_and(|time| time.starts_with("20") && time.ends_with('Z'));
            assert!(is_time || failing[time].is_null(), "{failing}");
            failing[time] = json!(is_time);
        }
    }
    let expected = json!([
        {"object": "default/later", "attempt": 1, "error": "refused", "since": true, "retryAt": true},
        {"object": "default/never", "attempt": 1, "error": "line\\nbreak", "since": true, "retryAt": false},
    ]);
    assert_eq!(strict["failing"], expected);
    let counts = &report["controllers"][1]["counts"];
    assert_eq!((&counts["errors"], &counts["terminal"]), (&json!(1), &json!(1)));
    let metrics = served.metrics(|_| true).await;
    let terminal = [("controller", "strict"), ("result", "terminal")];
    assert_eq!(metrics.get("mcr_reconciles_total", &terminal), Some(1.0));
    served.end().await;
}

/// An API server that refuses the third token with a 401, and accepts every other request.
async fn yes_man() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = [0; 8192];
                let read = stream.read(&mut head).await.unwrap_or_default();
                let refused = String::from_utf8_lossy(&head[..read]).contains("Bearer s3cr3t-3");
                let status = if refused { "401 Unauthorized" } else { "200 OK" };
                let body = if String::from_utf8_lossy(&head[..read]).contains("/selfsubjectreviews") {
                    r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"me"}}}"#
                } else {
                    r#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"the-uid"}}"#
                };
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

/// The lifetime of a token of the issuer.
const GOOD_FOR: Duration = Duration::from_secs(3);

/// Issues numbered tokens, each after a permit.
struct Issuer {
    issued: AtomicUsize,
    may: Arc<Semaphore>,
}

impl CredentialSource for Issuer {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&"issuer")
    }
    fn credential(&self, _: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        Box::pin(async {
            self.may.acquire().await.unwrap().forget();
            let number = self.issued.fetch_add(1, Ordering::Relaxed) + 1;
            let expires = SystemTime::now() + GOOD_FOR;
            Ok(Credential::token(format!("s3cr3t-{number}")).expires_at(expires))
        })
    }
}

fn unix_time() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs_f64()
}

#[tokio::test]
async fn credentials_show_when_they_expire_and_what_came_of_their_renewal() {
    let served = serve(|builder| builder);
    let began = unix_time();
    let endpoint = Endpoint::new(format!("http://{}", yes_man().await).parse().unwrap());
    let may = Arc::new(Semaphore::new(1));
    let issuer = Issuer {
        issued: AtomicUsize::new(0),
        may: may.clone(),
    };
    let access = EndpointAccess::new(endpoint, issuer).into();
    served.announce(Change::Upsert(ClusterSpec::new(name("berlin"), access)));
    let report = served
        .clusters(|report| report["clusters"][0]["credentialExpires"].is_string())
        .await;
    assert!(!report.to_string().contains("s3cr3t"), "{report:#}");
    let expiry = |metrics: &Scrape| {
        let of = [("cluster", "berlin")];
        metrics.get("mcr_cluster_credential_expiry_timestamp_seconds", &of)
    };
    let renewals = |metrics: &Scrape| {
        ["renewed", "failed"].map(|result| {
            let of = [("result", result)];
            metrics.get("mcr_credential_renewals_total", &of)
        })
    };
    let first = expiry(&served.metrics(|metrics| expiry(metrics).is_some()).await);
    // The server accepts the second token.
    may.add_permits(1);
    let metrics = served
        .metrics(|metrics| renewals(metrics)[0] == Some(1.0) && expiry(metrics) != first)
        .await;
    let second = expiry(&metrics);
    assert!(first < second, "{first:?}, {second:?}");
    for expiry in [first, second] {
        let at_most = unix_time() + GOOD_FOR.as_secs_f64();
        assert!(
            expiry.is_some_and(|expiry| (began..=at_most).contains(&expiry)),
            "{expiry:?}"
        );
    }
    // The server refuses the third token.
    may.add_permits(1);
    let metrics = served.metrics(|metrics| renewals(metrics)[1] == Some(1.0)).await;
    assert_eq!(renewals(&metrics), [Some(1.0), Some(1.0)]);
    assert_eq!(expiry(&metrics), second);
    served.end().await;
}

#[tokio::test]
async fn credentials_are_in_no_answer() {
    const SECRET: &str = "s3cr3t-t0ken";
    let served = serve(|builder| builder);
    let kubeconfig = format!(
        "{{apiVersion: v1, kind: Config, current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
         clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:1'}}}}], users: [{{name: a, user: {{token: {SECRET}}}}}]}}"
    );
    let access = mcr::Access::kubeconfig(kubeconfig, mcr::Trust::Untrusted);
    served.announce(Change::Upsert(ClusterSpec::new(name("secretive"), access)));
    let report = served
        .clusters(|report| report["clusters"][0]["state"] == "Unreachable")
        .await;
    assert!(!report.to_string().contains(SECRET), "{report:#}");
    assert!(!served.get("/metrics").await.body.contains(SECRET));
    served.end().await;
}

#[tokio::test]
async fn a_name_that_leaves_and_is_broken_already_is_shown_twice_and_has_one_series() {
    let served = serve(|builder| builder);
    served.join("berlin", &ApiAccess::new(Api::default()));
    let berlin = until(|| served.fleet.get("berlin").ok()).await;
    let (release, wait) = tokio::sync::oneshot::channel::<()>();
    berlin.spawn(async move {
        let _ = wait.await;
    });
    served.announce(Change::Remove(name("berlin")));
    served.announce(Change::Broken(BrokenCluster::new(
        name("berlin"),
        "Secret fleet/berlin",
        "it is empty",
    )));
    let report = served
        .clusters(|report| report["clusters"].as_array().unwrap().len() == 2)
        .await;
    let mut states =
        [&report["clusters"][0]["state"], &report["clusters"][1]["state"]].map(|s| s.as_str().unwrap());
    states.sort_unstable();
    assert_eq!(states, ["Broken", "Draining"]);
    let scrape = Scrape::parse(&served.get("/metrics").await.body);
    assert_eq!(
        scrape.get("mcr_cluster_state", &[("cluster", "berlin")]),
        Some(1.0)
    );
    assert_eq!(scrape.get("mcr_cluster_state", &[("state", "Broken")]), Some(1.0));
    assert_eq!(scrape.get("mcr_clusters_without_series", &[]), Some(0.0));
    release.send(()).unwrap();
    served
        .clusters(|report| report["clusters"].as_array().unwrap().len() == 1)
        .await;
    served.end().await;
}
