//! Reads of Secrets that go wrong, and options that are wrong.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::Bytes;
use kube::client::Body;
use mcr_core::WatchSettings;
use mcr_provider_cluster_api::{ClusterApiError, ClusterApiProvider, SecretKeyRef};
use mcr_testkit::{log::Log, sim::SimCluster};
use serde_json::json;
use support::{PATIENCE, Received, builder, cluster, hub, hub_of, initialized, kubeconfig, secret};
use tokio::{sync::Semaphore, time::timeout};

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// A client of a hub that answers reads of this Secret itself; `None`: never.
fn client(
    hub: &SimCluster,
    name: &'static str,
    answer: impl Fn() -> Option<Answer> + Clone + Send + 'static,
) -> kube::Client {
    let service = hub.service().with_token(&hub.admin_token());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (service, answer) = (service.clone(), answer.clone());
        async move {
            if request.uri().path().ends_with(&format!("/secrets/{name}")) {
                return Ok::<_, Infallible>(match answer() {
                    Some(answer) => answer,
                    None => std::future::pending().await,
                });
            }
            Ok(service.answer(request).await.map(BodyExt::boxed))
        }
    });
    kube::Client::new(service, "default")
}

fn ok(body: impl Into<Bytes>) -> Option<Answer> {
    let response = Response::builder().header("content-type", "application/json");
    Some(response.body(Full::new(body.into()).boxed()).unwrap())
}

fn two_clusters() -> SimCluster {
    let hub = hub();
    for name in ["a", "b"] {
        hub.create(secret("default", name, kubeconfig("one"))).unwrap();
        hub.create(initialized(cluster("default", name))).unwrap();
    }
    hub
}

/// What is said of the two clusters at the start, in the order of their names.
async fn announced(provider: ClusterApiProvider) -> Vec<String> {
    let mut announced = Received::of(&provider).until("synced").await;
    announced.sort();
    announced
}

#[tokio::test]
async fn a_secret_that_the_hub_never_gives_holds_up_nobody() {
    let hub = two_clusters();
    let short = Duration::from_secs(2);
    let provider = builder(&hub)
        .client(client(&hub, "a-kubeconfig", || None))
        .times(WatchSettings::default(), PATIENCE, short, short)
        .build()
        .unwrap();
    let announced = announced(provider).await;
    assert!(
        announced[0].starts_with("!a")
            && announced[0].ends_with("can't be read in the hub: no answer within 2s"),
        "{announced:?}"
    );
    assert_eq!(&announced[1..], ["+b", "synced"]);
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_not_read_to_its_end() {
    let hub = two_clusters();
    let huge = || {
        ok(format!(
            "{{\"data\": {{\"value\": \"{}\"}}}}",
            "A".repeat(5 << 20)
        ))
    };
    let provider = builder(&hub)
        .client(client(&hub, "a-kubeconfig", huge))
        .build()
        .unwrap();
    let announced = announced(provider).await;
    assert!(
        announced[0].starts_with("!a") && announced[0].ends_with("it is larger than a Secret can be"),
        "{announced:?}"
    );
    assert_eq!(announced[1], "+b");

    // A value that fits the answer, but no Secret.
    let version = hub.get("secrets", "default/a-kubeconfig").unwrap()["metadata"].clone();
    let large = json!({"metadata": version, "data": {"value": support::base64(vec![b' '; (1 << 20) + 1])}})
        .to_string();
    let provider = builder(&hub)
        .client(client(&hub, "a-kubeconfig", move || ok(large.clone())))
        .build()
        .unwrap();
    let announced = self::announced(provider).await;
    assert!(
        announced[0].starts_with("!a") && announced[0].contains("more than 1 MiB"),
        "{announced:?}"
    );
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_in_no_log() {
    let log = Log::of_this_thread(tracing::Level::TRACE);
    let hub = two_clusters();
    for answer in [
        "{\"data\": {\"value\": [\"sesame\"]}, \"metadata\": \"sesame\"}",
        "sesame",
        "{\"data\": \"sesame",
    ] {
        let provider = builder(&hub)
            .client(client(&hub, "a-kubeconfig", move || ok(answer)))
            .build()
            .unwrap();
        let announced = announced(provider).await;
        assert!(
            announced[0].starts_with("!a") && announced[0].contains("the hub's answer is no Secret"),
            "{announced:?}"
        );
        assert!(!announced[0].contains("sesame"), "{announced:?}");
    }
    let log = log.text();
    assert!(log.contains("secrets"), "it is a log");
    assert!(!log.contains("sesame"), "{log}");
}

#[tokio::test]
async fn no_more_secrets_are_read_at_once_than_there_are_places() {
    const MANY: usize = 40;
    let hub = hub();
    for n in 0..MANY {
        let name = format!("member-{n:02}");
        hub.create(secret("default", &name, kubeconfig("one"))).unwrap();
        hub.create(initialized(cluster("default", &name))).unwrap();
    }
    let (at_once, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = Arc::new(Semaphore::new(0));
    let service = hub.service().with_token(&hub.admin_token());
    let service = tower::service_fn({
        let (most, gate) = (most.clone(), gate.clone());
        move |request: Request<Body>| {
            let (service, at_once, most, gate) =
                (service.clone(), at_once.clone(), most.clone(), gate.clone());
            async move {
                let is_read = request.uri().path().ends_with("-kubeconfig");
                if is_read {
                    let now = at_once.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    if now == 16 {
                        // All others have their turn before the first goes on.
                        for _ in 0..1000 {
                            tokio::task::yield_now().await;
                        }
                        gate.add_permits(MANY);
                    }
                    let _ = gate.acquire().await.unwrap();
                }
                let answer = service.answer(request).await;
                if is_read {
                    at_once.fetch_sub(1, Ordering::SeqCst);
                }
                Ok::<_, Infallible>(answer)
            }
        }
    });
    let provider = builder(&hub)
        .client(kube::Client::new(service, "default"))
        .build()
        .unwrap();
    assert_eq!(announced(provider).await.len(), MANY + 1);
    assert_eq!(most.load(Ordering::SeqCst), 16);
}

#[tokio::test]
async fn a_name_that_leads_elsewhere_is_not_asked_for() {
    let hub = hub();
    let elsewhere = |_: &_| SecretKeyRef::new("../../kube-system/secrets/key", "value");
    let mut received = Received::of(&builder(&hub).kubeconfig_secret(elsewhere).build().unwrap());
    received.until("synced").await;
    hub.create(initialized(cluster("default", "a"))).unwrap();
    let reported = received.line().await;
    assert!(
        reported.starts_with("!a")
            && reported.contains("can't be the name of a Secret; correct `kubeconfig_secret`"),
        "{reported}"
    );
    assert_eq!(support::gets(&hub), 0);
}

#[tokio::test]
async fn the_reason_of_a_cluster_that_waits_has_what_cluster_api_reports_and_an_end() {
    let hub = hub();
    let mut object = cluster("default", "a");
    object["status"]["conditions"] = json!([{
        "type": "RemoteConnectionProbe", "status": "False", "reason": "ProbeFailed", "message": "no route…".repeat(100),
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    hub.create(object).unwrap();
    let announced = announced(builder(&hub).build().unwrap()).await;
    let waits = &announced[1];
    assert!(
        waits.starts_with("~a: the control plane is not initialized yet (phase Provisioning); Cluster API can't reach it: no route"),
        "{waits}"
    );
    assert!(waits.chars().count() < 310, "{waits}");
}

#[tokio::test]
async fn bad_options_are_refused_with_what_to_do() {
    let hub = hub();
    assert_eq!(
        ClusterApiProvider::builder().build().unwrap_err().to_string(),
        "there is no hub; give the client of the management cluster with `client`"
    );
    for namespace in ["", "a.b", "a/b", "-a", "?", "Fleet"] {
        let refused = builder(&hub).namespace(namespace).build();
        assert_eq!(refused.unwrap_err(), ClusterApiError::Namespace(namespace.into()));
    }
    for labels in ["", " ", "a\nb"] {
        let refused = builder(&hub).labels(labels).build();
        assert_eq!(refused.unwrap_err(), ClusterApiError::Labels(labels.into()));
    }
    assert!(
        builder(&hub)
            .labels("region in (eu,us),tier!=test")
            .build()
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_refuses_all_secrets_is_asked_seldom_and_all_are_read_soon_after_it_allows_them() {
    let minute = Duration::from_secs(60);
    for (many, refusal, retry_after, at_first, each_minute) in
        [(5_000, 403, None, 5_000, 300), (300, 503, Some("240"), 32, 32)]
    {
        let hub = hub_of(SimCluster::builder().history(3 * many), &["v1beta2"]);
        for number in 0..many {
            let name = format!("c{number}");
            hub.create(secret("default", &name, kubeconfig("one"))).unwrap();
            hub.create(initialized(cluster("default", &name))).unwrap();
        }
        let (asked, allowed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let service = hub.service().with_token(&hub.admin_token());
        let counted = (asked.clone(), allowed.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (service, (asked, allowed)) = (service.clone(), counted.clone());
            async move {
                if request.uri().path().contains("/secrets/") {
                    asked.fetch_add(1, Ordering::SeqCst);
                    if !allowed.load(Ordering::SeqCst) {
                        let response = Response::builder().status(refusal);
                        let response = match retry_after {
                            Some(seconds) => response.header("retry-after", seconds),
                            None => response,
                        };
                        return Ok::<_, Infallible>(response.body(Full::default().boxed()).unwrap());
                    }
                }
                Ok(service.answer(request).await.map(BodyExt::boxed))
            }
        });
        let provider = ClusterApiProvider::builder().client(kube::Client::new(service, "default"));
        let mut received = Received::of(&provider.access_policy(support::locally()).build().unwrap());
        let follow = async |received: &mut Received, time: Duration| {
            let mut good = 0;
            let all = async {
                while good < many {
                    let change = received.0.next().await.unwrap().unwrap();
                    good += usize::from(support::line(&change).starts_with('+'));
                }
            };
            _ = timeout(time, all).await;
            good
        };
        assert_eq!(follow(&mut received, minute).await, 0);
        let first = asked.swap(0, Ordering::SeqCst);
        assert!(first <= at_first + each_minute, "{refusal}: {first}");
        for _ in 0..5 {
            assert_eq!(follow(&mut received, minute).await, 0);
            let again = asked.swap(0, Ordering::SeqCst);
            assert!(again <= each_minute, "{refusal}: {again}");
        }
        allowed.store(true, Ordering::SeqCst);
        let soon = minute + Duration::from_secs(retry_after.map_or(0, |seconds| seconds.parse().unwrap()));
        assert_eq!(follow(&mut received, soon).await, many, "{refusal}");
    }
}
