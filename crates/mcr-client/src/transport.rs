//! The connection to a cluster below everything else: credentials and address are replaced here, and nothing above notices.

use std::{
    fmt,
    sync::{Arc, LazyLock, atomic::Ordering},
    time::SystemTime,
};

use arc_swap::ArcSwapOption;
use http::{Request, Response};
use kube::client::Body;
use mcr_access::ClusterName;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    ResponseBody, Settings, TransportError,
    channel::Channel,
    core::{Active, Core},
    refresh::Refreshes,
    service::ClientService,
    shared::Shared,
};

/// The connection to one cluster: a [`Channel`] that can be replaced, and a client that stays.
#[derive(Clone)]
pub struct Transport {
    pub(crate) core: Arc<Core>,
    /// Beside the core, which the client's own task keeps alive.
    client: Arc<ArcSwapOption<kube::Client>>,
}

impl Transport {
    /// A transport without a channel: requests fail until the first [`swap`](Self::swap).
    pub fn new(cluster: ClusterName) -> Self {
        static SETTINGS: LazyLock<Arc<Settings>> = LazyLock::new(Arc::default);
        Self::with_settings(cluster, SETTINGS.clone())
    }

    /// [`new`](Self::new), with other limits in time.
    pub fn with_settings(cluster: ClusterName, settings: Arc<Settings>) -> Self {
        let core = Core {
            shared: Arc::new(Shared::new(cluster, settings)),
            current: ArcSwapOption::empty(),
            blocked: ArcSwapOption::empty(),
            refreshes: Refreshes::default(),
            runtime: tokio::runtime::Handle::try_current().ok(),
        };
        Self {
            core: Arc::new(core),
            client: Arc::default(),
        }
    }

    /// Replaces the channel. No request that begins after this uses the old one; its idle connections close at once,
    /// those of running answers within 30 s. Returns the new generation.
    pub fn swap(&self, channel: Channel) -> u64 {
        let core = &self.core;
        core.refreshes.next(|generation| {
            let active = Active {
                channel,
                generation,
                retired: CancellationToken::new(),
                bodies: Arc::default(),
            };
            if let Some(old) = core.current.swap(Some(Arc::new(active))) {
                core.retire(&old);
            }
            if core.shared.closed.is_cancelled() {
                core.current.store(None);
            }
        })
    }

    /// Makes requests fail at once with this reason, or lets them through again. Running answers go on.
    pub fn block(&self, reason: Option<Arc<str>>) {
        self.core.blocked.store(reason.map(Arc::new));
    }

    /// Ends everything for good: every request, also of clients handed out long ago, answers `Gone`, and
    /// running answers end with an error.
    pub fn close(&self) {
        self.core.shared.closed.cancel();
        if let Some(old) = self.core.current.swap(None) {
            old.bodies.cut();
        }
        self.client.store(None);
    }

    /// Sends a request whose URI is a path and query. On 401 it waits a little for newer credentials and then
    /// tries once more. Dropping the future gives the request up.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<ResponseBody>, TransportError> {
        self.core.send(request).await
    }

    /// The client for this cluster; made when first asked for, and then the same whatever is swapped below it.
    pub fn client(&self, default_namespace: &str) -> kube::Client {
        if let Some(client) = &*self.client.load()
            && client.default_namespace() == default_namespace
        {
            return kube::Client::clone(client);
        }
        // A client spawns a task when it is made.
        let _entered = self.core.runtime.as_ref().map(tokio::runtime::Handle::enter);
        let client = kube::Client::new(ClientService(self.core.clone()), default_namespace);
        if !self.core.shared.closed.is_cancelled() {
            self.client.store(Some(Arc::new(client.clone())));
        }
        client
    }

    /// Resolves, once for each time, when the current credentials have been refused with 401, with their
    /// generation. Answer with [`swap`](Self::swap) or [`refresh_done`](Self::refresh_done). Cancel safe: it is
    /// told again as long as it was not answered.
    pub fn unauthorized(&self) -> impl Future<Output = u64> {
        self.core.refreshes.refused()
    }

    /// Says that nothing newer is to be had: what was refused stays refused.
    pub fn refresh_done(&self) {
        self.core.refreshes.in_vain();
    }

    /// When anything was last received from the cluster.
    pub fn last_heard(&self) -> Option<SystemTime> {
        self.core.shared.last_heard()
    }

    /// When anything was last received from the cluster, for measuring.
    pub fn last_heard_at(&self) -> Option<Instant> {
        self.core.shared.last_heard_at()
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("cluster", &self.core.shared.cluster)
            .field(
                "open_bodies",
                &self.core.shared.open_bodies.load(Ordering::Relaxed),
            )
            .finish_non_exhaustive()
    }
}
