//! The connection to a cluster, with a client that stays while credentials and address change.

use std::{
    fmt,
    sync::{Arc, LazyLock, OnceLock, atomic::Ordering},
    time::SystemTime,
};

use arc_swap::ArcSwapOption;
use http::{Request, Response};
use kube::client::Body;
use mcr_access::ClusterName;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    body::ResponseBody,
    channel::Channel,
    current::{CurrentChannel, Generation},
    error::TransportError,
    layer::TransportLayer,
    link::{Link, LinkState},
    refresh::CredentialRefresh,
    service::ClientService,
    settings::Settings,
    state::{Doubts, TransportState},
};

/// The connection to one cluster: a [`Channel`] that can be replaced, and a `kube::Client` that stays.
#[derive(Clone)]
pub struct Transport {
    pub(crate) current: Arc<CurrentChannel>,
    /// Not in `current`, which the client itself keeps alive.
    client: Arc<ArcSwapOption<kube::Client>>,
}

impl Transport {
    /// A transport without a channel, with the default time limits. Requests fail until the first [`swap`](Self::swap).
    pub fn new(cluster: ClusterName) -> Self {
        static SETTINGS: LazyLock<Arc<Settings>> = LazyLock::new(Arc::default);
        Self::with_settings(cluster, SETTINGS.clone())
    }

    /// A transport without a channel, with other time limits. Requests fail until the first [`swap`](Self::swap).
    pub fn with_settings(cluster: ClusterName, settings: Arc<Settings>) -> Self {
        let current = CurrentChannel {
            state: Arc::new(TransportState::new(cluster, settings)),
            generation: ArcSwapOption::empty(),
            refresh: CredentialRefresh::default(),
            layer: OnceLock::new(),
            runtime: tokio::runtime::Handle::try_current().ok(),
        };
        Self {
            current: Arc::new(current),
            client: Arc::default(),
        }
    }

    /// Puts a layer over all requests. Only the first call has an effect.
    pub fn set_layer(&self, layer: TransportLayer) {
        let _ = self.current.layer.set(Box::new(layer));
    }

    /// Replaces the channel.
    ///
    /// Requests that start later use the new channel. Idle connections of the old channel close at once. Its watches end at the
    /// end of a line, spread over [`Settings::rotation_spread`]; all its responses have ended after 30 s by default.
    pub fn swap(&self, channel: Channel) {
        let current = &self.current;
        // Requests of the old channel end with those of the new one.
        let old = current.generation.load_full().map(|old| old.lost.clone());
        let lost = old.filter(|lost| !lost.is_cancelled());
        let lost = lost.unwrap_or_else(|| current.state.closed.child_token());
        current.refresh.start_generation(|| {
            let generation = Generation {
                channel,
                rotated: CancellationToken::new(),
                lost,
                bodies: Arc::default(),
            };
            if let Some(old) = current.generation.swap(Some(Arc::new(generation))) {
                current.end_generation(&old);
            }
            if current.state.closed.is_cancelled() {
                current.generation.store(None);
            }
        });
    }

    /// Brings the link up or down. Running responses continue, and so do watches, followed logs and upgraded connections.
    pub fn set_link(&self, state: LinkState) {
        let ends_requests = matches!(
            state,
            LinkState::Down {
                ends_requests: true,
                ..
            }
        );
        self.current.state.link.set(state);
        if ends_requests && let Some(generation) = &*self.current.generation.load() {
            generation.lost.cancel();
        }
    }

    /// The link, which is up from the beginning.
    pub fn link(&self) -> Link {
        self.current.state.link.clone()
    }

    /// Waits until there is a reason to probe the cluster, at once or soon: a request could not connect, its answer broke off, or
    /// it waits, and the cluster has sent nothing for seconds; a request has opened a connection; work waits or runs. What
    /// comes meanwhile counts as one. Cancel safe.
    pub fn probe_wanted(&self) -> impl Future<Output = ()> {
        self.current.state.probe_wanted.notified()
    }

    /// Whether the lists of a watch may be compressed with gzip, over the channel of now.
    #[doc(hidden)]
    pub fn accepts_gzip(&self) -> bool {
        let generation = self.current.generation.load();
        generation.as_ref().is_some_and(|now| now.channel.accepts_gzip())
    }

    #[doc(hidden)]
    pub fn doubts(&self) -> Doubts {
        *self.current.state.doubts.lock()
    }

    /// Forgets the reasons to probe the cluster, because a probe begins.
    #[doc(hidden)]
    pub fn begin_probe(&self) {
        *self.current.state.doubts.lock() = Doubts::default();
    }

    /// Reports that work waits or runs for the cluster.
    #[doc(hidden)]
    pub fn report_work(&self) {
        self.current.state.doubt(|doubts| &mut doubts.works);
    }

    #[doc(hidden)]
    pub fn has_watch(&self) -> bool {
        self.current.state.open_watches.load(Ordering::Relaxed) > 0
    }

    #[doc(hidden)]
    pub fn is_closed(&self) -> bool {
        self.current.state.closed.is_cancelled()
    }

    /// Closes the transport for good. All requests fail with [`Gone`](crate::TransportErrorKind::Gone), also those of clients
    /// that were handed out earlier, and running responses end with an error.
    pub fn close(&self) {
        self.current.state.closed.cancel();
        if let Some(old) = self.current.generation.swap(None) {
            old.bodies.close();
        }
        self.client.store(None);
    }

    /// Sends a request whose URI is a path and query. After a 401 it waits up to [`Settings::refresh_wait`] for newer
    /// credentials, and then sends the request once more. Dropping the future cancels the request.
    ///
    /// # Errors
    ///
    /// If there is no response. A response with an error status is not an error.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<ResponseBody>, TransportError> {
        self.current.send(request).await
    }

    /// The client of this cluster. The first call makes it; it stays the same whatever channel is swapped in.
    ///
    /// A client can't change its default namespace, so another namespace makes another client.
    pub fn client(&self, default_namespace: &str) -> kube::Client {
        if let Some(client) = &*self.client.load()
            && client.default_namespace() == default_namespace
        {
            return kube::Client::clone(client);
        }
        // `Client::new` spawns a task, which needs a runtime.
        let _entered = self.current.runtime.as_ref().map(tokio::runtime::Handle::enter);
        let client = kube::Client::new(ClientService(self.current.clone()), default_namespace);
        if !self.current.state.closed.is_cancelled() {
            self.client.store(Some(Arc::new(client.clone())));
        }
        client
    }

    /// Waits until the API server has refused the current credentials with a 401.
    ///
    /// The caller then fetches newer credentials, and calls [`swap`](Self::swap), or [`refresh_done`](Self::refresh_done) if
    /// there are none. Until one of them is called, the method returns at once. Cancel safe.
    pub fn unauthorized(&self) -> impl Future<Output = ()> {
        self.current.refresh.refused()
    }

    /// Reports that there are no newer credentials. The requests that wait for them return their 401.
    pub fn refresh_done(&self) {
        self.current.refresh.finish_unchanged();
    }

    /// When the cluster last sent anything, on the wall clock.
    pub fn last_received(&self) -> Option<SystemTime> {
        self.current.state.last_received()
    }

    /// When the cluster last sent anything, on the monotonic clock.
    pub fn last_received_at(&self) -> Option<Instant> {
        self.current.state.last_received_at()
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("cluster", &self.current.state.cluster)
            .field(
                "open_bodies",
                &self.current.state.open_bodies.load(Ordering::Relaxed),
            )
            .finish_non_exhaustive()
    }
}
