//! No byte of a Secret gets into a log or an error, whatever a server or proxy makes of a list of them.
//!
//! kube's client logs the whole body of an answer that does not parse, at WARN. Everything that this process
//! logs at TRACE is searched, of all libraries.

use k8s_openapi::api::core::v1::Secret;
use mcr_core::WatchRequest;
use serde_json::{Value, json};

use mcr_doubles::scripted::{Answer, Server};

use crate::harness::*;

fn secret(canary: &str) -> Value {
    let mut secret = map("token", 1);
    secret["data"] = json!({"token": canary});
    secret
}

fn body(canary: &str) -> String {
    list_object(10, [secret(canary), secret(canary)]).to_string()
}

/// Answers to lists and gets of Secrets that are not what they should be, each with its own canary in it.
fn broken(canary: &str) -> Vec<(&'static str, Answer)> {
    let whole = body(canary);
    let at = whole.rfind(canary).unwrap() + canary.len();
    let cut = &whole[..at];
    let media = "application/json";
    let encoded = [("content-type", media), ("content-encoding", "br")];
    vec![
        ("cut off, but complete as HTTP", Answer::new(200, media, cut)),
        ("cut off by the connection", Answer::promise(whole.len(), cut)),
        (
            "cut off in the middle of a chunked answer",
            Answer::begin().chunk(cut),
        ),
        ("garbage", Answer::new(200, media, format!("]{canary}{whole}"))),
        (
            "not text",
            Answer::new(200, media, [whole.as_bytes(), &[0xff, 0xfe]].concat()),
        ),
        (
            "HTML",
            Answer::new(200, "text/html", format!("<html>{canary}</html>")),
        ),
        ("plain text", Answer::new(200, "text/plain", cut)),
        ("no media type", Answer::with_headers(200, &[], cut)),
        ("said to be compressed", Answer::with_headers(200, &encoded, cut)),
        ("an error that is no Status", Answer::new(500, media, cut)),
        (
            "an error in JSON of another shape",
            Answer::new(500, media, json!([canary]).to_string()),
        ),
        (
            "an error whose message is an object",
            Answer::new(502, media, json!({"message": {"x": canary}}).to_string()),
        ),
        (
            "an error in HTML",
            Answer::new(403, "text/html", format!("<p>{canary}")),
        ),
        (
            "two answers in one",
            Answer::new(200, media, format!("{whole}{whole}")),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_secrets_leaks_nothing_of_a_broken_list() {
    let log = mcr_testkit::log::Log::of_this_process();
    let canary = "Y2FuYXJ5LW9mLWEtd2F0Y2g";
    let count = broken(canary).len();
    let server = Server::start(
        move |asked| match (asked.is_watch(), broken(canary).get(asked.nth)) {
            (false, Some((_, answer))) => answer.clone(),
            (false, None) => list(10, [secret(canary)]),
            (true, _) => {
                let line = event("MODIFIED", secret(canary)).to_string();
                match asked.nth {
                    0 => Answer::begin().chunk(&line[..line.len() - 3]),
                    1 => Answer::begin().chunk(format!("x{line}\n")).live(),
                    2 => Answer::begin()
                        .chunk(format!("{{\"type\":\"{canary}\"}}\n"))
                        .live(),
                    3 => Answer::watch([&event("ERROR", json!({"code": canary}))]),
                    4 => Answer::watch([&event("ADDED", json!({"metadata": {"name": [canary]}}))]),
                    _ => quiet(),
                }
            }
        },
    )
    .await;
    let running = Running::start();
    let cluster = running.join("a", &server.kubeconfig()).await;
    let (watch, changes) = follow(&cluster, WatchRequest::of::<Secret>());
    let mut seen = Vec::new();
    eventually("everything was tried", || {
        seen.push(format!(
            "{:?} {:?} {:?}",
            watch.status(),
            cluster.kinds(),
            cluster.state()
        ));
        (server.watches(SECRETS).len() > 4 && server.live() == 1).then_some(())
    })
    .await;
    assert!(server.lists(SECRETS).len() > count);
    seen.push(format!("{:?} {:?}", changes.statuses(), running.fleet.snapshot()));
    seen.push(serde_json::to_string(&running.fleet.snapshot()).unwrap());
    assert!(changes.statuses().iter().any(|status| status.problem.is_some()));
    running.stop().await;
    assert!(seen.iter().all(|text| !text.contains(canary)), "in a status");
    assert!(log.lines_with("watch failed").len() > 1, "the log is captured");
    assert_eq!(log.lines_with(canary), [] as [String; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_of_a_cluster_leaks_nothing_of_a_broken_answer() {
    let log = mcr_testkit::log::Log::of_this_process();
    let canary = "Y2FuYXJ5LW9mLWEtY2xpZW50";
    let names: Vec<_> = broken(canary).iter().map(|(name, _)| *name).collect();
    let server = Server::start(move |asked| broken(canary)[asked.nth].1.clone()).await;
    let running = Running::start();
    let cluster = running.join("a", &server.kubeconfig()).await;
    ready(&cluster).await;
    for case in names {
        let error = cluster
            .api::<Secret>()
            .list(&Default::default())
            .await
            .expect_err(case);
        let text = format!("{error} {error:?} {}", mcr_core::explain_error(&error));
        assert!(!text.contains(canary), "{case}: {text}");
        assert_eq!(log.lines_with(canary), [] as [String; 0], "{case}");
    }
    running.stop().await;
}

/// What can't be kept out of the log below the client: JSON that is well-formed, but not of the type that the
/// caller asked kube for. If kube no longer logs it, this fails and the warning about it can go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_itself_logs_well_formed_answers_of_another_type() {
    let log = mcr_testkit::log::Log::of_this_process();
    let canary = "Y2FuYXJ5LW9mLWFub3RoZXItdHlwZQ";
    let server = Server::start(move |_| {
        let mut odd = secret(canary);
        odd["immutable"] = "perhaps".into();
        list(10, [odd])
    })
    .await;
    let running = Running::start();
    let cluster = running.join("a", &server.kubeconfig()).await;
    ready(&cluster).await;
    let error = cluster
        .api::<Secret>()
        .list(&Default::default())
        .await
        .unwrap_err();
    assert!(matches!(error, kube::Error::SerdeError(_)));
    let lines = log.lines_with(canary);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(
        lines[0].contains(" WARN ") && lines[0].contains("kube_client::client"),
        "{}",
        lines[0]
    );
    running.stop().await;
}
