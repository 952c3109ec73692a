//! The connection to a cluster below everything else: credentials are replaced here, and nobody above notices.

mod body;
mod connect;
mod error;
mod explain;
mod guard;
mod path;
mod pool;
mod refresh;
mod request;
mod retire;
mod service;
mod stack;
#[cfg(test)]
mod tests;
mod tls;

use std::{
    fmt,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwapOption;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use body::AnswerBody;
use body::Bodies;
pub(crate) use body::ResponseBody;
pub use error::{TransportError, TransportErrorKind};
pub(crate) use explain::explain;
use refresh::Refreshes;
use request::Operation;
use retire::Life;
pub use stack::Settings;
pub(crate) use stack::{Complete, Dialer, LastRequest, Route, Stack, prefixed};

use crate::ClusterName;

/// The connection to one cluster: at any time one [`Stack`], which can be replaced.
#[derive(Clone)]
pub(crate) struct Transport {
    core: Arc<Core>,
    /// Beside the core, which the client's own task keeps alive.
    client: Arc<ArcSwapOption<kube::Client>>,
}

pub(crate) struct Core {
    cluster: ClusterName,
    settings: Arc<Settings>,
    current: ArcSwapOption<Active>,
    blocked: ArcSwapOption<Arc<str>>,
    closed: CancellationToken,
    refreshes: Refreshes,
    /// Milliseconds after [`START`]; 0 for never.
    last_heard: AtomicU64,
    open_bodies: AtomicUsize,
    runtime: Option<tokio::runtime::Handle>,
}

/// A stack and the number of its generation.
struct Active {
    stack: Stack,
    generation: u64,
    retired: CancellationToken,
    bodies: Arc<Bodies>,
}

static START: LazyLock<(Instant, SystemTime)> = LazyLock::new(|| (Instant::now(), SystemTime::now()));

impl Transport {
    /// A transport without a stack: requests fail until the first [`swap`](Self::swap).
    pub(crate) fn new(cluster: ClusterName) -> Self {
        static SETTINGS: LazyLock<Arc<Settings>> = LazyLock::new(Arc::default);
        Self::with_settings(cluster, SETTINGS.clone())
    }

    pub(crate) fn with_settings(cluster: ClusterName, settings: Arc<Settings>) -> Self {
        LazyLock::force(&START);
        let core = Core {
            cluster,
            settings,
            current: ArcSwapOption::empty(),
            blocked: ArcSwapOption::empty(),
            closed: CancellationToken::new(),
            refreshes: Refreshes::default(),
            last_heard: AtomicU64::new(0),
            open_bodies: AtomicUsize::new(0),
            runtime: tokio::runtime::Handle::try_current().ok(),
        };
        Self {
            core: Arc::new(core),
            client: Arc::default(),
        }
    }

    /// Replaces the stack. No request that begins after this uses the old one; its idle connections close at once,
    /// those of running answers within 30 s. Returns the new generation.
    pub(crate) fn swap(&self, stack: Stack) -> u64 {
        let core = &self.core;
        core.refreshes.next(|generation| {
            let active = Active {
                stack,
                generation,
                retired: CancellationToken::new(),
                bodies: Arc::default(),
            };
            if let Some(old) = core.current.swap(Some(Arc::new(active))) {
                core.retire(&old);
            }
            if core.closed.is_cancelled() {
                core.current.store(None);
            }
        })
    }

    /// Makes requests fail at once with this reason, or lets them through again. Running answers go on.
    pub(crate) fn block(&self, reason: Option<Arc<str>>) {
        self.core.blocked.store(reason.map(Arc::new));
    }

    /// Ends everything for good: every request, also of clients handed out long ago, answers `Gone`, and
    /// running answers end with an error.
    pub(crate) fn close(&self) {
        self.core.closed.cancel();
        if let Some(old) = self.core.current.swap(None) {
            old.bodies.cut();
        }
        self.client.store(None);
    }

    /// Sends a request whose URI is a path and query. On 401 it waits a little for newer credentials and then
    /// tries once more. Dropping the future gives the request up.
    pub(crate) async fn send(
        &self,
        request: Request<Body>,
    ) -> Result<Response<ResponseBody>, TransportError> {
        self.core.send(request).await
    }

    /// The client for this cluster; made when first asked for, and then the same whatever is swapped below it.
    pub(crate) fn client(&self, default_namespace: &str) -> kube::Client {
        if let Some(client) = &*self.client.load()
            && client.default_namespace() == default_namespace
        {
            return kube::Client::clone(client);
        }
        // A client spawns a task when it is made.
        let _entered = self.core.runtime.as_ref().map(tokio::runtime::Handle::enter);
        let client = kube::Client::new(service::ClientService(self.core.clone()), default_namespace);
        if !self.core.closed.is_cancelled() {
            self.client.store(Some(Arc::new(client.clone())));
        }
        client
    }

    /// Resolves, once for each time, when the current credentials have been refused with 401, with their
    /// generation. Answer with [`swap`](Self::swap) or [`refresh_done`](Self::refresh_done). Cancel safe: it is
    /// told again as long as it was not answered.
    pub(crate) fn unauthorized(&self) -> impl Future<Output = u64> {
        self.core.refreshes.refused()
    }

    /// Says that nothing newer is to be had: what was refused stays refused.
    pub(crate) fn refresh_done(&self) {
        self.core.refreshes.in_vain();
    }

    /// When anything was last received from the cluster.
    pub(crate) fn last_heard(&self) -> Option<SystemTime> {
        self.core.heard_after().map(|after| START.1 + after)
    }

    /// When anything was last received from the cluster, for measuring.
    pub(crate) fn last_heard_at(&self) -> Option<Instant> {
        self.core.heard_after().map(|after| START.0 + after)
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("cluster", &self.core.cluster)
            .field("open_bodies", &self.core.open_bodies.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl Core {
    /// Bodies that are read end by themselves; the connections of those that nobody reads are let go of later.
    fn retire(&self, old: &Active) {
        old.retired.cancel();
        let runtime = tokio::runtime::Handle::try_current()
            .ok()
            .or_else(|| self.runtime.clone());
        let Some(runtime) = runtime else {
            return old.bodies.cut();
        };
        // The bodies only: the old stack is to go now, with its idle connections.
        let (bodies, closed) = (old.bodies.clone(), self.closed.clone());
        let end = self.settings.retire_spread + self.settings.retire_line + Duration::from_millis(500);
        runtime.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(end) => {}
                () = closed.cancelled() => {}
            }
            bodies.cut();
        });
    }

    fn heard(&self) {
        let millis = u64::try_from(START.0.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_heard.store(millis.max(1), Ordering::Relaxed);
    }

    fn heard_after(&self) -> Option<Duration> {
        match self.last_heard.load(Ordering::Relaxed) {
            0 => None,
            millis => Some(Duration::from_millis(millis)),
        }
    }

    fn error(&self, operation: &Operation, kind: TransportErrorKind) -> TransportError {
        TransportError::new(operation.text.clone(), kind).in_cluster(&self.cluster)
    }

    fn active(&self, operation: &Operation) -> Result<Arc<Active>, TransportError> {
        if self.closed.is_cancelled() {
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

    async fn send(
        self: &Arc<Self>,
        request: Request<Body>,
    ) -> Result<Response<ResponseBody>, TransportError> {
        let operation = Operation::of(&request);
        let active = self.active(&operation)?;
        let again = replay(&request);
        let generation = active.generation;
        let elsewhere = active.stack.is_route();
        let response = self.attempt(active, request, &operation).await?;
        if response.status() != StatusCode::UNAUTHORIZED || elsewhere {
            return Ok(response);
        }
        let newer = tokio::select! {
            newer = self.refreshes.report(generation, &self.settings) => newer,
            () = self.closed.cancelled() => return Err(self.error(&operation, TransportErrorKind::Gone)),
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
            () = self.closed.cancelled() => return Err(self.error(operation, TransportErrorKind::Gone)),
            sent = active.stack.send(request) => sent,
        };
        let response = sent.map_err(|error| error.in_cluster(&self.cluster))?;
        self.heard();
        let life = Life::new(self.clone(), operation.class, &active.retired);
        let response = response.map(|body| body.attach(life));
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
