//! The fault proxy: each fault as a client sees it, switched while it runs.
//!
//! Most tests stand in front of a small server in this process. `real` needs the control-plane binaries.

// Clippy's exception for tests does not reach their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod answers;
mod connections;
#[cfg(all(feature = "conformance", feature = "control-plane", feature = "waiting"))]
#[cfg(feature = "control-plane")]
mod real;
mod schedules;
mod server;
mod watches;

use std::{future::Future, time::Duration};

use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use mcr_testkit::faults::{FaultProxy, Upstream};
use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer, pki_types::pem::PemObject};
use server::Server;

const LIST: &str = "/api/v1/configmaps";
const WATCH: &str = "/api/v1/configmaps?watch=true";

/// A proxy in front of a small server.
async fn stand() -> (Server, FaultProxy, Raw) {
    let server = Server::start().await;
    let proxy = FaultProxy::start(Upstream::new(&server.url)).await.unwrap();
    let raw = Raw::new(&proxy);
    (server, proxy, raw)
}

/// A raw HTTP client; every clone of it shares its connections.
#[derive(Clone)]
struct Raw(Client<HttpsConnector<HttpConnector>, Empty<Bytes>>);

impl Raw {
    fn trusting(ca_pem: &str) -> Self {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap())
            .unwrap();
        let provider = mcr_access::crypto::provider().unwrap().clone();
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only()
            .enable_http1()
            .build();
        Self(Client::builder(TokioExecutor::new()).build(connector))
    }

    fn new(proxy: &FaultProxy) -> Self {
        Self::trusting(&proxy.ca_pem())
    }

    async fn open(&self, proxy: &FaultProxy, path: &str) -> Result<http::Response<Incoming>, String> {
        let request = Request::get(format!("{}{path}", proxy.url()))
            .header(header::AUTHORIZATION, "Bearer secret")
            .body(Empty::new())
            .unwrap();
        self.0.request(request).await.map_err(|error| chain(&error))
    }

    async fn get(&self, proxy: &FaultProxy, path: &str) -> Result<Answer, String> {
        let response = self.open(proxy, path).await?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| chain(&error))?.to_bytes();
        Ok(Answer {
            status: parts.status,
            body,
        })
    }

    async fn watch(&self, proxy: &FaultProxy) -> Watch {
        let response = self.open(proxy, WATCH).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        Watch {
            body: response.into_body(),
            text: Vec::new(),
        }
    }
}

struct Answer {
    status: StatusCode,
    body: Bytes,
}

impl Answer {
    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

struct Watch {
    body: Incoming,
    text: Vec<u8>,
}

impl Watch {
    /// The next line; what is left without an end of line at the end; an error as text.
    async fn line(&mut self) -> Option<Result<Vec<u8>, String>> {
        loop {
            if let Some(at) = self.text.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.text.drain(..=at).collect();
                line.pop();
                return Some(Ok(line));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.text.extend_from_slice(&frame.into_data().unwrap()),
                Some(Err(error)) => return Some(Err(chain(&error))),
                None if self.text.is_empty() => return None,
                None => return Some(Ok(std::mem::take(&mut self.text))),
            }
        }
    }

    async fn event(&mut self) -> serde_json::Value {
        let line = soon(self.line()).await.expect("an event, not the end").unwrap();
        serde_json::from_slice(&line).unwrap()
    }

    /// The type and name of the next event.
    async fn brief(&mut self) -> String {
        let event = self.event().await;
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        format!("{} {name}", event["type"].as_str().unwrap())
    }
}

/// An error and all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Waits for an event that must happen, with a limit that suits a busy machine.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what)
        .await
        .expect("within a minute")
}

/// Checks that an event does not happen during the time in which another proxy without faults delivers ten such events.
async fn silent<T>(what: impl Future<Output = T>) {
    let elsewhere = async {
        let (server, proxy, _) = stand().await;
        for _ in 0..10 {
            let raw = Raw::new(&proxy);
            let mut watch = raw.watch(&proxy).await;
            server.send("ADDED", "elsewhere");
            watch.event().await;
            soon(raw.get(&proxy, LIST)).await.unwrap();
        }
    };
    tokio::select! {
        _ = what => panic!("there should be silence"),
        () = elsewhere => {}
    }
}
