//! A connection that hyper serves.

use std::pin::pin;

use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::http1::{Builder, SendRequest},
};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use mcr_h1::MAX_HEAD;
use tokio::task::JoinHandle;

use crate::connect::Stream;

/// A connection that hyper serves. Dropping it and the body of its response ends hyper's task.
pub(crate) struct HyperConnection {
    sender: SendRequest<Body>,
    /// hyper's task of this connection.
    task: JoinHandle<hyper::Result<()>>,
}

/// A request that got no response.
pub(super) struct Unanswered {
    pub(super) error: hyper::Error,
    /// The request, if no byte of it was sent.
    pub(super) unsent: Option<Request<Body>>,
}

impl HyperConnection {
    pub(super) async fn start(stream: Stream) -> hyper::Result<Self> {
        let mut http = Builder::new();
        http.max_buf_size(MAX_HEAD);
        let (sender, connection) = http.handshake(TokioIo::new(stream)).await?;
        let task = tokio::spawn(connection.with_upgrades());
        Ok(Self { sender, task })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits until the next request can be sent. Returns false if the connection has closed.
    pub(super) async fn ready(&mut self) -> bool {
        self.sender.is_ready() || self.sender.ready().await.is_ok()
    }

    /// Sends a request, and returns with the head of the response, and with the connection if it is still open.
    pub(super) async fn send(
        self,
        request: Request<Body>,
    ) -> Result<(Response<Incoming>, Option<Self>), Unanswered> {
        let Self { mut sender, mut task } = self;
        let mut answer = pin!(sender.try_send_request(request));
        let (result, ended) = tokio::select! {
            biased;
            result = &mut answer => (Some(result), None),
            ended = &mut task => (None, Some(ended)),
        };
        let result = match result {
            Some(Ok(response)) => return Ok((response, Some(Self { sender, task }))),
            result => result,
        };
        // A request that is pushed to hyper's channel while hyper's task drops the receiver stays in the channel until the last
        // sender is dropped. Only then does hyper give it back.
        drop(sender);
        let result = match result {
            Some(result) => result,
            None => answer.await,
        };
        let mut failed = match result {
            Ok(response) => return Ok((response, None)),
            Err(failed) => failed,
        };
        let unsent = failed.take_message();
        let ended = match ended {
            None if unsent.is_some() => Some(task.await),
            ended => ended,
        };
        // The connection's own error names the cause.
        let error = match ended {
            Some(Ok(Err(error))) if unsent.is_some() => error,
            _ => failed.into_error(),
        };
        Err(Unanswered { error, unsent })
    }
}
