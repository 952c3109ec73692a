//! Serves the state of the fleet over HTTP, for probes, Prometheus and people with curl.
//!
//! | path | response |
//! | --- | --- |
//! | `/healthz` | 200 `ok` while the manager runs |
//! | `/readyz` | 200 once every provider has announced all its clusters; before that, and while the manager stops, 503 with the reason. With leader election the body has the role, `leader` or `standby`; a standby is ready. The state of clusters does not matter: one unreachable cluster must not make the controller of all others unready |
//! | `/metrics` | the [metrics](crate::metrics), in the text format of OpenMetrics |
//! | `/clusters` | a [`FleetReport`](crate::FleetReport) as JSON. `?name=…` (a name or a display name) and `?state=…` select clusters; both can be given several times |
//!
//! The server has neither authentication nor TLS. `/clusters` contains the names, labels and errors of all clusters, but no
//! credentials. So by default the server listens on this machine only. Use an address such as `0.0.0.0:8080` only in a
//! network that you trust, such as a Pod whose ports a network policy protects. The probes of a kubelet need such an address.
//!
//! The server answers only GET and HEAD. It limits the size and the time of request heads, and the number and the lifetime of
//! connections. `/healthz` and `/readyz` have connections of their own, so that others can't keep probes waiting. Where the server
//! listens for this machine only, the other paths are refused (403) for a `Host` that is neither `localhost` nor an address: a
//! page in a browser could read them under a name of its own.

mod app;
mod listen;

use std::{fmt, io, net::SocketAddr, time::Duration};

use mcr_core::Fleet;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::app::App;
pub use crate::error::ServeError;
use crate::{
    controller::ControllerHandle,
    metrics::{Metrics, MetricsOptions},
};

/// The address and the content of the HTTP server; see [`ManagerBuilder::serve`](crate::ManagerBuilder::serve).
///
/// ```
/// use std::net::{Ipv4Addr, SocketAddr};
/// use mcr::{metrics::{MetricsOptions, PerCluster}, server::ServerOptions};
///
/// // On this machine only, at port 8080.
/// let options = ServerOptions::default();
/// // On all interfaces, without series for single clusters.
/// let options = ServerOptions::from(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9000)))
///     .metrics(MetricsOptions::default().per_cluster(PerCluster::Off));
/// ```
#[must_use]
pub struct ServerOptions {
    socket: Socket,
    metrics: MetricsOptions,
    register: Vec<Register>,
    head_within: Duration,
}

type Register = Box<dyn FnOnce(&mut Registry) + Send>;

/// The socket to serve on.
enum Socket {
    /// An address to bind.
    Address(SocketAddr),
    /// A socket that listens already.
    Listener(std::net::TcpListener),
}

impl Default for ServerOptions {
    /// Listens on `127.0.0.1:8080`, reachable from this machine only.
    fn default() -> Self {
        Self::from(SocketAddr::from(([127, 0, 0, 1], 8080)))
    }
}

impl From<SocketAddr> for ServerOptions {
    fn from(address: SocketAddr) -> Self {
        Self {
            socket: Socket::Address(address),
            metrics: MetricsOptions::default(),
            register: Vec::new(),
            head_within: listen::HEAD_WITHIN,
        }
    }
}

impl From<std::net::TcpListener> for ServerOptions {
    /// Serves on a socket that listens already, for example on a port that the system chose.
    fn from(listener: std::net::TcpListener) -> Self {
        Self {
            socket: Socket::Listener(listener),
            ..Self::default()
        }
    }
}

impl ServerOptions {
    /// Sets the options of `/metrics`.
    pub fn metrics(mut self, options: MetricsOptions) -> Self {
        self.metrics = options;
        self
    }

    /// Adds your own metrics to `/metrics`. Names that begin with `mcr_` are reserved.
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

    /// Sets the timeout for the head of a request, for tests. Not part of the API.
    #[doc(hidden)]
    pub fn head_within(mut self, limit: Duration) -> Self {
        self.head_within = limit;
        self
    }
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ServerOptions");
        match &self.socket {
            Socket::Address(address) => debug.field("address", address),
            Socket::Listener(listener) => debug.field("listener", listener),
        };
        debug.field("metrics", &self.metrics).finish_non_exhaustive()
    }
}

/// A server that listens, but does not accept connections before [`run`](Self::run).
pub(crate) struct Server {
    listener: TcpListener,
    app: App,
    head_within: Duration,
}

impl Server {
    /// Binds the socket. Must be called in a tokio runtime.
    pub(crate) fn bind(
        options: ServerOptions,
        fleet: &Fleet,
        controllers: Vec<ControllerHandle>,
        stopping: CancellationToken,
    ) -> Result<Self, ServeError> {
        let listener = match options.socket {
            Socket::Address(address) => std::net::TcpListener::bind(address)
                .and_then(into_async)
                .map_err(|source| ServeError::Bind { address, source })?,
            Socket::Listener(listener) => {
                into_async(listener).map_err(|source| ServeError::Listener { source })?
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

    /// Serves until `stop` is cancelled. Then open connections get a second to end.
    pub(crate) async fn run(self, stop: CancellationToken) {
        listen::serve(self.listener, self.app.router(), self.head_within, stop).await;
    }
}

fn into_async(listener: std::net::TcpListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
