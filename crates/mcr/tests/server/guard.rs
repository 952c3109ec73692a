//! Who is served: the options, tokens in a file, a hub, hosts and paths. `tests/real/guarded.rs` has a real hub.
#![allow(clippy::unwrap_used)] // Clippy takes only functions marked as tests for tests.

use std::{
    convert::Infallible,
    fs,
    future::pending,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use mcr::{
    Manager, ManagerError,
    core::Change,
    server::{
        ServeError, ServerAccess, ServerOptions, TlsFiles,
        axum::{Router, routing::get},
    },
};
use mcr_testkit::log::Log;
use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::Level;

use crate::{
    harness::{PATIENCE, ask, ask_with, serve, serve_options, status_over, until_answer},
    support::Api,
};

const GOOD: &str = "g00d-t0ken-of-prometheus";
const OTHER: &str = "an0ther-t0ken";
const BAD: &str = "b4d-t0ken";

fn with_token(token: &str) -> String {
    format!("host: localhost\r\nauthorization: Bearer {token}\r\n")
}

/// The status of a hub that does not answer.
const HANGS: u16 = 0;

/// A hub that knows two tokens, and lets one of them get and post what it names. Returns what it was asked to review.
fn hub(broken: Arc<Mutex<Option<(u16, String)>>>) -> (Client, Arc<Mutex<Vec<Value>>>) {
    let reviews = Arc::<Mutex<Vec<Value>>>::default();
    let seen = reviews.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (seen, broken) = (seen.clone(), broken.clone());
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let mut review: Value = serde_json::from_slice(&body).unwrap();
            let (status, answer) = match broken.lock().unwrap().clone() {
                Some(broken) => broken,
                None => {
                    let user = match review["spec"]["token"].as_str() {
                        Some(GOOD) => Some("prometheus"),
                        Some(OTHER) => Some("somebody"),
                        _ => None,
                    };
                    let attributes = &review["spec"]["nonResourceAttributes"];
                    let may = review["spec"]["user"] == "prometheus"
                        && (attributes["verb"] == "get"
                            || (attributes["verb"] == "post" && attributes["path"] == "/own"));
                    review["status"] = match review["kind"].as_str() {
                        Some("TokenReview") => {
                            json!({"authenticated": user.is_some(), "user": {"username": user.unwrap_or_default(), "groups": ["g"]}})
                        }
                        _ => json!({"allowed": may}),
                    };
                    (201, review.to_string())
                }
            };
            seen.lock().unwrap().push(review);
            if status == HANGS {
                return pending().await;
            }
            let response = Response::builder()
                .status(status)
                .body(Body::from(answer.into_bytes()));
            Ok::<_, Infallible>(response.unwrap())
        }
    });
    (Client::new(service, "default"), reviews)
}

#[test]
fn what_is_readable_from_other_machines_is_asked_for_in_words() {
    let options = || ServerOptions::from(SocketAddr::from(([0, 0, 0, 0], 0)));
    let build = |options: ServerOptions| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let _inside = runtime.enter();
        let manager = Manager::single(Api::default().client()).serve(options).build();
        manager.map(drop).map_err(|error| match error {
            ManagerError::Serve(error) => error,
            error => panic!("{error}"),
        })
    };
    let tls = || TlsFiles::new("/nowhere/tls.crt", "/nowhere/tls.key");
    let tokens = || ServerAccess::token_file("/nowhere/tokens");

    let error = build(options()).unwrap_err();
    assert!(matches!(error, ServeError::Unguarded { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .starts_with("/clusters and /metrics would be open to everybody who reaches 0.0.0.0:0"),
        "{error}"
    );
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let error = build(ServerOptions::from(listener).tls(tls())).unwrap_err();
    assert!(
        matches!(error, ServeError::Unguarded { .. }),
        "TLS is no guard: {error:?}"
    );
    let error = build(options().access(tokens())).unwrap_err();
    assert!(matches!(error, ServeError::TokensWithoutTls { .. }), "{error:?}");
    let certificates = || ServerAccess::client_certificates("/nowhere/ca.crt");
    let error = build(ServerOptions::default().access(certificates())).unwrap_err();
    assert!(matches!(error, ServeError::CertificatesWithoutTls), "{error:?}");

    let error = build(ServerOptions::default().host("metrics.fleet.svc:8443")).unwrap_err();
    assert!(matches!(error, ServeError::Host { .. }), "{error:?}");
    assert!(error.to_string().contains("without a port"), "{error}");

    build(ServerOptions::default()).unwrap();
    build(ServerOptions::from(SocketAddr::from((
        [0, 0, 0, 0, 0, 0, 0, 1],
        0,
    ))))
    .unwrap();
    build(ServerOptions::default().access(tokens())).unwrap();
    build(options().access(ServerAccess::open())).unwrap();
    build(options().access(tokens()).plain_http()).unwrap();
    build(options().access(tokens()).tls(tls())).unwrap();
    build(options().access(certificates()).tls(tls())).unwrap();
}

#[tokio::test]
async fn files_that_can_not_be_used_are_reported_before_anything_begins() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    let options = || ServerOptions::from(TcpListener::bind("127.0.0.1:0").unwrap());
    let run = async |options: ServerOptions| {
        let manager = Manager::single(Api::default().client())
            .serve(options)
            .build()
            .unwrap();
        let error = manager.run_until(CancellationToken::new()).await.unwrap_err();
        error.to_string()
    };
    let tokens = || options().access(ServerAccess::token_file(&path));
    let named = format!("can't serve metrics and health: {}", path.display());
    let unread = run(tokens()).await;
    assert!(
        unread.starts_with(&format!("{named} can't be read as text: ")),
        "{unread}"
    );
    fs::write(&path, "\n \n").unwrap();
    assert_eq!(run(tokens()).await, format!("{named} holds no token"));
    let tls = options().tls(TlsFiles::new(&path, &path));
    assert_eq!(
        run(tls).await,
        format!("{named} holds no PEM certificate (-----BEGIN CERTIFICATE-----)")
    );
}

#[tokio::test]
async fn tokens_in_a_file_are_served_until_they_are_removed_also_on_a_connection_that_lives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    fs::write(&path, format!("{OTHER}\n{GOOD}\n")).unwrap();
    let served = serve_options(|options| options.access(ServerAccess::token_file(&path)));
    for path in ["/clusters", "/metrics", "/anything"] {
        let refused = ask(served.address, "GET", path).await;
        assert_eq!(refused.status, 401, "{path}");
        assert!(
            refused.head.contains("www-authenticate: bearer"),
            "{}",
            refused.head
        );
    }
    for headers in [
        with_token(BAD),
        with_token(&GOOD[1..]),
        with_token(&format!("{GOOD}{OTHER}")),
        with_token(GOOD).replace("Bearer", "Basic"),
        with_token(GOOD) + "authorization: Bearer x\r\n",
    ] {
        let refused = ask_with(served.address, "GET", "/clusters", &headers).await;
        assert_eq!(refused.status, 401, "{headers}");
    }
    // Probes are for everybody, and show no texts of errors.
    served.announce.send(Err("no route to db-1".to_owned())).unwrap();
    let failing = until_answer(&served, |answer| answer.body.contains("fails")).await;
    assert!(!failing.body.contains("db-1"), "{}", failing.body);
    assert_eq!(served.get("/healthz").await.status, 200);

    let mut living = TcpStream::connect(served.address).await.unwrap();
    assert_eq!(status_over(&mut living, GOOD).await, 200);
    assert_eq!(status_over(&mut living, OTHER).await, 200);
    fs::write(&path, OTHER).unwrap();
    assert_eq!(status_over(&mut living, OTHER).await, 200);
    assert_eq!(status_over(&mut living, GOOD).await, 401);
    fs::remove_file(&path).unwrap();
    let undecided = ask_with(served.address, "GET", "/clusters", &with_token(OTHER)).await;
    assert_eq!(undecided.status, 503, "{}", undecided.body);
    served.end().await;
}

#[tokio::test]
async fn the_hub_decides_and_no_token_is_shown_or_logged() {
    let log = Log::of_this_thread(Level::TRACE);
    let broken = Arc::<Mutex<Option<(u16, String)>>>::default();
    let (client, reviews) = hub(broken.clone());
    let own = Router::new().route("/own", get(async || "mine").post(async || "set"));
    let access = ServerAccess::hub(client);
    let options = ServerOptions::default().access(access.clone());
    assert!(format!("{options:?}").contains("Hub"), "{options:?}");
    let served = serve_options(|options| options.access(access).merge_router(own));
    served.announce(Change::Synced);
    let asked = async |method: &str, path: &str, token: &str| {
        ask_with(served.address, method, path, &with_token(token)).await
    };
    assert_eq!(ask(served.address, "GET", "/clusters").await.status, 401);
    assert!(
        reviews.lock().unwrap().is_empty(),
        "nobody is asked about a request without a token"
    );
    assert_eq!(asked("GET", "/clusters", BAD).await.status, 401);
    let forbidden = asked("GET", "/clusters", OTHER).await;
    assert_eq!(forbidden.status, 403);
    assert!(forbidden.body.contains("nonResourceURLs"), "{}", forbidden.body);
    let before = reviews.lock().unwrap().len();
    for method in ["GET", "HEAD", "GET"] {
        assert_eq!(asked(method, "/clusters", GOOD).await.status, 200);
    }
    {
        let reviews = reviews.lock().unwrap();
        assert_eq!(
            reviews.len() - before,
            2,
            "one decision serves all three: {reviews:?}"
        );
        let spec = json!({
            "user": "prometheus", "uid": "", "groups": ["g"], "extra": {},
            "nonResourceAttributes": {"path": "/clusters", "verb": "get"},
        });
        assert_eq!(reviews.last().unwrap()["spec"], spec);
    }
    assert_eq!(asked("POST", "/clusters", GOOD).await.status, 405);
    // The right to one path or verb is none to another.
    assert_eq!(asked("POST", "/own", GOOD).await.body, "set");
    assert_eq!(asked("GET", "/own", OTHER).await.status, 403);
    assert_eq!(asked("DELETE", "/own", GOOD).await.status, 403);

    // What can't be checked is refused, whatever the hub answers.
    for answer in [
        (500, GOOD.to_owned()),
        (403, "{}".to_owned()),
        (201, GOOD.to_owned()),
        (
            201,
            format!("{{\"spec\": {{\"token\": \"{GOOD}\"}}, \"status\": {{\"authenticated\": \"{GOOD}\"}}}}"),
        ),
        (200, "<html>".to_owned()),
    ] {
        *broken.lock().unwrap() = Some(answer.clone());
        let undecided = asked("GET", "/metrics", GOOD).await;
        assert_eq!(undecided.status, 503, "{answer:?}: {}", undecided.body);
        assert!(!undecided.body.contains(GOOD));
    }
    *broken.lock().unwrap() = None;
    assert_eq!(
        asked("GET", "/metrics", GOOD).await.status,
        200,
        "a failure is not kept"
    );
    served.end().await;
    let log = log.text();
    assert!(log.contains("the hub can't be asked who may read"), "{log}");
    for token in [GOOD, BAD, OTHER] {
        assert!(!log.contains(token), "{log}");
    }
}

/// Whoever has no right takes no place from those who have it.
#[tokio::test]
async fn callers_who_are_refused_keep_no_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    fs::write(&path, GOOD).unwrap();
    let served = serve_options(|options| options.access(ServerAccess::token_file(&path)));
    let mut held = Vec::new();
    for _ in 0..70 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        assert_eq!(status_over(&mut stream, BAD).await, 401);
        held.push(stream);
    }
    let headers = with_token(GOOD);
    let answer = timeout(PATIENCE, ask_with(served.address, "GET", "/clusters", &headers));
    assert_eq!(answer.await.unwrap().status, 200);
    served.end().await;
}

#[tokio::test]
async fn hosts_and_paths_that_lead_elsewhere_are_refused() {
    let served = serve_options(|options| options.host("metrics.fleet.svc"));
    for (headers, status) in [
        ("host: localhost\r\n", 200),
        ("host: 10.0.0.7:8080\r\n", 200),
        ("host: Metrics.fleet.svc:8443\r\n", 200),
        ("host: evil.example\r\n", 403),
        ("host: localhost\r\nhost: evil.example\r\n", 403),
        ("host: \r\n", 403),
    ] {
        let answer = ask_with(served.address, "GET", "/clusters", headers).await;
        // hyper refuses two of them by itself.
        let is_refused = status == 403 && answer.status == 400;
        assert!(
            answer.status == status || is_refused,
            "{headers}: {}",
            answer.status
        );
        assert_eq!(
            ask_with(served.address, "GET", "/healthz", "host: any\r\n")
                .await
                .status,
            200
        );
    }
    let absolute = ask_with(
        served.address,
        "GET",
        "http://evil.example/clusters",
        "host: localhost\r\n",
    )
    .await;
    assert_eq!(absolute.status, 403);
    for path in ["//clusters", "/x/../clusters", "/%63lusters"] {
        assert_eq!(served.get(path).await.status, 400, "{path}");
    }
    served.end().await;

    // Everywhere it is open only what it is asked to be: the same options without a guard are of this machine.
    let served = serve(|builder| builder);
    assert_eq!(
        ask_with(served.address, "GET", "/clusters", "host: metrics.fleet.svc\r\n")
            .await
            .status,
        403
    );
    served.end().await;
}

/// Reviews that hang keep nobody waiting about whom the hub has decided.
#[tokio::test]
async fn callers_under_review_keep_no_place_from_others() {
    let broken = Arc::<Mutex<Option<(u16, String)>>>::default();
    let (client, reviews) = hub(broken.clone());
    let served = serve_options(|options| options.access(ServerAccess::hub(client)));
    let read = async || {
        let answer = ask_with(served.address, "GET", "/metrics", &with_token(GOOD)).await;
        answer.status
    };
    assert_eq!(read().await, 200);
    *broken.lock().unwrap() = Some((HANGS, String::new()));
    let before = reviews.lock().unwrap().len();
    let mut held = Vec::new();
    for caller in 0..64 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let request = format!(
            "GET /metrics HTTP/1.1\r\n{}\r\n",
            with_token(&format!("random-{caller}"))
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        held.push(stream);
    }
    let all_under_review = async {
        while reviews.lock().unwrap().len() < before + 8 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, all_under_review).await.unwrap();
    for _ in 0..10 {
        assert_eq!(read().await, 200);
    }
    served.end().await;
}

#[tokio::test]
async fn a_line_that_is_no_token_spoils_the_file() {
    let log = Log::of_this_thread(Level::WARN);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    for line in ["# the t0ken of Prometheus", "#t0ken", "t0ken of Prometheus"] {
        fs::write(&path, format!("{GOOD}\n\n{line}\n")).unwrap();
        let options = ServerOptions::from(TcpListener::bind("127.0.0.1:0").unwrap());
        let manager = Manager::single(Api::default().client())
            .serve(options.access(ServerAccess::token_file(&path)))
            .build()
            .unwrap();
        let running = timeout(PATIENCE, manager.run_until(CancellationToken::new()));
        let error = running.await.unwrap().unwrap_err();
        let text = error.to_string();
        assert!(
            text.ends_with("tokens has no token on line 3: a token has no spaces and no # at its beginning"),
            "{text}"
        );
    }
    fs::write(&path, GOOD).unwrap();
    let served = serve_options(|options| options.access(ServerAccess::token_file(&path)));
    let status = async |token: &str| {
        let answer = ask_with(served.address, "GET", "/metrics", &with_token(token)).await;
        answer.status
    };
    assert_eq!(status(GOOD).await, 200);
    for spoiled in ["#t0ken".to_owned(), "x".repeat(70_000)] {
        fs::write(&path, &spoiled).unwrap();
        for token in [GOOD, "#t0ken"] {
            assert_eq!(status(token).await, 503);
        }
    }
    served.end().await;
    assert_eq!(
        log.lines_with("the file of tokens").len(),
        1,
        "once a minute: {}",
        log.text()
    );
    assert!(
        log.text().contains("line 1") && !log.text().contains("t0ken"),
        "{}",
        log.text()
    );
}

#[tokio::test]
async fn a_decision_is_kept_for_an_hour_at_most() {
    let (client, _) = hub(Arc::default());
    let access = ServerAccess::hub(client).cache_ttl(Duration::MAX);
    assert!(format!("{access:?}").contains("3600s"), "{access:?}");
    let served = serve_options(|options| options.access(access));
    let answer = ask_with(served.address, "GET", "/metrics", &with_token(GOOD)).await;
    assert_eq!(answer.status, 200);
    served.end().await;
}
