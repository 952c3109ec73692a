//! The transport against servers that control each byte of their responses.

mod answers;
mod certificates;
mod connecting;
mod layers;
mod limits;
mod parts;
mod plugin_services;
mod pooling;
mod proxies;
mod server;
mod swapping;
mod tls;
mod watch_heads;

use std::time::{Duration, Instant};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use mcr_access::{AccessPolicy, ClusterName, Credential, Endpoint, Trust};
use tokio::task::JoinHandle;

use self::server::Server;
use crate::{
    body::ResponseBody, channel::Channel, dialer::Dialer, error::TransportError, settings::Settings,
    transport::Transport,
};

/// Time limits that no test reaches, and rotations without a delay.
fn settings() -> Settings {
    const HOUR: Duration = Duration::from_secs(3600);
    Settings {
        connect_timeout: HOUR,
        head_timeout: HOUR,
        watch_head_timeout: HOUR,
        read_timeout: HOUR,
        idle_timeout: HOUR,
        rotation_spread: Duration::ZERO,
        rotation_line_timeout: HOUR,
        refresh_wait: HOUR,
        refresh_pause: HOUR,
        ..Settings::default()
    }
}

fn dialer_with(settings: Settings) -> Dialer {
    Dialer::with_settings(&AccessPolicy::default(), settings.into())
}

fn dialer() -> Dialer {
    dialer_with(settings())
}

fn channel(server: &Server, token: &str) -> Channel {
    channel_with(server, token, settings())
}

fn channel_with(server: &Server, token: &str, settings: Settings) -> Channel {
    let endpoint = Endpoint::new(server.uri("http", ""));
    dialer_with(settings)
        .channel(&endpoint, &Credential::token(token), Trust::Trusted)
        .unwrap()
}

fn transport(server: &Server) -> Transport {
    transport_with(server, settings())
}

fn transport_with(server: &Server, settings: Settings) -> Transport {
    let transport = Transport::with_settings(ClusterName::new("c1").unwrap(), settings.clone().into());
    transport.swap(channel_with(server, "one", settings));
    transport
}

async fn failure(endpoint: &Endpoint, trust: Trust) -> TransportError {
    failure_with(&dialer(), endpoint, trust).await
}

async fn failure_with(dialer: &Dialer, endpoint: &Endpoint, trust: Trust) -> TransportError {
    let channel = dialer.channel(endpoint, &Credential::anonymous(), trust).unwrap();
    channel.send(get("/version")).await.unwrap_err()
}

/// The answer of an endpoint that needs no credential.
async fn reached(endpoint: &Endpoint) -> Response<ResponseBody> {
    let channel = dialer().channel(endpoint, &Credential::anonymous(), Trust::Trusted);
    channel.unwrap().send(get("/version")).await.unwrap()
}

type Sending = JoinHandle<Result<Response<ResponseBody>, TransportError>>;

/// Requests that are sent at once.
fn sending<const N: usize>(transport: &Transport, uris: [&'static str; N]) -> [Sending; N] {
    uris.map(|uri| {
        let transport = transport.clone();
        tokio::spawn(async move { transport.send(get(uri)).await })
    })
}

fn get(uri: &str) -> Request<Body> {
    Request::get(uri).body(Body::empty()).unwrap()
}

/// The next frame of a body as text; `None` at its end.
async fn next(body: &mut ResponseBody) -> Option<Result<String, String>> {
    let frame = tokio::time::timeout(Duration::from_secs(60), body.frame())
        .await
        .expect("the body must continue or end");
    frame.map(|frame| match frame {
        Ok(frame) => Ok(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()),
        Err(error) => Err(error.to_string()),
    })
}

/// The rest of a body as text, and the error at its end if there is one.
async fn rest(body: &mut ResponseBody) -> (String, Option<String>) {
    let mut all = String::new();
    loop {
        match next(body).await {
            None => return (all, None),
            Some(Ok(text)) => all.push_str(&text),
            Some(Err(error)) => return (all, Some(error)),
        }
    }
}

/// Waits in real time, so that it works while the clock is paused.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        tokio::task::yield_now().await;
        std::thread::sleep(Duration::from_millis(1));
    }
}
