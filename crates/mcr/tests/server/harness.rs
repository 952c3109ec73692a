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
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
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
pub(crate) const NEVER: Duration = Duration::from_secs(3600);
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
    serve_as(|options| options.head_within(head_within), with)
}

/// With changed server options.
pub(crate) fn serve_options(change: impl FnOnce(ServerOptions) -> ServerOptions) -> Served {
    serve_as(|options| change(options.head_within(NEVER)), |builder| builder)
}

fn serve_as(
    change: impl FnOnce(ServerOptions) -> ServerOptions,
    with: impl FnOnce(ManagerBuilder) -> ManagerBuilder,
) -> Served {
    let (announce, provider) = Scripted::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let builder = Manager::builder()
        .provider(provider)
        .controller(Controller::<ConfigMap>::new("animals").build(done, Arc::new(())))
        .serve(change(ServerOptions::from(listener)));
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
    ask_with(address, method, path, "host: localhost\r\n").await
}

/// With these header lines.
pub(crate) async fn ask_with(address: SocketAddr, method: &str, path: &str, headers: &str) -> Answer {
    let stream = TcpStream::connect(address).await.unwrap();
    ask_over(stream, method, path, headers).await
}

/// Over a connection, which is closed.
pub(crate) async fn ask_over(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    method: &str,
    path: &str,
    headers: &str,
) -> Answer {
    let request = format!("{method} {path} HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    // The end of a TLS connection is not always announced.
    let _ = stream.read_to_end(&mut all).await;
    answer(&String::from_utf8(all).unwrap())
}

/// The status of `GET /metrics` with a bearer token, over a connection that stays open.
pub(crate) async fn status_over(stream: &mut TcpStream, token: &str) -> u16 {
    let request =
        format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let end = |answer: &[u8]| {
        let text = String::from_utf8_lossy(answer);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length = head.to_lowercase();
        let length: usize = length
            .split("content-length: ")
            .nth(1)?
            .lines()
            .next()?
            .parse()
            .ok()?;
        (body.len() >= length).then(|| head.split(' ').nth(1).unwrap().parse().unwrap())
    };
    loop {
        if let Some(status) = end(&answer) {
            return status;
        }
        assert_ne!(
            stream.read_buf(&mut answer).await.unwrap(),
            0,
            "the server closed the connection"
        );
    }
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
