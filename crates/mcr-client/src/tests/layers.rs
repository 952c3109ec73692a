//! Layers of the program over the requests of a cluster.

use std::{
    convert::Infallible,
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use futures::FutureExt;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use mcr_access::{BoxError, Credential, Endpoint, Trust};
use mcr_testkit::waiting::hold_clock;
use tokio::{io::AsyncWriteExt, time::Instant};
use tower::{
    Layer, ServiceExt,
    layer::layer_fn,
    service_fn,
    util::{MapRequestLayer, MapResponseLayer},
};
use tower_http::decompression::DecompressionLayer;

use super::{
    channel, dialer_with, get, next, rest, sending,
    server::{Server, begin, chunk, closed, respond},
    settings, transport, transport_with,
};
use crate::{
    error::TransportErrorKind,
    layer::{RequestLimit, TransportLayer},
    transport::Transport,
};

const WATCH: &str = "/api/v1/pods?watch=true";

type Paths = Arc<Mutex<Vec<String>>>;

/// A layer that notes the paths of requests and adds a header.
fn noting(paths: &Paths) -> TransportLayer {
    let paths = paths.clone();
    TransportLayer::new(MapRequestLayer::new(move |mut request: Request<Body>| {
        assert!(!request.headers().contains_key("authorization"));
        paths.lock().unwrap().push(request.uri().to_string());
        request
            .headers_mut()
            .insert("x-audit", HeaderValue::from_static("me"));
        request
    }))
}

/// Answers each request; a watch with one line, and then it stays open.
async fn server() -> Server {
    Server::start(None, |seen, mut stream| async move {
        if seen.token() == "expired" {
            respond(&mut stream, "401 Unauthorized", "application/json", "{}").await;
            return Some(stream);
        }
        if !seen.line().contains("watch") {
            respond(&mut stream, "200 OK", "application/json", "{\"kind\":\"A\"}").await;
            return Some(stream);
        }
        begin(&mut stream).await;
        chunk(&mut stream, "one\n").await;
        closed(&mut stream).await;
        None
    })
    .await
}

fn layered(server: &Server, layer: TransportLayer) -> Transport {
    let transport = transport(server);
    transport.set_layer(layer);
    transport
}

async fn all(transport: &Transport, uri: &str) -> (String, Option<String>) {
    rest(transport.send(get(uri)).await.unwrap().body_mut()).await
}

#[tokio::test(start_paused = true)]
async fn every_request_passes_the_same_layer_over_three_rotations() {
    let _clock = hold_clock();
    let (server, paths) = (server().await, Paths::default());
    let transport = layered(&server, noting(&paths));
    for token in ["two", "three", "four"] {
        let mut watch = transport.send(get(WATCH)).await.unwrap().into_body();
        assert_eq!(next(&mut watch).await, Some(Ok("one\n".to_owned())));
        assert_eq!(
            all(&transport, "/version").await,
            ("{\"kind\":\"A\"}".to_owned(), None)
        );
        transport.swap(channel(&server, token));
        assert_eq!(next(&mut watch).await, None, "it ends with the rotation");
    }
    // A request that is refused once is sent twice, each time through the layer.
    transport.swap(channel(&server, "expired"));
    let [refused] = sending(&transport, ["/refused"]);
    transport.unauthorized().await;
    transport.swap(channel(&server, "five"));
    assert_eq!(refused.await.unwrap().unwrap().status(), StatusCode::OK);

    let seen = server.seen();
    let received: Vec<_> = seen
        .iter()
        .map(|seen| seen.line().split(' ').nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(*paths.lock().unwrap(), received);
    assert_eq!(received.len(), 8);
    assert!(
        seen.iter()
            .all(|seen| seen.header("x-audit") == ["me"] && !seen.token().is_empty())
    );
}

#[tokio::test]
async fn a_layer_without_watches_receives_none_and_may_replace_bodies() {
    let (server, paths) = (server().await, Paths::default());
    let transport = layered(&server, noting(&paths).without_watches());
    transport.send(get(WATCH)).await.unwrap();
    transport.send(get("/version")).await.unwrap();
    assert_eq!(*paths.lock().unwrap(), ["/version"]);

    let counting = MapResponseLayer::new(|response: Response<crate::ResponseBody>| {
        response.map(|body| body.map_frame(|frame| frame.map_data(|data| [&b"x"[..], &data].concat().into())))
    });
    let transport = layered(&server, TransportLayer::new(counting));
    let (text, error) = all(&transport, "/version").await;
    assert_eq!((text.as_str(), error), ("x{\"kind\":\"A\"}", None));
}

#[tokio::test]
async fn a_layer_that_fails_panics_or_drops_the_extensions_fails_the_request_only() {
    let server = server().await;
    let refusing = layer_fn(|_| {
        service_fn(|_: Request<Body>| async {
            Err::<Response<crate::ResponseBody>, BoxError>("over quota".into())
        })
    });
    let dropping = MapRequestLayer::new(|request: Request<Body>| {
        let mut copy = get("/version");
        *copy.body_mut() = request.into_body();
        copy
    });
    let panicking = MapRequestLayer::new(|_: Request<Body>| -> Request<Body> { panic!("canary of a layer") });
    for (layer, words) in [
        (TransportLayer::new(refusing), "over quota"),
        (TransportLayer::new(dropping), "dropped the extensions"),
        (
            TransportLayer::new(panicking),
            "the transport layer of the program panicked",
        ),
        (
            TransportLayer::new(layer_fn(|inner| {
                assert!(std::hint::black_box(false), "canary of a layer");
                inner
            })),
            "the transport layer of the program panicked",
        ),
    ] {
        let transport = layered(&server, layer);
        let error = transport.send(get("/version")).await.unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error.kind(), TransportErrorKind::Layer { .. }),
            "{error:?}"
        );
        assert!(
            text.contains("cluster \"c1\": GET /version: ") && text.contains(words),
            "{text}"
        );
        assert!(!format!("{error:?}").contains("canary"));
        assert!(
            transport.probe_wanted().now_or_never().is_none(),
            "the cluster is well"
        );
    }
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn what_breaks_off_below_a_layer_is_reported_as_without_one() {
    let server = Server::that_stops_after("half").await;
    let settings = crate::Settings {
        read_timeout: Duration::from_millis(50),
        ..settings()
    };
    let errors = [false, true].map(async |has_layer| {
        let transport = super::transport_with(&server, settings.clone());
        if has_layer {
            transport.set_layer(noting(&Paths::default()));
        }
        all(&transport, "/version").await
    });
    let [without, with] = errors;
    let (without, with) = (without.await, with.await);
    assert!(
        without
            .1
            .as_ref()
            .is_some_and(|error| error.contains("no answer within"))
    );
    assert_eq!(without, with);
}

#[tokio::test(start_paused = true)]
async fn a_limit_spreads_requests() {
    let took = async |per_second, burst, requests| {
        let service = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(()) });
        let service = RequestLimit::new(per_second, burst).layer(service);
        let begun = Instant::now();
        for _ in 0..requests {
            service.clone().oneshot(get("/version")).await.unwrap();
        }
        begun.elapsed().as_millis()
    };
    // Three at once, and four at two a second.
    assert!((1_950..2_100).contains(&took(2, 3, 7).await));
    for per_second in [99, 150, 1_000, 2_000, 10_000] {
        let took = took(per_second, 1, 10 * per_second).await;
        assert!((9_000..11_000).contains(&took), "{per_second}: {took}");
    }
    assert_eq!(took(0, 0, 2).await, 1_000, "0 counts as 1");
    assert_eq!(took(u32::MAX, u32::MAX, 2).await, 0);
}

/// The requests of a cluster's client, with the layer of a library. The guard of responses is above it.
#[tokio::test]
async fn a_layer_may_unpack_responses_and_their_limit_holds() {
    let server = Server::start(None, |seen, mut stream| async move {
        let length = if seen.line().contains("small") { 1 } else { 1 << 20 };
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        write!(packer, "{{\"kind\":\"{}\"}}", "A".repeat(length)).unwrap();
        let body = packer.finish().unwrap();
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length:";
        let head = format!("{head} {}\r\n\r\n", body.len());
        stream
            .write_all(&[head.as_bytes(), &body].concat())
            .await
            .unwrap();
        Some(stream)
    })
    .await;
    let settings = crate::Settings {
        body_limit: 64 << 10,
        ..settings()
    };
    let transport = transport_with(&server, settings);
    transport.set_layer(TransportLayer::new(DecompressionLayer::new()).without_watches());
    let client = transport.client("default");
    let ask = |name| {
        client.request_text(
            Request::get(format!("/api/v1/namespaces/{name}"))
                .body(Vec::new())
                .unwrap(),
        )
    };
    assert_eq!(ask("small").await.unwrap(), "{\"kind\":\"A\"}");
    let error = ask("large").await.unwrap_err().to_string();
    assert!(error.contains("ListParams::limit"), "{error}");
    assert!(
        server
            .seen()
            .iter()
            .all(|seen| seen.header("accept-encoding") == ["gzip"])
    );
}

#[tokio::test]
async fn an_endpoint_decides_whether_its_lists_are_compressed_and_else_the_fleet() {
    for (fleet, endpoint, wanted) in [
        (false, None, false),
        (true, None, true),
        (true, Some(false), false),
        (false, Some(true), true),
    ] {
        let mut at = Endpoint::new("http://h".parse().unwrap());
        at.gzip_lists = endpoint;
        let dialer = dialer_with(crate::Settings {
            gzip_lists: fleet,
            ..settings()
        });
        let channel = dialer.channel(&at, &Credential::token("t"), Trust::Trusted);
        assert_eq!(channel.unwrap().accepts_gzip(), wanted, "{fleet} {endpoint:?}");
    }
}
