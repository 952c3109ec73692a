//! API servers that hold nothing: what they list is made when they are asked for it.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{StreamExt, channel::mpsc, future::BoxFuture, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use serde_json::{Value, json};
use tower::Service;

use crate::objects::Kind;

/// How many objects of each kind a cluster has.
pub(crate) const OBJECTS: usize = 100;

/// The labels of no object.
pub(crate) const NOTHING: &str = "no=object";

type Sent = UnsyncBoxBody<Bytes, Infallible>;

/// One simulated API server.
#[derive(Clone)]
pub(crate) struct Server {
    cluster: usize,
    kind: Kind,
    /// The watch that was begun last.
    watch: Arc<Mutex<Option<mpsc::UnboundedSender<Bytes>>>>,
}

impl Server {
    pub(crate) fn new(cluster: usize, kind: Kind) -> Self {
        Self {
            cluster,
            kind,
            watch: Arc::default(),
        }
    }

    /// Sends bytes to whoever watches.
    pub(crate) fn send(&self, events: Bytes) {
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        watch.as_ref().unwrap().unbounded_send(events).unwrap();
    }

    fn list(&self, empty: bool) -> Value {
        let numbers = if empty { 0..0 } else { 0..OBJECTS };
        let items: Vec<Value> = numbers
            .map(|number| item(self.kind, self.cluster, number))
            .collect();
        json!({"apiVersion": self.kind.api_version(), "kind": format!("{}List", self.kind.name()),
            "metadata": {"resourceVersion": "1"}, "items": items})
    }

    fn answer(&self, request: &Request<Body>) -> Response<Sent> {
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or_default();
        let of_kind = path.ends_with(&format!("/{}s", self.kind.name().to_lowercase()));
        if of_kind && query.contains("watch=true") {
            let (sender, events) = mpsc::unbounded();
            *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
            let frames = events.map(|bytes| Ok(Frame::data(bytes)));
            return Response::new(UnsyncBoxBody::new(StreamBody::new(frames)));
        }
        let said = if of_kind {
            self.list(query.contains("labelSelector"))
        } else {
            json!({"kind": "Namespace", "apiVersion": "v1",
                "metadata": {"name": "kube-system", "uid": format!("cluster-{}", self.cluster)}})
        };
        let frame = Ok(Frame::data(Bytes::from(said.to_string())));
        Response::new(UnsyncBoxBody::new(StreamBody::new(stream::iter([frame]))))
    }
}

/// An object as lists have it: those of kinds that are built in without their type.
pub(crate) fn item(kind: Kind, cluster: usize, number: usize) -> Value {
    let mut item = kind.object(cluster, number);
    if let Some(fields) = item.as_object_mut()
        && kind != Kind::Certificate
    {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    item
}

impl Service<Request<Body>> for Server {
    type Response = Response<Sent>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.answer(&request)) })
    }
}
