//! Serves the state of the fleet over HTTP, for probes, Prometheus and people with curl.
//!
//! | path | answer |
//! | --- | --- |
//! | `/healthz` | 200 `ok` while the manager runs |
//! | `/readyz` | 200 once every provider has said everything once; before, and while the manager stops, 503 with the reason. Single clusters don't count: a dead one must not take the controller of all others down |
//! | `/metrics` | the [metrics](crate::metrics), in the text format of OpenMetrics |
//! | `/clusters` | a [`FleetReport`](crate::FleetReport) as JSON. `?name=…` and `?state=…` leave the other clusters out; both can be given several times |
//!
//! There is neither authentication nor TLS, and `/clusters` has the names, labels and errors of all clusters, though
//! no credentials: by default only this machine can ask. Give an address such as `0.0.0.0:8080` where the
//! network is one that you trust, as in a Pod whose ports a network policy guards. A kubelet's probes need that too.
//!
//! Only GET and HEAD are answered. Heads of requests are bounded in size and time, connections in number and time.

mod app;
mod listen;

use std::{fmt, io, net::SocketAddr, time::Duration};

use mcr_core::Fleet;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::app::App;
use crate::{
    ControllerHandle,
    metrics::{Metrics, MetricsOptions},
};

/// Where and what to serve; see [`ManagerBuilder::serve`](crate::ManagerBuilder::serve).
///
/// ```
/// use std::net::{Ipv4Addr, SocketAddr};
/// use mcr::{metrics::{MetricsOptions, PerCluster}, server::ServerOptions};
///
/// // On this machine only, at port 8080.
/// let options = ServerOptions::default();
/// // For everyone, without series for single clusters.
/// let options = ServerOptions::from(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9000)))
///     .metrics(MetricsOptions::default().per_cluster(PerCluster::Off));
/// ```
#[must_use]
pub struct ServerOptions {
    place: Place,
    metrics: MetricsOptions,
    register: Vec<Register>,
    head_within: Duration,
}

type Register = Box<dyn FnOnce(&mut Registry) + Send>;

enum Place {
    Address(SocketAddr),
    Listener(std::net::TcpListener),
}

impl Default for ServerOptions {
    /// At `127.0.0.1:8080`: from this machine only.
    fn default() -> Self {
        Self::from(SocketAddr::from(([127, 0, 0, 1], 8080)))
    }
}

impl From<SocketAddr> for ServerOptions {
    fn from(address: SocketAddr) -> Self {
        Self {
            place: Place::Address(address),
            metrics: MetricsOptions::default(),
            register: Vec::new(),
            head_within: listen::HEAD_WITHIN,
        }
    }
}

impl From<std::net::TcpListener> for ServerOptions {
    /// Serves on a socket that listens already, for example at a port that the system chose.
    fn from(listener: std::net::TcpListener) -> Self {
        Self {
            place: Place::Listener(listener),
            ..Self::default()
        }
    }
}

impl ServerOptions {
    /// What `/metrics` exposes.
    pub fn metrics(mut self, options: MetricsOptions) -> Self {
        self.metrics = options;
        self
    }

    /// Adds metrics of your own to `/metrics`. Names that begin with `mcr_` are taken.
    ///
    /// ```
    /// use mcr::{metrics::prometheus_client::metrics::counter::Counter, server::ServerOptions};
    ///
    /// let fed = Counter::<u64>::default();
    /// let options = ServerOptions::default().register({
    ///     let fed = fed.clone();
    ///     move |registry| registry.register("animals_fed", "Animals that were fed", fed)
    /// });
    /// fed.inc();
    /// ```
    pub fn register(mut self, register: impl FnOnce(&mut Registry) + Send + 'static) -> Self {
        self.register.push(Box::new(register));
        self
    }

    /// How long the head of a request may take, which tests shorten and stretch. Not part of the API.
    #[doc(hidden)]
    pub fn head_within(mut self, limit: Duration) -> Self {
        self.head_within = limit;
        self
    }
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ServerOptions");
        match &self.place {
            Place::Address(address) => debug.field("address", address),
            Place::Listener(listener) => debug.field("listener", listener),
        };
        debug.field("metrics", &self.metrics).finish_non_exhaustive()
    }
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address can't be listened on.
    #[error(
        "can't serve metrics and health at {address}: {source}. Choose another address, or end what listens there"
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The socket that was given can't be used.
    #[error("can't serve metrics and health on the socket that was given: {source}")]
    Listener {
        /// Why.
        source: io::Error,
    },
}

/// A server that has its socket and is not running yet.
pub(crate) struct Server {
    listener: TcpListener,
    app: App,
    head_within: Duration,
}

impl Server {
    /// Must be called in a tokio runtime.
    pub(crate) fn bind(
        options: ServerOptions,
        fleet: &Fleet,
        controllers: Vec<ControllerHandle>,
        stopping: CancellationToken,
    ) -> Result<Self, ServeError> {
        let listener = match options.place {
            Place::Address(address) => std::net::TcpListener::bind(address)
                .and_then(listening)
                .map_err(|source| ServeError::Bind { address, source })?,
            Place::Listener(listener) => {
                listening(listener).map_err(|source| ServeError::Listener { source })?
            }
        };
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "serving /clusters, /metrics, /healthz and /readyz");
        }
        let mut metrics = Metrics::new(fleet, controllers.iter().cloned(), options.metrics);
        for register in options.register {
            register(metrics.registry_mut());
        }
        Ok(Self {
            listener,
            app: App::new(fleet.clone(), controllers, metrics, stopping),
            head_within: options.head_within,
        })
    }

    /// Serves until `stop` is cancelled, and ends what is under way within a moment.
    pub(crate) async fn run(self, stop: CancellationToken) {
        listen::serve(self.listener, self.app.router(), self.head_within, stop).await;
    }
}

fn listening(listener: std::net::TcpListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
