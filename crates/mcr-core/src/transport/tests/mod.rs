//! The transport against servers that misbehave byte by byte.

mod answers;
mod connecting;
mod keeping;
mod server;
mod swapping;

use std::time::{Duration, Instant};

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;

use super::{Dialer, ResponseBody, Settings, Stack, Transport};
use crate::{AccessPolicy, ClusterName, Credential, Endpoint, Trust};
use server::Server;

/// Deadlines that no loaded machine misses, and swaps without delay.
fn settings() -> Settings {
    Settings {
        retire_spread: Duration::ZERO,
        retire_line: Duration::from_secs(2),
        ..Settings::default()
    }
}

/// Deadlines to wait for.
fn hasty() -> Settings {
    Settings {
        connect_timeout: Duration::from_millis(500),
        head_timeout: Duration::from_millis(600),
        silence: Duration::from_millis(400),
        ..settings()
    }
}

fn dialer_with(settings: Settings) -> Dialer {
    Dialer::with_settings(&AccessPolicy::default(), settings)
}

fn dialer() -> Dialer {
    dialer_with(settings())
}

fn stack(server: &Server, token: &str) -> Stack {
    stack_with(server, token, settings())
}

fn stack_with(server: &Server, token: &str, settings: Settings) -> Stack {
    let endpoint = Endpoint::new(server.uri("http", ""));
    dialer_with(settings)
        .stack(&endpoint, &Credential::token(token), Trust::Trusted)
        .unwrap()
}

fn transport(server: &Server) -> Transport {
    let transport = Transport::with_settings(ClusterName::new("c1").unwrap(), settings().into());
    transport.swap(stack(server, "one"));
    transport
}

fn get(uri: &str) -> Request<Body> {
    Request::get(uri).body(Body::empty()).unwrap()
}

/// The next piece of a body as text; `None` at its end.
async fn next(body: &mut ResponseBody) -> Option<Result<String, String>> {
    let frame = tokio::time::timeout(Duration::from_secs(30), body.frame())
        .await
        .expect("a body that hangs");
    frame.map(|frame| match frame {
        Ok(frame) => Ok(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()),
        Err(error) => Err(error.to_string()),
    })
}

/// The rest of a body, and how it ended.
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

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
