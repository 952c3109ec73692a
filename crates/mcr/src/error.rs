//! Errors of controllers, the manager and the HTTP server.

#[cfg(feature = "server")]
use std::{io, net::SocketAddr, path::PathBuf};
use std::{sync::Arc, time::Duration};

use mcr_core::BoxError;

/// Why a controller can't be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The controller has no name.
    #[error("a controller needs a name: it shows in logs, metrics and its status")]
    EmptyName,
    /// The controller has neither watches nor sources, so nothing could trigger it.
    #[error(
        "controller {controller}: nothing is watched, so it would never be triggered. Give it a primary kind (Controller::new), or add watches, watches_fleet or a source"
    )]
    NoWatches {
        /// The name of the controller.
        controller: Arc<str>,
    },
    /// A setting is zero, but must be at least one.
    #[error(
        "controller {controller}: {setting} is zero, so nothing would ever run to its end. Set it to at least one, or leave it out"
    )]
    Zero {
        /// The name of the controller.
        controller: Arc<str>,
        /// The name of the setting.
        setting: &'static str,
    },
    /// `WatchOptions::gates_all(true)` is set for a watch that is not limited to one named cluster.
    #[error(
        "controller {controller}: the watch of {watch} has gates_all(true), but its selector ({selector}) does not name one cluster, so it is unknown when the watch has listed. Write .clusters(ClusterSelector::name(\"NAME\")) or .clusters(ClusterSelector::hub()) in its WatchOptions, or leave gates_all out"
    )]
    GatesAll {
        /// The name of the controller.
        controller: Arc<str>,
        /// The kind of the watch.
        watch: String,
        /// The selector of the watch.
        selector: String,
    },
    /// The controller has two error policies: that of `Controller::on_error` and that of `Controller::build_uniform`.
    #[error(
        "controller {controller}: it has two error policies, one from on_error and one from build_uniform. Leave out on_error, or use build"
    )]
    TwoErrorPolicies {
        /// The name of the controller.
        controller: Arc<str>,
    },
    /// The controller has `Controller::on_deselected`, but selects only the hub, so it would delete in all other clusters.
    #[error(
        "controller {controller}: it has on_deselected, but its selector chooses only the hub, so it would delete in every other cluster. Leave out on_deselected, or select the clusters that it writes to"
    )]
    CleansUpAllButHub {
        /// The name of the controller.
        controller: Arc<str>,
    },
    /// A function given to `Controller::watch_request` or `WatchOptions::request` returned a request for another kind.
    #[error(
        "controller {controller}: the request for {kind} was changed to {other}. Change its namespace and selectors only, and watch {other} with `watches`"
    )]
    OtherKind {
        /// The name of the controller.
        controller: Arc<str>,
        /// The declared kind.
        kind: String,
        /// The kind that the function returned.
        other: String,
    },
}

/// Why a controller ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// A part of the controller itself panicked. This is a fault of mcr.
    #[error(
        "controller {controller}: a part of it panicked: {panic}. This is a fault of mcr; please report it"
    )]
    Panicked {
        /// The name of the controller.
        controller: Arc<str>,
        /// The message of the panic.
        panic: String,
    },
}

/// Why a manager can't be built, or why it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// A controller can't be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Two controllers have the same name.
    #[error(
        "two controllers are named {name}: logs and metrics could not distinguish them. Rename one, or allow it with ManagerBuilder::allow_equal_names"
    )]
    EqualNames {
        /// The name of the controllers.
        name: Arc<str>,
    },
    /// The manager has neither a provider nor a fleet, so it would have no clusters.
    #[error(
        "the manager has neither a provider nor a fleet, so it would never have a cluster. Add ManagerBuilder::provider, or use Manager::single"
    )]
    NoProvider,
    /// The manager has a fleet of its own, and also providers or fleet settings, which that fleet would ignore.
    #[error(
        "the manager has a fleet of its own, and also providers or fleet settings. Give those to the builder of the fleet instead"
    )]
    TwoFleets,
    /// The program has no cryptography for TLS.
    #[error(transparent)]
    NoCryptoProvider(#[from] mcr_core::crypto::NoCryptoProvider),
    /// The User-Agent does not fit into a header.
    #[error(transparent)]
    UserAgent(#[from] mcr_core::InvalidUserAgent),
    /// A setting of the leader election is not valid.
    #[error(transparent)]
    LeaderElection(#[from] mcr_lease::InvalidCandidate),
    /// The leader election has no client for the cluster that has the Lease.
    #[error(
        "leader election: no client for the cluster of the Lease: {source}. Run in a Pod, correct the kubeconfig, or give a client with LeaderElection::client"
    )]
    LeaderElectionClient {
        /// The error.
        source: BoxError,
    },
    /// The HTTP server can't start.
    #[cfg(feature = "server")]
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The handlers of SIGINT and SIGTERM can't be installed.
    #[error(
        "can't install the handlers of SIGINT and SIGTERM: {0}. Use Manager::run_until to handle signals yourself"
    )]
    Signals(#[source] std::io::Error),
    /// A controller ended with an error.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// A task ended with an error.
    #[error("task {task} failed: {source}")]
    Task {
        /// The name of the task.
        task: Arc<str>,
        /// The error.
        source: BoxError,
    },
    /// A task panicked.
    #[error("task {task} panicked: {panic}")]
    TaskPanicked {
        /// The name of the task.
        task: Arc<str>,
        /// The message of the panic.
        panic: String,
    },
    /// A controller, a task or the fleet did not end within the grace period.
    #[error("{what} did not end within {} s after the manager began to stop", grace.as_secs_f32())]
    Stuck {
        /// The names of the controllers and tasks that did not end, or `the fleet`.
        what: String,
        /// The grace period.
        grace: Duration,
    },
}

/// Why the HTTP server can't start.
#[cfg(feature = "server")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address can't be bound.
    #[error(
        "can't serve metrics and health at {address}: {source}. Choose another address, or stop the program that listens there"
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The server would be readable from other machines, and nothing decides by whom.
    #[error(
        "/clusters and /metrics would be open to everybody who reaches {}: choose who may read with ServerOptions::access or its flags, serve at a loopback address, or ask for ServerAccess::open",
        address_or_socket(address)
    )]
    Unguarded {
        /// The address, if the socket has one.
        address: Option<SocketAddr>,
    },
    /// Tokens would be sent to the server without encryption.
    #[error(
        "tokens would be sent to {} without encryption: set ServerOptions::tls (--serve-tls-cert), or plain_http (--serve-plain-http) if a service mesh or a proxy encrypts",
        address_or_socket(address)
    )]
    TokensWithoutTls {
        /// The address, if the socket has one.
        address: Option<SocketAddr>,
    },
    /// Client certificates are asked for, but there is no TLS to send them in.
    #[error(
        "client certificates need TLS: set ServerOptions::tls (--serve-tls-cert), or another ServerAccess"
    )]
    CertificatesWithoutTls,
    /// A name under which the server is reached has a port, or is an address.
    #[error(
        "{name} can't be the name of a host: give ServerOptions::host (--serve-host) names without a port; addresses are always accepted"
    )]
    Host {
        /// The name.
        name: String,
    },
    /// A file of the server can't be used.
    #[error("can't serve metrics and health: {} {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no client of the hub, which decides who may read.
    #[error("no client of the hub, which decides who may read /clusters and /metrics: {source}")]
    HubClient {
        /// The error.
        source: BoxError,
    },
    /// The given socket can't be used.
    #[error(
        "can't serve metrics and health on the given socket: {source}. Check that it is a TCP socket that listens"
    )]
    Listener {
        /// The error of the operating system.
        source: io::Error,
    },
}

#[cfg(feature = "server")]
fn address_or_socket(address: &Option<SocketAddr>) -> String {
    address.map_or_else(|| "the given socket".to_owned(), |address| address.to_string())
}
