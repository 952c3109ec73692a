//! Sending over the current channel: the answer to a 401, the end of old channels and of the cluster.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use tokio_util::sync::CancellationToken;

use crate::{
    ResponseBody, TransportError, TransportErrorKind, body::Bodies, channel::Channel, lease::BodyLease,
    refresh::Refreshes, request::Operation, shared::Shared,
};

pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
    pub(crate) current: ArcSwapOption<Active>,
    pub(crate) blocked: ArcSwapOption<Arc<str>>,
    pub(crate) refreshes: Refreshes,
    pub(crate) runtime: Option<tokio::runtime::Handle>,
}

/// A channel and the number of its generation.
pub(crate) struct Active {
    pub(crate) channel: Channel,
    pub(crate) generation: u64,
    pub(crate) retired: CancellationToken,
    pub(crate) bodies: Arc<Bodies>,
}

impl Core {
    /// Bodies that are read end by themselves; the connections of those that nobody reads are let go of later.
    pub(crate) fn retire(&self, old: &Active) {
        old.retired.cancel();
        let runtime = tokio::runtime::Handle::try_current()
            .ok()
            .or_else(|| self.runtime.clone());
        let Some(runtime) = runtime else {
            return old.bodies.cut();
        };
        // The bodies only: the old channel is to go now, with its idle connections.
        let (bodies, closed) = (old.bodies.clone(), self.shared.closed.clone());
        let end = self.shared.settings.retire_spread
            + self.shared.settings.retire_line
            + Duration::from_millis(500);
        runtime.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(end) => {}
                () = closed.cancelled() => {}
            }
            bodies.cut();
        });
    }

    fn error(&self, operation: &Operation, kind: TransportErrorKind) -> TransportError {
        TransportError::new(operation.text.clone(), kind).in_cluster(&self.shared.cluster)
    }

    fn active(&self, operation: &Operation) -> Result<Arc<Active>, TransportError> {
        if self.shared.closed.is_cancelled() {
            return Err(self.error(operation, TransportErrorKind::Gone));
        }
        if let Some(reason) = &*self.blocked.load() {
            let reason = Arc::<str>::clone(reason);
            return Err(self.error(operation, TransportErrorKind::NotConnected { reason }));
        }
        self.current.load_full().ok_or_else(|| {
            let reason = "it has not been connected yet".into();
            self.error(operation, TransportErrorKind::NotConnected { reason })
        })
    }

    pub(crate) async fn send(
        self: &Arc<Self>,
        request: Request<Body>,
    ) -> Result<Response<ResponseBody>, TransportError> {
        let operation = Operation::of(&request);
        let active = self.active(&operation)?;
        let again = replay(&request);
        let generation = active.generation;
        let elsewhere = active.channel.is_route();
        let response = self.attempt(active, request, &operation).await?;
        if response.status() != StatusCode::UNAUTHORIZED || elsewhere {
            return Ok(response);
        }
        let newer = tokio::select! {
            newer = self.refreshes.report(generation, &self.shared.settings) => newer,
            () = self.shared.closed.cancelled() => return Err(self.error(&operation, TransportErrorKind::Gone)),
        };
        match again {
            Some(request) if newer => {
                drop(response);
                let active = self.active(&operation)?;
                self.attempt(active, request, &operation).await
            }
            _ => Ok(response),
        }
    }

    async fn attempt(
        self: &Arc<Self>,
        active: Arc<Active>,
        request: Request<Body>,
        operation: &Operation,
    ) -> Result<Response<ResponseBody>, TransportError> {
        let sent = tokio::select! {
            biased;
            () = self.shared.closed.cancelled() => return Err(self.error(operation, TransportErrorKind::Gone)),
            sent = active.channel.send(request) => sent,
        };
        let response = sent.map_err(|error| error.in_cluster(&self.shared.cluster))?;
        self.shared.heard();
        let lease = BodyLease::new(self.shared.clone(), operation.class, &active.retired);
        let response = response.map(|body| body.attach(lease));
        active.bodies.add(response.body());
        Ok(response)
    }
}

/// The same request once more, if its body can be sent twice.
fn replay(request: &Request<Body>) -> Option<Request<Body>> {
    let mut again = Request::new(request.body().try_clone()?);
    *again.method_mut() = request.method().clone();
    *again.uri_mut() = request.uri().clone();
    *again.headers_mut() = request.headers().clone();
    *again.extensions_mut() = request.extensions().clone();
    Some(again)
}
