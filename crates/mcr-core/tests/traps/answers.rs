//! What answers in place of an API server, and what an API server answers to a user it does not know: neither makes a cluster
//! Ready, nor replaces a credential that works. And the requests of a cluster that no longer answers.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::PostParams};
use mcr_core::{Access, ClusterSpec, ClusterState, FleetSettings, Trust, WatchRequest};
use tokio::time::Instant;

use mcr_doubles::scripted::{Answer, Server, bookmark, probe_answer};

use crate::harness::*;

const VERSION: &str = r#"{"major":"1","minor":"34","gitVersion":"v1.34.1"}"#;
const JSON: &str = "application/json";

/// Status, media type or location, body, and the words for it.
#[rustfmt::skip]
const OTHERS: &[(u16, &str, &str, &str)] = &[
    (200, "text/html", "<!DOCTYPE html>SECRET", "an HTML page answered (200 OK): a login proxy"),
    (200, JSON, "<!DOCTYPE html>SECRET", "an HTML page answered (200 OK): a login proxy"),
    (302, "https://u:SECRET@login.example.test/o?t=SECRET", "", "(302 Found to https://login.example.test): a login proxy"),
    (301, "/SECRET", "<html>", "an HTML page answered (301 Moved Permanently): a login proxy"),
    (403, "text/html", "<html>SECRET", "an HTML page answered (403 Forbidden): a login proxy"),
    (403, JSON, r#"{"message":"User \"alice\" cannot"}"#, "JSON that is not from an API server answered (403 Forbidden)"),
    (403, JSON, r#"{"kind":"Status","apiVersion":"v1","message":"SECRET"}"#, "answers 403 Forbidden and names no user"),
    (403, JSON, r#"{"kind":"Status","apiVersion":"v1","message":"User \"system:anonymous\" cannot"}"#, "takes the user for system:anonymous"),
    (404, "text/plain", "default backend - 404", "text that is not from an API server answered (404 Not Found)"),
    (503, "text/plain", "no healthy upstream", "(503 Service Unavailable): a load balancer"),
    (500, JSON, r#"{"kind":"Status","apiVersion":"v1","message":"SECRET"}"#, "the API server answers 500 Internal Server Error"),
    (204, "", "", "nothing but a status answered (204 No Content)"),
    (200, "", "", "nothing but a status answered (200 OK)"),
    (407, "", "", "a proxy before the API server wants a login"),
    (421, "", "", "does not serve this name"),
    (426, "", "", "wants another protocol"),
    (429, "", "", "too many requests (429)"),
    (429, "text/html", "<html>", "an HTML page answered (429 Too Many Requests)"),
    (401, "text/html", "<html>", "refuses the credentials (401 Unauthorized)"),
    (200, JSON, r#"{"message":"hello"}"#, "JSON that is not from an API server answered (200 OK)"),
    (200, JSON, r#"{"kind":"Status","apiVersion":"v1","message":"User \"alice\" cannot"}"#, "a Status answered in place of an object (200 OK)"),
];

/// Unusual framing, and less than all rights, are no reason to refuse an API server.
fn api_servers() -> [Answer; 3] {
    let old = format!("HTTP/1.0 200 OK\r\nContent-Type: {JSON}\r\n\r\n{VERSION}");
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".to_owned() + &old.replace("1.0", "1.1");
    let forbidden = "it is forbidden: User \"alice\" cannot get it";
    let forbidden = Answer::status(403, "Forbidden", forbidden);
    [Answer::bytes(old), Answer::bytes(hints), forbidden]
}

fn other(n: usize) -> Answer {
    let (status, header, body, _) = OTHERS[n];
    let name = if (300..400).contains(&status) {
        "location"
    } else {
        "content-type"
    };
    Answer::with_headers(status, &[(name, header)], body)
}

fn never_probed(settings: &mut FleetSettings) {
    settings.probe_after = Duration::from_secs(3600);
}

/// With and without a watch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_not_ready_because_something_answers() {
    let running = Running::start();
    let mut all = vec![];
    for n in 0..2 * OTHERS.len() {
        let server = Server::start(move |_| other(n / 2)).await;
        server.script_probes();
        let cluster = running.join(&format!("c-{n}"), &server.kubeconfig()).await;
        let watch = (n % 2 == 0).then(|| follow(&cluster, WatchRequest::of::<ConfigMap>()));
        all.push((cluster, watch, OTHERS[n / 2].3, server));
    }
    for (cluster, watch, words, _server) in &all {
        let decided = |state: &ClusterState| state.is_ready() || state.reason().is_some();
        let state = tokio::time::timeout(Duration::from_secs(120), cluster.wait_for(decided)).await;
        let state = state.unwrap().to_string();
        assert!(
            state.contains(words) && !state.contains("SECRET"),
            "{words}: {state}"
        );
        assert!(
            watch.as_ref().is_none_or(|(watch, _)| !watch.status().synced),
            "{words}"
        );
    }
    for (n, answer) in api_servers().into_iter().enumerate() {
        let server = Server::start(move |_| answer.clone()).await;
        server.script_probes();
        ready(&running.join(&format!("api-{n}"), &server.kubeconfig()).await).await;
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_that_works_is_not_replaced_by_one_that_proves_nothing() {
    let anonymous = OTHERS
        .iter()
        .position(|other| other.3.contains("system:anonymous"))
        .unwrap();
    let server = Server::start(move |asked| match asked.header("authorization") {
        Some("Bearer t") if asked.path.ends_with("/a") => Answer::json(&map("a", 1)),
        Some("Bearer t") if asked.path == MAPS => serves_one_map(asked),
        Some("Bearer t") => probe_answer(&asked.path, "u"),
        Some("Bearer version") => Answer::new(200, JSON, VERSION),
        Some(bad) => other(bad[7..].parse().unwrap()),
        None => other(anonymous),
    })
    .await;
    server.script_probes();
    let second = Duration::from_secs(1);
    let soon =
        |settings: &mut FleetSettings| (settings.probe_after, settings.probe_timeout) = (second, second);
    let one = One::with(&server, Running::start_with(soon)).await;
    one.log.becomes(&["+a"]).await;
    ready(&one.cluster).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(one.cluster.client());
    let warnings = || one.running.fleet.snapshot().clusters[0].warnings.clone();
    let announce = |access| one.running.clusters.add(ClusterSpec::new(name("a"), access));
    let users = (0..OTHERS.len()).map(|n| (format!("token: \"{n}\""), OTHERS[n].3));
    let version = ("token: version", "does not show whether it knows the user");
    let empty = [
        version,
        ("token: ''", OTHERS[anonymous].3),
        ("", OTHERS[anonymous].3),
    ];
    for (user, words) in users.chain(empty.map(|(user, words)| (user.to_owned(), words))) {
        let kubeconfig = server.kubeconfig().replace("{token: t}", &format!("{{{user}}}"));
        announce(Access::kubeconfig(kubeconfig, Trust::Trusted));
        let warning = eventually(words, || warnings().into_iter().find(|text| text.contains(words))).await;
        let kept =
            warning.starts_with("credentials refused") && warning.ends_with("; keeping the previous ones");
        assert!(kept && !warning.contains("SECRET"), "{warning}");
        maps.get("a").await.unwrap();
        assert!(one.cluster.state().is_ready(), "{user}");
        announce(server.access());
        eventually("the warning is over", || warnings().is_empty()).await;
    }
    // Nor after an outage, by a credential that is refused or a description that can't be used.
    for bad in [
        "token: '17'",
        "tokenFile: /nowhere",
        "client-certificate: /nowhere",
    ] {
        let kubeconfig = server.kubeconfig().replace("{token: t}", &format!("{{{bad}}}"));
        announce(Access::kubeconfig(kubeconfig, Trust::Trusted));
        eventually(bad, || !warnings().is_empty()).await;
        server.fall_silent();
        unreachable(&one.cluster, "").await;
        server.speak_again();
        ready(&one.cluster).await;
        maps.get("a").await.unwrap();
        eventually(bad, || !warnings().is_empty()).await;
    }
    one.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ready_cluster_whose_lists_become_pages_is_unreachable() {
    let server = Server::start(|asked| match (asked.is_watch(), asked.nth) {
        (false, 0) => serves_one_map(asked),
        (true, 0) => Answer::status(410, "Expired", "too old"),
        _ => other(0),
    })
    .await;
    let one = One::with(&server, Running::start_with(never_probed)).await;
    one.log.becomes(&["+a"]).await;
    server.script_probes();
    unreachable(&one.cluster, OTHERS[0].3).await;
    one.log.is(&["+a"]);
    one.running.stop().await;
}

/// Whatever is asked, a load balancer answers, since the API server has ended its watches and is gone.
#[tokio::test(start_paused = true)]
async fn a_ready_cluster_of_which_only_the_load_balancer_is_left_is_unreachable() {
    for (n, (status, _, _, words)) in OTHERS.iter().enumerate() {
        if !matches!(status, 404 | 500 | 503) {
            continue;
        }
        let server = Server::in_memory(move |asked| match (asked.is_watch(), asked.nth) {
            (false, 0) => serves_one_map(asked),
            (true, 0) => Answer::short_watch([]),
            _ => other(n),
        });
        let one = One::with(&server, Running::with_settings(|_| {})).await;
        one.log.becomes(&["+a"]).await;
        server.script_probes();
        let maps: Api<ConfigMap> = Api::default_namespaced(one.cluster.client());
        let asks = async {
            for _ in 0..60 {
                for_millis(1000).await;
                assert!(maps.get("b").await.is_err());
            }
        };
        tokio::select! {
            _ = unreachable(&one.cluster, words) => {}
            () = asks => panic!("{words}: {}", one.cluster.state()),
        }
        one.running.stop().await;
    }
}

/// Only the requests can tell: nothing else would ask within an hour.
#[tokio::test(start_paused = true)]
async fn requests_that_fail_or_wait_have_the_cluster_probed_and_end_when_it_is_unreachable() {
    let server = Server::in_memory(|asked| match asked.path.rsplit('/').next() {
        Some("half") => Answer::promise(100, "{").live(),
        Some("broken") => Answer::default(),
        _ => serves_one_map(asked),
    });
    let one = One::with(&server, Running::with_settings(never_probed)).await;
    one.log.becomes(&["+a"]).await;
    for_millis(1000).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(one.cluster.client());
    // However many fail at once.
    let before = server.probes();
    let failed = futures::future::join_all((0..50).map(|_| maps.get("broken"))).await;
    assert!(failed.iter().all(Result::is_err));
    for_millis(10_000).await;
    let probes = server.probes() - before;
    assert!((1..=2).contains(&probes), "{probes}");

    let (post, new) = (PostParams::default(), ConfigMap::default());
    let started = Instant::now();
    let (half, read, write, ()) =
        tokio::join!(maps.get("half"), maps.get("a"), maps.create(&post, &new), async {
            server.fall_silent()
        });
    for answer in [half, read, write] {
        let text = mcr_core::explain_error(&answer.unwrap_err());
        assert!(text.contains("became unreachable before it answered"), "{text}");
    }
    let took = started.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
    server.speak_again();
    ready(&one.cluster).await;
    one.running.stop().await;
}

/// Each of them waits, and then nothing comes any more.
#[tokio::test(start_paused = true)]
async fn a_bookmark_does_not_hide_that_a_server_hangs_from_requests_that_wait() {
    let server = Server::in_memory(|asked| match asked.path.rsplit('/').next() {
        Some("hangs") => Answer::silence(),
        _ => serves_one_map(asked),
    });
    let one = One::with(&server, Running::with_settings(never_probed)).await;
    one.log.becomes(&["+a"]).await;
    for_millis(1000).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(one.cluster.client());
    // One bookmark after the other, as of many watches, hides it for a while.
    let before = server.probes();
    let waits = tokio::time::timeout(Duration::from_secs(19), maps.get("hangs"));
    let (answer, ()) = tokio::join!(waits, async {
        for version in 11..19 {
            assert_eq!(server.probes(), before, "{version}");
            for_millis(2000).await;
            server.send(MAPS, &bookmark(version)).await;
        }
    });
    assert!(answer.is_err() && server.probes() == before + 1, "{answer:?}");

    let (before, started) = (server.probes(), Instant::now());
    let (answer, ()) = tokio::join!(maps.get("hangs"), async {
        for version in [21, 22] {
            for_millis(2000).await;
            server.send(MAPS, &bookmark(version)).await;
        }
        assert_eq!(server.probes(), before);
        server.fall_silent();
    });
    assert!(answer.is_err(), "{answer:?}");
    let took = started.elapsed();
    assert!(took < Duration::from_secs(16), "{took:?}");
    one.running.stop().await;
}
