//! Serves the state of the fleet over HTTP, for probes, Prometheus and people with curl.
//!
//! | path | response |
//! | --- | --- |
//! | `/healthz` | 200 `ok` while the manager runs |
//! | `/readyz` | 200 once every provider has announced all its clusters; before that, and while the manager stops, 503 with the reason. With leader election the body has the role, `leader` or `standby`; a standby is ready. The state of clusters does not matter: one unreachable cluster must not make the controller of all others unready |
//! | `/metrics` | the [metrics](crate::metrics), in the text format of OpenMetrics |
//! | `/clusters` | a [`FleetReport`](crate::FleetReport) as JSON. `?name=…` (a name or a display name) and `?state=…` select clusters; both can be given several times |
//!
//! `/clusters` contains the names, labels and errors of all clusters, but no credentials. By default the server listens on
//! this machine only, without TLS. At any other address it needs [`ServerOptions::access`], which decides who may read: by the RBAC of
//! a cluster as the servers of kubebuilder's projects, by tokens in a file, by client certificates, or everybody.
//!
//! `/healthz` and `/readyz` are for everybody. They have connections of their own, so that others can't keep probes waiting, and on
//! request [an address of their own](ServerOptions::probes). Texts of errors are in their answers only if there is no
//! guard and nobody but this machine reaches the server.
//!
//! `/clusters` and `/metrics` answer only GET and HEAD. The server limits the size and the time of request heads, the time of requests,
//! and the number and the lifetime of connections. Paths other than the probes are refused (403) for a `Host` that is not
//! `localhost`, an address, a name in the certificate of the server or a [given one](ServerOptions::host): a page in a browser could read
//! them under a name of its own.

mod access;
mod answer;
mod app;
mod checks;
mod front;
mod guard;
mod listen;
mod reviews;
mod seldom;
mod tls;

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use mcr_core::{BoxError, Fleet};
use prometheus_client::registry::Registry;
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use self::{access::Kind, app::App, checks::Check, front::Front, guard::Guard, tls::Certificate};
pub use self::{access::ServerAccess, tls::TlsFiles};
pub use crate::error::ServeError;
use crate::{
    controller::ControllerHandle,
    metrics::{Metrics, MetricsOptions},
};
/// The release of axum whose `Router` the server serves.
pub use axum;

/// The address and the content of the HTTP server; see [`ManagerBuilder::serve`](crate::ManagerBuilder::serve).
///
/// ```
/// use std::net::{Ipv4Addr, SocketAddr};
/// use mcr::{metrics::{MetricsOptions, PerCluster}, server::{ServerAccess, ServerOptions, TlsFiles}};
///
/// // On this machine only, at port 8080, without series for single clusters.
/// let options = ServerOptions::default().metrics(MetricsOptions::default().per_cluster(PerCluster::Off));
///
/// // In a Pod: for those to whom the RBAC of the hub grants `get` on the nonResourceURLs.
/// # fn in_a_pod(hub: kube::Client) -> ServerOptions {
/// ServerOptions::from(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8443)))
///     .tls(TlsFiles::new("/etc/tls/tls.crt", "/etc/tls/tls.key"))
///     .access(ServerAccess::hub(hub))
///     .probes(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8081)))
/// # }
/// ```
#[must_use]
pub struct ServerOptions {
    socket: Socket,
    metrics: MetricsOptions,
    register: Vec<Register>,
    head_within: Duration,
    access: Option<ServerAccess>,
    tls: Option<TlsFiles>,
    plain_http: bool,
    probes: Option<Socket>,
    hosts: Vec<String>,
    health: Vec<Arc<Check>>,
    readiness: Vec<Arc<Check>>,
    router: Option<Router>,
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
            access: None,
            tls: None,
            plain_http: false,
            probes: None,
            hosts: Vec::new(),
            health: Vec::new(),
            readiness: Vec::new(),
            router: None,
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

    /// Sets who may read `/clusters`, `/metrics` and the [routes of the program](Self::merge_router). Without it, only this machine can: the
    /// address must be a loopback address.
    pub fn access(mut self, access: ServerAccess) -> Self {
        self.access = Some(access);
        self
    }

    /// Serves over TLS, with a certificate that may be replaced at any time.
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Accepts tokens without TLS at an address other than loopback, because something in front of the server encrypts, such as a service
    /// mesh. Otherwise everybody on the network between could read them.
    pub fn plain_http(mut self) -> Self {
        self.plain_http = true;
        self
    }

    /// Serves `/healthz` and `/readyz` at this address too, and nothing else, to everybody and without TLS. A flood of connections at
    /// the other address does not concern it.
    pub fn probes(mut self, address: SocketAddr) -> Self {
        self.probes = Some(Socket::Address(address));
        self
    }

    /// As [`probes`](Self::probes), on a socket that listens already.
    pub fn probes_on(mut self, listener: std::net::TcpListener) -> Self {
        self.probes = Some(Socket::Listener(listener));
        self
    }

    /// Adds a name under which the server is reached, such as `metrics.fleet.svc`, if it is not in the certificate. Without a port.
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.hosts.push(name.into());
        self
    }

    /// Adds a check to `/readyz`, as `AddReadyzCheck` of controller-runtime. While it returns an error, panics, or does not answer within
    /// five seconds, `/readyz` answers 503 with its name, and the log has the reason.
    ///
    /// It runs at most once a second, and never twice at once; a caller of `/readyz` that goes away does not end it. Give a kubelet more than
    /// five seconds (`timeoutSeconds: 6`) for a check that may be slow.
    ///
    /// ```
    /// use mcr::server::ServerOptions;
    ///
    /// # async fn ping() -> std::io::Result<()> { Ok(()) }
    /// let options = ServerOptions::default().readyz_check("database", async || Ok(ping().await?));
    /// ```
    pub fn readyz_check<Fut>(
        mut self,
        name: impl Into<String>,
        check: impl Fn() -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.readiness.push(Arc::new(Check::new(name.into(), check)));
        self
    }

    /// Adds a check to `/healthz`, in the same way. A kubelet restarts the program while it fails.
    pub fn healthz_check<Fut>(
        mut self,
        name: impl Into<String>,
        check: impl Fn() -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.health.push(Arc::new(Check::new(name.into(), check)));
        self
    }

    /// Adds routes of the program, as `AddMetricsServerExtraHandler` of controller-runtime. They are behind the same
    /// [guard](Self::access), which asks the hub for the verb that is the method in lower case; HEAD is `get`. The four paths of mcr stay
    /// what they are. For other methods than GET and HEAD, a request with an `Origin` other than that of its `Host` is refused (403): a browser
    /// sends it for any page.
    ///
    /// A response has to begin within 30 seconds, and a connection lives for two minutes. A panic in a route closes its connection.
    ///
    /// # Panics
    /// As `Router::merge`, if it is called twice with routes that overlap.
    ///
    /// ```
    /// use mcr::server::{ServerOptions, axum::{Router, routing::get}};
    ///
    /// let options = ServerOptions::default().merge_router(Router::new().route("/version", get(async || "1.2.3")));
    /// ```
    pub fn merge_router(mut self, router: Router) -> Self {
        self.router = Some(match self.router {
            Some(other) => other.merge(router),
            None => router,
        });
        self
    }

    /// Whether these options leave nothing open that was not to be open.
    pub(crate) fn check(&self) -> Result<(), ServeError> {
        if let Some(ServerAccess(Kind::ClientCertificates(_))) = self.access
            && self.tls.is_none()
        {
            return Err(ServeError::CertificatesWithoutTls);
        }
        if let Some(name) = self.hosts.iter().find(|name| name.contains(':')) {
            return Err(ServeError::Host { name: name.clone() });
        }
        let address = self.socket.address();
        match (&self.access, address) {
            (_, Some(address)) if is_loopback(address.ip()) => Ok(()),
            (None, address) => Err(ServeError::Unguarded { address }),
            (Some(access), address) if access.needs_token() && self.tls.is_none() && !self.plain_http => {
                Err(ServeError::TokensWithoutTls { address })
            }
            _ => Ok(()),
        }
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
        debug
            .field("access", &self.access)
            .field("tls", &self.tls)
            .field("metrics", &self.metrics)
            .finish_non_exhaustive()
    }
}

/// A server that listens, but does not accept connections before [`run`](Self::run).
pub(crate) struct Server {
    listener: TcpListener,
    front: Front,
    probes: Option<(TcpListener, Front)>,
    checks: Vec<Arc<Check>>,
    head_within: Duration,
}

impl Server {
    /// Binds the sockets, reads the files and makes the client of the hub.
    pub(crate) async fn bind(
        options: ServerOptions,
        fleet: &Fleet,
        controllers: Vec<ControllerHandle>,
        stopping: CancellationToken,
    ) -> Result<Self, ServeError> {
        options.check()?;
        let listener = options.socket.listen()?;
        let probes = options.probes.map(Socket::listen).transpose()?;
        // Both have the same routes.
        let is_local = [Some(&listener), probes.as_ref()]
            .into_iter()
            .flatten()
            .all(|listener| {
                listener
                    .local_addr()
                    .is_ok_and(|address| is_loopback(address.ip()))
            });
        let authorities = match &options.access {
            Some(ServerAccess(Kind::ClientCertificates(path))) => Some(path.clone()),
            _ => None,
        };
        let tls = options.tls.map(|files| Certificate::load(files, authorities));
        let certificate = tls.transpose()?.map(Arc::new);
        let guard = Guard::new(options.access).await?;
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, tls = certificate.is_some(), "serving /clusters, /metrics, /healthz and /readyz");
        }
        let mut metrics = Metrics::new(fleet, controllers.iter().cloned(), options.metrics);
        for register in options.register {
            register(metrics.registry_mut());
        }
        let checks = [&options.health[..], &options.readiness[..]].concat();
        let app = App {
            fleet: fleet.clone(),
            controllers,
            metrics,
            stopping,
            permits: App::permits(),
            health: options.health,
            readiness: options.readiness,
            shows_errors: is_local && matches!(guard, Guard::Open),
        };
        let router = app.router(options.router);
        let probes = probes.map(|listener| (listener, Front::for_probes(router.clone())));
        Ok(Self {
            listener,
            front: Front::new(router, guard, options.hosts, certificate),
            probes,
            checks,
            head_within: options.head_within,
        })
    }

    /// Serves until `stop` is cancelled. Then open connections get a second to end.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let (within, certificate) = (self.head_within, self.front.certificate.clone());
        let mut checks: JoinSet<()> = self.checks.into_iter().map(Check::follow).collect();
        let all = listen::serve(self.listener, Arc::new(self.front), within, stop.clone());
        let probes = async {
            if let Some((listener, front)) = self.probes {
                listen::serve(listener, Arc::new(front), within, stop.clone()).await;
            }
        };
        let follow = async {
            if let Some(certificate) = certificate {
                stop.run_until_cancelled(certificate.follow()).await;
            }
        };
        tokio::join!(all, probes, follow);
        checks.shutdown().await;
    }
}

impl Socket {
    fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::Listener(listener) => listener.local_addr().ok(),
        }
    }

    /// Listens. Must be called in a tokio runtime.
    fn listen(self) -> Result<TcpListener, ServeError> {
        match self {
            Self::Address(address) => std::net::TcpListener::bind(address)
                .and_then(into_async)
                .map_err(|source| ServeError::Bind { address, source }),
            Self::Listener(listener) => {
                into_async(listener).map_err(|source| ServeError::Listener { source })
            }
        }
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn into_async(listener: std::net::TcpListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
