//! What is served over HTTP, when, and to whom not.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/series.rs"]
mod series;
mod support;

use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{
    Action, BoxError, ClusterSpec, Controller, Fleet, Manager, ManagerBuilder, ManagerError, Provider,
    Request,
    core::{BrokenCluster, Change, Discovery},
    server::{ServeError, ServerOptions},
};
use serde_json::{Value, json};
use series::Scrape;
use support::{Api, ApiAccess, name, until};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

type Said = Result<Change, String>;

/// Says what it is told to, errors too; goes on where it was after one.
struct Told(Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Said>>>);

impl Provider for Told {
    fn name(&self) -> &str {
        "told"
    }
    fn discover(&self, stop: CancellationToken) -> Discovery {
        stream::unfold(self.0.clone(), |receiver| async move {
            let said = receiver.lock().await.recv().await?;
            Some((said.map_err(Into::into), receiver))
        })
        .take_until(stop.cancelled_owned())
        .boxed()
    }
}

/// A manager that serves.
struct Served {
    address: SocketAddr,
    fleet: Fleet,
    say: mpsc::UnboundedSender<Said>,
    stop: CancellationToken,
    running: JoinHandle<Result<(), ManagerError>>,
}

async fn done(_: Request<ConfigMap>, _: Arc<()>) -> Result<Action, BoxError> {
    Ok(Action::done())
}

fn serve(with: impl FnOnce(ManagerBuilder) -> ManagerBuilder) -> Served {
    let (say, said) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let builder = Manager::builder()
        .provider(Told(Arc::new(tokio::sync::Mutex::new(said))))
        .controller(Controller::<ConfigMap>::new("animals").build(done, Arc::new(())))
        .serve(listener);
    let manager = with(builder).build().unwrap();
    let (stop, fleet) = (CancellationToken::new(), manager.fleet().clone());
    let running = tokio::spawn(manager.run_until(stop.clone()));
    Served {
        address,
        fleet,
        say,
        stop,
        running,
    }
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        assert!(
            self.head.contains("content-type: application/json"),
            "{}",
            self.head
        );
        serde_json::from_str(&self.body).unwrap()
    }
}

async fn ask(address: SocketAddr, method: &str, path: &str) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: mcr\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).await.unwrap();
    answer(&all)
}

fn answer(all: &str) -> Answer {
    let (head, body) = all.split_once("\r\n\r\n").unwrap();
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}

impl Served {
    async fn get(&self, path: &str) -> Answer {
        ask(self.address, "GET", path).await
    }

    fn say(&self, change: Change) {
        self.say.send(Ok(change)).unwrap();
    }

    fn join(&self, cluster: &str, api: &ApiAccess) {
        self.say(Change::Upsert(ClusterSpec::new(
            name(cluster),
            api.access.clone(),
        )));
    }

    async fn clusters(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..500 {
            let report = self.get("/clusters").await.json();
            if wanted(&report) {
                return report;
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("never: {}", self.get("/clusters").await.body);
    }

    async fn end(self) {
        self.stop.cancel();
        self.running.await.unwrap().unwrap();
        assert!(
            TcpStream::connect(self.address).await.is_err(),
            "nobody listens any more"
        );
    }
}

#[tokio::test]
async fn paths_methods_and_what_they_answer() {
    let served =
        serve(|builder| builder.serve(ServerOptions::from(TcpListener::bind("127.0.0.1:0").unwrap())));
    // Another place replaces the first, which nobody listens at.
    let first = served.address;
    served.stop.cancel();
    served.running.await.unwrap().unwrap();
    assert!(TcpStream::connect(first).await.is_err());

    let served = serve(|builder| builder);
    let healthy = served.get("/healthz").await;
    assert_eq!((healthy.status, healthy.body.as_str()), (200, "ok"));
    assert!(healthy.head.contains("content-type: text/plain"));
    assert!(healthy.head.contains("cache-control: no-store"));
    let metrics = served.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(
        metrics
            .head
            .contains("application/openmetrics-text; version=1.0.0")
    );
    assert_eq!(
        Scrape::parse(&metrics.body).get("mcr_reconciles_running", &[("controller", "animals")]),
        Some(0.0)
    );
    assert_eq!(served.get("/clusters").await.json()["clusters"], json!([]));
    let missing = served.get("/").await;
    assert_eq!(missing.status, 404);
    assert!(missing.json()["error"].as_str().unwrap().contains("/clusters"));
    for path in ["/healthz", "/metrics", "/clusters"] {
        let head = ask(served.address, "HEAD", path).await;
        assert_eq!((head.status, head.body.as_str()), (200, ""), "{path}");
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
            let refused = ask(served.address, method, path).await;
            assert_eq!(refused.status, 405, "{method} {path}");
            assert!(refused.head.contains("allow: get,head"), "{}", refused.head);
        }
    }
    for (query, word) in [("state=Redy", "Unreachable"), ("nmae=a", "name and state")] {
        let refused = served.get(&format!("/clusters?{query}")).await;
        assert_eq!(refused.status, 400);
        assert!(
            refused.json()["error"].as_str().unwrap().contains(word),
            "{}",
            refused.body
        );
    }
    served.end().await;
}

#[tokio::test]
async fn ready_once_every_provider_has_said_everything() {
    let served = serve(|builder| builder);
    let before = served.get("/readyz").await;
    assert_eq!(before.status, 503);
    assert_eq!(
        before.json(),
        json!({"ready": false, "reason": "not every provider has said which clusters there are: told"})
    );
    assert_eq!(served.get("/healthz").await.status, 200, "not ready is not dead");
    served
        .say
        .send(Err("the directory is missing".to_owned()))
        .unwrap();
    let failing = until_answer(&served, |answer| answer.body.contains("missing")).await;
    assert_eq!(failing.status, 503);
    // A cluster that does not answer does not count.
    let dead = ApiAccess::new(Api::default());
    dead.down(true);
    served.join("dead", &dead);
    served.say(Change::Synced);
    let ready = until_answer(&served, |answer| answer.status == 200).await;
    assert_eq!(ready.json(), json!({"ready": true}));
    let report = served
        .clusters(|report| report["clusters"][0]["state"] == "Unreachable")
        .await;
    assert!(
        report["clusters"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("refused"),
        "{report:#}"
    );
    assert_eq!(report["providers"][0]["restarts"], 1);
    assert_eq!(report["providers"][0]["lastError"], "the directory is missing");
    assert_eq!(served.get("/readyz").await.status, 200);
    served.end().await;
}

async fn until_answer(served: &Served, wanted: impl Fn(&Answer) -> bool) -> Answer {
    for _ in 0..500 {
        let answer = served.get("/readyz").await;
        if wanted(&answer) {
            return answer;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("never");
}

#[tokio::test]
async fn while_the_manager_stops_it_is_not_ready_but_alive() {
    let (release, wait) = tokio::sync::oneshot::channel::<()>();
    let served = serve(|builder| {
        builder.task("slow", |_, stop| async move {
            stop.cancelled().await;
            let _ = wait.await;
            Ok(())
        })
    });
    served.say(Change::Synced);
    until_answer(&served, |answer| answer.status == 200).await;
    served.stop.cancel();
    let stopping = until_answer(&served, |answer| answer.status == 503).await;
    assert_eq!(stopping.json()["reason"], "the manager is stopping");
    assert_eq!(served.get("/healthz").await.body, "ok");
    assert_eq!(served.get("/clusters").await.status, 200);
    // A connection that is open and silent does not hold the manager up.
    let _idle = TcpStream::connect(served.address).await.unwrap();
    release.send(()).unwrap();
    let started = Instant::now();
    served.end().await;
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn an_address_in_use_is_named_before_anything_begins() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let began = Arc::new(Mutex::new(false));
    let manager = Manager::single(Api::default().client())
        .task("never", {
            let began = began.clone();
            move |_, _| async move {
                *began.lock().unwrap() = true;
                Ok(())
            }
        })
        .serve(address)
        .build()
        .unwrap();
    let error = manager.run_until(CancellationToken::new()).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("can't serve metrics and health at {address}: ")),
        "{text}"
    );
    assert!(text.contains("Choose another address"), "{text}");
    let ManagerError::Serve(ServeError::Bind {
        address: named,
        source,
    }) = error
    else {
        panic!("{error:?}")
    };
    assert_eq!((named, source.kind()), (address, std::io::ErrorKind::AddrInUse));
    assert!(!*began.lock().unwrap());
}

/// Replaces what differs from run to run.
fn steady(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                let changes = [
                    "since",
                    "lastHeard",
                    "lastEvent",
                    "lastProbe",
                    "identity",
                    "bytes",
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
    served.say(Change::Upsert(
        spec("berlin", &berlin)
            .identity("uid-1")
            .label("env", "prod")
            .property("region", "eu"),
    ));
    served.say(Change::Upsert(spec("lyon", &lyon)));
    served.say(Change::Upsert(spec("rome", &lyon).suspended("hibernated")));
    served.say(Change::Broken(BrokenCluster::new(
        name("x"),
        "Secret fleet/x",
        "no kubeconfig in it",
    )));
    served.say(Change::Synced);
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
        "state": "Ready",
        "since": "<since>",
        "reason": null,
        "warnings": [],
        "labels": {"env": "prod"},
        "properties": {"region": "eu"},
        "lastHeard": "<lastHeard>",
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
            "skipped": 0,
            "lists": 1,
            "lastEvent": "<lastEvent>",
            "problem": null,
            "blocked": false,
        }],
        "queueDepth": 0,
        "controllers": {"animals": {"gate": "open", "parked": false, "ready": 0, "delayed": 0, "running": 0}},
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
        "queue": {"ready": 0, "delayed": 0, "running": 0, "oldestWait": null, "longestRunning": null},
        "counts": {
            "reconciles": 1, "successes": 1, "errors": 0, "panics": 0, "timeouts": 0, "aborted": 0, "dropped": 0,
            "retries": 0, "requested": "<requested>", "coalesced": "<coalesced>", "undecodable": 0,
            "callbackPanics": 0, "misdirected": 0,
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
async fn credentials_are_in_no_answer() {
    const SECRET: &str = "s3cr3t-t0ken";
    let served = serve(|builder| builder);
    let kubeconfig = format!(
        "{{apiVersion: v1, kind: Config, current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
         clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:1'}}}}], users: [{{name: a, user: {{token: {SECRET}}}}}]}}"
    );
    let access = mcr::Access::kubeconfig(kubeconfig, mcr::core::Trust::Untrusted);
    served.say(Change::Upsert(ClusterSpec::new(name("secretive"), access)));
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
    served.say(Change::Remove(name("berlin")));
    served.say(Change::Broken(BrokenCluster::new(
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

#[tokio::test]
async fn requests_are_bounded() {
    let served = serve(|builder| builder);
    // A head that never ends is not waited for.
    let mut slow = TcpStream::connect(served.address).await.unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.unwrap();
    let started = Instant::now();
    let mut rest = Vec::new();
    timeout(Duration::from_secs(20), slow.read_to_end(&mut rest))
        .await
        .expect("it is closed")
        .unwrap();
    assert!(
        started.elapsed() > Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
    // One that is too large is refused.
    let mut large = TcpStream::connect(served.address).await.unwrap();
    let head = format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(100 << 10));
    let _ = large.write_all(head.as_bytes()).await;
    let mut status = [0; 12];
    if large.read_exact(&mut status).await.is_ok() {
        assert_eq!(&status, b"HTTP/1.1 431");
    }
    // Connections beyond the bound wait, and come when others end.
    let mut held = Vec::new();
    for _ in 0..80 {
        held.push(TcpStream::connect(served.address).await.unwrap());
    }
    let waiting = ask(served.address, "GET", "/healthz");
    let answer = timeout(Duration::from_secs(20), waiting)
        .await
        .expect("idle connections are closed");
    assert_eq!(answer.status, 200);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_ask_while_clusters_churn() {
    let served = serve(|builder| builder);
    let address = served.address;
    let asking: Vec<_> = (0..8)
        .map(|i| {
            tokio::spawn(async move {
                for _ in 0..20 {
                    let answer = ask(address, "GET", if i % 2 == 0 { "/metrics" } else { "/clusters" }).await;
                    assert_eq!(answer.status, 200);
                    if i % 2 == 0 {
                        Scrape::parse(&answer.body);
                    } else {
                        answer.json();
                    }
                }
            })
        })
        .collect();
    let api = ApiAccess::new(Api::default());
    for round in 0..100 {
        served.join(&format!("c{}", round % 7), &api);
        sleep(Duration::from_millis(3)).await;
        served.say(Change::Remove(name(&format!("c{}", (round + 3) % 7))));
    }
    for asking in asking {
        asking.await.unwrap();
    }
    served.end().await;
}

/// The metrics of the program itself come with the others.
#[tokio::test]
async fn own_metrics_are_served() {
    let mine = mcr::metrics::prometheus_client::metrics::counter::Counter::<u64>::default();
    let counter = mine.clone();
    let options = ServerOptions::from(SocketAddr::from(([127, 0, 0, 1], 0)));
    assert!(format!("{options:?}").contains("127.0.0.1:0"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let options =
        ServerOptions::from(listener).register(move |registry| registry.register("mine", "Mine", counter));
    let manager = Manager::single(Api::default().client())
        .serve(options)
        .build()
        .unwrap();
    assert!(manager.report().clusters.is_empty());
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run_until(stop.clone()));
    mine.inc_by(3);
    until(|| Some(())).await;
    let scrape = Scrape::parse(&ask(address, "GET", "/metrics").await.body);
    assert_eq!(scrape.get("mine_total", &[]), Some(3.0));
    stop.cancel();
    running.await.unwrap().unwrap();
}
