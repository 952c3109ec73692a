//! Decisions over a scripted hub, in paused time.

use std::{
    convert::Infallible,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use futures::future::join_all;
use http::Response;
use http_body_util::BodyExt;
use kube::client::{AuthError, Body as KubeBody};

use super::*;

/// A hub that takes each token that begins with `good` for a user of the same name, and allows all users but `good-but-poor`.
#[derive(Default)]
struct Hub {
    reviews: AtomicUsize,
    running: AtomicUsize,
    most_running: AtomicUsize,
    hangs: AtomicBool,
    /// For tokens that do not begin with `good`.
    hangs_on_bad: AtomicBool,
    revoked: AtomicBool,
    answer: Mutex<Option<&'static str>>,
}

const TTL: Duration = Duration::from_secs(30);

fn hub() -> (Arc<Hub>, Reviews) {
    let hub = Arc::new(Hub::default());
    let shared = hub.clone();
    let service = tower::service_fn(move |request: Request<KubeBody>| {
        let hub = shared.clone();
        async move {
            hub.reviews.fetch_add(1, Ordering::Relaxed);
            let running = hub.running.fetch_add(1, Ordering::Relaxed) + 1;
            hub.most_running.fetch_max(running, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(100)).await;
            if hub.hangs.load(Ordering::Relaxed) {
                pending::<()>().await;
            }
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let review: Value = serde_json::from_slice(&body).unwrap();
            let token = review["spec"]["token"].as_str();
            let is_good = token.is_some_and(|token| token.starts_with("good"));
            if token.is_some() && !is_good && hub.hangs_on_bad.load(Ordering::Relaxed) {
                pending::<()>().await;
            }
            hub.running.fetch_sub(1, Ordering::Relaxed);
            let status = match (*hub.answer.lock(), token) {
                (Some(answer), _) => serde_json::from_str(answer).unwrap(),
                (None, Some(token)) => {
                    let authenticated = is_good && !hub.revoked.load(Ordering::Relaxed);
                    json!({"authenticated": authenticated, "user": {"username": token}})
                }
                (None, None) => json!({"allowed": review["spec"]["user"] != "good-but-poor"}),
            };
            let answer = json!({"status": status}).to_string().into_bytes();
            Ok::<_, Infallible>(Response::new(KubeBody::from(answer)))
        }
    });
    (hub, Reviews::new(Client::new(service, "default"), TTL))
}

async fn asked(reviews: &Reviews, token: &str) -> Result<Verdict, Undecided> {
    reviews.verdict(token, "get", "/clusters").await
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_kept_for_its_time_and_no_longer() {
    let (hub, reviews) = hub();
    assert_eq!(asked(&reviews, "good").await, Ok(Verdict::Allowed));
    assert_eq!(asked(&reviews, "good-but-poor").await, Ok(Verdict::Forbidden));
    assert_eq!(asked(&reviews, "bad").await, Ok(Verdict::Unauthenticated));
    assert_eq!(hub.reviews.load(Ordering::Relaxed), 5);
    hub.revoked.store(true, Ordering::Relaxed);
    tokio::time::sleep(TTL - Duration::from_secs(1)).await;
    assert_eq!(asked(&reviews, "good").await, Ok(Verdict::Allowed));
    assert_eq!(hub.reviews.load(Ordering::Relaxed), 5);
    assert_eq!(asked(&reviews, "bad").await, Ok(Verdict::Unauthenticated));
    assert_eq!(
        hub.reviews.load(Ordering::Relaxed),
        6,
        "a refusal is kept for ten seconds"
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(asked(&reviews, "good").await, Ok(Verdict::Unauthenticated));
}

/// For another path or verb the hub is asked again.
#[tokio::test(start_paused = true)]
async fn a_decision_is_of_one_token_path_and_verb() {
    let (hub, reviews) = hub();
    for (verb, path) in [("get", "/clusters"), ("get", "/metrics"), ("post", "/clusters")] {
        let before = hub.reviews.load(Ordering::Relaxed);
        assert_eq!(reviews.verdict("good", verb, path).await, Ok(Verdict::Allowed));
        assert_eq!(hub.reviews.load(Ordering::Relaxed), before + 2);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_hub_does_not_allow_in_so_many_words_is_refused() {
    let (hub, reviews) = hub();
    for (answer, verdict) in [
        ("{}", Ok(Verdict::Unauthenticated)),
        (r#"{"authenticated": true}"#, Ok(Verdict::Unauthenticated)),
        (
            r#"{"authenticated": true, "user": {"username": ""}}"#,
            Ok(Verdict::Unauthenticated),
        ),
        (
            r#"{"user": {"username": "good"}, "allowed": true}"#,
            Ok(Verdict::Unauthenticated),
        ),
        (
            r#"{"authenticated": true, "user": {"username": "good"}}"#,
            Ok(Verdict::Forbidden),
        ),
        (
            r#"{"authenticated": true, "user": {"username": "good"}, "allowed": true, "denied": true}"#,
            Ok(Verdict::Forbidden),
        ),
        (
            r#"{"authenticated": true, "user": {"username": "good"}, "allowed": "yes"}"#,
            Err(Undecided),
        ),
        (r#"{"authenticated": "yes"}"#, Err(Undecided)),
        ("null", Err(Undecided)),
    ] {
        *hub.answer.lock() = Some(answer);
        let token = format!("good {answer}");
        assert_eq!(asked(&reviews, &token).await, verdict, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_hangs_refuses_in_time_and_is_asked_again_when_it_is_back() {
    let (hub, reviews) = hub();
    assert_eq!(asked(&reviews, "good-before").await, Ok(Verdict::Allowed));
    hub.hangs.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let tokens: Vec<String> = (0..50).map(|token| format!("good-{token}")).collect();
    let all = join_all(tokens.iter().map(|token| asked(&reviews, token))).await;
    assert!(all.iter().all(|verdict| *verdict == Err(Undecided)), "{all:?}");
    assert!(began.elapsed() <= WITHIN, "{:?}", began.elapsed());
    assert_eq!(hub.most_running.load(Ordering::Relaxed), AT_ONCE);
    assert_eq!(asked(&reviews, "good-before").await, Ok(Verdict::Allowed));
    hub.hangs.store(false, Ordering::Relaxed);
    assert_eq!(asked(&reviews, "good-1").await, Ok(Verdict::Allowed));
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_bounded_and_refusals_push_out_no_right() {
    let (hub, reviews) = hub();
    assert_eq!(asked(&reviews, "good").await, Ok(Verdict::Allowed));
    let tokens: Vec<String> = (0..3000).map(|token| format!("bad-{token}")).collect();
    for some in tokens.chunks(8) {
        tokio::time::advance(Duration::from_micros(1)).await;
        join_all(some.iter().map(|token| asked(&reviews, token))).await;
        // The clock stands still for those who wait, so that nothing is over by itself.
        for kept in &mut *reviews.cache.lock() {
            for (until, _) in kept.until.values_mut() {
                *until += Duration::from_millis(100);
            }
        }
    }
    let size = |which: usize| reviews.cache.lock()[which].until.len();
    assert_eq!([size(0), size(1)], [1, REFUSED]);
    let before = hub.reviews.load(Ordering::Relaxed);
    assert_eq!(asked(&reviews, "good").await, Ok(Verdict::Allowed));
    assert_eq!(asked(&reviews, "bad-2999").await, Ok(Verdict::Unauthenticated));
    assert_eq!(hub.reviews.load(Ordering::Relaxed), before);
    for path in 0..1000 {
        let path = format!("/debug/{path}");
        assert_eq!(reviews.verdict("good", "get", &path).await, Ok(Verdict::Allowed));
    }
    assert!(size(0) <= ALLOWED, "{}", size(0));
}

#[tokio::test(start_paused = true)]
async fn callers_with_a_right_do_not_wait_behind_those_without() {
    let (hub, reviews) = hub();
    assert_eq!(asked(&reviews, "good").await, Ok(Verdict::Allowed));
    tokio::time::sleep(TTL).await;
    hub.hangs_on_bad.store(true, Ordering::Relaxed);
    let tokens: Vec<String> = (0..50).map(|token| format!("bad-{token}")).collect();
    let bad = join_all(tokens.iter().map(|token| asked(&reviews, token)));
    let good = async {
        while hub.running.load(Ordering::Relaxed) < AT_ONCE {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(asked(&reviews, "good").await, Ok(Verdict::Allowed));
        // A token that is revoked loses its place among those.
        hub.revoked.store(true, Ordering::Relaxed);
        tokio::time::sleep(TTL - WITHIN / 2).await;
    };
    let (bad, ()) = tokio::join!(bad, good);
    assert!(bad.iter().all(|verdict| *verdict == Err(Undecided)), "{bad:?}");
    tokio::time::sleep(TTL).await;
    assert_eq!(asked(&reviews, "good").await, Ok(Verdict::Unauthenticated));
    assert_eq!(reviews.cache.lock()[0].until.len(), 0);
}

/// A plugin that fails may have written a credential all the same.
#[test]
fn the_output_of_a_credential_plugin_is_not_shown() {
    let plugin = || AuthError::AuthExec("s3cret".to_owned());
    let wrapped: [BoxError; 3] = [
        plugin().into(),
        kube::Error::Auth(plugin()).into(),
        kube::Error::Service(plugin().into()).into(),
    ];
    for error in wrapped {
        let shown = without_credentials(error).to_string();
        assert!(shown.starts_with("no credential for the hub"), "{shown}");
    }
    let other = kube::Error::Service("connection refused".into());
    let shown = without_credentials(other.into()).to_string();
    assert!(shown.contains("connection refused"), "{shown}");
}
