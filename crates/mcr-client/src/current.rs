//! Sends requests over the current channel of a transport: the retry after a 401, and the end of old channels.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    body::{BodyTracker, ResponseBody, RunningBodies},
    channel::Channel,
    error::{TransportError, TransportErrorKind},
    layer::TransportLayer,
    path,
    pool::NewConnection,
    refresh::CredentialRefresh,
    request::{RequestClass, RequestInfo},
    state::TransportState,
};

/// A request that has waited for so long, while the cluster sent nothing, asks for a probe.
const ASK_AFTER: Duration = Duration::from_secs(3);

/// One that has waited for so long asks whatever the cluster sends: with twenty watches, some bookmark comes every three seconds.
const ASK_ANYWAY: Duration = Duration::from_secs(15);

/// The current channel of a transport, and everything that decides whether a request may use it.
pub(crate) struct CurrentChannel {
    pub(crate) state: Arc<TransportState>,
    pub(crate) generation: ArcSwapOption<Generation>,
    pub(crate) refresh: CredentialRefresh,
    pub(crate) layer: OnceLock<Box<TransportLayer>>,
    /// The runtime in which the transport was made, for calls from other threads.
    pub(crate) runtime: Option<tokio::runtime::Handle>,
}

/// A channel between two swaps.
pub(crate) struct Generation {
    pub(crate) channel: Channel,
    /// Cancelled by the next swap. A 401 for a generation that was replaced is no reason to renew.
    pub(crate) rotated: CancellationToken,
    /// Cancelled when the cluster becomes unreachable, and when the transport is closed.
    pub(crate) lost: CancellationToken,
    pub(crate) bodies: Arc<RunningBodies>,
}

impl CurrentChannel {
    /// Ends the responses of a generation that was swapped out.
    ///
    /// A body that is read ends itself. A task closes the connections of the others after all time limits have passed.
    pub(crate) fn end_generation(&self, old: &Generation) {
        old.rotated.cancel();
        let runtime = tokio::runtime::Handle::try_current()
            .ok()
            .or_else(|| self.runtime.clone());
        let Some(runtime) = runtime else {
            return old.bodies.close();
        };
        // The task holds the bodies only, so that the old channel is freed now, and its idle connections close.
        let (bodies, closed) = (old.bodies.clone(), self.state.closed.clone());
        let settings = &self.state.settings;
        let end = settings.rotation_spread + settings.rotation_line_timeout + Duration::from_millis(500);
        runtime.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(end) => {}
                () = closed.cancelled() => {}
            }
            bodies.close();
        });
    }

    fn error(&self, info: &RequestInfo, kind: TransportErrorKind) -> TransportError {
        TransportError::new(info.operation.clone(), kind).in_cluster(&self.state.cluster)
    }

    fn generation(&self, info: &RequestInfo) -> Result<Arc<Generation>, TransportError> {
        if self.state.closed.is_cancelled() {
            return Err(self.error(info, TransportErrorKind::Gone));
        }
        if let Some(reason) = self.state.link.reason() {
            return Err(self.error(info, TransportErrorKind::NotConnected { reason }));
        }
        self.generation.load_full().ok_or_else(|| {
            let reason = "it has not been connected yet".into();
            self.error(info, TransportErrorKind::NotConnected { reason })
        })
    }

    /// Sends a request over the current channel. After a 401 it waits for newer credentials, and then sends the request once
    /// more. A watch that waits for its head moves to each channel that replaces the current one.
    pub(crate) async fn send(
        self: &Arc<Self>,
        mut request: Request<Body>,
    ) -> Result<Response<ResponseBody>, TransportError> {
        let info = RequestInfo::of(&request);
        if let Some(problem) = path::problem(request.uri().path()) {
            return Err(self.error(&info, TransportErrorKind::UnclearPath { problem }));
        }
        let mut was_refused = false;
        loop {
            let generation = self.generation(&info)?;
            let copy = try_clone(&request);
            let is_route = generation.channel.is_route();
            if let Some(response) = self.send_over(&generation, request, &info).await? {
                // Behind a route, the other cluster's transport has already handled the 401.
                if response.status() != StatusCode::UNAUTHORIZED || is_route || was_refused {
                    return Ok(response);
                }
                was_refused = true;
                let has_newer = tokio::select! {
                    has_newer = self.refresh.report_refused(&generation.rotated, &self.state.settings) => has_newer,
                    () = self.state.closed.cancelled() => return Err(self.error(&info, TransportErrorKind::Gone)),
                };
                if !has_newer || copy.is_none() {
                    return Ok(response);
                }
            }
            let Some(copy) = copy else {
                return Err(self.error(&info, TransportErrorKind::CredentialsRotated));
            };
            request = copy;
        }
    }

    /// Asks for a probe once the cluster is silent, or has not answered for long. Never ends.
    async fn ask_if_silent(&self) {
        let asked = Instant::now();
        let mut silent_from = asked;
        loop {
            sleep_until(silent_from + ASK_AFTER).await;
            // A bookmark may have come first.
            match self.state.last_received_at() {
                Some(received) if received > silent_from && asked.elapsed() < ASK_ANYWAY => {
                    silent_from = received;
                }
                _ => break,
            }
        }
        self.state.doubt(|doubts| &mut doubts.failed);
        std::future::pending().await
    }

    async fn dispatch(
        &self,
        channel: &Channel,
        request: Request<Body>,
        info: &RequestInfo,
    ) -> Result<Response<ResponseBody>, TransportError> {
        // A request of a cluster in a scope has passed the layer of that cluster.
        let is_routed = request.extensions().get::<RequestClass>().is_some();
        let layer = self.layer.get().filter(|layer| layer.receives(info.class));
        match layer.filter(|_| !is_routed) {
            Some(layer) => layer.send(channel, request, info).await,
            None => channel.send(request).await,
        }
    }

    /// None if the channel was replaced while a watch waited for its head.
    async fn send_over(
        self: &Arc<Self>,
        generation: &Generation,
        request: Request<Body>,
        info: &RequestInfo,
    ) -> Result<Option<Response<ResponseBody>>, TransportError> {
        // Some servers send the head of a watch only with its first event, which may be minutes away.
        let is_watch = info.class == RequestClass::Watch;
        let ends = match info.class {
            RequestClass::Unary | RequestClass::Proxy => &generation.lost,
            _ => &self.state.closed,
        };
        let sent = tokio::select! {
            biased;
            () = ends.cancelled() => return Err(self.error(info, self.state.ended())),
            sent = self.dispatch(&generation.channel, request, info) => sent,
            () = generation.rotated.cancelled(), if is_watch => return Ok(None),
            () = self.ask_if_silent(), if !is_watch => return Ok(None),
        };
        if let Err(error) = &sent
            && !is_watch
            && !matches!(error.kind(), TransportErrorKind::Layer { .. })
        {
            self.state.doubt(|doubts| &mut doubts.failed);
        }
        let mut response = sent.map_err(|error| error.in_cluster(&self.state.cluster))?;
        if response.extensions_mut().remove::<NewConnection>().is_some() {
            self.state.doubt(|doubts| &mut doubts.dialed);
        }
        // A load balancer answers the rest too, when no API server is behind it.
        let is_received = matches!(response.status().as_u16(), 200..300 | 401 | 403);
        if is_received {
            self.state.received();
        }
        // The refusal of a credential is why the cluster becomes unreachable, and the answer that the caller should get.
        let ends = match response.status() {
            StatusCode::UNAUTHORIZED => &self.state.closed,
            _ => ends,
        };
        let tracker = BodyTracker::new(
            self.state.clone(),
            info.class,
            is_received,
            &generation.rotated,
            ends,
        );
        let response = response.map(|body| body.track(tracker));
        generation.bodies.add(response.body().source());
        Ok(Some(response))
    }
}

/// A copy of the request, unless its body is a stream, which can be sent only once.
fn try_clone(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}
