//! The harness of this folder: a manager that serves, a provider that the test controls, and an HTTP client that
//! shows every byte.
#![allow(clippy::unwrap_used)] // Clippy takes only functions marked as tests for tests.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{
    Action, BoxError, ClusterSpec, Controller, Fleet, Manager, ManagerBuilder, ManagerError, Request,
    core::Change, server::ServerOptions,
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    series::Scrape,
    support::{Announced, ApiAccess, Scripted, name},
};

/// A manager that serves.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) fleet: Fleet,
    pub(crate) announce: mpsc::UnboundedSender<Announced>,
    pub(crate) stop: CancellationToken,
    pub(crate) running: JoinHandle<Result<(), ManagerError>>,
}

pub(crate) async fn done(_: Request<ConfigMap>, _: Arc<()>) -> Result<Action, BoxError> {
    Ok(Action::done())
}

/// Longer than any test: a limit of this length never takes effect.
const NEVER: Duration = Duration::from_secs(3600);
/// The timeout of a wait in a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn serve(with: impl FnOnce(ManagerBuilder) -> ManagerBuilder) -> Served {
    serve_with(NEVER, with)
}

/// Server options with this timeout for the head of a request.
pub(crate) fn serve_with(
    head_within: Duration,
    with: impl FnOnce(ManagerBuilder) -> ManagerBuilder,
) -> Served {
    let (announce, provider) = Scripted::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let builder = Manager::builder()
        .provider(provider)
        .controller(Controller::<ConfigMap>::new("animals").build(done, Arc::new(())))
        .serve(ServerOptions::from(listener).head_within(head_within));
    let manager = with(builder).build().unwrap();
    let (stop, fleet) = (CancellationToken::new(), manager.fleet().clone());
    let running = tokio::spawn(manager.run_until(stop.clone()));
    Served {
        address,
        fleet,
        announce,
        stop,
        running,
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        assert!(
            self.head.contains("content-type: application/json"),
            "{}",
            self.head
        );
        serde_json::from_str(&self.body).unwrap()
    }
}

pub(crate) async fn ask(address: SocketAddr, method: &str, path: &str) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).await.unwrap();
    answer(&all)
}

pub(crate) fn answer(all: &str) -> Answer {
    let (head, body) = all.split_once("\r\n\r\n").unwrap();
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}

impl Served {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        ask(self.address, "GET", path).await
    }

    pub(crate) fn announce(&self, change: Change) {
        self.announce.send(Ok(change)).unwrap();
    }

    pub(crate) fn join(&self, cluster: &str, api: &ApiAccess) {
        self.announce(Change::Upsert(ClusterSpec::new(
            name(cluster),
            api.access.clone(),
        )));
    }

    pub(crate) async fn clusters(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let report = self.get("/clusters").await.json();
            if wanted(&report) {
                return report;
            }
            assert!(begun.elapsed() < PATIENCE, "never: {report:#}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn metrics(&self, wanted: impl Fn(&Scrape) -> bool) -> Scrape {
        let begun = Instant::now();
        loop {
            let answer = self.get("/metrics").await;
            let metrics = Scrape::parse(&answer.body);
            if wanted(&metrics) {
                return metrics;
            }
            assert!(begun.elapsed() < PATIENCE, "never: {}", answer.body);
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.running.await.unwrap().unwrap();
        assert!(
            TcpStream::connect(self.address).await.is_err(),
            "nobody listens any more"
        );
    }
}

pub(crate) async fn until_answer(served: &Served, wanted: impl Fn(&Answer) -> bool) -> Answer {
    let begun = Instant::now();
    loop {
        let answer = served.get("/readyz").await;
        if wanted(&answer) {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "never: {}", answer.body);
        sleep(Duration::from_millis(20)).await;
    }
}
