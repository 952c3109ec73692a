//! A server of ConfigMaps `a` and `b`, and of whatever events a test sends to its watches.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{StreamExt, stream};
use http::{Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::broadcast};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) struct Server {
    pub(crate) url: String,
    state: Arc<State>,
    _end: DropGuard,
}

struct State {
    events: broadcast::Sender<Bytes>,
    version: AtomicUsize,
    seen: Mutex<Vec<String>>,
    extra: Mutex<Vec<String>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State {
            events: broadcast::channel(64).0,
            version: AtomicUsize::new(10),
            seen: Mutex::default(),
            extra: Mutex::default(),
        });
        let end = CancellationToken::new();
        let (accepting, shared) = (end.clone(), state.clone());
        tokio::spawn(accepting.run_until_cancelled_owned(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let state = shared.clone();
                tokio::spawn(async move {
                    let service = service_fn(|request| answer(state.clone(), request));
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        }));
        Self {
            url,
            state,
            _end: end.drop_guard(),
        }
    }

    /// Sends an event to all running watches.
    pub(crate) fn send(&self, kind: &str, name: &str) {
        let object = object(name, self.state.version.fetch_add(1, Ordering::Relaxed));
        let mut line = json!({ "type": kind, "object": object }).to_string();
        line.push('\n');
        self.state.events.send(line.into()).unwrap();
    }

    /// Adds an object without telling the watches.
    pub(crate) fn add(&self, name: &str) {
        self.state.extra.lock().unwrap().push(name.to_owned());
    }

    /// The requests so far: path, query and `Authorization`.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.state.seen.lock().unwrap().clone()
    }

    pub(crate) fn watches(&self) -> usize {
        self.state.events.receiver_count()
    }
}

fn object(name: &str, version: usize) -> Value {
    json!({
        "kind": "ConfigMap", "apiVersion": "v1", "data": { "key": "value" },
        "metadata": { "name": name, "namespace": "default", "resourceVersion": version.to_string() },
    })
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let authorization = request
        .headers()
        .get(header::AUTHORIZATION)
        .map_or("-", |value| value.to_str().unwrap());
    state
        .seen
        .lock()
        .unwrap()
        .push(format!("{} {authorization}", request.uri()));
    let body = if request
        .uri()
        .query()
        .is_some_and(|query| query.contains("watch=true"))
    {
        let events = stream::unfold(state.events.subscribe(), async |mut events| {
            Some((events.recv().await.ok()?, events))
        });
        StreamBody::new(events.map(|line| Ok(Frame::data(line)))).boxed_unsync()
    } else {
        let version = state.version.load(Ordering::Relaxed);
        let names: Vec<String> = ["a", "b"]
            .map(str::to_owned)
            .into_iter()
            .chain(state.extra.lock().unwrap().clone())
            .collect();
        let items: Vec<Value> = names.iter().map(|name| object(name, 1)).collect();
        let list = json!({
            "kind": "ConfigMapList", "apiVersion": "v1",
            "metadata": { "resourceVersion": version.to_string() }, "items": items,
        });
        Full::new(Bytes::from(list.to_string())).boxed_unsync()
    };
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
    Ok(response)
}
